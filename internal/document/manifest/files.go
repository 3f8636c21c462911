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

// Files expands paths. A file stands for itself. A directory stands for its .yaml, .yml and .json
// files in the order of their names; with recursive, also for those of its subdirectories. Stdin
// stays. Every returned file existed during the call. Hidden subdirectories are skipped, but links
// into the hidden ..data directory of a mounted ConfigMap are followed, because they count as
// files. Files of directories that have no objects, such as a kustomization.yaml, are skipped and
// counted.
func Files(paths []string, recursive bool) (files []string, skipped Skipped, err error) {
	skipped = Skipped{}
	err = eachFile(paths, recursive, func(file string, found bool) {
		if found {
			if what := foreign(file); what != "" {
				skipped[what]++
				return
			}
		}
		files = append(files, file)
	})
	return files, skipped, err
}

// eachFile calls yield for each file. found: the file was found in a directory, and no path names
// it.
func eachFile(paths []string, recursive bool, yield func(file string, found bool)) error {
	for _, path := range paths {
		if path == Stdin {
			yield(path, false)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			if strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://") {
				return fmt.Errorf("%s: URLs are not read; pass what they have on standard input, as with curl -sSf %s | mapd …", path, path)
			}
			return fileError(err)
		}
		if !info.IsDir() {
			yield(path, false)
			continue
		}
		found, err := inDirectory(path, recursive)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			hint := ""
			if below, err := inDirectory(path, true); !recursive && err == nil && len(below) > 0 {
				hint = fmt.Sprintf("; -R reads those below it, such as %s", below[0])
			}
			return fmt.Errorf("%s: no %s files in this directory%s", path, strings.Join(extensions, ", "), hint)
		}
		for _, file := range found {
			yield(file, true)
		}
	}
	return nil
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
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: not a regular file; in a directory only those are read", path)
		}
		found = append(found, path)
		return nil
	})
	return found, fileError(err)
}

// fileError returns err with the name of the file and without the name of the system call.
func fileError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	return err
}
