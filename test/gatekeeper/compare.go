package gatekeeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// Comparison holds mapd against Gatekeeper, and counts.
type Comparison struct {
	// Cases, Mutators and Refused count what was compared; Mutated and Errors how
	// many requests Gatekeeper changed and refused.
	Cases, Mutators, Refused, Mutated, Errors int
	// Native and Kubernetes count the requests on which native policies were
	// compared, in mapd and in the API server's dispatcher. NotAllowed are requests
	// of which either object is none of its kind, which native policies refuse.
	Native, Kubernetes, NotAllowed int
	// Traps counts the requests for whose mutators no policy is exact, by the
	// reason.
	Traps map[string]int
	// Rows counts how often a row of docs/reference/compat.md made a difference.
	Rows map[string]int

	shapes *Shapes
	// every is on which of the cases Kubernetes is asked too.
	every int
}

// NewComparison returns one that has counted nothing.
func NewComparison() *Comparison {
	return &Comparison{Traps: map[string]int{}, Rows: map[string]int{}, shapes: NewShapes(), every: 10}
}

func (c *Comparison) String() string {
	return fmt.Sprintf("%d requests with %d mutators, %d of which are refused: %d changed, %d refused; otherwise on purpose: %v; "+
		"native policies: %d requests in mapd, %d in Kubernetes' dispatcher, %d not allowed, not exact: %v",
		c.Cases, c.Mutators, c.Refused, c.Mutated, c.Errors, c.Rows, c.Native, c.Kubernetes, c.NotAllowed, c.Traps)
}

// Add adds what another comparison has counted.
func (c *Comparison) Add(other *Comparison) {
	c.Cases += other.Cases
	c.Mutators += other.Mutators
	c.Refused += other.Refused
	c.Mutated += other.Mutated
	c.Errors += other.Errors
	c.Native += other.Native
	c.Kubernetes += other.Kubernetes
	c.NotAllowed += other.NotAllowed
	for trap, n := range other.Traps {
		c.Traps[trap] += n
	}
	for row, n := range other.Rows {
		c.Rows[row] += n
	}
}

// Set is mutators on all sides.
type Set struct {
	Gatekeeper *Gatekeeper
	Mutators   []*legacy.Mutator
	Direct     *Direct
	Runtime    *Runtime
	// Native are the policies, translated when they are first asked for.
	Native func() (*Native, error)
}

// Take puts mutators in, with the defaults of an API server, on all sides, and
// returns how the sides differ about them. What mapd refuses and Gatekeeper does
// not, on purpose, is left out.
func (c *Comparison) Take(us []*unstructured.Unstructured, providers Providers) (*Set, []string, error) {
	var differences []string
	var kept []*unstructured.Unstructured
	s := &Set{}
	for _, u := range us {
		u, err := Default(u)
		if err != nil {
			return nil, nil, err
		}
		m, difference := c.accept(u)
		if difference != "" {
			differences = append(differences, difference)
		}
		if m != nil {
			kept, s.Mutators = append(kept, u), append(s.Mutators, m)
		}
	}
	s.Gatekeeper = New(kept, providers)
	differences = append(differences, s.conflicts()...)
	s.Direct, s.Runtime = NewDirect(s.Mutators, providers), c.shapes.NewRuntime(s.Mutators, providers)
	s.Native = sync.OnceValues(func() (*Native, error) { return NewNative(s.Mutators, translate.Options{Types: types}) })
	return s, differences, nil
}

// accept asks both sides whether a mutator is valid, and returns it if it is one
// to go on with, or how they differ.
func (c *Comparison) accept(u *unstructured.Unstructured) (*legacy.Mutator, string) {
	c.Mutators++
	_, theirs := decode(u)
	m, ours := legacy.Decode(u)
	if theirs != nil || ours != nil {
		c.Refused++
	}
	switch {
	case theirs == nil && ours == nil:
		return m, ""
	case theirs == nil && refusedEarly(u):
		c.Rows[rowRefused]++
	case theirs != nil && ours != nil && notTheirs.MatchString(theirs.Error()):
	case cause(ours) != errText(theirs):
		return nil, fmt.Sprintf("%s/%s is refused\nby Gatekeeper: %v\nby mapd:       %s", u.GetKind(), u.GetName(), theirs, cause(ours))
	}
	return nil, ""
}

// notTheirs matches errors whose words are those of Go and of Kubernetes, or in
// which Gatekeeper names another path than the one it means.
var notTheirs = regexp.MustCompile(`^json: | in scheme "| is marked MustExist but parent `)

// cause is what a mutator is refused for, without where.
func cause(err error) string {
	var e *legacy.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return errText(err)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// refusedEarly says whether mapd refuses a mutator that Gatekeeper takes in and
// whose requests it refuses.
func refusedEarly(u *unstructured.Unstructured) bool {
	spec, _ := u.Object["spec"].(map[string]any)
	parameters, _ := spec["parameters"].(map[string]any)
	values, _ := parameters["values"].(map[string]any)
	match, _ := spec["match"].(map[string]any)
	operation := text(parameters, "operation")
	for _, field := range []string{"labelSelector", "namespaceSelector"} {
		var s metav1.LabelSelector
		data, err := json.Marshal(match[field])
		if err != nil || json.Unmarshal(data, &s) != nil {
			return false
		}
		if _, err := metav1.LabelSelectorAsSelector(&s); err != nil {
			return true
		}
	}
	switch {
	case !slices.Contains([]string{"", "All", "Original", "Generated"}, text(match, "source")):
		return true
	case u.GetKind() != "ModifySet":
		return false
	}
	return text(spec, "location") == "" || operation != "merge" && operation != "prune" || operation == "merge" && values["fromList"] == nil
}

// conflicts compares who is in conflict.
func (s *Set) conflicts() []string {
	want, reported := map[string]string{}, map[string]string{}
	for _, m := range s.Gatekeeper.members {
		id := m.ID()
		with := s.Gatekeeper.system.GetConflicts(id)
		switch {
		case with[id]:
			want[id.Kind+"/"+id.Name] = conflictText(with)
		case len(with) > 0:
			reported[id.Kind+"/"+id.Name] = conflictText(with)
		}
	}
	var differences []string
	for _, p := range []struct {
		what string
		want map[string]string
		got  map[string]legacy.Conflict
	}{{"in conflict", want, legacy.Conflicts(s.Mutators)}, {"reported as in conflict", reported, legacy.Reported(s.Mutators)}} {
		got := map[string]string{}
		for id, c := range p.got {
			got[id] = c.Error()
		}
		if d := cmp.Diff(p.want, got); d != "" {
			differences = append(differences, p.what+" (-Gatekeeper +mapd):\n"+d)
		}
	}
	return differences
}

// Request compares what the sides make of a request.
func (c *Comparison) Request(ctx context.Context, s *Set, r Request) ([]string, error) {
	c.Cases++
	var differences []string
	given, err := json.Marshal(r.Object)
	if err != nil {
		return nil, err
	}
	want, err := s.Gatekeeper.Mutate(ctx, r)
	if err != nil {
		return nil, err
	}
	switch {
	case want.Error != "":
		c.Errors++
	case want.Passes > 0:
		c.Mutated++
	}
	got, err := s.Direct.Mutate(r)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(want, got) {
		differences = append(differences, "direct interpreter (-Gatekeeper +mapd):\n"+cmp.Diff(want, got))
	}
	want, rows, err := s.Gatekeeper.MutateAs(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		c.Rows[row]++
	}
	if got, err = s.Runtime.Mutate(ctx, r); err != nil {
		return append(differences, "engine: "+err.Error()), nil
	}
	if d := diff(stored(r, want), got); d != "" {
		differences = append(differences, "engine (-Gatekeeper +mapd):\n"+d)
	}
	if after, err := json.Marshal(r.Object); err != nil || !bytes.Equal(given, after) {
		differences = append(differences, "the request's object was modified")
	}
	return differences, nil
}

// Policies compares what native policies make of a request, if they are exact,
// with what Gatekeeper does: in mapd, and in Kubernetes' dispatcher if asked to.
func (c *Comparison) Policies(ctx context.Context, s *Set, r Request, kubernetes bool) ([]string, error) {
	n, err := s.Native()
	if err != nil {
		return nil, err
	}
	if !n.Exact {
		for _, trap := range n.Traps {
			c.Traps[trap]++
		}
		return nil, nil
	}
	r, err = normal(r)
	if err != nil {
		c.NotAllowed++
		return nil, nil
	}
	want, _, err := s.Gatekeeper.MutateAs(ctx, r)
	if err != nil {
		return nil, err
	}
	if want = stored(r, want); want.Error == "" {
		after := r
		after.Object = want.Object
		if after, err = normal(after); err != nil {
			c.NotAllowed++
			return nil, nil
		}
		want.Object = after.Object
	}
	var differences []string
	side := func(name string, count *int, run func(context.Context, Request) (Result, error)) error {
		*count++
		got, err := run(ctx, r)
		if err != nil {
			return err
		}
		if (want.Error == "") != (got.Error == "") || diff(Result{Object: want.Object}, Result{Object: got.Object}) != "" {
			differences = append(differences, name+" (-Gatekeeper +policies):\n"+diff(Result{Error: want.Error, Object: want.Object}, got)+n.String())
		}
		return nil
	}
	if err := side("native policies in mapd", &c.Native, n.Mapd); err != nil {
		return nil, err
	}
	if kubernetes {
		return differences, side("native policies in Kubernetes", &c.Kubernetes, n.Kubernetes)
	}
	return differences, nil
}

// stored is a result as a server stores it: Gatekeeper answers with a patch, and
// finds no difference between numbers that are equal as floats.
func stored(r Request, after Result) Result {
	if after.Error == "" {
		after.Object = patched(r.Object, after.Object).(map[string]any)
	}
	return after
}

func patched(before, after any) any {
	switch a := after.(type) {
	case map[string]any:
		b, _ := before.(map[string]any)
		out := make(map[string]any, len(a))
		for key, v := range a {
			out[key] = patched(b[key], v)
		}
		return out
	case []any:
		b, _ := before.([]any)
		out := make([]any, len(a))
		for i, v := range a {
			var old any
			if i < len(b) {
				old = b[i]
			}
			out[i] = patched(old, v)
		}
		return out
	}
	if b, ok := float(before); ok {
		if a, ok := float(after); ok && a == b {
			return before
		}
	}
	return after
}

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// diff compares results where 1 and 1.0 are the same, as they are in a patch.
func diff(want, got Result) string {
	return cmp.Diff(plain(want), plain(got))
}

// plain is r after a way through JSON.
func plain(r Result) any {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return err
	}
	return out
}
