package language

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// site is the position of the cursor in a document. It is found line by line and without a YAML
// parser, because a document that is being edited is seldom valid YAML.
type site struct {
	// start and end are those of the document in its file.
	start, end int
	// path are keys and indices that lead to the cursor.
	path []string
	// value are the lines of the scalar that the cursor is in.
	value []segment
	// from and to are the offsets of the text to replace for a document without the scalar.
	from, to int
	// text is the scalar without indentation and quotes, cursor an offset in it.
	text   string
	cursor int
	inside bool // the cursor is in the scalar
}

// segment is a line of a scalar.
type segment struct {
	at   int // offset in the file
	text string
}

// line is a line of the document with its offset in the file.
type line struct {
	at   int
	text string
}

// entry is a key or an element on the way to a line.
type entry struct {
	indent int
	name   string
	index  int
	item   bool
}

// expressionKeys are the keys whose value is an expression.
var expressionKeys = map[string]bool{"expression": true, "messageExpression": true, "valueExpression": true}

// scalar is a value while its lines are read.
type scalar struct {
	indent   int // of its key
	block    bool
	from     int // where its text begins, behind the colon
	segments []segment
	path     []string
	hit      bool
}

// locate finds the site of an offset of a text.
func locate(text string, offset int) site { return walk(text, offset, nil) }

// walk is locate. each, if it is not nil, is called with all scalars of the document.
func walk(text string, offset int, each func(site)) site {
	s := site{end: len(text)}
	var lines []line
	for at := 0; at <= len(text); {
		end := strings.IndexByte(text[at:], '\n')
		next := at + end + 1
		if end < 0 {
			end, next = len(text)-at, len(text)+1
		}
		l := line{at, strings.TrimSuffix(text[at:at+end], "\r")}
		if l.text == "---" || l.text == "..." || strings.HasPrefix(l.text, "--- ") {
			if at > offset {
				s.end = at
				break
			}
			s.start, lines = min(next, len(text)), nil
		} else {
			lines = append(lines, l)
		}
		at = next
	}
	var stack []entry
	var value *scalar
	inBraces := func(l line) {
		if each == nil {
			return
		}
		for _, v := range braced(l, names(stack)) {
			one := site{start: s.start, end: s.end}
			one.take(v, offset)
			each(one)
		}
	}
	finish := func() bool {
		v := value
		value = nil
		if v != nil && each != nil {
			one := site{start: s.start, end: s.end}
			one.take(v, offset)
			each(one)
		}
		if v == nil || !v.hit || each != nil {
			return false
		}
		s.take(v, offset)
		return true
	}
	for i, l := range lines {
		trimmed := strings.TrimLeft(l.text, " ")
		indent := len(l.text) - len(trimmed)
		here := offset >= l.at && offset <= l.at+len(l.text)
		if value != nil {
			if strings.TrimSpace(trimmed) == "" || indent > value.indent {
				value.segments = append(value.segments, segment(l))
				// An empty line after the value belongs to the next key, unless the cursor is
				// deeper than the value's key.
				value.hit = value.hit || here && (offset-l.at > value.indent || strings.TrimSpace(trimmed) != "" || goesOn(lines[i+1:], value.indent))
				continue
			}
			if finish() {
				return s
			}
		}
		if strings.TrimSpace(trimmed) == "" || trimmed[0] == '#' {
			if here {
				s.path = pathOf(stack, offset-l.at)
			}
			continue
		}
		column := indent
		for trimmed == "-" || strings.HasPrefix(trimmed, "- ") {
			stack = item(stack, column)
			rest := strings.TrimLeft(trimmed[1:], " ")
			column += len(trimmed) - len(rest)
			trimmed = rest
		}
		key, rest, ok := cutKey(trimmed)
		if !ok {
			braces := line{l.at + len(l.text) - len(trimmed), trimmed}
			inBraces(braces)
			if here && each == nil && s.inBraces(braces, names(stack), offset) {
				return s
			}
			if here {
				s.path = names(stack)
			}
			continue
		}
		for len(stack) > 0 && stack[len(stack)-1].indent >= column {
			stack = stack[:len(stack)-1]
		}
		stack = append(stack, entry{indent: column, name: key})
		if here {
			s.path = names(stack)
		}
		content := strings.TrimLeft(rest, " ")
		from := l.at + len(l.text) - len(rest)
		behind := offset > from-1
		braces := line{l.at + len(l.text) - len(content), content}
		inBraces(braces)
		if here && each == nil && s.inBraces(braces, names(stack), offset) {
			return s
		}
		switch {
		case content != "" && (content[0] == '|' || content[0] == '>'):
			value = &scalar{indent: column, block: true, from: from, path: names(stack)}
		case content == "" || content[0] == '#':
			if expressionKeys[key] {
				value = &scalar{indent: column, from: from, path: names(stack), hit: here && behind}
				value.segments = []segment{{from + len(rest) - len(content), ""}}
			}
		default:
			value = &scalar{indent: column, from: from, path: names(stack), hit: here && behind}
			value.segments = []segment{{l.at + len(l.text) - len(content), content}}
		}
	}
	finish()
	return s
}

// goesOn reports whether the first of some lines that is not empty is deeper than a column.
func goesOn(lines []line, indent int) bool {
	for _, l := range lines {
		if trimmed := strings.TrimLeft(l.text, " "); strings.TrimSpace(trimmed) != "" {
			return len(l.text)-len(trimmed) > indent
		}
	}
	return false
}

// keyInBraces is the key of an expression in a mapping that stands on one line.
var keyInBraces = regexp.MustCompile(`[{,]\s*(expression|messageExpression|valueExpression):\s`)

// inBraces makes the site that of the expression at an offset in a mapping such as
// {name: a, expression: b}, and reports whether there is one. path leads to the mapping.
func (s *site) inBraces(l line, path []string, offset int) bool {
	if offset < l.at {
		return false
	}
	for _, v := range braced(l, path) {
		if one := v.segments[0]; offset >= one.at && offset <= one.at+len(one.text) {
			s.take(v, offset)
			return true
		}
	}
	return false
}

// braced are the expressions of a mapping that stands on one line.
func braced(l line, path []string) (out []*scalar) {
	if !strings.HasPrefix(l.text, "{") {
		return nil
	}
	for _, m := range keyInBraces.FindAllStringSubmatchIndex(l.text, -1) {
		value := l.text[m[1]:]
		value = value[len(value)-len(strings.TrimLeft(value, " ")):]
		start := len(l.text) - len(value)
		end := strings.IndexAny(value, ",}")
		if value != "" && (value[0] == '"' || value[0] == '\'') {
			one := []segment{{0, value}}
			unquote(one)
			if end = len(one[0].text) + 2; end > len(value) {
				end = len(value)
			}
		}
		if end < 0 {
			end = len(value)
		}
		out = append(out, &scalar{
			from: l.at + m[1] - 1, segments: []segment{{l.at + start, value[:end]}}, path: append(slices.Clone(path), l.text[m[2]:m[3]]),
		})
	}
	return out
}

// item adds an element at a column to the way.
func item(stack []entry, column int) []entry {
	for len(stack) > 0 && stack[len(stack)-1].indent > column {
		stack = stack[:len(stack)-1]
	}
	if at := len(stack) - 1; at >= 0 && stack[at].item && stack[at].indent == column {
		stack[at].index++
		return stack
	}
	return append(stack, entry{indent: column, item: true})
}

// cutKey cuts a line behind its key and the colon.
func cutKey(text string) (key, rest string, ok bool) {
	i := strings.IndexByte(text, ':')
	if i <= 0 || i+1 < len(text) && text[i+1] != ' ' {
		return "", "", false
	}
	key = strings.Trim(text[:i], `"'`)
	if strings.ContainsAny(key, " \t{}[]\"'()#") || key == "" {
		return "", "", false
	}
	return key, text[i+1:], true
}

func names(stack []entry) []string {
	out := make([]string, len(stack))
	for i, e := range stack {
		out[i] = e.name
		if e.item {
			out[i] = strconv.Itoa(e.index)
		}
	}
	return out
}

// pathOf is names for a line without content on which somebody begins to write at a column.
func pathOf(stack []entry, column int) []string {
	for len(stack) > 0 && stack[len(stack)-1].indent >= column {
		stack = stack[:len(stack)-1]
	}
	return names(stack)
}

// take makes the site that of a scalar.
func (s *site) take(v *scalar, offset int) {
	s.path, s.inside, s.from = v.path, true, v.from
	deep := -1
	for i := range v.segments {
		seg := &v.segments[i]
		blank := strings.TrimSpace(seg.text) == ""
		if v.block && deep < 0 && !blank {
			deep = len(seg.text) - len(strings.TrimLeft(seg.text, " "))
		}
		cut := len(seg.text) - len(strings.TrimLeft(seg.text, " "))
		if v.block && deep >= 0 {
			cut = min(cut, deep)
		}
		if i == 0 && !v.block {
			cut = 0
		}
		s.to = seg.at + len(seg.text)
		seg.at, seg.text = seg.at+cut, seg.text[cut:]
	}
	s.to = max(s.to, s.from)
	if !v.block {
		unquote(v.segments)
	}
	var b strings.Builder
	for i, seg := range v.segments {
		if i > 0 {
			b.WriteByte('\n')
		}
		if offset >= seg.at && offset <= seg.at+len(seg.text) {
			s.cursor = b.Len() + offset - seg.at
		} else if offset > seg.at {
			s.cursor = b.Len() + len(seg.text)
		}
		b.WriteString(seg.text)
	}
	s.value, s.text = v.segments, b.String()
}

// unquote takes the quotes from a scalar that begins on the line of its key, or the comment
// behind it. Escapes become as many characters, so that offsets stay.
func unquote(segments []segment) {
	first := -1
	for i := range segments {
		if segments[i].text != "" {
			first = i
			break
		}
	}
	if first < 0 {
		return
	}
	switch seg := &segments[first]; seg.text[0] {
	case '"', '\'':
		quote := seg.text[0]
		seg.at, seg.text = seg.at+1, seg.text[1:]
		for i := first; i < len(segments); i++ {
			seg := &segments[i]
			b := []byte(seg.text)
			for j := 0; j < len(b); j++ {
				switch {
				case quote == '"' && b[j] == '\\' && j+1 < len(b):
					if b[j+1] == '"' || b[j+1] == 'n' || b[j+1] == 't' {
						b[j] = ' '
					}
					if b[j+1] == 'n' || b[j+1] == 't' {
						b[j+1] = ' '
					}
					j++
				case b[j] == quote && quote == '\'' && j+1 < len(b) && b[j+1] == quote:
					b[j+1] = ' '
					j++
				case b[j] == quote:
					seg.text = string(b[:j])
					for k := i + 1; k < len(segments); k++ {
						segments[k].text = ""
					}
					return
				}
			}
			seg.text = string(b)
		}
	default:
		for i := range segments {
			if j := strings.Index(segments[i].text, " #"); j >= 0 {
				segments[i].text = segments[i].text[:j]
			}
		}
	}
}

// offset returns the offset in the file of an offset in the scalar.
func (s *site) offset(at int) int {
	for _, seg := range s.value {
		if at <= len(seg.text) {
			return seg.at + at
		}
		at -= len(seg.text) + 1
	}
	if n := len(s.value); n > 0 {
		return s.value[n-1].at + len(s.value[n-1].text)
	}
	return 0
}

// repaired returns the document with its expressions in quotes, because an expression on one
// line, such as Object{a: b}, may be invalid YAML.
func (s *site) repaired(text string) string {
	var b strings.Builder
	at := s.start
	walk(text, s.start, func(one site) {
		if !expressionKeys[one.key()] || one.from < at || one.to < one.from {
			return
		}
		quoted, err := json.Marshal(one.text)
		if err != nil {
			return
		}
		b.WriteString(text[at:one.from])
		b.WriteByte(' ')
		b.Write(quoted)
		at = one.to
	})
	b.WriteString(text[at:max(s.end, at)])
	return b.String()
}

// key is the last key of the path.
func (s *site) key() string {
	if len(s.path) == 0 {
		return ""
	}
	return s.path[len(s.path)-1]
}

// without returns the document with another value in the place of the scalar.
func (s *site) without(text string) string {
	if !s.inside {
		return text[s.start:s.end]
	}
	return text[s.start:s.from] + " x" + text[max(s.to, s.from):max(s.end, s.to)]
}
