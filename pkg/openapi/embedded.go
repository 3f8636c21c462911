//go:build !mapd_fetch

package openapi

import (
	"embed"
	"reflect"
	"sync"

	"github.com/klauspost/compress/zstd"
)

//go:embed builtin/*.schema.zst
var schemas embed.FS

// readSchema returns an embedded schema of fewer than size bytes.
func readSchema(file string, size int) ([]byte, error) {
	data, err := schemas.ReadFile("builtin/" + file + ".zst")
	if err != nil {
		return nil, err
	}
	return decompressor().DecodeAll(data, make([]byte, 0, size))
}

var decompressor = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// descriptions returns the descriptions of a type's fields.
func descriptions(t reflect.Type) map[string]string {
	if d, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return d.SwaggerDoc()
	}
	return nil
}

// Descriptions returns, for a program with the build tag mapd_fetch, all descriptions of
// built-in kinds: by file, type and field.
func Descriptions() map[string]map[string]map[string]string {
	files := map[string]map[string]map[string]string{}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		if t = elem(t); t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			walk(f.Type)
			name := nameOf(f)
			if name == "" {
				continue
			}
			// Include a file without descriptions too, since programs will ask for it.
			file := descriptionsFile(t)
			if files[file] == nil {
				files[file] = map[string]map[string]string{}
			}
			if text := descriptions(t)[name]; text != "" {
				if files[file][t.Name()] == nil {
					files[file][t.Name()] = map[string]string{}
				}
				files[file][t.Name()][name] = text
			}
		}
	}
	for _, t := range goTypes().scheme.AllKnownTypes() {
		walk(t)
	}
	return files
}
