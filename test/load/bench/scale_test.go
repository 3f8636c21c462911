package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// docs/operate/scale.md has the sizes that this program measures, the values computed from them
// and from the measured figures, and the machine, the versions and the command of the measurement.
func TestScalePage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	measured, assumed := section(t, page, "Measured"), section(t, page, "Assumed")
	rows := regexp.MustCompile(`(?m)^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \| [\d.]+ m?s \| ([\d.]+ ?[µm]s) \| \d+ MiB \| (\d+) \| ([\d.]+) \|$`).FindAllStringSubmatch(measured, -1)
	if len(rows) != len(sizes) {
		t.Fatalf("%d rows of figures, want %d", len(rows), len(sizes))
	}
	var nodes, writes, tenants, shared, each []string
	for i, z := range sizes {
		entries, err := z.entries()
		if err != nil {
			t.Fatal(err)
		}
		row := rows[i]
		cpu, err := time.ParseDuration(strings.ReplaceAll(row[5], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		for j, want := range map[int]string{
			1: thousands(z.nodes), 2: thousands(z.tenants), 3: thousands(z.policies()), 4: fmt.Sprint(entries), 6: fmt.Sprint(z.writes),
			7: fmt.Sprintf("%.3f", float64(z.writes)*cpu.Seconds()),
		} {
			if row[j] != want {
				t.Errorf("%s nodes: column %d is %s, and follows to be %s", row[1], j, row[j], want)
			}
		}
		nodes, writes, tenants = append(nodes, thousands(z.nodes)), append(writes, fmt.Sprint(z.writes)), append(tenants, thousands(z.tenants))
		shared, each = append(shared, fmt.Sprint(z.shared)), append(each, fmt.Sprint(z.each))
	}
	for about, values := range map[string][]string{
		"what": nodes, "writes that policies match": writes, "tenants": tenants, "policies for every Pod": shared, "policies for each tenant": each,
	} {
		if !regexp.MustCompile(`(?m)^\| ` + about + `[^|]* \| ` + strings.Join(values, ` \| `) + `( nodes)? \|`).MatchString(assumed) {
			t.Errorf("the row %q is not %v", about, values)
		}
	}
	for _, want := range []string{"`make scale`", `commit [0-9a-f]{7}\b`, `\d+ cores of`, `Go 1\.\d+`, `load\s+average`, "is extrapolated"} {
		if !regexp.MustCompile(want).MatchString(measured) {
			t.Errorf("the page does not say %s of its figures", want)
		}
	}
}

// section returns the text below a heading.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(page, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// thousands formats a number as the page does.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
