//go:build !server

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
)

// exceptedTable lists the objects to which exceptions apply.
type exceptedTable struct {
	page.Table
	most       int // largest number of rows
	rows, more int
	objects    int
	exceptions map[string]bool
}

// add adds the result of an object to the table.
func (t *exceptedTable) add(r *audit.Result) error {
	if t.exceptions == nil {
		t.exceptions = map[string]bool{}
		t.Heads = []string{"EXCEPTION", "UNTIL", "OWNER", "OBJECT", "POLICY", "THEN"}
	}
	if len(r.Excepted) > 0 {
		t.objects++
	}
	for i := range r.Excepted {
		e := &r.Excepted[i]
		t.exceptions[e.Exception] = true
		if t.rows == t.most {
			t.more++
			continue
		}
		t.rows++
		t.Row(e.Exception, dash(e.Until), dash(e.Owner), r.Title(), strings.Join(e.Policies, ", "), then(e))
	}
	return nil
}

// then returns what happens to an object when an exception ends.
func then(e *audit.Excepted) string {
	switch {
	case e.Until == "":
		return "it has no end"
	case e.Error != "":
		return "not known: " + e.Error
	case e.Denied != "":
		return "denied: " + e.Denied
	case len(e.Changes) == 0:
		return "nothing changes"
	}
	var fields []string
	for i, c := range e.Changes {
		if i == 3 {
			break
		}
		fields = append(fields, c.Path)
	}
	text := "changes " + strings.Join(fields, ", ")
	if more := len(e.Changes) - len(fields) + e.MoreChanges; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (t *exceptedTable) write(w io.Writer, totals *audit.Totals) error {
	if t.rows > 0 {
		if err := t.WriteText(w); err != nil {
			return err
		}
	}
	if t.more > 0 {
		fmt.Fprintf(w, "and %d more (--diffs, -o json)\n", t.more)
	}
	_, err := fmt.Fprintf(w, "%s for %s of %d\n", words.Count(len(t.exceptions), "exception holds", "exceptions hold"), words.Count(t.objects, "object", "objects"), totals.Objects)
	return err
}

// printProblems prints which parts of an audit failed.
func printProblems(w io.Writer, problems []string) {
	for _, p := range problems {
		fmt.Fprintf(w, "note: %s\n", report.Line(p))
	}
}
