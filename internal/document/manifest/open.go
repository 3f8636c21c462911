package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Bounds of the input. A directory of policies has some hundred KiB. Objects may come as a stream
// of many, of which only one is in memory.
const (
	// MaxFile is the size of a file that is kept in memory, in bytes.
	MaxFile = 64 << 20
	// MaxDocuments is how many documents such a file may have.
	MaxDocuments = 50_000
	// MaxStream is the size of a stream of objects that are read one by one.
	MaxStream = 1 << 30
	// MaxLog is the size of a log that is read line by line.
	MaxLog = 1 << 40
	// maxStreamed is how many documents a stream may have.
	maxStreamed = 1_000_000
)

// ErrManyDocuments is the error for a file with more than MaxDocuments.
var ErrManyDocuments = tooMany(MaxDocuments)

func tooMany(most int) error {
	return fmt.Errorf("more than %d documents, which is the most that is read of a file", most)
}

// openWait is how long to wait for the writer of a named pipe. A shell starts the writer of <(…)
// before the command; the wait is for people who start it by hand.
const openWait = 10 * time.Second

// Open opens a file to be read to its end. It accepts regular files, pipes, the null device
// and what standard input is, and refuses everything else, such as /dev/zero. Reading fails
// after max bytes. A named pipe has to get a writer within some seconds.
func Open(name string, max int64) (io.ReadCloser, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, opening(err)
	}
	var f *os.File
	switch mode := info.Mode(); {
	case mode.IsRegular() && info.Size() > max:
		return nil, fmt.Errorf("%s: %w", name, tooLarge(max))
	case mode.IsRegular(), isNull(info), isStdin(info):
		f, err = os.Open(name)
	case mode&fs.ModeNamedPipe != 0:
		f, err = openPipe(name, openWait)
	case mode.IsDir():
		return nil, fmt.Errorf("%s: is a directory", name)
	default:
		return nil, fmt.Errorf("%s: neither a regular file nor a pipe; use - for standard input", name)
	}
	if err != nil {
		return nil, err
	}
	return &boundedFile{bounded{r: f, left: max, max: max}, f}, nil
}

// opening returns the error that opening the file would return.
func opening(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return &fs.PathError{Op: "open", Path: pe.Path, Err: pe.Err}
	}
	return err
}

// ReadFile returns the content of a file, opened as by Open.
func ReadFile(name string, max int64) ([]byte, error) {
	f, err := Open(name, max)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, withName(name, err)
	}
	return data, nil
}

// withName adds the name of the file to an error, unless the error has it.
func withName(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// isStdin reports whether a file is standard input by another name, such as /dev/stdin.
func isStdin(info fs.FileInfo) bool {
	stdin, err := os.Stdin.Stat()
	return err == nil && os.SameFile(info, stdin)
}

// openPipe opens a pipe. Opening a named one blocks until it has a writer.
func openPipe(name string, wait time.Duration) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(name)
		done <- opened{f, err}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.f, o.err
	case <-timer.C:
	}
	// Opening the pipe for writing ends the wait of the goroutine.
	if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil {
		defer f.Close()
		if o := <-done; o.err == nil {
			o.f.Close()
		}
	}
	return nil, fmt.Errorf("%s: nothing has opened this pipe to write within %s", name, wait)
}

type boundedFile struct {
	bounded
	io.Closer
}

// Bounded returns a reader that fails after max bytes.
func Bounded(r io.Reader, max int64) io.Reader { return &bounded{r: r, left: max, max: max} }

type bounded struct {
	r         io.Reader
	left, max int64
}

func (b *bounded) Read(p []byte) (int, error) {
	// One more byte distinguishes a file of exactly the maximum size from a larger one.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		err = tooLarge(b.max)
	}
	b.left -= int64(n)
	return n, err
}

func tooLarge(max int64) error {
	return fmt.Errorf("larger than %d MiB, which is the most that is read of a file", max>>20)
}
