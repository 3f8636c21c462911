package providers

import (
	"encoding/base64"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

// Providers are reported once all have been read, and after each change. The valid
// version of one that became invalid stays, unless it is another object.
func TestProviders(t *testing.T) {
	_, ca, err := servingcert.SelfSigned([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	type report struct {
		names   string
		refused int
	}
	var last report
	set := 0
	p := New(func(valid []*legacy.Provider, refused int) {
		r := report{refused: refused}
		for _, v := range valid {
			r.names += fmt.Sprintf("%s:%s:%t ", v.Name, v.Timeout, v.NoSideEffects)
		}
		last = r
		set++
	})
	p.Start(featuretest.Deps(t))
	provider := func(name, uid string, generation, timeout int64) *unstructured.Unstructured {
		u := featuretest.Parse(t, fmt.Sprintf(`{apiVersion: externaldata.gatekeeper.sh/v1beta1, kind: Provider, metadata: {name: %s},
  spec: {url: "https://h/", timeout: %d, caBundle: %s}}`, name, timeout, base64.StdEncoding.EncodeToString(ca)))
		u.SetUID(types.UID(uid))
		u.SetGeneration(generation)
		return u
	}
	wants := func(what string, want report) {
		t.Helper()
		p.Update(t.Context(), false)
		if last != want {
			t.Errorf("%s: %+v, want %+v", what, last, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if p.Ready() == nil {
		t.Error("ready before anything was read")
	}
	p.mirror.SetServed(true)
	must(p.mirror.Replace([]any{provider("b", "1", 1, 2), provider("a", "2", 1, 1), provider("c", "3", 1, -1)}, ""))
	wants("at first", report{"a:1s:false b:2s:false ", 1})
	must(p.mirror.Update(provider("b", "1", 2, -1)))
	wants("an invalid update", report{"a:1s:false b:2s:false ", 2})
	must(p.mirror.Update(provider("b", "4", 1, -1)))
	wants("another invalid object", report{"a:1s:false ", 2})
	pure := provider("a", "2", 1, 1)
	pure.SetAnnotations(map[string]string{legacy.SideEffectsAnnotation: "None"})
	must(p.mirror.Update(pure))
	wants("an annotation", report{"a:1s:true ", 2})
	must(p.mirror.Delete(provider("a", "2", 1, 1)))
	wants("a deletion", report{"", 2})
	if err := p.Ready(); err != nil {
		t.Error(err)
	}
	before := set
	if wants("nothing new", last); set != before {
		t.Error("what has not changed was set again")
	}
}
