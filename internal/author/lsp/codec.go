package lsp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sourcegraph/jsonrpc2"
)

// codec is the framing of the protocol, with bounds on what a client may send. It writes as
// jsonrpc2's own does.
type codec struct {
	jsonrpc2.VSCodeObjectCodec
	// failed is why reading ended, nil at the end of the stream. It is set before the connection
	// is closed for it.
	failed atomic.Pointer[error]
}

// Bounds of a message in bytes. In JSON, a text may have six times its length.
const (
	maxMessage = 8 << 20
	maxHeader  = 4 << 10
)

var errHeader = errors.New("a message has no header that can be read")

// ReadObject implements jsonrpc2.ObjectCodec.
func (c *codec) ReadObject(stream *bufio.Reader, v any) error {
	err := readMessage(stream, v)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		c.failed.Store(&err)
	}
	return err
}

// readMessage reads one message.
func readMessage(stream *bufio.Reader, v any) error {
	length, read := -1, 0
	for {
		line, err := stream.ReadSlice('\n')
		if read += len(line); read > maxHeader || errors.Is(err, bufio.ErrBufferFull) {
			return errHeader
		}
		if err != nil {
			return err
		}
		name, value, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":")
		if name == "" {
			break
		}
		if ok && strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return errHeader
			}
		}
	}
	if length < 0 {
		return errHeader
	}
	if length > maxMessage {
		return fmt.Errorf("a message of %d bytes is larger than %d", length, maxMessage)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, stream, int64(length)); err != nil {
		return err
	}
	return json.Unmarshal(b.Bytes(), v)
}
