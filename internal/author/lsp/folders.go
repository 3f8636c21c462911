package lsp

import (
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/author/language"
)

// Bounds of what is read from the folders of an editor.
const (
	maxVisited = 100_000
	maxFiles   = 2_000
)

// nameOf returns the name of a document in the workspace: the path of a file, and the URI of
// anything else.
func nameOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" {
		return uri
	}
	path := u.Path
	if len(path) > 2 && path[0] == '/' && path[2] == ':' { // /c:/… of Windows
		path = path[1:]
	}
	return filepath.Clean(filepath.FromSlash(path))
}

var errEnough = errors.New("there are enough files")

// changeFolders forgets the files of folders that are gone, and reads those of new ones.
func (s *server) changeFolders(p changeFoldersParams) {
	s.mu.Lock()
	folders := slices.DeleteFunc(slices.Clone(s.folders), func(folder string) bool {
		return slices.ContainsFunc(p.Event.Removed, func(f workspaceFolder) bool { return nameOf(f.URI) == nameOf(folder) })
	})
	for _, f := range p.Event.Added {
		folders = append(folders, f.URI)
	}
	s.folders = folders
	s.mu.Unlock()
	for _, name := range s.workspace.Names() {
		s.reread(name)
	}
	s.scan(folders) // all of them, for their bound is one
}

// scan reads the files of folders that belong to policies.
func (s *server) scan(folders []string) {
	visited, kept := 0, 0
	for _, folder := range folders {
		root := nameOf(folder)
		if !filepath.IsAbs(root) {
			continue
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if visited++; visited > maxVisited || kept >= maxFiles {
				return errEnough
			}
			switch {
			case err != nil:
				return nil
			case d.IsDir():
				if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "vendor") {
					return fs.SkipDir
				}
			case d.Type().IsRegular() && isYAML(path):
				if s.reread(path) {
					kept++
				}
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			s.log.Printf("%s has too many files; only some are read", root)
			return
		}
	}
}

func isYAML(path string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(path)))
}

// reread makes a document that is not open what its file is: nothing, if it is gone, or if
// it does not belong to policies.
func (s *server) reread(name string) (kept bool) {
	s.mu.Lock()
	open, folders := s.open[name] != nil, s.folders
	s.mu.Unlock()
	if open {
		return false
	}
	inside := slices.ContainsFunc(folders, func(folder string) bool {
		rel, err := filepath.Rel(nameOf(folder), name)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	})
	data, err := readSmall(name)
	if !inside || err != nil || !isYAML(name) || !isRelevant(data) {
		s.workspace.Remove(name)
		return false
	}
	if err := s.workspace.Set(name, string(data)); err != nil {
		s.log.Printf("%s: %v", name, err)
		s.workspace.Remove(name)
		return false
	}
	return true
}

// readSmall reads a plain file that is not larger than a document may be.
func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > language.MaxDocument {
		return nil, errors.New("not a small file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, language.MaxDocument))
}
