package cases_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/cases"
)

func TestVersionsTable(t *testing.T) {
	const two, three = "| Case | 1.33 | 1.37 | Why |\n| --- | --- | --- | --- |\n", "| Case | 1.33 | 1.36 | 1.37 | Why |\n| --- | --- | --- | --- | --- |\n"
	const page = "# Title\n\n" + two +
		"| `a/one` | differs | – | row `x` |\n| `a/two` | – | differs | row `y` |\n\nMore.\n\n" + two +
		"| `a/all` | differs | differs | row `z` |\n\nThe end.\n"
	v, err := cases.ReadVersions([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	if !v.Differs("a/one", "1.33") || v.Differs("a/one", "1.37") || v.Differs("a/none", "1.33") || !v.Differs("a/all", "1.33") {
		t.Errorf("%+v", v.Rows)
	}
	// A new column moves what no longer differs on every minor to the first table.
	got := string(v.With("1.36", map[string]string{"a/one": "", "a/new": ""}, func(name string) string { return "why " + name }))
	want := "# Title\n\n" + three +
		"| `a/all` | differs | – | differs | row `z` |\n| `a/new` | – | differs | – | why a/new |\n| `a/one` | differs | differs | – | row `x` |\n" +
		"| `a/two` | – | – | differs | row `y` |\n\nMore.\n\n" + three + "\nThe end.\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// What is written can be read, and is written again as it was.
	if v, err = cases.ReadVersions([]byte(got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(v.With("1.36", map[string]string{"a/one": "", "a/new": ""}, nil))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// A case that differs nowhere any more has no row.
	if v, err = cases.ReadVersions([]byte(page)); err != nil {
		t.Fatal(err)
	}
	want = "# Title\n\n" + two + "| `a/two` | – | differs | row `y` |\n\nMore.\n\n" + two + "| `a/all` | differs | differs | row `z` |\n\nThe end.\n"
	if diff := cmp.Diff(want, string(v.With("1.33", map[string]string{"a/all": ""}, nil))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, bad := range []string{
		"", "| Case | Why |\n", two, two + "\n" + three,
		two + "\n| Case | 1.33 | 1.37 | Why |\n| --- | --- | --- | --- |\n| `a/one` | differs |\n",
	} {
		if _, err := cases.ReadVersions([]byte(bad)); err == nil {
			t.Errorf("ReadVersions(%q) finds its tables", bad)
		}
	}
}
