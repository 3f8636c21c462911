// Package atomicfile replaces a file in one step: whoever reads it sees all of the old
// content or all of the new one, also if the machine stops in between.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Pending is the new content of a file while it is being written, in a file of its own
// beside it. Commit or Discard ends it.
type Pending struct {
	*os.File
	name string
	mode os.FileMode
}

// Create begins the new content of a file, which need not be there yet. If name is a
// symbolic link, the link is what gets replaced. Until Commit, only the owner can read it.
func Create(name string, mode os.FileMode) (*Pending, error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".mapd-*") // 0600
	if err != nil {
		return nil, err
	}
	return &Pending{f, name, mode}, nil
}

// Commit puts the new content in the place of the old one. If it cannot, the old one
// stays.
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

// Discard leaves the file as it is. After Commit it does nothing.
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
