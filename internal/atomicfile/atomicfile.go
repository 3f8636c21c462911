// Package atomicfile replaces a file in one step: readers see either the whole old content or the
// whole new one, even if the machine stops in between. Start reading at Write.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Pending is the new content of a file while it is being written to a temporary file in the same
// directory. Commit or Discard must be called at the end.
type Pending struct {
	*os.File
	name string
	mode os.FileMode
}

// Create begins to write the new content of a file, which need not exist yet. If name is a
// symbolic link, the link itself is replaced. Until Commit, only the owner can read the content.
func Create(name string, mode os.FileMode) (*Pending, error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".mapd-*") // 0600
	if err != nil {
		return nil, err
	}
	return &Pending{f, name, mode}, nil
}

// Commit replaces the old content by the new one. If that fails, the old content stays.
func (p *Pending) Commit() error {
	err := errors.Join(p.Chmod(p.mode), p.Sync(), p.Close())
	if err == nil {
		err = os.Rename(p.File.Name(), p.name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(p.File.Name()))
	}
	return err
}

// Discard drops the new content. After Commit it does nothing.
func (p *Pending) Discard() error {
	err := errors.Join(p.Close(), os.Remove(p.File.Name()))
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Write replaces the content of a file.
func Write(name string, data []byte, mode os.FileMode) error {
	p, err := Create(name, mode)
	if err != nil {
		return err
	}
	if _, err := p.Write(data); err != nil {
		return errors.Join(err, p.Discard())
	}
	return p.Commit()
}
