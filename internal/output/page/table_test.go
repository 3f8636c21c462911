package page

import (
	"strings"
	"testing"
)

// One table in the three forms: cells of authors can neither end a row nor become markup.
func TestTable(t *testing.T) {
	table := &Table{Heads: []string{"NAME", "NOTES"}}
	table.Row("wide — name", "plain")
	table.Row("a|b <i>\x1b[31m\nred", "x")
	table.RowWith([]Line{{Word: "T1", Link: "https://example.com/?a=1&b=2", Text: "first"}, {Text: "second"}}, "two")

	var text strings.Builder
	if err := table.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if want := "" +
		"NAME                  NOTES\n" +
		"wide — name           plain\n" +
		"a|b <i>\\x1b[31m\\nred  x\n" +
		"two                   T1: first\n" +
		"                      second\n"; text.String() != want {
		t.Errorf("text:\n%s\nwant:\n%s", &text, want)
	}

	for name, p := range map[string]*Page{"markdown": Markdown("t"), "html": HTML("t")} {
		p.Table(table)
		var out strings.Builder
		if _, err := p.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if strings.ContainsAny(got, "\x1b") || strings.Contains(got, "<i>") {
			t.Errorf("%s: a cell is not escaped:\n%s", name, got)
		}
		rows := strings.Count(got, "\n| ")
		if name == "html" {
			rows = strings.Count(got, "<tr>")
		}
		if want := 4 + map[bool]int{true: 1}[name == "markdown"]; rows != want { // and the line below the heads
			t.Errorf("%s: %d rows, want %d:\n%s", name, rows, want, got)
		}
		if !strings.Contains(got, "T1") || !strings.Contains(got, "https://example.com/?a=1&") {
			t.Errorf("%s: no link:\n%s", name, got)
		}
	}
}
