package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// suppressionRule finds comments that suppress nothing. Its findings cannot be suppressed.
var suppressionRule = Rule{Name: "suppression", Severity: Warning,
	Summary: "`# mapd:ignore` without a reason, of no rule, or that suppresses nothing"}

// ignore is a comment in YAML, or in an expression: "# mapd:ignore RULE REASON".
var ignore = regexp.MustCompile(`(?:^|\s)(#|//)\s*mapd:ignore\b[ \t]*(\S*)[ \t]*(.*)$`)

// mark is a comment that suppresses findings.
type mark struct {
	file         string
	line, column int // of the comment
	rule, reason string
	first, last  int // the lines to which it applies
	used         bool
}

type marks []*mark

// suppressions finds the comments in all files. A comment after other text applies to its line. A
// comment on a line of its own applies to the next line that is no comment, and to the lines
// below that are indented deeper. A comment at the top of a document applies to the whole
// document.
func suppressions(sources []Source) (out marks) {
	for _, src := range sources {
		if !strings.Contains(string(src.Data), "mapd:ignore") {
			continue
		}
		lines := strings.Split(string(src.Data), "\n")
		for i, line := range lines {
			m := ignore.FindStringSubmatchIndex(line)
			if m == nil {
				continue
			}
			k := &mark{file: src.Name, line: i + 1, rule: line[m[4]:m[5]], reason: strings.TrimSpace(line[m[6]:m[7]])}
			k.column = len([]rune(line[:m[2]])) + 1
			at := i
			if alone := strings.TrimSpace(line[:m[0]]) == ""; alone {
				for at++; at < len(lines)-1 && isComment(lines[at]); at++ {
				}
			}
			if at >= len(lines) {
				at = i
			}
			k.first, k.last = at+1, at+1
			whole := at > i && onTop(lines, i) && indent(lines[at]) == 0
			for j := at + 1; j < len(lines) && !isSeparator(lines[j]); j++ {
				if strings.TrimSpace(lines[j]) == "" || isComment(lines[j]) {
					continue
				}
				if !whole && indent(lines[j]) <= indent(lines[at]) {
					break
				}
				k.last = j + 1
			}
			out = append(out, k)
		}
	}
	return out
}

func isComment(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//")
}

func isSeparator(line string) bool { return strings.HasPrefix(line, "---") }

// onTop reports whether only comments precede a line in its document.
func onTop(lines []string, at int) bool {
	for at--; at >= 0 && !isSeparator(lines[at]); at-- {
		if !isComment(lines[at]) {
			return false
		}
	}
	return true
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// of returns the comment that suppresses a finding, nil if there is none.
func (m marks) of(f *Finding) *mark {
	for _, k := range m {
		if k.reason != "" && k.rule == f.Rule && k.file == f.File && f.Line >= k.first && f.Line <= k.last {
			return k
		}
	}
	return nil
}

// findings returns findings for comments that suppress nothing. only are the rules that ran;
// empty: all.
func (m marks) findings(only []string) (out []Finding) {
	known := Rules()
	for _, k := range m {
		var message string
		switch {
		case !slices.ContainsFunc(known, func(r Rule) bool { return r.Name == k.rule && r.Name != suppressionRule.Name }):
			message = fmt.Sprintf("mapd:ignore names no rule that can be suppressed: %q", k.rule)
		case k.reason == "":
			message = fmt.Sprintf("mapd:ignore %s suppresses nothing without a reason; write it behind the rule", k.rule)
		case !k.used && (len(only) == 0 || slices.Contains(only, k.rule)):
			message = fmt.Sprintf("mapd:ignore %s suppresses nothing; remove it", k.rule)
		default:
			continue
		}
		out = append(out, Finding{Rule: suppressionRule.Name, Severity: suppressionRule.Severity, File: k.file, Line: k.line, Column: k.column, Message: message})
	}
	return out
}
