package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	mapdpolicy "github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/oracle"
)

// Kubernetes and mapd give the results that benchmarks expect.
func TestCases(t *testing.T) {
	hammer.Alone(t)
	for _, c := range append(slices.Clone(Cases), Shapes) {
		for _, o := range Objects {
			t.Run(c.Name+"/"+o.Name, func(t *testing.T) {
				w := Match(c, o, 3)
				if cases.Same(w.Request.Object, w.WantObject) {
					t.Fatal("nothing is to change")
				}
				if c.HasPolicy() {
					kubernetes(t, w)
					for name, s := range map[string]Side{"policies": Policies(), "compiled": Compiled(), "loaded": Loaded(), "changed": Changed()} {
						checkRun(t, name, s, w)
					}
				}
				if c.HasMutator() {
					checkRun(t, "mutators", Mutators(), w)
					checkRun(t, "loaded mutators", LoadedMutators(), w)
				}
			})
		}
	}
}

func TestMissesAndTenants(t *testing.T) {
	hammer.Alone(t)
	workloads := map[string]*Workload{}
	for _, how := range Misses {
		for _, n := range []int{0, 3} {
			workloads[fmt.Sprintf("miss %s %d", how, n)] = Miss(how, n)
		}
	}
	for _, way := range Selectors {
		workloads["miss by "+way] = Select(way, 11)
	}
	for _, how := range Tenants {
		workloads["tenants "+how] = Tenant(how, 5, false)
		workloads["tenants "+how+" alone"] = Tenant(how, 5, true)
	}
	workloads["many"] = Many(Cases[0], 4)
	for name, w := range workloads {
		t.Run(name, func(t *testing.T) {
			kubernetes(t, w)
			checkRun(t, "policies", Policies(), w)
			checkRun(t, "mutators", Mutators(), w)
			if len(w.Policies) > 0 {
				checkRun(t, "loaded", Loaded(), w)
				checkRun(t, "changed", Changed(), w)
			}
			if strings.HasPrefix(name, "miss") != cases.Same(w.Request.Object, w.WantObject) {
				t.Error("only a tenant's object is to change")
			}
		})
	}
}

func TestReview(t *testing.T) {
	for _, o := range Objects {
		w := Match(Label, o, 2)
		r := review(t, w)
		if len(r) < o.Size() {
			t.Errorf("%s: a review of %d bytes", o.Name, len(r))
		}
	}
}

// Sides that compile get a different text each time.
func TestRenewed(t *testing.T) {
	for _, c := range append(slices.Clone(Cases), Shapes) {
		if !c.HasPolicy() {
			continue
		}
		stored := Match(c, Objects[0], 1).Policies[0]
		text, err := stored.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		want, err := mapdpolicy.DecodeJSON(anew(text, 3))
		if err != nil {
			t.Fatal(err)
		}
		obj, err := mapdpolicy.Decode(stored)
		if err != nil {
			t.Fatal(err)
		}
		if cmp.Equal(want, obj) {
			t.Errorf("%s: nothing is new", c.Name)
		}
		if diff := cmp.Diff(want, renewed(obj, "// 3\n")); diff != "" {
			t.Errorf("%s (-anew +renewed):\n%s", c.Name, diff)
		}
	}
}

// Check finds every kind of wrong answer.
func TestCheck(t *testing.T) {
	w := Match(Label, Objects[0], 2)
	w.WantObject.SetLabels(map[string]string{"another": "label"})
	err := Check(t.Context(), Policies(), w)
	if err == nil || !strings.Contains(err.Error(), `"another": string("label")`) {
		t.Errorf("error %v", err)
	}
	w = Match(Label, Objects[0], 1)
	w.Policies = append(w.Policies, policy(Label, Objects[0], 7, ""))
	w.Bindings = append(w.Bindings, bind(Label, 7, 7, ""))
	if err := Check(t.Context(), Policies(), w); err == nil {
		t.Error("a label too many is not seen")
	}
}

func checkRun(t *testing.T, name string, s Side, w *Workload) {
	t.Helper()
	if err := Check(t.Context(), s, w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if got, err := s.Run(t.Context()); got == nil || err != nil {
		t.Errorf("%s: %v, %v", name, got, err)
	}
}

func kubernetes(t *testing.T, w *Workload) {
	t.Helper()
	got, err := oracle.Run(t.Context(), w)
	if err == nil && got.Status != nil {
		err = errors.New(got.Status.Message)
	}
	if err != nil || got.Panic != nil {
		t.Fatal(err, got.Panic)
	}
	if !cases.Same(w.WantObject, got.Object) {
		t.Fatalf("Kubernetes has another answer:\n%v\nwant\n%v", got.Object, w.WantObject)
	}
}
