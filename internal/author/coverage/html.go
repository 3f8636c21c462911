package coverage

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

const head = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Coverage of policies</title>
<style>
:root { color-scheme: light dark }
body { font-family: sans-serif; margin: 2em }
pre { line-height: 1.4; overflow-x: auto }
.all { background: #2e7d3240 } .some { background: #f9a82560 } .none { background: #c6282860 }
</style></head><body>
<h1>Coverage of policies</h1>
<p><span class="all">had every outcome</span> · <span class="some">had some</span> · <span class="none">had none</span>; a tooltip says which.</p>
`

// HTML returns a page with the source of each file, in which parts are marked by their outcomes.
// text returns the content of a file.
func (r *Report) HTML(text func(file string) ([]byte, error)) (string, error) {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; i < len(r.Policies); {
		first := i
		var all []*Part
		for ; i < len(r.Policies) && r.Policies[i].File == r.Policies[first].File; i++ {
			all = append(all, r.Policies[i].Parts...)
		}
		data, err := text(r.Policies[first].File)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "<h2>%s</h2>\n<ul>\n", html.EscapeString(r.Policies[first].File))
		for _, p := range r.Policies[first:i] {
			fmt.Fprintf(&b, "<li>%s: %s</li>\n", html.EscapeString(p.Name), share(p.Counts()))
		}
		b.WriteString("</ul>\n<pre>")
		marked(&b, string(data), all)
		b.WriteString("</pre>\n")
	}
	b.WriteString("</body></html>\n")
	return b.String(), nil
}

// marked writes a text. Each character has the mark of the innermost part that contains it.
func marked(b *strings.Builder, text string, parts []*Part) {
	// Larger parts come first, so that the marks of parts within them replace theirs.
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b *Part) int {
		if a.EndLine-a.Line != b.EndLine-b.Line {
			return (b.EndLine - b.Line) - (a.EndLine - a.Line)
		}
		return (b.EndColumn - b.Column) - (a.EndColumn - a.Column)
	})
	n := 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		n++
		runes := []rune(line)
		of := make([]*Part, len(runes))
		for _, p := range parts {
			if n < p.Line || n > p.EndLine {
				continue
			}
			from, to := 0, len(runes)
			if n == p.Line {
				from = p.Column - 1
			}
			if n == p.EndLine {
				to = p.EndColumn - 1
			}
			for i := max(from, 0); i < min(to, len(runes)); i++ {
				of[i] = p
			}
		}
		for i := 0; i < len(runes); {
			end := i + 1
			for end < len(runes) && of[end] == of[i] {
				end++
			}
			piece := html.EscapeString(string(runes[i:end]))
			if p := of[i]; p != nil {
				piece = fmt.Sprintf("<span class=%q title=%q>%s</span>", p.class(), html.EscapeString(p.title()), piece)
			}
			b.WriteString(piece)
			i = end
		}
	}
}

func (p *Part) class() string {
	switch len(p.Missed()) {
	case 0:
		return "all"
	case len(p.Outcomes):
		return "none"
	}
	return "some"
}

func (p *Part) title() string {
	counts := make([]string, len(p.Outcomes))
	for i, o := range p.Outcomes {
		counts[i] = fmt.Sprintf("%s %d×", o, p.Hits[i])
	}
	return p.Kind + ": " + strings.Join(counts, ", ")
}
