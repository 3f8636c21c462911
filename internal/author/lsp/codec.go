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
	// refuse answers a message that is none of JSON-RPC.
	refuse func(code int64, text string)
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

// ReadObject implements jsonrpc2.ObjectCodec. What is no message is refused, and the next one
// is read.
func (c *codec) ReadObject(stream *bufio.Reader, v any) error {
	data, err := readMessage(stream)
	for ; err == nil; data, err = readMessage(stream) {
		if json.Unmarshal(data, v) == nil {
			return nil
		}
		if json.Valid(data) {
			c.refuse(jsonrpc2.CodeInvalidRequest, "the message is no request, notification or response of JSON-RPC 2.0")
		} else {
			c.refuse(jsonrpc2.CodeParseError, "the message is no JSON")
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		c.failed.Store(&err)
	}
	return err
}

// readMessage reads the text of one message.
func readMessage(stream *bufio.Reader) ([]byte, error) {
	length, read := -1, 0
	for {
		line, err := stream.ReadSlice('\n')
		if read += len(line); read > maxHeader || errors.Is(err, bufio.ErrBufferFull) {
			return nil, errHeader
		}
		if err != nil {
			return nil, err
		}
		name, value, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), ":")
		if name == "" {
			break
		}
		if ok && strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return nil, errHeader
			}
		}
	}
	if length < 0 {
		return nil, errHeader
	}
	if length > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes is larger than %d", length, maxMessage)
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, stream, int64(length))
	return b.Bytes(), err
}
