package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// extensions are the files of a directory that count, as with kubectl.
var extensions = []string{".yaml", ".yml", ".json"}

// Files expands paths: a file is itself, a directory becomes its .yaml, .yml
// and .json files in the order of their names (with recursive, those of its
// subdirectories too), Stdin stays. Every file that is returned existed a moment
// ago. Hidden directories are skipped when recursing, except that a mounted
// ConfigMap's links into its hidden ..data are followed, because they are
// files to us.
func Files(paths []string, recursive bool) ([]string, error) {
	var files []string
	for _, path := range paths {
		if path == Stdin {
			files = append(files, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fileError(err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		found, err := inDirectory(path, recursive)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: no %s files in this directory", path, strings.Join(extensions, ", "))
		}
		files = append(files, found...)
	}
	return files, nil
}

func inDirectory(dir string, recursive bool) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == dir {
			return nil
		}
		if d.IsDir() {
			if !recursive || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, strings.ToLower(filepath.Ext(path))) {
			return nil
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return err
		}
		found = append(found, path)
		return nil
	})
	return found, fileError(err)
}

// fileError returns err with the name of the file and without that of the system call.
func fileError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	return err
}
