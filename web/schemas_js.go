//go:build js && mapd_fetch

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall/js"
)

// maxSchema bounds a file, in bytes.
const maxSchema = 8 << 20

// schemas asks the page for files of schemas, and of descriptions of fields.
type schemas struct {
	mu          sync.Mutex
	failed      int
	last        error
	undescribed error // why a file of descriptions could not be read during the present call
}

// read waits for a file and returns it. globalThis.mapdSchema(name) returns a promise of a
// Uint8Array with the file compressed by gzip.
func (s *schemas) read(name string) ([]byte, error) {
	data, err := fetch(name)
	if err != nil {
		err = fmt.Errorf("the schema %s could not be had, without which there is no answer: %w", name, err)
		s.mu.Lock()
		s.failed++
		s.last = err
		s.mu.Unlock()
	}
	return data, err
}

// failures returns how many files could not be read so far, and the last error. If the number grew
// during a call, the call must return that error and not its answer: otherwise a policy whose
// schema could not be read would look like one that fails.
func (s *schemas) failures() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed, s.last
}

// describe waits for a file of descriptions and returns it. If a file could not be read, describe
// asks for no other one until the next call begins, so that a call waits in vain at most once.
func (s *schemas) describe(name string) ([]byte, error) {
	s.mu.Lock()
	err := s.undescribed
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	data, err := fetch(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undescribed = err
	return data, err
}

// begin must be called when a call begins. It returns how many schemas could not be read so far.
func (s *schemas) begin() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undescribed = nil
	return s.failed
}

func fetch(name string) ([]byte, error) {
	ask := js.Global().Get("mapdSchema")
	if ask.Type() != js.TypeFunction {
		return nil, errors.New("the page does not have mapdSchema")
	}
	type file struct {
		data []byte
		err  error
	}
	got := make(chan file, 1)
	then := js.FuncOf(func(_ js.Value, args []js.Value) any {
		data := make([]byte, args[0].Get("length").Int())
		js.CopyBytesToGo(data, args[0])
		got <- file{data: data}
		return nil
	})
	defer then.Release()
	failed := js.FuncOf(func(_ js.Value, args []js.Value) any {
		got <- file{err: errors.New(js.Global().Get("String").Invoke(args[0]).String())}
		return nil
	})
	defer failed.Release()
	ask.Invoke(name).Call("then", then, failed)
	f := <-got
	if f.err != nil {
		return nil, f.err
	}
	r, err := gzip.NewReader(bytes.NewReader(f.data))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, maxSchema+1))
	if err == nil && len(data) > maxSchema {
		err = errors.New("it is too large")
	}
	return data, err
}
