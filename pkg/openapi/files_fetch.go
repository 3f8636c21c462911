//go:build mapd_fetch

package openapi

import "errors"

// ReadSchema returns a file of builtin by its name, such as core_v1.schema.zst. With the
// build tag mapd_fetch the program does not have the merge schemas of the built-in kinds,
// and sets ReadSchema before it uses this package. It is called when a kind of a
// group-version is first needed, and again at the next need if it failed. Who needed it
// panics then, with the error.
var ReadSchema = func(file string) ([]byte, error) {
	return nil, errors.New("ReadSchema is not set")
}

func readSchema(file string) ([]byte, error) { return ReadSchema(file) }
