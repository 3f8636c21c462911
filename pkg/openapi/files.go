//go:build !mapd_fetch

package openapi

import (
	"embed"
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
