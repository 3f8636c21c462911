package promote

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
)

// drive runs a promoter while servers and replicas receive each write at once. It returns the steps
// that the promoter took, which are writes and answers, and kills the promoter after the number
// most of them.
func (e *etcd) drive(o Options, differs bool, most int) (steps []string, ended bool) {
	e.t.Helper()
	var p Proofs
	for {
		next := Decide(e.world("p"), o, p)
		switch {
		case next.Err != nil:
			e.t.Fatalf("after %v: %v", steps, next.Err)
		case next.Done:
			return steps, true
		case len(next.Do) == 0 && next.Ask == "":
			e.t.Fatalf("after %v: nothing to do", steps)
		}
		if next.Back != "" {
			o.To = Mapd
		}
		for _, a := range next.Do {
			if len(steps) == most {
				return steps, false
			}
			if steps = append(steps, a.String()); !e.do(a) {
				e.t.Fatalf("after %v: somebody was faster", steps)
			}
			e.covered(steps)
		}
		if next.Ask == "" {
			continue
		}
		if len(steps) == most {
			return steps, false
		}
		steps = append(steps, "ask "+string(next.Ask))
		switch next.Ask {
		case AskNative:
			p.Native = next.About
		case AskOwn:
			p.Own = next.About
		case AskCanary:
			if p.Agreed = next.About; differs {
				p.Agreed, p.Differs, p.Why = "", next.About, "field a differs"
			}
		case AskGone:
			e.t.Fatalf("after %v: asks for what is gone already", steps)
		}
		if len(steps) > 100 {
			e.t.Fatalf("no end: %v", steps)
		}
	}
}

// covered checks that for each of the two bindings, mapd or the servers enforce the policy.
func (e *etcd) covered(steps []string) {
	e.t.Helper()
	v := &view{knows: e.objects}
	for _, b := range []string{"bx", "by"} {
		if !v.runs(api.NativeGroup, "p", b) && !v.runs(api.OwnGroup, "p", b) {
			e.t.Fatalf("after %v nobody mutates for %s", steps, b)
		}
	}
}

// state returns the stored objects as a text, without resourceVersions, generations and the like.
func (e *etcd) state() string {
	var out []string
	for k, u := range e.objects {
		u = u.DeepCopy()
		u.SetUID("")
		u.SetResourceVersion("")
		u.SetGeneration(0)
		if k.Group == api.NativeGroup { // the mark of the promotion that wrote it
			u.SetAnnotations(nil)
		}
		out = append(out, fmt.Sprint(k, u.Object))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// A promoter is killed after each of its steps, and the next one soon after it. The third one
// reaches the same end as if nobody had been killed, and so does one in the other direction.
func TestKilledAfterEachStep(t *testing.T) {
	begin := func() *etcd {
		return newEtcd(t, policyOf(t, api.OwnGroup, "p", "v1"), bindingOf(t, api.OwnGroup, "bx", "p", "mapd.dev/mode: enforce"), bindingOf(t, api.OwnGroup, "by", "p", ""))
	}
	promoted := func() *etcd {
		e := begin()
		e.drive(Options{To: Native, ID: "first", Exempt: []string{"kube-system"}}, false, 100)
		return e
	}
	atMapd, atServers := begin().state(), promoted().state()
	if strings.Contains(atServers, api.OwnGroup+" ") || !strings.Contains(atServers, api.NativeGroup) {
		t.Fatalf("the promoted policy is:\n%s", atServers)
	}
	for name, tt := range map[string]struct {
		begin   func() *etcd
		options Options
		differs bool
		want    string
		least   []string // steps that there have to be
	}{
		"promotion": {begin, Options{To: Native, Canary: true}, false, atServers, []string{"ask native", "ask own", "ask canary",
			"apply binding by." + api.NativeGroup, "annotate binding bx." + api.OwnGroup + ": " + modeAnnotation, "delete policy p." + api.OwnGroup}},
		"promotion in a window": {begin, Options{To: Native}, false, atServers, []string{"ask native", "delete policy p." + api.OwnGroup}},
		"a difference":          {begin, Options{To: Native, Canary: true}, true, atMapd, []string{"ask canary", "ask own", "delete policy p." + api.NativeGroup}},
		"demotion":              {promoted, Options{To: Mapd}, false, atMapd, []string{"ask own", "apply policy p." + api.OwnGroup, "delete policy p." + api.NativeGroup}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tt.options
			o.ID, o.Exempt = "a", []string{"kube-system"}
			e := tt.begin()
			all, _ := e.drive(o, tt.differs, 100)
			if got := e.state(); got != tt.want {
				t.Fatalf("after %v:\n%s\nwant:\n%s", all, got, tt.want)
			}
			for _, step := range tt.least {
				if !slices.Contains(all, step) {
					t.Errorf("no step %q in %v", step, all)
				}
			}
			for first := range all {
				e := tt.begin()
				steps, _ := e.drive(o, tt.differs, first)
				again := o
				again.ID = "b"
				more, _ := e.drive(again, tt.differs, first%4) // a promotion that had gone back is begun again
				again.ID = "c"
				last, _ := e.drive(again, tt.differs, 100)
				if got := e.state(); got != tt.want {
					t.Fatalf("killed after %v, and after %v, went on with %v:\n%s\nwant:\n%s", steps, more, last, got, tt.want)
				}
				// After the promoter was killed, another one moves in a given direction.
				for to, want := range map[Direction]string{Native: atServers, Mapd: atMapd} {
					e := tt.begin()
					steps, _ := e.drive(o, tt.differs, first)
					other := Options{To: to, ID: "d", Exempt: o.Exempt}
					last, _ := e.drive(other, false, 100)
					if next := Decide(e.world("p"), other, Proofs{}); !next.Done { // it went back first
						more, _ := e.drive(other, false, 100)
						last = append(last, more...)
					}
					if got := e.state(); got != want && !tt.differs {
						t.Fatalf("killed after %v, then moved to %s by %v:\n%s\nwant:\n%s", steps, to, last, got, want)
					}
				}
			}
			t.Logf("%d steps: %s", len(all), strings.Join(all, "; "))
		})
	}
}

// A policy that mapd no longer enforces is not moved to the servers, which would enforce it.
func TestGoesBackIfNotEnforced(t *testing.T) {
	trip := func(u *unstructured.Unstructured) *unstructured.Unstructured { return tripped(t, u) }
	for name, tt := range map[string]struct {
		edit func(e *etcd)
		want string
	}{
		"a breaker trips": {func(e *etcd) { e.put(trip(e.objects[nativepolicies.Key{Group: api.OwnGroup, Name: "p"}])) }, "its breaker tripped at 2026-01-02T03:04:05Z: half of all failed"},
		"a binding in shadow comes": {func(e *etcd) { e.put(bindingOf(t, api.OwnGroup, "bz", "p", "mapd.dev/mode: shadow")) },
			"binding bz is in mode shadow"},
		"a share comes": {func(e *etcd) { e.put(bindingOf(t, api.OwnGroup, "bz", "p", "mapd.dev/percent: '5'")) }, "binding bz takes 5 % of the objects"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{To: Native, ID: "a", Canary: true}
			begin := func() *etcd {
				p := policyOf(t, api.OwnGroup, "p", "v1")
				p.SetAnnotations(map[string]string{api.BreakerAnnotation: "errors=5%"})
				return newEtcd(t, p, bindingOf(t, api.OwnGroup, "bx", "p", "mapd.dev/mode: enforce"), bindingOf(t, api.OwnGroup, "by", "p", ""))
			}
			all, _ := begin().drive(o, false, 100)
			tried := 0
			for most := range all {
				e := begin()
				steps, _ := e.drive(o, false, most)
				own := e.objects[nativepolicies.Key{Group: api.OwnGroup, Name: "p"}]
				if own == nil {
					break
				}
				rec, err := recordOf(own)
				if err != nil || rec != nil && (rec.Phase == leave || rec.Phase == compare && name == "a breaker trips") {
					continue // it is in shadow already, or on the servers only
				}
				tried++
				tt.edit(e)
				why := ""
				for range 3 { // the record that it moves, the one that it does not
					next := Decide(e.world("p"), o, Proofs{})
					if why = next.Back; why != "" {
						break
					}
					if len(next.Do) != 1 || next.Do[0].Annotate == nil || !e.do(next.Do[0]) {
						t.Fatalf("after %v: %+v", steps, next)
					}
				}
				if !strings.Contains(strings.ReplaceAll(why, api.BindingKind, "binding"), tt.want) {
					t.Errorf("after %v it goes back because of %q, want %q", steps, why, tt.want)
				}
				if last, ended := e.drive(Options{To: Mapd, ID: "b"}, false, 100); !ended || e.objects[nativepolicies.Key{Group: api.NativeGroup, Name: "p"}] != nil {
					t.Errorf("after %v it does not come back: %v", steps, last)
				}
			}
			if tried == 0 {
				t.Errorf("nothing was tried after any of %v", all)
			}
		})
	}
}

// Rollout annotations of a native policy are dropped when it is adopted: servers have ignored them,
// and with them mapd would leave the policy in shadow.
func TestAdoptedIsEnforced(t *testing.T) {
	p := policyOf(t, api.NativeGroup, "p", "v1")
	p.SetAnnotations(map[string]string{modeAnnotation: "shadow", "note": "x"})
	e := newEtcd(t, p, bindingOf(t, api.NativeGroup, "bx", "p", "mapd.dev/percent: '1'"), bindingOf(t, api.NativeGroup, "by", "p", ""))
	e.drive(Options{To: Mapd, ID: "a", Adopt: true}, false, 100)
	for _, k := range []nativepolicies.Key{{Group: api.OwnGroup, Name: "p"}, {Group: api.OwnGroup, Binding: true, Name: "bx"}} {
		if r, faults := api.RolloutOf(e.objects[k].GetAnnotations()); len(faults) > 0 || !reflect.DeepEqual(r, api.Rollout{Share: api.Whole}) {
			t.Errorf("%v: %+v, %v", k, r, faults)
		}
	}
	if note := e.objects[nativepolicies.Key{Group: api.OwnGroup, Name: "p"}].GetAnnotations()["note"]; note != "x" {
		t.Errorf("the annotation note is %q", note)
	}
}
