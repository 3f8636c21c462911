// Package annotate answers one question: how are findings in files written for other programs?
//
// SARIF writes the format that code scanning reads. GitHub writes workflow commands, which show
// remarks beside the lines of a pull request.
package annotate

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/mapd-project/mapd/internal/output/report"
)

// Remark is a finding at a place in a file.
type Remark struct {
	// Rule is the name of the rule that found it, and Level is error, warning or note.
	Rule, Level string
	File        string
	// Line and Column are 1-based; 0 means that they are not known.
	Line, Column int
	Message      string
	// Suppressed is the reason why the remark is suppressed, empty if it is not.
	Suppressed string
}

// Rule describes what finds remarks.
type Rule struct{ Name, Summary string }

// GitHub writes a workflow command for each remark that is not suppressed.
func GitHub(w io.Writer, remarks []Remark) error {
	for _, r := range remarks {
		if r.Suppressed != "" {
			continue
		}
		level := r.Level
		if level == "note" {
			level = "notice"
		}
		props := []string{"file=" + property.Replace(clean(filepath.ToSlash(r.File)))}
		if r.Line > 0 {
			props = append(props, fmt.Sprintf("line=%d", r.Line))
		}
		if r.Column > 0 {
			props = append(props, fmt.Sprintf("col=%d", r.Column))
		}
		if r.Rule != "" {
			props = append(props, "title="+property.Replace(r.Rule))
		}
		if _, err := fmt.Fprintf(w, "::%s %s::%s\n", level, strings.Join(props, ","), data.Replace(clean(r.Message))); err != nil {
			return err
		}
	}
	return nil
}

// As actions/toolkit escapes them (packages/core/src/command.ts).
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// clean replaces control characters, for which commands have no form, except tabs and line ends.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if report.Hidden(r) && r != '\t' && r != '\n' && r != '\r' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

type (
	text struct {
		Text string `json:"text"`
	}
	objects = map[string]any
)

// SARIF writes a log of version 2.1.0 with one run of a tool.
func SARIF(w io.Writer, tool, version string, rules []Rule, remarks []Remark) error {
	described := []objects{}
	for _, r := range rules {
		described = append(described, objects{"id": r.Name, "shortDescription": text{r.Summary}})
	}
	results := []objects{}
	for _, r := range remarks {
		physical := objects{"artifactLocation": objects{"uri": uri(r.File)}}
		if r.Line > 0 {
			region := objects{"startLine": r.Line}
			if r.Column > 0 {
				region["startColumn"] = r.Column
			}
			physical["region"] = region
		}
		o := objects{
			"ruleId": r.Rule, "level": r.Level, "message": text{r.Message},
			"locations": []objects{{"physicalLocation": physical}},
		}
		if i := slices.IndexFunc(rules, func(known Rule) bool { return known.Name == r.Rule }); i >= 0 {
			o["ruleIndex"] = i
		}
		if r.Suppressed != "" {
			o["suppressions"] = []objects{{"kind": "inSource", "justification": r.Suppressed}}
		}
		results = append(results, o)
	}
	return report.WriteJSON(w, objects{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []objects{{
			"tool":       objects{"driver": objects{"name": tool, "version": version, "rules": described}},
			"columnKind": "unicodeCodePoints",
			"results":    results,
		}},
	}, "  ")
}

// uri returns a file name as a URI reference, which GitHub resolves relative to the repository.
func uri(file string) string {
	var b strings.Builder
	first := true // a colon in the first segment would end a scheme
	for _, c := range []byte(filepath.ToSlash(file)) {
		first = first && c != '/'
		if c == ':' && first || c <= ' ' || c >= 0x7f || strings.IndexByte(`"%<>?#[\]^{|}`+"`", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
