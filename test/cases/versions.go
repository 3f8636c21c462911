package cases

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Versions is the table of docs/versions.md: which cases end otherwise on a server of
// which minor than in mapd.
type Versions struct {
	before, after string
	// Minors are the columns, in order: those whose servers were asked.
	Minors []string
	// Rows are the cases that differ on some minor, by name.
	Rows map[string]*VersionsRow
}

// VersionsRow is one case.
type VersionsRow struct {
	// Differs has the minors on which the case differs.
	Differs map[string]bool
	// Why is the last column.
	Why string
}

var versionsHeader = regexp.MustCompile(`(?m)^\| Case \|((?: 1\.\d+ \|)*) Why \|\n\| --- \|(?: --- \|)+\n`)

const differs = "differs"

// ReadVersions reads the table from the text of the page.
func ReadVersions(page []byte) (*Versions, error) {
	text := string(page)
	at := versionsHeader.FindStringSubmatchIndex(text)
	if at == nil {
		return nil, errors.New(`no table with the header "| Case | 1.N | … | Why |"`)
	}
	v := &Versions{before: text[:at[0]], Rows: map[string]*VersionsRow{}}
	v.Minors = cells(text[at[2]:at[3]])
	rest := text[at[1]:]
	for strings.HasPrefix(rest, "| ") {
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		columns := cells(strings.TrimPrefix(line, "|"))
		if len(columns) != len(v.Minors)+2 {
			return nil, errors.New("a row has another number of columns than the header: " + line)
		}
		row := &VersionsRow{Differs: map[string]bool{}, Why: columns[len(columns)-1]}
		for i, m := range v.Minors {
			row.Differs[m] = columns[i+1] == differs
		}
		v.Rows[strings.Trim(columns[0], "`")] = row
	}
	v.after = rest
	return v, nil
}

// cells are the columns of a line less its first bar.
func cells(line string) []string {
	var out []string
	for cell := range strings.SplitSeq(strings.TrimSuffix(line, "|"), "|") {
		if cell = strings.TrimSpace(cell); cell != "" {
			out = append(out, cell)
		}
	}
	return out
}

// Differs reports whether the table says that a case differs on a minor.
func (v *Versions) Differs(name, minor string) bool {
	row := v.Rows[name]
	return row != nil && row.Differs[minor]
}

// With returns the page with another column for a minor. Rows of cases that the table
// did not have get their reason from why.
func (v *Versions) With(minor string, found map[string]string, why func(name string) string) []byte {
	if !slices.Contains(v.Minors, minor) {
		v.Minors = append(v.Minors, minor)
		slices.Sort(v.Minors)
	}
	for name := range found {
		if v.Rows[name] == nil {
			v.Rows[name] = &VersionsRow{Differs: map[string]bool{}, Why: why(name)}
		}
	}
	var b strings.Builder
	b.WriteString(v.before + "| Case | " + strings.Join(v.Minors, " | ") + " | Why |\n" + strings.Repeat("| --- ", len(v.Minors)+2) + "|\n")
	for _, name := range slices.Sorted(maps.Keys(v.Rows)) {
		row := v.Rows[name]
		_, row.Differs[minor] = found[name]
		line, some := "| `"+name+"` |", false
		for _, m := range v.Minors {
			if row.Differs[m] {
				line, some = line+" "+differs+" |", true
			} else {
				line += " – |"
			}
		}
		if some {
			b.WriteString(line + " " + row.Why + " |\n")
		}
	}
	b.WriteString(v.after)
	return []byte(b.String())
}
