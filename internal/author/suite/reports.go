package suite

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mapd-project/mapd/internal/author/ordercheck"
	"github.com/mapd-project/mapd/internal/output/annotate"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// Formats are the formats of Write.
var Formats = []string{"text", "json", "junit", "tap", "github", "sarif"}

// Write writes the results in one of Formats other than text. version is that of mapd.
func (r *Results) Write(w io.Writer, format, version string) error {
	switch format {
	case "json":
		return r.json(w)
	case "junit":
		return r.junit(w)
	case "tap":
		return r.tap(w)
	case "github":
		return annotate.GitHub(w, r.remarks())
	case "sarif":
		return annotate.SARIF(w, "mapd test", version, rules, r.remarks())
	}
	return fmt.Errorf("no format %q", format)
}

// said returns everything that is to say about a case that did not pass.
func (o *Outcome) said() string {
	text := o.Message
	for _, more := range []string{o.DiffText(false), o.Trace} {
		if more != "" {
			text += "\n" + strings.TrimSuffix(more, "\n")
		}
	}
	return report.Printable(text)
}

// faults returns the errors of suites, those of policies one by one.
func (r *Results) faults() (all []error) {
	for _, err := range r.Errs {
		var refused *mapd.LoadError
		if errors.As(err, &refused) {
			all = append(all, refused.Errs...)
		} else {
			all = append(all, err)
		}
	}
	return all
}

func (r *Results) json(w io.Writer) error {
	type change struct {
		Path     string `json:"path"`
		Expected any    `json:"expected"`
		Result   any    `json:"result"`
	}
	type outcome struct {
		Suite   string             `json:"suite"`
		Name    string             `json:"name"`
		Line    int                `json:"line"`
		Status  Status             `json:"status"`
		Message string             `json:"message,omitempty"`
		Diff    []change           `json:"diff,omitempty"`
		Trace   string             `json:"trace,omitempty"`
		Orders  *ordercheck.Result `json:"orders,omitempty"`
	}
	out := struct {
		Cases  []outcome `json:"cases"`
		Errors []string  `json:"errors,omitempty"`
	}{Cases: []outcome{}}
	for _, o := range r.Outcomes {
		c := outcome{Suite: o.Suite, Name: o.Name, Line: o.Line, Status: o.Status, Message: o.Message, Trace: o.Trace, Orders: o.Orders}
		for _, d := range o.Diff {
			c.Diff = append(c.Diff, change{d.Path, d.Before, d.After})
		}
		out.Cases = append(out.Cases, c)
	}
	for _, err := range r.faults() {
		out.Errors = append(out.Errors, err.Error())
	}
	return report.WriteJSON(w, out, "  ")
}

func (r *Results) tap(w io.Writer) error {
	var b strings.Builder
	faults := r.faults()
	fmt.Fprintf(&b, "TAP version 13\n1..%d\n", len(r.Outcomes)+len(faults))
	for i, o := range r.Outcomes {
		word, directive := "ok", ""
		switch o.Status {
		case Failed, Broken:
			word = "not ok"
		case Skipped:
			directive = " # SKIP " + report.Line(o.Message)
		}
		name := strings.ReplaceAll(report.Line(o.Suite+": "+o.Name), "#", `\#`)
		fmt.Fprintf(&b, "%s %d - %s%s\n", word, i+1, name, directive)
		if word != "ok" {
			for line := range strings.Lines(o.said()) {
				b.WriteString("# " + strings.TrimSuffix(line, "\n") + "\n")
			}
		}
	}
	for i, err := range faults {
		fmt.Fprintf(&b, "not ok %d - %s\n", len(r.Outcomes)+i+1, strings.ReplaceAll(report.Line(err.Error()), "#", `\#`))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Elements of a JUnit report, as most readers of it understand them.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string    `xml:"name,attr"`
		Class   string    `xml:"classname,attr"`
		File    string    `xml:"file,attr,omitempty"`
		Line    int       `xml:"line,attr,omitempty"`
		Time    string    `xml:"time,attr"`
		Failure *junitSay `xml:"failure"`
		Error   *junitSay `xml:"error"`
		Skipped *junitSay `xml:"skipped"`
	}
	junitSay struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func (r *Results) junit(w io.Writer) error {
	var out junitReport
	add := func(suite string, c junitCase) {
		if n := len(out.Suites); n == 0 || out.Suites[n-1].Name != suite {
			out.Suites = append(out.Suites, junitSuite{Name: suite})
		}
		s := &out.Suites[len(out.Suites)-1]
		s.Cases = append(s.Cases, c)
		s.Tests, out.Tests = s.Tests+1, out.Tests+1
		switch {
		case c.Failure != nil:
			s.Failures, out.Failures = s.Failures+1, out.Failures+1
		case c.Error != nil:
			s.Errors, out.Errors = s.Errors+1, out.Errors+1
		case c.Skipped != nil:
			s.Skipped, out.Skipped = s.Skipped+1, out.Skipped+1
		}
	}
	for _, o := range r.Outcomes {
		c := junitCase{Name: report.Line(o.Name), Class: report.Line(o.Suite), File: report.Line(o.Suite), Line: o.Line, Time: fmt.Sprintf("%.6f", o.Duration.Seconds())}
		first, _, _ := strings.Cut(report.Printable(o.Message), "\n")
		say := &junitSay{Message: first, Text: o.said()}
		switch o.Status {
		case Failed:
			c.Failure = say
		case Broken:
			c.Error = say
		case Skipped:
			c.Skipped = &junitSay{Message: first}
		}
		add(c.Class, c)
	}
	for _, err := range r.faults() {
		add("suites", junitCase{Name: report.Line(place(err).File), Class: "suites", Time: "0", Error: &junitSay{Message: report.Line(err.Error())}})
	}
	text, err := xml.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

var rules = []annotate.Rule{
	{Name: "case", Summary: "A case of a suite fails."},
	{Name: "suite", Summary: "A suite or a policy cannot be read or does not compile."},
}

// place returns where an error is.
func place(err error) *mapd.Error {
	var at *mapd.Error
	if errors.As(err, &at) {
		return at
	}
	return &mapd.Error{Err: err}
}

// remarks returns what did not pass as remarks about files.
func (r *Results) remarks() (all []annotate.Remark) {
	for _, o := range r.Outcomes {
		if o.Status == Failed || o.Status == Broken {
			all = append(all, annotate.Remark{Rule: "case", Level: "error", File: o.Suite, Line: o.Line, Message: report.Line(o.Name) + ": " + o.said()})
		}
	}
	for _, err := range r.faults() {
		at := place(err)
		all = append(all, annotate.Remark{Rule: "suite", Level: "error", File: at.File, Line: at.Line, Column: at.Column, Message: report.Printable(at.Err.Error())})
	}
	return all
}
