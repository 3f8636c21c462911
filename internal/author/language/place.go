package language

import (
	"iter"
	"strings"
)

// place is the position of the cursor in the YAML of a document. Like a site, it is found line by
// line from the columns, because a document that is being edited is seldom valid YAML.
type place struct {
	nodes []node
	// node is the index of the mapping, list or value at the cursor; -1 if nothing can be
	// completed there, as in a comment or in a text of several lines.
	node int
	// value: the cursor is after the key of node, or in a list between brackets. Otherwise it is
	// where a key of node can be, or node itself if it has no keys.
	value bool
	// word is the text before the cursor in the word at the cursor, and from and to are the
	// offsets of the whole word in the file.
	word     string
	from, to int
	// keyed: a colon follows. lead is the text that has to precede an inserted word.
	keyed bool
	lead  string
}

// node is a value of a document: of a key or of an element of a list. The first is the
// document.
type node struct {
	parent int
	name   string
	item   bool
	index  int
	at     int // offset of the key or the dash in the file

	keys       []int // nodes of its keys
	items      []int // nodes of its elements
	scalar     string
	value, end int // of the scalar
}

// maxNodes bounds what is remembered of a document.
const maxNodes = 100_000

// level is a node to which the following lines may belong.
type level struct {
	indent int
	node   int
	item   bool
}

// finder finds a place.
type finder struct {
	text   string
	offset int
	place  place
	stack  []level
	done   bool // the place is found
}

// placeAt finds the place of an offset of a text.
func placeAt(text string, offset int) place {
	start, end := documentAround(text, offset)
	return placeIn(text, start, end, offset)
}

// placeIn is placeAt for a document that begins and ends at offsets.
func placeIn(text string, start, end, offset int) place {
	f := finder{text: text, offset: offset, place: place{nodes: []node{{parent: -1, at: start}}, node: -1}}
	if first := strings.TrimLeft(text[start:end], " \t\r\n"); first != "" && (first[0] == '{' || first[0] == '[') {
		return f.place // JSON
	}
	f.lines(start, end)
	return f.place
}

// documentAround returns where the document of an offset begins and ends.
func documentAround(text string, offset int) (start, end int) {
	for d := range documentsOf(text) {
		start, end = d.from, d.to
		if d.to > offset {
			break
		}
	}
	return start, end
}

// span is a part of a text.
type span struct{ from, to int }

// documentsOf yields where each document of a text begins and ends: at a mark.
func documentsOf(text string) iter.Seq[span] {
	return func(yield func(span) bool) {
		start := 0
		for at := 0; at < len(text); {
			next := nextLine(text, at)
			if isMark(strings.TrimRight(text[at:next], "\r\n")) {
				if !yield(span{start, at}) {
					return
				}
				start = next
			}
			at = next
		}
		yield(span{start, len(text)})
	}
}

// isMark reports whether a line divides documents.
func isMark(line string) bool {
	return line == "---" || line == "..." || strings.HasPrefix(line, "--- ")
}

// nextLine returns where the line behind the one at an offset begins.
func nextLine(text string, at int) int {
	if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}

func (f *finder) lines(start, end int) {
	if f.offset < start {
		return // on the line that begins the document
	}
	text := f.text[:end]
	for at := start; at < end || at == start; {
		next := nextLine(text, at)
		line := strings.TrimRight(text[at:next], "\r\n")
		after := f.line(at, line, next)
		if len(f.place.nodes) > maxNodes {
			f.place.node = -1
			return
		}
		if after <= at {
			break
		}
		at = after
	}
	// The cursor may be on an empty line behind the last one.
	if !f.done && f.offset == end && (end == start || text[end-1] == '\n') {
		f.key(f.within(0), end, end, end)
	}
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// line reads a line and, if a value goes on below, the next ones. It returns where the next
// line begins.
func (f *finder) line(at int, line string, next int) int {
	here := f.offset >= at && f.offset <= at+len(line)
	indent := indentOf(line)
	if indent == len(line) || line[indent] == '#' || line[0] == '%' {
		if here {
			f.done = true
			if column := f.offset - at; column <= indent && indent == len(line) {
				f.key(f.within(column), f.offset, f.offset, f.offset)
			}
		}
		return next
	}
	if here && f.offset < at+indent {
		f.done = true // before the text of the line
	}
	content := at + len(uncommented(line))
	if here && f.offset > content {
		f.done = true // in a comment
	}
	column := indent
	current := -1
	for column < content-at && len(f.place.nodes) <= maxNodes && line[column] == '-' && (column+1 == len(line) || line[column+1] == ' ' || line[column+1] == '\t') {
		current = f.item(column, at+column)
		rest := column + 1 + indentOf(line[column+1:])
		if here && !f.done && f.offset < at+rest {
			f.done = true
			if f.offset > at+column+1 && rest >= content-at {
				f.key(current, f.offset, f.offset, f.offset)
			}
		}
		column = rest
	}
	if column >= content-at {
		if here && !f.done && current >= 0 && f.offset > at+len(strings.TrimRight(line[:content-at], " \t")) {
			f.key(current, f.offset, f.offset, f.offset)
		}
		f.done = f.done || here
		return next
	}
	begin := at + column
	colon := keyEnd(f.text[begin:content])
	if colon < 0 {
		owner := current
		if owner < 0 {
			owner = f.container(column)
		}
		return f.scalar(owner, indent, begin, content, next, current >= 0, false)
	}
	name := strings.Trim(f.text[begin:begin+colon], `"' `+"\t")
	owner := f.container(column)
	if here && !f.done && f.offset <= begin+colon {
		f.done = true
		word := begin + indentQuote(f.text[begin:])
		f.key(owner, word, f.offset, word+len(name))
		f.place.keyed = true
	}
	value := f.add(owner, name, begin)
	f.stack = append(f.stack, level{indent: column, node: value})
	begin += colon + 1
	space := indentOf(f.text[begin:content])
	if begin+space >= content { // the value is below, or not there
		if here && !f.done {
			f.done = true
			f.value(value, f.offset, f.offset, f.offset)
			if f.offset == begin {
				f.place.lead = " "
			}
		}
		return next
	}
	if here && !f.done && f.offset < begin+space {
		f.done = true
	}
	return f.scalar(value, column, begin+space, content, next, true, true)
}

// indentQuote is 1 if a text begins with a quote.
func indentQuote(text string) int {
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		return 1
	}
	return 0
}

// scalar reads a value that begins at an offset and is no key: a text, a block, or a value
// between brackets. indent is that of its key, and own says that it is the value of the node.
func (f *finder) scalar(owner, indent, begin, content, next int, own, behind bool) int {
	n := &f.place.nodes[owner]
	here := f.offset >= begin && f.offset < next || f.offset == next && next == len(f.text) && (next == 0 || f.text[next-1] != '\n')
	switch c := f.text[begin]; c {
	case '|', '>':
		end := f.below(indent, next, false)
		if f.offset >= begin && (f.offset < end || f.offset == end && end == len(f.text) && f.deeper(indent)) {
			f.done = true
		}
		return end
	case '{', '[':
		end := f.below(indent, next, true)
		return f.brackets(owner, begin, end)
	case '"', '\'':
		end := begin + 1 + closingQuote(f.text[begin+1:content], c)
		if end > content { // it goes on below, or is being written
			end = content
			if below := f.below(indent, next, false); below > next && strings.IndexByte(f.text[next:below], c) >= 0 {
				if f.offset >= begin && f.offset < below {
					f.done = true
				}
				return below
			}
		}
		if own {
			n.scalar, n.value, n.end = f.text[begin+1:max(begin+1, end)], begin+1, end
		}
		if here && !f.done && f.offset > begin && f.offset <= end {
			f.value(owner, begin+1, f.offset, end)
			f.place.value = behind
		}
		f.done = f.done || here
		return next
	case '&', '*', '!', '@', '`':
		if strings.TrimSpace(f.text[begin:content]) != "*" { // which has to be in quotes
			f.done = f.done || here
			return next
		}
	}
	end := begin + len(strings.TrimRight(f.text[begin:content], " \t"))
	if own {
		n.scalar, n.value, n.end = f.text[begin:end], begin, end
	}
	if here && !f.done {
		f.done = true
		if word := f.text[begin:end]; f.offset <= end && !strings.ContainsAny(word, " \t") {
			f.value(owner, begin, f.offset, end)
			f.place.value = behind
		}
	}
	return next
}

// deeper reports whether the column of the cursor, behind the last line, is within a block.
func (f *finder) deeper(indent int) bool {
	line := f.text[strings.LastIndexByte(f.text[:f.offset], '\n')+1 : f.offset]
	return len(line) > indent
}

// below returns where the lines end that are deeper than a column, or empty and before one
// that is. Brackets may be closed at the column.
func (f *finder) below(indent, from int, brackets bool) int {
	end := from
	for at := from; at < len(f.text); {
		next := nextLine(f.text, at)
		line := strings.TrimRight(f.text[at:next], "\r\n")
		column := indentOf(line)
		switch {
		case isMark(line):
			return end
		case column == len(line):
			// A line on which somebody begins to write within a block is part of it.
			if !brackets && f.offset >= at && f.offset <= at+len(line) && f.offset-at > indent {
				end = next
			}
		case column > indent || brackets && strings.ContainsRune("]}", rune(line[column])):
			end = next
		default:
			return end
		}
		at = next
	}
	return end
}

// container leaves what is deeper than a key at a column, and returns the node of the mapping
// that it is in.
func (f *finder) container(column int) int {
	for len(f.stack) > 0 && f.stack[len(f.stack)-1].indent >= column {
		f.stack = f.stack[:len(f.stack)-1]
	}
	return f.within(column)
}

// within is container for a key that is not written yet.
func (f *finder) within(column int) int {
	for i := len(f.stack) - 1; i >= 0; i-- {
		if f.stack[i].indent < column {
			return f.stack[i].node
		}
	}
	return 0
}

// item begins an element of a list at a column.
func (f *finder) item(column, at int) int {
	for len(f.stack) > 0 {
		if top := f.stack[len(f.stack)-1]; top.indent < column || top.indent == column && !top.item {
			break
		}
		f.stack = f.stack[:len(f.stack)-1]
	}
	owner := 0
	if len(f.stack) > 0 {
		owner = f.stack[len(f.stack)-1].node
	}
	n := f.element(owner, at)
	f.stack = append(f.stack, level{indent: column, node: n, item: true})
	return n
}

func (f *finder) add(owner int, name string, at int) int {
	n := len(f.place.nodes)
	f.place.nodes = append(f.place.nodes, node{parent: owner, name: name, at: at})
	f.place.nodes[owner].keys = append(f.place.nodes[owner].keys, n)
	return n
}

func (f *finder) element(owner, at int) int {
	n := len(f.place.nodes)
	f.place.nodes = append(f.place.nodes, node{parent: owner, item: true, index: len(f.place.nodes[owner].items), at: at})
	f.place.nodes[owner].items = append(f.place.nodes[owner].items, n)
	return n
}

// key says that the place is one for a key of a node.
func (f *finder) key(owner, from, cursor, to int) {
	f.done = true
	f.place.node, f.place.word = owner, f.text[min(from, cursor):cursor]
	f.place.from, f.place.to = min(from, cursor), max(to, cursor)
}

// value says that the place is one for the value of a node.
func (f *finder) value(owner, from, cursor, to int) {
	f.key(owner, from, cursor, to)
	f.place.value = true
}

// brackets reads a value between brackets. It returns where the line behind it begins.
func (f *finder) brackets(owner, begin, end int) int {
	type open struct {
		node int
		list bool
		key  int // the node of the key whose value comes; -1: a key or an element comes
	}
	var stack []open
	top := func() *open { return &stack[len(stack)-1] }
	// target is the node whose value comes next.
	target := func(at int) int {
		switch {
		case len(stack) == 0:
			return owner
		case top().list:
			return f.element(top().node, at)
		}
		return top().key
	}
	i := begin
	for i < end && len(f.place.nodes) <= maxNodes {
		c := f.text[i]
		if f.offset == i && !f.done && len(stack) > 0 && strings.IndexByte(" \t\r\n,]}#", c) >= 0 {
			f.between(top().node, top().list, top().key, i)
		}
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',':
			if c == ',' && len(stack) > 0 {
				top().key = -1
			}
			i++
		case c == '#':
			to := nextLine(f.text[:end], i)
			if f.offset > i && f.offset < to {
				f.done = true
			}
			i = to
		case c == '{' || c == '[':
			n := target(i)
			if n < 0 { // a key that is no text
				n = f.add(top().node, "", i)
			}
			stack = append(stack, open{n, c == '[', -1})
			i++
		case c == '}' || c == ']':
			i++
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
			if len(stack) == 0 {
				line := nextLine(f.text, i)
				if f.offset >= i && f.offset < line {
					f.done = true
				}
				return line
			}
		default:
			if len(stack) == 0 {
				return end
			}
			from, to, behind := i, i, i
			if c == '"' || c == '\'' {
				from = i + 1
				to = min(from+closingQuote(f.text[from:end], c), end)
				behind = min(to+1, end)
			} else {
				for to < end && !strings.ContainsRune(",[]{}\r\n", rune(f.text[to])) && !(f.text[to] == ':' && (to+1 == end || strings.IndexByte(" \t\r\n,", f.text[to+1]) >= 0)) && !(f.text[to] == '#' && f.text[to-1] == ' ') {
					to++
				}
				if to == i {
					i++ // a sign out of its place
					continue
				}
				to = from + len(strings.TrimRight(f.text[from:to], " \t"))
				behind = to
			}
			word := f.text[from:to]
			here := f.offset >= from && f.offset <= to && !f.done
			colon := behind
			for colon < end && f.text[colon] == ' ' {
				colon++
			}
			if !top().list && top().key < 0 {
				keyed := colon < end && f.text[colon] == ':'
				if here {
					f.key(top().node, from, f.offset, to)
					f.place.keyed = keyed
				}
				top().key = f.add(top().node, word, i)
				if keyed {
					behind = colon + 1
				}
				i = behind
				continue
			}
			n := target(i)
			v := &f.place.nodes[n]
			v.scalar, v.value, v.end = word, from, to
			if here {
				f.value(n, from, f.offset, to)
			}
			i = behind
		}
	}
	if !f.done && f.offset == end && len(stack) > 0 && end == len(f.text) {
		f.between(top().node, top().list, top().key, end)
	}
	if f.offset >= begin && f.offset < end {
		f.done = true
	}
	return end
}

// between says that the cursor is at an empty place between brackets.
func (f *finder) between(owner int, list bool, key, at int) {
	switch {
	case list:
		f.value(f.element(owner, at), at, at, at)
	case key >= 0:
		if n := &f.place.nodes[key]; n.scalar == "" && len(n.keys)+len(n.items) == 0 {
			f.value(key, at, at, at)
			if f.text[at-1] == ':' {
				f.place.lead = " "
			}
		}
	default:
		f.key(owner, at, at, at)
	}
}

// closingQuote returns where a text in quotes ends, its length if it does not.
func closingQuote(text string, quote byte) int {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i
		}
	}
	return len(text)
}

// keyEnd returns where the colon behind the key is with which a text begins, -1 if it begins
// with none.
func keyEnd(text string) int {
	from := 0
	if indentQuote(text) > 0 {
		from = 1 + closingQuote(text[1:], text[0]) + 1
	} else if text != "" && strings.IndexByte("{}[]|>&*!#@`%,", text[0]) >= 0 {
		return -1
	}
	for i := from; i < len(text); i++ {
		if text[i] == ':' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\t') {
			return i
		}
		if from > 0 && text[i] != ' ' {
			return -1
		}
	}
	return -1
}

// uncommented returns a line without the comment at its end.
func uncommented(line string) string {
	var quote byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			return line[:i]
		case (c == '"' || c == '\'') && (i == 0 || strings.IndexByte(" \t[{,:", line[i-1]) >= 0):
			quote = c
		}
	}
	return line
}
