package suite

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/mapd-project/mapd/internal/output/report"
)

// Names and texts that mean something in one of the formats, or in none.
var hostile = []string{
	"a\x00b\x01\x1b[31mred\x7f\u0085\u2028", "]]>&<\"'", "%0A::error::x%25\r\n::set-output name=x::y", "line\nnot ok 99 - x\n1..0\nBail out!\n", "# SKIP # TODO",
	"\xff\xfe broken", "\ufffe\uffff\ud7ff", "../a b/ü#?%[x]|\\^`{}.yaml", strings.Repeat("x", 1000), "", "\t \t", "::", "---\n...\n",
}

// Whatever cases are named and say, each format stays one that its readers can read, and
// a case cannot look like another.
func TestHostileNames(t *testing.T) {
	r := &Results{}
	for i, name := range hostile {
		for _, status := range []Status{Passed, Failed, Skipped, Broken} {
			r.Outcomes = append(r.Outcomes, &Outcome{
				Suite: hostile[(i+7)%len(hostile)], Name: name, Line: i, Status: status, Message: hostile[(i+3)%len(hostile)], Trace: name,
				Diff: []report.Change{{Path: name, Before: name, After: hostile[(i+1)%len(hostile)]}},
			})
		}
		r.Errs = append(r.Errs, errors.New(name))
	}
	cases, faults := len(r.Outcomes), len(r.Errs)
	failed := cases / 2
	write := func(format string) string {
		var b bytes.Buffer
		if err := r.Write(&b, format, "v1"); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		text := b.String()
		if !utf8.ValidString(text) {
			t.Errorf("%s is not UTF-8", format)
		}
		// JSON has them in texts, where they are data.
		if format != "json" && format != "sarif" && strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }) {
			t.Errorf("%s has control characters", format)
		}
		return text
	}

	var as struct {
		Cases  []struct{ Name, Suite string }
		Errors []string
	}
	if err := json.Unmarshal([]byte(write("json")), &as); err != nil || len(as.Cases) != cases || len(as.Errors) != faults {
		t.Errorf("json: %v, %d cases, %d errors", err, len(as.Cases), len(as.Errors))
	}

	text := write("junit")
	var all struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(text), &all); err != nil || all.Tests != cases+faults || all.Failures != cases/4 {
		t.Errorf("junit: %v, %d tests, %d failures", err, all.Tests, all.Failures)
	}
	d := xml.NewDecoder(strings.NewReader(text))
	n := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "testcase" {
			n++
		}
	}
	if n != cases+faults {
		t.Errorf("junit has %d cases, want %d", n, cases+faults)
	}

	results, plans, notOK := 0, 0, 0
	for line := range strings.Lines(write("tap")) {
		switch {
		case strings.HasPrefix(line, "ok "), strings.HasPrefix(line, "not ok "):
			results++
			if strings.HasPrefix(line, "not") {
				notOK++
			}
			// Only a directive that mapd wrote is one: others have a backslash.
			if i := strings.Index(line, " # "); i >= 0 && !strings.HasPrefix(line[i:], " # SKIP ") {
				t.Errorf("tap: %s", line)
			}
			if strings.HasPrefix(line, "not ok") && strings.Contains(line, " # ") {
				t.Errorf("tap: %s", line)
			}
		case strings.HasPrefix(line, "1.."):
			plans++
		case !strings.HasPrefix(line, "#") && line != "TAP version 13\n":
			t.Errorf("tap: %q", line)
		}
	}
	if results != cases+faults || plans != 1 || notOK != failed+faults {
		t.Errorf("tap: %d results, %d not ok, %d plans", results, notOK, plans)
	}

	commands := strings.SplitAfter(strings.TrimSuffix(write("github"), "\n"), "\n")
	if len(commands) != failed+faults {
		t.Errorf("github: %d lines, want %d", len(commands), failed+faults)
	}
	for _, line := range commands {
		props, _, ok := strings.Cut(strings.TrimPrefix(line, "::error "), "::")
		if !ok || !strings.HasPrefix(line, "::error ") {
			t.Errorf("github: %.200q", line)
			continue
		}
		for p := range strings.SplitSeq(props, ",") {
			if name, _, _ := strings.Cut(p, "="); name != "file" && name != "line" && name != "col" && name != "title" {
				t.Errorf("github: property %.200q", p)
			}
		}
	}

	var log struct {
		Runs []struct {
			Results []struct {
				Locations []struct {
					PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(write("sarif")), &log); err != nil || len(log.Runs) != 1 || len(log.Runs[0].Results) != failed+faults {
		t.Fatalf("sarif: %v", err)
	}
	for _, result := range log.Runs[0].Results {
		uri := result.Locations[0].PhysicalLocation.ArtifactLocation.URI
		if u, err := url.Parse(uri); err != nil || u.Scheme != "" || u.Host != "" || u.Fragment != "" || u.RawQuery != "" || strings.ContainsAny(uri, " \n\"") {
			t.Errorf("sarif: URI %.200q (%v)", uri, err)
		}
	}

	// Text is for terminals.
	for line := range strings.Lines(r.Text(true, false)) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(c rune) bool { return unicode.IsControl(c) && c != '\t' }) {
			t.Errorf("text: %.200q", line)
		}
	}
}
