package manifest

import (
	"bytes"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mapd-project/mapd/pkg/tree"
)

// inLines returns the text of a List with another tree. Unchanged items and fields stay the same
// byte by byte. It returns nil if they are not on separate lines, or if the result would not
// decode to exactly the tree; Rewrite then encodes the whole List.
func (d *Document) inLines(after map[string]any) []byte {
	root := d.root()
	if root == nil || root.Kind != yaml.MappingNode || root.Column != 1 || root.Style&yaml.FlowStyle != 0 || bytes.Contains(d.text, []byte("\r")) || named(root) {
		return nil
	}
	l := lined{text: d.text}
	for at := 0; at < len(d.text); {
		l.starts = append(l.starts, at)
		n := bytes.IndexByte(d.text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	fresh := maps.Clone(after)
	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if k.Column != 1 {
			return nil
		}
		end := len(l.starts) + 1
		if i+2 < len(root.Content) {
			end = root.Content[i+2].Line
		}
		span := l.span(k.Line, end, 0)
		was, now := d.source[k.Value], after[k.Value]
		_, stays := fresh[k.Value]
		delete(fresh, k.Value)
		items, isList := was.([]any)
		changed, still := now.([]any)
		switch {
		case !stays:
			l.replace(span, nil)
		case tree.Equal(was, now):
		case k.Value == "items" && isList && still && len(items) == len(changed):
			if !l.items(v, span, items, changed) {
				return nil
			}
		default:
			text := l.part(span, 0, map[string]any{k.Value: was}, map[string]any{k.Value: now})
			if text == nil {
				return nil
			}
			l.replace(span, text)
		}
	}
	out := l.done()
	if len(fresh) > 0 {
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(out, Encode(fresh)...)
	}
	back, err := newDocument("", chunk{text: out, line: 1, index: 1})
	if err != nil || back.Object == nil || !tree.Equal(back.source, after) {
		return nil
	}
	return out
}

// named reports whether a tree has an anchor or an alias: then a line of one object may also be
// part of another object.
func named(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return true
	}
	for _, c := range n.Content {
		if named(c) {
			return true
		}
	}
	return false
}

// lined is a text in which lines are replaced from the first to the last.
type lined struct {
	text   []byte
	starts []int // of the lines
	out    []byte
	from   int // the part of text that has not been copied to out
}

// byteRange is a part of the text.
type byteRange struct{ from, to int }

// span returns the lines from first (1-based) up to the one before end, without trailing blank
// lines and comments that are not deeper than column, because these belong to what follows.
func (l *lined) span(first, end, column int) byteRange {
	last := end - 1
	for ; last > first; last-- {
		line := l.line(last)
		trimmed := strings.TrimLeft(line, " ")
		if trimmed != "" && (trimmed[0] != '#' || len(line)-len(trimmed) > column) {
			break
		}
	}
	return byteRange{l.starts[first-1], l.offset(last + 1)}
}

// offset returns where a line begins, or the text's end.
func (l *lined) offset(line int) int {
	if line-1 < len(l.starts) {
		return l.starts[line-1]
	}
	return len(l.text)
}

// line returns a line without its end.
func (l *lined) line(n int) string {
	return strings.TrimSuffix(string(l.text[l.starts[n-1]:l.offset(n+1)]), "\n")
}

func (l *lined) replace(s byteRange, text []byte) {
	l.out = append(append(l.out, l.text[l.from:s.from]...), text...)
	l.from = s.to
}

func (l *lined) done() []byte { return append(l.out, l.text[l.from:]...) }

// items replaces those items of a sequence that differ. The sequence ends at the end of in.
func (l *lined) items(list *yaml.Node, in byteRange, was, now []any) bool {
	if list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 || len(list.Content) != len(was) {
		return false
	}
	for i, n := range list.Content {
		line := l.line(n.Line)
		dash := strings.TrimRight(line[:min(n.Column-1, len(line))], " ")
		column := len(dash) - 1
		if strings.TrimLeft(dash, " ") != "-" {
			return false
		}
		if tree.Equal(was[i], now[i]) {
			continue
		}
		before, ok := was[i].(map[string]any)
		after, ok2 := now[i].(map[string]any)
		if !ok || !ok2 {
			return false
		}
		s := l.span(n.Line, len(l.starts)+1, column)
		if i+1 < len(list.Content) {
			s = l.span(n.Line, list.Content[i+1].Line, column)
		} else if s.to > in.to {
			s.to = in.to
		}
		text := l.part(s, n.Column-1, before, after)
		if text == nil {
			return false
		}
		l.replace(s, text)
	}
	return true
}

// part returns the lines of an object that begins at a column, changed from before to after. It
// returns nil if the lines do not decode to before.
func (l *lined) part(s byteRange, column int, before, after map[string]any) []byte {
	var alone []byte
	lines := strings.SplitAfter(string(l.text[s.from:s.to]), "\n")
	first := lines[0][:min(column, len(lines[0]))]
	for i, line := range lines {
		rest := strings.TrimLeft(line, " ")
		switch indent := len(line) - len(rest); {
		case i == 0:
			alone = append(alone, line[len(first):]...)
		case indent >= column:
			alone = append(alone, line[column:]...)
		case rest == "" || rest == "\n" || rest[0] == '#':
			alone = append(alone, rest...)
		default:
			return nil
		}
	}
	d, err := newDocument("", chunk{text: alone, line: 1, index: 1})
	if err != nil || d.Object == nil || !tree.Equal(d.source, before) {
		return nil
	}
	d.Raw = alone
	text := Rewrite(d, after)
	if text == nil {
		return nil
	}
	var out []byte
	indent := strings.Repeat(" ", column)
	for i, line := range strings.SplitAfter(string(text), "\n") {
		switch {
		case i == 0:
			out = append(out, first...)
		case line != "" && line != "\n":
			out = append(out, indent...)
		}
		out = append(out, line...)
	}
	return out
}
