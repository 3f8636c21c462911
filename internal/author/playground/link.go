package playground

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
)

// A State is the content of a link, with which a page opens: a part of the Question to the
// program in the browser, see web/app/src/state.ts.
type State struct {
	Documents []Text `json:"documents"`
	Objects   []Text `json:"objects"`
}

// A Text is YAML or JSON with a name.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Limits of a State that a page opens, see web/app/src/validate.ts.
const (
	MaxState = 4 << 20 // bytes of the JSON of a State
	maxTexts = 1000    // documents, and objects
)

const (
	// version is the first part of a link. A page that knows other versions can say so.
	version = "1."
	// maxLink is less than the maximum length of a URL in Chromium, 2 MiB.
	maxLink = 2_000_000
)

// Fragment returns the part after the "#" of a link to s: the version, and the JSON of s,
// deflated, in URL-safe base64. Browsers do not send this part to a server.
func Fragment(s State) (string, error) {
	if n := max(len(s.Documents), len(s.Objects)); n > maxTexts {
		return "", fmt.Errorf("%d files are too many: at most %d fit in a link", n, maxTexts)
	}
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
