//go:build !server

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/blame"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/pkg/tree"
)

// blamePrinter prints lines as they are found. The columns of a table are aligned within groups
// of lines, so that it need not wait for the last line.
type blamePrinter struct {
	w       io.Writer
	format  string
	table   page.Table
	objects bool // lines are about several objects, so a table has a column for their names
	lines   int
}

// tableGroup is how many lines of a table have the same column widths.
const tableGroup = 500

func newBlamePrinter(w io.Writer, format string) *blamePrinter {
	return &blamePrinter{w: w, format: format}
}

func (p *blamePrinter) print(l *blame.Line) error {
	p.lines++
	if p.format == "table" {
		return p.row(l)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if p.format == "json" {
		sign := ",\n"
		if p.lines == 1 {
			sign = "[\n"
		}
		_, err = fmt.Fprintf(p.w, "%s%s", sign, text)
		return err
	}
	m, err := tree.Decode(text)
	if err != nil {
		return err
	}
	_, err = p.w.Write(manifest.Encode([]any{m}))
	return err
}

func (p *blamePrinter) row(l *blame.Line) error {
	if p.lines%tableGroup == 0 {
		if err := p.table.WriteText(p.w); err != nil {
			return err
		}
		p.table.Clear()
	}
	if p.lines == 1 {
		p.table.Heads = p.cells("OBJECT", "FIELD", "BY", "WHEN", "SOURCE", "REQUEST")
	}
	field := tree.Field(l.Field)
	switch {
	case field == "":
		field = "*"
	case l.Cut:
		field += "…"
	}
	by := string(l.Kind) + " " + l.By
	if l.By == "" {
		by = "-"
	}
	request := l.Operation
	if l.User != "" {
		request += " by " + l.User
	}
	if request != "" && l.Note != "" {
		request += "; "
	}
	request += l.Note
	p.table.Row(p.cells(l.Object, field, by, cmp.Or(l.Time.String(), "-"), string(l.Source), request)...)
	return nil
}

// cells returns the cells of a row; the first one is for tables of several objects.
func (p *blamePrinter) cells(object string, others ...string) []string {
	if !p.objects {
		return others
	}
	return append([]string{object}, others...)
}

// end prints the end of the output, such as a closing bracket.
func (p *blamePrinter) end() error {
	text := ""
	switch {
	case p.format == "table":
		return p.table.WriteText(p.w)
	case p.lines == 0:
		text = "[]\n"
	case p.format == "json":
		text = "\n]\n"
	}
	_, err := io.Copy(p.w, bytes.NewReader([]byte(text)))
	return err
}
