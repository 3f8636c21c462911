package subject

import (
	"testing"

	"github.com/mapd-project/mapd/test/cases"
)

// Every case that does not say otherwise has the result that it wants.
func TestCases(t *testing.T) {
	for _, c := range cases.All(t) {
		t.Run(c.Name, func(t *testing.T) {
			if reason := c.Skip["engine"]; reason != "" {
				t.Skip(reason)
			}
			got, _, err := Run(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			if d := c.Diff(got); d != "" {
				t.Error(d)
			}
		})
	}
}
