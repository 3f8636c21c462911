package cases

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Versions is docs/reference/versions.md: which cases end otherwise on a server of which minor than
// in mapd. The page has two tables of the same columns: the cases whose difference
// depends on the minor, and behind them those that differ on every minor.
type Versions struct {
	before, between, after string
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

// ReadVersions reads the tables from the text of the page.
func ReadVersions(page []byte) (*Versions, error) {
	text := string(page)
	at := versionsHeader.FindAllStringSubmatchIndex(text, -1)
	if len(at) != 2 {
		return nil, fmt.Errorf(`%d tables with the header "| Case | 1.N | … | Why |", want 2`, len(at))
	}
	v := &Versions{Minors: cells(text[at[0][2]:at[0][3]]), Rows: map[string]*VersionsRow{}}
	if other := cells(text[at[1][2]:at[1][3]]); !slices.Equal(v.Minors, other) {
		return nil, fmt.Errorf("the tables have columns of different minors: %v and %v", v.Minors, other)
	}
	v.before = text[:at[0][0]]
	rest, err := v.rows(text[at[0][1]:at[1][0]])
	if err != nil {
		return nil, err
	}
	v.between = rest
	v.after, err = v.rows(text[at[1][1]:])
	return v, err
}

// rows reads the rows at the start of a text, and returns what follows them.
func (v *Versions) rows(text string) (string, error) {
	for strings.HasPrefix(text, "| ") {
		line, after, _ := strings.Cut(text, "\n")
		text = after
		columns := cells(strings.TrimPrefix(line, "|"))
		if len(columns) != len(v.Minors)+2 {
			return "", errors.New("a row has another number of columns than the header: " + line)
		}
		row := &VersionsRow{Differs: map[string]bool{}, Why: columns[len(columns)-1]}
		for i, m := range v.Minors {
			row.Differs[m] = columns[i+1] == differs
		}
		v.Rows[strings.Trim(columns[0], "`")] = row
	}
	return text, nil
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
	for name, row := range v.Rows {
		_, row.Differs[minor] = found[name]
		if !slices.ContainsFunc(v.Minors, func(m string) bool { return row.Differs[m] }) {
			delete(v.Rows, name)
		}
	}
	var b strings.Builder
	b.WriteString(v.before)
	v.write(&b, false)
	b.WriteString(v.between)
	v.write(&b, true)
	b.WriteString(v.after)
	return []byte(b.String())
}

// write writes the table of the cases that differ on every minor, or of the others.
func (v *Versions) write(b *strings.Builder, everywhere bool) {
	b.WriteString("| Case | " + strings.Join(v.Minors, " | ") + " | Why |\n" + strings.Repeat("| --- ", len(v.Minors)+2) + "|\n")
	for _, name := range slices.Sorted(maps.Keys(v.Rows)) {
		row := v.Rows[name]
		if everywhere == slices.ContainsFunc(v.Minors, func(m string) bool { return !row.Differs[m] }) {
			continue
		}
		b.WriteString("| `" + name + "` |")
		for _, m := range v.Minors {
			if row.Differs[m] {
				b.WriteString(" " + differs + " |")
			} else {
				b.WriteString(" – |")
			}
		}
		b.WriteString(" " + row.Why + " |\n")
	}
}
