package main

import (
	"bytes"

	"github.com/mapd-project/mapd/internal/output/report"
)

// unwritable is the error for a decision that cannot be written in the requested format. It is
// about one object; other errors of a printer are about its writer.
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
