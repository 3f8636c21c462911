package modulepolicy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/test/guest"
)

// Policies are replaced while requests meet them, of modules that answer, trap and loop.
// Each request gets the answer of the policy that it met, and in the end no module is
// left.
func TestReplacedWhileTheyRun(t *testing.T) {
	l := loader(t)
	dir := t.TempDir()
	kinds := []struct {
		answers guest.Answers
		want    string // part of the status; empty: none
	}{
		{guest.Answers{}, ""},
		{guest.Answers{Validate: `{"accepted":false,"message":"first"}`}, "first"},
		{guest.Answers{Validate: `{"accepted":false,"message":"second"}`}, "second"},
		{guest.Answers{Trap: true}, "unreachable"},
	}
	type met struct {
		engine *engine.Engine
		want   string
	}
	var now atomic.Pointer[met]
	replace := func(n int) {
		k := kinds[n%len(kinds)]
		path := filepath.Join(dir, fmt.Sprint(n%len(kinds), ".wasm"))
		if err := os.WriteFile(path, guest.Module(k.answers), 0o600); err != nil {
			t.Error(err)
		}
		p, err := mapd.Load(mapd.Options{Modules: l}, mapd.File{Name: "policies.yaml", Data: []byte(strings.ReplaceAll(policyText, "MODULE", path))})
		if err != nil {
			t.Error(err)
			return
		}
		now.Store(&met{p.Engine(), k.want})
	}
	replace(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 40 {
				m := now.Load()
				d := m.engine.Admit(t.Context(), request(t))
				if (d.Status == nil) != (m.want == "") || d.Status != nil && !strings.Contains(d.Status.Message, m.want) {
					t.Errorf("status %v; want %q", d.Status, m.want)
				}
			}
		})
	}
	for n := range 20 {
		replace(n)
		runtime.GC() // policies that nobody holds free their modules
	}
	wg.Wait()
	now.Store(nil)
	for end := time.Now().Add(time.Minute); l.Count() > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d modules are left", l.Count())
		}
	}
}
