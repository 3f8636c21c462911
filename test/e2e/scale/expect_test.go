//go:build e2e

package scale

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/test/e2e/scale/result"
	"github.com/mapd-project/mapd/test/load"
)

// An expectation is what the library makes of objects, and what was found that is not so.
type expectation struct {
	policies *mapd.Policies

	mu     sync.Mutex
	counts map[string]*result.Check
	errs   []string
	seen   map[string]bool // UIDs of what controllers have created
}

func newExpectation(t *testing.T, m load.Mix) *expectation {
	t.Helper()
	var docs []byte
	for _, o := range append(m.Context(), m.Objects()...) {
		docs = append(append(docs, "---\n"...), encode(o.Object)...)
	}
	policies, err := mapd.Load(mapd.Options{ToolOptions: mapd.ToolOptions{Brief: true}}, mapd.File{Name: "policies", Data: docs})
	if err != nil {
		t.Fatal(err)
	}
	return &expectation{policies: policies, counts: map[string]*result.Check{}, seen: map[string]bool{}}
}

// encode returns JSON of what came from JSON.
func encode(object any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return data
}

// apply returns what the policies make of an object that is created, and whether that is
// a change. It may be modified.
func (e *expectation) apply(object map[string]any) (after map[string]any, changed bool, err error) {
	for d, err := range mapd.Read("object", bytes.NewReader(encode(object))) {
		if err != nil {
			return nil, false, err
		}
		r, err := e.policies.Eval(context.Background(), d, mapd.RequestOptions{})
		if err != nil {
			return nil, false, err
		}
		if r.Denied() {
			return nil, false, fmt.Errorf("the policies refuse %s: %s", d.Name(), r.Decision.Status.Message)
		}
		err = json.Unmarshal(encode(r.Object()), &after)
		return after, r.Changed(), err
	}
	return nil, false, fmt.Errorf("%v is no object", object)
}

// must is apply for objects that policies can be applied to.
func (e *expectation) must(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	after, _, err := e.apply(object)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// same compares what is stored of an object that was sent with what the policies make of
// it: their labels and no others, and each field that they set.
func (e *expectation) same(sent, stored map[string]any) error {
	want, _, err := e.apply(sent)
	if err != nil {
		return err
	}
	name := (&unstructured.Unstructured{Object: sent}).GetName()
	if a, b := (&unstructured.Unstructured{Object: want}).GetLabels(), (&unstructured.Unstructured{Object: stored}).GetLabels(); !maps.Equal(a, b) {
		return fmt.Errorf("%s %s has the labels %v, want %v", sent["kind"], name, slices.Sorted(maps.Keys(b)), slices.Sorted(maps.Keys(a)))
	}
	if path, ok := within(want, stored); !ok {
		return fmt.Errorf("%s %s: %s is not as the policies make it", sent["kind"], name, path)
	}
	return nil
}

// settled says what policies would change of an object that they have changed already.
func (e *expectation) settled(object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	after, changed, err := e.apply(object)
	switch {
	case err != nil:
		return err
	case !changed:
		return nil
	}
	path, _ := within(after, object)
	return fmt.Errorf("%s %s/%s of %s: policies would change %s", u.GetKind(), u.GetNamespace(), u.GetName(), u.GetCreationTimestamp().Format(time.TimeOnly), path)
}

// within reports whether all of want is in got, and where it is not. A server adds fields,
// and no elements of lists.
func within(want, got any) (path string, ok bool) {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return "", len(want) == 0 && got == nil
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if path, ok := within(want[k], m[k]); !ok {
				return "/" + k + path, false
			}
		}
		return "", true
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(want) {
			return "", len(want) == 0 && got == nil
		}
		for i := range want {
			if path, ok := within(want[i], l[i]); !ok {
				return fmt.Sprintf("/%d%s", i, path), false
			}
		}
		return "", true
	}
	return "", equality.Semantic.DeepEqual(want, got)
}

// count counts an object that was checked; wrong is nil if it is right.
func (e *expectation) count(what string, wrong error, lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.counts[what]
	if c == nil {
		c = &result.Check{What: what}
		e.counts[what] = c
	}
	c.Objects++
	switch {
	case lost:
		c.Lost++
	case wrong != nil:
		c.Wrong++
	default:
		return
	}
	if len(e.errs) < 20 {
		e.errs = append(e.errs, fmt.Sprintf("%s: lost: %v: %v", what, lost, wrong))
	}
}

// report writes down what was counted, and fails the test if anything is lost or wrong.
func (e *expectation) report(t *testing.T, w *world) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, what := range []string{"own writes: Pod", "own writes: ConfigMap", "own writes: update", byControllers + "Pod", byControllers + "ReplicaSet", byControllers + "Job"} {
		if e.counts[what] == nil {
			t.Errorf("nothing was checked of %q", what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(e.counts)) {
		w.data.Add(result.Line{T: w.now(), Check: e.counts[what]})
	}
	for _, text := range e.errs {
		t.Error(text)
		w.data.Add(result.Line{T: w.now(), Note: text})
	}
}

// created are the kinds that controllers create.
var created = []struct {
	kind, path string
	resource   schema.GroupVersionResource
}{
	{"Pod", "/api/v1/pods", schema.GroupVersionResource{Version: "v1", Resource: "pods"}},
	{"ReplicaSet", "/apis/apps/v1/replicasets", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}},
	{"Job", "/apis/batch/v1/jobs", schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}},
}

// ofControllers selects what controllers have created since the cluster was filled.
const ofControllers = "!" + preloaded + ",!" + streamLabel

// checkOthers checks what controllers create, while they do.
func (w *world) checkOthers(ctx context.Context) {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(w.Dynamic, 0, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.LabelSelector = ofControllers })
	for _, c := range created {
		// It fails only where the informer has ended.
		_, _ = factory.ForResource(c.resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { w.checkOther(o.(*unstructured.Unstructured)) },
		})
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// checkLast checks what checkOthers has not seen.
func (w *world) checkLast(ctx context.Context) {
	for _, c := range created {
		var list unstructured.UnstructuredList
		path := c.path + "?labelSelector=" + url.QueryEscape(ofControllers)
		err := w.sender.get(ctx, path, &list)
		for tries := 0; err != nil && tries < 5; tries++ {
			pause(ctx, time.Second)
			err = w.sender.get(ctx, path, &list)
		}
		if err != nil {
			w.expect.count(byControllers+c.kind, fmt.Errorf("not checked: %w", err), false)
		}
		for i := range list.Items {
			w.checkOther(&list.Items[i])
		}
	}
}

const byControllers = "created by controllers: "

// checkOther checks what a controller has created, once.
func (w *world) checkOther(u *unstructured.Unstructured) {
	w.mu.Lock()
	acting := w.acting
	w.mu.Unlock()
	// Times of objects have whole seconds, so some that are right are left out.
	if acting.IsZero() || !strings.HasPrefix(u.GetNamespace(), "mix-t") || u.GetCreationTimestamp().Time.Before(acting.Add(time.Second)) || w.expect.isKnown(string(u.GetUID())) {
		return
	}
	w.expect.count(byControllers+u.GetKind(), w.expect.settled(u.Object), false)
}

func (e *expectation) isKnown(uid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.seen[uid]
	e.seen[uid] = true
	return known
}
