package report

import (
	"encoding/json"
	"io"
)

// WriteJSON writes a value as JSON, with characters that HTML would escape as they are.
// Without an indent it is one line.
func WriteJSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(v)
}
