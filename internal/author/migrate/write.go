package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Write puts files into a directory, which it creates if needed: all of them, or none. The
// comment at the top of each has Marker(by). If a file of the same name without this marker
// exists, it returns an error and changes nothing.
//
// stale names the files that an earlier Write left in the directory and that are not among files:
// somebody who applies the directory would apply them too.
func Write(dir, by string, files []File) (stale []string, err error) {
	before := map[string][]byte{} // the content of files that are replaced
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		data, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !ours(data, by):
			return nil, fmt.Errorf("%s: is there and was not written by %s; move it away or choose another directory", path, by)
		}
		before[f.Name] = data
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	temporary, err := os.MkdirTemp(dir, ".mapd-migrate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(temporary, f.Name), f.Data, 0o666); err != nil {
			return nil, err
		}
	}
	if err := place(dir, temporary, files, before); err != nil {
		return nil, err
	}
	return left(dir, by, files)
}

// place moves files into dir. If it cannot move one, it restores the others.
func place(dir, temporary string, files []File, before map[string][]byte) error {
	for i, f := range files {
		if err := os.Rename(filepath.Join(temporary, f.Name), filepath.Join(dir, f.Name)); err != nil {
			return errors.Join(err, restore(dir, files[:i], before))
		}
	}
	return nil
}

// restore undoes place.
func restore(dir string, files []File, before map[string][]byte) error {
	var errs []error
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if data, ok := before[f.Name]; ok {
			errs = append(errs, os.WriteFile(path, data, 0o666))
		} else {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// left returns the files in dir that Write wrote and that are not among files.
func left(dir, by string, files []File) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".yaml") ||
			slices.ContainsFunc(files, func(f File) bool { return f.Name == e.Name() }) {
			continue
		}
		if data, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && ours(data, by) {
			stale = append(stale, filepath.Join(dir, e.Name()))
		}
	}
	return stale, nil
}

// ours reports whether the comment at the top of a file has the marker.
func ours(data []byte, by string) bool {
	for line := range bytes.Lines(data) {
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case string(line) == Marker(by):
			return true
		case len(line) > 0 && line[0] != '#':
			return false
		}
	}
	return false
}
