package modulepolicy_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/internal/kubewarden/download"
	"github.com/mapd-project/mapd/internal/kubewarden/modulepolicy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/guest"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/subject"
)

// Every case with policies of Kubewarden's has the result and the steps that it wants.
func TestCases(t *testing.T) {
	hammer.Alone(t)
	ran := 0
	for _, c := range cases.All(t) {
		if c.Skip["guests"] != "" {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			local, dir := map[string]string{}, t.TempDir()
			for name, answers := range c.Modules {
				path := filepath.Join(dir, name+".wasm")
				if err := os.WriteFile(path, guest.Module(answers), 0o600); err != nil {
					t.Fatal(err)
				}
				local["registry.example/"+name] = path
			}
			fetcher, err := download.New(download.Options{Local: local})
			if err != nil {
				t.Fatal(err)
			}
			loader, err := modulepolicy.New(context.Background(), modulepolicy.Options{Modules: fetcher})
			if err != nil {
				t.Fatal(err)
			}
			defer loader.Close()
			e, err := subject.Guests(&c, loader)
			if err != nil {
				t.Fatal(err)
			}
			d := e.Admit(t.Context(), subject.Request(&c.Request))
			if diff := c.Diff(subject.Outcome(d)); diff != "" {
				t.Errorf("%s\n%s\nsteps:\n%s", c.Story, diff, subject.Steps(d))
			}
			if diff := cmp.Diff(c.WantSteps, subject.Steps(d)); c.WantSteps != "" && diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
	if ran < 15 {
		t.Errorf("%d cases", ran)
	}
}
