package cases_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/test/cases"
)

func TestVersionsTable(t *testing.T) {
	const page = "# Title\n\n| Case | 1.33 | 1.37 | Why |\n| --- | --- | --- | --- |\n" +
		"| `a/one` | differs | – | row `x` |\n| `a/two` | – | differs | row `y` |\n\nThe end.\n"
	v, err := cases.ReadVersions([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	if !v.Differs("a/one", "1.33") || v.Differs("a/one", "1.37") || v.Differs("a/none", "1.33") {
		t.Errorf("%+v", v.Rows)
	}
	got := string(v.With("1.36", map[string]string{"a/one": "", "a/new": ""}, func(name string) string { return "why " + name }))
	want := "# Title\n\n| Case | 1.33 | 1.36 | 1.37 | Why |\n| --- | --- | --- | --- | --- |\n" +
		"| `a/new` | – | differs | – | why a/new |\n| `a/one` | differs | differs | – | row `x` |\n| `a/two` | – | – | differs | row `y` |\n\nThe end.\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// A case that differs nowhere any more has no row.
	if v, err = cases.ReadVersions([]byte(page)); err != nil {
		t.Fatal(err)
	}
	want = "# Title\n\n| Case | 1.33 | 1.37 | Why |\n| --- | --- | --- | --- |\n| `a/two` | – | differs | row `y` |\n\nThe end.\n"
	if diff := cmp.Diff(want, string(v.With("1.33", nil, nil))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, bad := range []string{"", "| Case | Why |\n", "| Case | 1.33 | Why |\n| --- | --- | --- |\n| `a/one` | differs |\n"} {
		if _, err := cases.ReadVersions([]byte(bad)); err == nil {
			t.Errorf("ReadVersions(%q) finds a table", bad)
		}
	}
}
