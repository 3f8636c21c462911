package webhook

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Acted is one entry of an audit annotation of mapd: a policy or mutator and what it changed.
type Acted struct {
	// Name is policy/binding, or kind/name of a Gatekeeper mutator.
	Name   Word
	Fields []Word // JSON pointers to what changed, sorted
	More   int    // how many fields are left out
}

// Word is a name or a JSON pointer. Cut means that only its beginning is known.
type Word struct {
	Text string
	Cut  bool
}

// String returns the text, and an ellipsis if it is cut.
func (w Word) String() string {
	if w.Cut {
		return w.Text + ellipsis
	}
	return w.Text
}

// Keys of the audit annotations, without the webhook's name and the slash.
const (
	MutatedBy       = annotationMutatedBy
	FailedPolicies  = annotationFailed
	IgnoredFailures = annotationIgnored
)

// maxActed bounds how many words ParseAnnotation returns. mapd writes 4 KiB.
const maxActed = 10_000

// ParseAnnotation parses the value of an audit annotation of mapd. It returns the entries in
// order, and the number of those that are left out. An error says at which byte the value is
// invalid; the entries before it are returned too.
func ParseAnnotation(value string) (acted []Acted, more int, err error) {
	r := annotationReader{value: value}
	if value == "" {
		return nil, 0, r.errorf("empty")
	}
	for words := 0; ; words++ {
		if n, ok := r.left(); ok && len(acted) > 0 {
			return acted, n, r.end()
		}
		name, err := r.word()
		if err != nil {
			return acted, 0, err
		}
		acted = append(acted, Acted{Name: name})
		a := &acted[len(acted)-1]
		for sign := ": "; r.take(sign); sign = ", " {
			if n, ok := r.left(); ok && len(a.Fields) > 0 {
				a.More = n
				break
			}
			field, err := r.word()
			if err != nil {
				return acted, 0, err
			}
			a.Fields = append(a.Fields, field)
			if words++; words > maxActed {
				return acted, 0, r.errorf("more than %d names and fields", maxActed)
			}
		}
		switch {
		case r.at == len(value):
			return acted, 0, nil
		case words > maxActed:
			return acted, 0, r.errorf("more than %d names and fields", maxActed)
		case !r.take("; "):
			return acted, 0, r.errorf("want a separator")
		}
	}
}

type annotationReader struct {
	value string
	at    int
}

func (r *annotationReader) errorf(format string, args ...any) error {
	return fmt.Errorf("audit annotation: byte %d: %s", r.at, fmt.Sprintf(format, args...))
}

func (r *annotationReader) take(text string) bool {
	ok := strings.HasPrefix(r.value[r.at:], text)
	if ok {
		r.at += len(text)
	}
	return ok
}

func (r *annotationReader) end() error {
	if r.at < len(r.value) {
		return r.errorf("want the end")
	}
	return nil
}

// left parses "and 5 more". A plain space never follows a name or a path.
func (r *annotationReader) left() (int, bool) {
	rest, ok := strings.CutPrefix(r.value[r.at:], "and ")
	if !ok {
		return 0, false
	}
	number, _, ok := strings.Cut(rest, " more")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != number {
		return 0, false
	}
	r.at += len("and ") + len(number) + len(" more")
	return n, true
}

// word parses a word that appendWord wrote.
func (r *annotationReader) word() (w Word, err error) {
	rest := r.value[r.at:]
	if strings.HasPrefix(rest, `"`) {
		end := 1
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(rest) {
			return w, r.errorf("a quoted word has no end")
		}
		if err := json.Unmarshal([]byte(rest[:end+1]), &w.Text); err != nil {
			return w, r.errorf("a quoted word is not a JSON string")
		}
		r.at += end + 1
		w.Cut = r.take(ellipsis)
		return w, nil
	}
	end := strings.IndexAny(rest, " ,;:")
	if end < 0 {
		end = len(rest)
	}
	w.Text, w.Cut = strings.CutSuffix(rest[:end], ellipsis)
	if !isPlain(w.Text) && !(w.Cut && w.Text == "") {
		return w, r.errorf("want a name or a path")
	}
	r.at += end
	return w, nil
}
