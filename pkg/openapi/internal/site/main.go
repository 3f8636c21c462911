// Command site writes the files that a program with the build tag mapd_fetch reads: site
// BUILTIN DIR writes the merge schemas of BUILTIN and the descriptions of fields into DIR,
// compressed with gzip.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/mapd-project/mapd/pkg/openapi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("site: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: site BUILTIN DIR")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.schema.zst"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New(from + " has no schemas")
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		return err
	}
	defer dec.Close()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if data, err = dec.DecodeAll(data, nil); err != nil {
			return err
		}
		if err := write(filepath.Join(to, strings.TrimSuffix(filepath.Base(file), ".zst")), data); err != nil {
			return err
		}
	}
	for name, types := range openapi.Descriptions() {
		data, err := json.Marshal(types)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(to, name), data); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, data []byte) error {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
