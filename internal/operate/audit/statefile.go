package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mapd-project/mapd/internal/atomicfile"
	"github.com/mapd-project/mapd/internal/document/manifest"
)

// ReadState reads what WriteState has written; nil if there is no such file.
func ReadState(file string) (*State, error) {
	text, err := manifest.ReadFile(file, manifest.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(text, s); err != nil || s.Digest == "" {
		return nil, fmt.Errorf("%s: it is no state of an audit; delete it to begin again", file)
	}
	return s, nil
}

// WriteState replaces the state file atomically. Only its owner may read the file, because it has
// values of objects.
func WriteState(file string, s *State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, text, 0o600)
}
