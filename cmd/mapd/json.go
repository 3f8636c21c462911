package main

import (
	"bytes"

	"github.com/mapd-project/mapd/internal/output/report"
)

// unwritable is why a decision has no text in the format that is asked for. It is the
// fault of one object; other errors of a printer are of its writer.
type unwritable struct{ error }

func (u unwritable) Unwrap() error { return u.error }

// marshal returns a value as JSON.
func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	if err := report.WriteJSON(&b, v, indent); err != nil {
		return nil, unwritable{err}
	}
	return b.Bytes(), nil
}
