package blame

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// maxLine bounds a line of an audit log in bytes. A request and its response have at
	// most 3 MiB each, and a batch of a server has 10 MiB.
	maxLine = 16 << 20
	// endlessLine is the size of a line after which reading of the file ends with an error.
	endlessLine = 4 * maxLine
	// maxUnusable bounds the bad lines at the beginning of a file. If all of so many lines are bad,
	// the file is no audit log, and reading it ends with an error.
	maxUnusable = 10_000
	// maxNamed is how many bad lines Complaints has; the others are only counted.
	maxNamed = 10
)

// Log reads audit logs one after the other, and finds what was done to an object. The memory that
// it uses does not depend on the length of the logs.
type Log struct {
	target    *Target
	needle    []byte
	resources [][]byte
	emit      func(Line) error

	// Read and Bad count lines, Events those events of the object that were used.
	Read, Bad, Events int
	// Complaints name the first bad lines, by file and number, and never quote them.
	Complaints []string

	last     any // the object in the last response; nil if no response had it
	nameless nameless
}

// NewLog returns a reader that calls emit with each line of the answer, in the order of
// the log. An error of emit ends the reading.
func NewLog(target *Target, emit func(Line) error) *Log {
	l := &Log{target: target, needle: []byte(target.Name), emit: emit}
	for _, r := range target.Resources {
		l.resources = append(l.resources, []byte(`"`+r.Resource+`"`))
	}
	return l
}

// ReadFile reads the lines of a log, which is decompressed if its name ends with .gz. Bad lines
// are counted and skipped. ReadFile fails if r or emit does, or if the file is no audit log.
func (l *Log) ReadFile(name string, r io.Reader) error {
	if strings.HasSuffix(name, ".gz") {
		unzipped, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r = unzipped
	}
	bad := l.Bad
	lines := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for number := 1; ; number++ {
		var tooLong bool
		var err error
		line, tooLong, err = readLine(lines, line[:0])
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		end := err != nil
		if number > maxUnusable && l.Bad-bad == number-1 {
			return fmt.Errorf("%s: the first %d lines are no audit events, so the file is no audit log", name, maxUnusable)
		}
		text := bytes.TrimSpace(line)
		switch {
		case tooLong:
			l.Read++
			l.complain(name, number, fmt.Sprintf("longer than %d MiB", maxLine>>20))
		case len(text) > 0:
			l.Read++
			if why, err := l.line(text); err != nil {
				return err
			} else if why != "" {
				if end {
					why += "; the file ends in it"
				}
				l.complain(name, number, why)
			}
		}
		if end {
			return nil
		}
	}
}

// End emits the lines that are certain only after the last log: those of creations without a name.
func (l *Log) End() error { return l.flushNameless() }

// readLine reads a line into buf. If the line is longer than maxLine, readLine skips it, and
// returns an empty line and true.
func readLine(r *bufio.Reader, buf []byte) (line []byte, tooLong bool, err error) {
	for size := 0; ; {
		part, err := r.ReadSlice('\n')
		if size += len(part); size > endlessLine {
			return nil, true, fmt.Errorf("longer than %d MiB, so the file is no audit log", endlessLine>>20)
		}
		if !tooLong {
			if tooLong = len(buf)+len(part) > maxLine; tooLong {
				buf = buf[:0]
			} else {
				buf = append(buf, part...)
			}
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, tooLong, err
		}
	}
}

func (l *Log) complain(file string, number int, why string) {
	if l.Bad++; l.Bad <= maxNamed {
		l.Complaints = append(l.Complaints, fmt.Sprintf("%s:%d: %s", file, number, why))
	}
}

// auditEvent has the fields of an Event of audit.k8s.io/v1 that are used here.
type auditEvent struct {
	Kind             string      `json:"kind"`
	APIVersion       string      `json:"apiVersion"`
	Level            string      `json:"level"`
	Stage            string      `json:"stage"`
	RequestURI       string      `json:"requestURI"`
	Verb             string      `json:"verb"`
	User             auditUser   `json:"user"`
	ImpersonatedUser *auditUser  `json:"impersonatedUser"`
	ObjectRef        auditObject `json:"objectRef"`
	ResponseStatus   struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject  json.RawMessage   `json:"requestObject"`
	ResponseObject json.RawMessage   `json:"responseObject"`
	Received       Time              `json:"requestReceivedTimestamp"`
	Annotations    map[string]string `json:"annotations"`
}

type auditUser struct {
	Username string `json:"username"`
}

type auditObject struct {
	Resource    string `json:"resource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	UID         string `json:"uid"`
	APIGroup    string `json:"apiGroup"`
	Subresource string `json:"subresource"`
}

// line processes one line, which is an event or a batch of events. why says what is wrong with the
// line, "" if nothing is; err is an error of emit.
func (l *Log) line(text []byte) (why string, err error) {
	if text[0] != '{' || text[len(text)-1] != '}' {
		return "not a JSON object on one line", nil
	}
	// Most lines are about other objects, and searching a line for the name costs less than
	// decoding it. The event of a creation may lack the name.
	if !bytes.Contains(text, l.needle) && !(bytes.Contains(text, []byte(`"create"`)) && slices.ContainsFunc(l.resources, func(r []byte) bool { return bytes.Contains(text, r) })) {
		return "", nil
	}
	var e struct {
		auditEvent
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return "not an audit event: " + mistake(err), nil
	}
	if !strings.HasPrefix(e.APIVersion, "audit.k8s.io/") {
		return "not an audit event: its apiVersion is not audit.k8s.io/v1", nil
	}
	switch e.Kind {
	case "Event":
		return "", l.event(&e.auditEvent)
	case "EventList":
	default:
		return "not an audit event: its kind is neither Event nor EventList", nil
	}
	for i, item := range e.Items {
		var one auditEvent
		if err := json.Unmarshal(item, &one); err != nil {
			why = fmt.Sprintf("items[%d] is not an audit event: %s", i, mistake(err))
			continue
		}
		if err := l.event(&one); err != nil {
			return "", err
		}
	}
	return why, nil
}

// mistake returns a text for a decoder's error that does not quote the input.
func mistake(err error) string {
	var typed *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typed):
		return strings.TrimPrefix(typed.Field, "auditEvent.") + " has the wrong type"
	case errors.As(err, &syntax):
		return fmt.Sprintf("wrong JSON at byte %d", syntax.Offset)
	}
	return "a time or another value cannot be read"
}
