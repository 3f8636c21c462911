package manifest

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Target returns the file to write for name, which is another one if name is a link. A link
// comes with the files of a repository, so it may only lead to where the user wants files to
// be changed: below the directory that it is in, or below a directory among paths.
func Target(name string, paths []string) (string, error) {
	file, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", fileError(err)
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Dir(name)}, paths...) {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // standard input is among paths, too
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return "", err
		}
		if rest, err := filepath.Rel(dir, full); err == nil && rest != "." && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator)) {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: a link to %s, which is outside of its directory and of those that are named, so it is not written; name the file itself", name, file)
}
