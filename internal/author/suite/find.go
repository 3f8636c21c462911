package suite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fileNames are the names of files that are suites.
var fileNames = []string{"mapd-test.yaml", "mapd-test.yml", "kyverno-test.yaml", "kyverno-test.yml"}

// Find returns the files of suites. A file stands for itself, and a directory for the suites in
// it; suites of gator may have any name. DIR/... stands for the suites in all directories below
// DIR, except those that are named testdata, vendor or node_modules or begin with a dot or an
// underscore. A path without suites is an error.
func Find(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		dir, all := strings.CutSuffix(path, "...")
		if all {
			dir = filepath.Clean(strings.TrimSuffix(dir, "/"))
		}
		info, err := os.Stat(dir)
		if err != nil {
			var of *fs.PathError
			if errors.As(err, &of) {
				err = of.Err
			}
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		found := []string{dir}
		if info.IsDir() {
			if found, err = below(dir, all); err != nil {
				return nil, err
			}
		}
		if len(found) == 0 {
			deeper := ""
			if !all {
				deeper = strings.TrimSuffix(path, "/") + "/... looks below, too, and "
			}
			return nil, fmt.Errorf("%s: no suites (mapd-test.yaml, kyverno-test.yaml, or suites of gator); %smapd test --generate POLICY writes one", path, deeper)
		}
		for _, file := range found {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}

func below(dir string, all bool) (found []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir:
		case d.IsDir() && (!all || ignored(d.Name())):
			return fs.SkipDir
		case d.IsDir():
		case slices.Contains(fileNames, d.Name()), isGator(path):
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

func ignored(dir string) bool {
	return slices.Contains([]string{"testdata", "vendor", "node_modules"}, dir) || strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_")
}

// Watched returns the files and directories to watch for changes of suites: paths, the
// directories of files, and the files that suites name elsewhere.
func Watched(paths, files []string) []string {
	var out []string
	add := func(path string) {
		if _, err := os.Stat(path); err == nil && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	for _, path := range paths {
		dir, _ := strings.CutSuffix(path, "...")
		add(filepath.Clean(dir))
	}
	for _, file := range files {
		add(filepath.Dir(file))
		suites, _ := Read(file) // running says what is wrong
		for _, s := range suites {
			for _, name := range s.Policies {
				matches, _ := filepath.Glob(s.near(name))
				for _, m := range append(matches, s.near(name)) {
					add(m)
				}
			}
		}
	}
	return out
}
