package playground

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
)

// A State is what a link carries and a page opens with. It is a part of the Question of
// the program for the browser, see web/evaluate.go and web/app/src/state.ts.
type State struct {
	Documents []Text `json:"documents"`
	Objects   []Text `json:"objects"`
}

// A Text is YAML or JSON with a name.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

const (
	// MaxState is the size of the JSON of a State that a page opens at most.
	MaxState = 4 << 20
	// maxLink is below what Chromium takes as a URL, 2 MiB.
	maxLink = 2_000_000
)

// version is the first part of a link. A page that knows other versions can say so.
const version = "1."

// Fragment returns what stands behind the "#" of a link to s: the version, and the JSON of
// s, deflated, in base64 for URLs. A browser does not send this part to a server.
func Fragment(s State) (string, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return "", err
	}
	if text.Len() > MaxState {
		return "", fmt.Errorf("the files have %d bytes as JSON: at most %d fit in a link", text.Len(), MaxState)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.DefaultCompression)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(w, &text); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	link := version + base64.RawURLEncoding.EncodeToString(packed.Bytes())
	if len(link) > maxLink {
		return "", fmt.Errorf("a link to the files has %d bytes: at most %d, since a browser opens none that is longer", len(link), maxLink)
	}
	return link, nil
}
