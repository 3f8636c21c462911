package promote

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func policyOf(t *testing.T, group, name, value string) *unstructured.Unstructured {
	t.Helper()
	return object(t, fmt.Sprintf(`
apiVersion: %s/v1
kind: MutatingAdmissionPolicy
metadata: {name: %s, labels: {team: a}, annotations: {note: x}}
spec:
  reinvocationPolicy: Never
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data/k", value: "%s"}]'}}]
`, group, name, value))
}

func bindingOf(t *testing.T, group, name, of, annotations string) *unstructured.Unstructured {
	t.Helper()
	return object(t, fmt.Sprintf(`
apiVersion: %s/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %s, annotations: {%s}}
spec: {policyName: %s, matchResources: {objectSelector: {matchLabels: {a: b}}}}
`, group, name, annotations, of))
}

// etcd has the stored objects, and in news all changes for watches.
type etcd struct {
	t       *testing.T
	objects map[nativepolicies.Key]*unstructured.Unstructured
	version int
	news    map[[2]string][]change // by group and kind, in order
	read    map[*unstructured.Unstructured]*Object
}

// object caches the results of NewObject.
func (e *etcd) object(u *unstructured.Unstructured) *Object {
	if e.read[u] == nil {
		e.read[u] = NewObject(u)
	}
	return e.read[u]
}

type change struct {
	key nativepolicies.Key
	obj *unstructured.Unstructured
}

func newEtcd(t *testing.T, objects ...*unstructured.Unstructured) *etcd {
	e := &etcd{t: t, objects: map[nativepolicies.Key]*unstructured.Unstructured{}, news: map[[2]string][]change{}, read: map[*unstructured.Unstructured]*Object{}}
	for _, u := range objects {
		e.put(u)
	}
	return e
}

func source(k nativepolicies.Key) [2]string { return [2]string{k.Group, strconv.FormatBool(k.Binding)} }

func (e *etcd) put(u *unstructured.Unstructured) {
	k := keyOf(&Object{Unstructured: u})
	e.version++
	u = u.DeepCopy()
	u.SetResourceVersion(strconv.Itoa(e.version))
	if is := e.objects[k]; is != nil {
		u.SetUID(is.GetUID())
		u.SetGeneration(is.GetGeneration())
		if !reflect.DeepEqual(u.Object["spec"], is.Object["spec"]) {
			u.SetGeneration(is.GetGeneration() + 1)
		}
	} else {
		u.SetUID(types.UID("u" + strconv.Itoa(e.version)))
	}
	e.objects[k] = u
	e.news[source(k)] = append(e.news[source(k)], change{k, u})
}

func (e *etcd) drop(k nativepolicies.Key) {
	delete(e.objects, k)
	e.news[source(k)] = append(e.news[source(k)], change{k, nil})
}

func (e *etcd) world(policy string) *World {
	w := &World{Policy: policy, Objects: map[nativepolicies.Key]*Object{}}
	for k, u := range e.objects {
		w.Objects[k] = e.object(u)
	}
	return w
}

// do executes an action if the object is still in the version that the promoter has read.
func (e *etcd) do(a Action) bool {
	is := e.objects[a.Key]
	switch {
	case a.Seen == nil && is != nil, a.Seen != nil && (is == nil || is.GetResourceVersion() != a.Seen.Version || is.GetUID() != a.Seen.UID):
		return false
	case a.Annotate != nil:
		u := is.DeepCopy()
		all := u.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		for k, v := range a.Annotate {
			if delete(all, k); v != nil {
				all[k] = *v
			}
		}
		u.SetAnnotations(all)
		e.put(u)
	case a.Part == nil:
		e.drop(a.Key)
	default:
		e.put(a.Part.Object)
	}
	return true
}

// view has the objects that a server or a replica knows: it has received the first changes of each
// watch, and may lack later ones.
type view struct {
	at    map[[2]string]int
	knows map[nativepolicies.Key]*unstructured.Unstructured
}

func newView() *view {
	return &view{map[[2]string]int{}, map[nativepolicies.Key]*unstructured.Unstructured{}}
}

// hear delivers some of the changes that the view lacks; all of them if random is nil.
func (v *view) hear(e *etcd, random *rand.Rand) {
	for _, src := range [][2]string{{api.OwnGroup, "false"}, {api.OwnGroup, "true"}, {api.NativeGroup, "false"}, {api.NativeGroup, "true"}} {
		all := e.news[src]
		for v.at[src] < len(all) && (random == nil || random.IntN(3) > 0) {
			c := all[v.at[src]]
			v.at[src]++
			if c.obj == nil {
				delete(v.knows, c.key)
			} else {
				v.knows[c.key] = c.obj
			}
		}
	}
}

// runs reports whether a view's policy and binding of a group are enforced.
func (v *view) runs(group, policy, binding string) bool {
	p, b := v.knows[nativepolicies.Key{Group: group, Name: policy}], v.knows[nativepolicies.Key{Group: group, Binding: true, Name: binding}]
	if p == nil || b == nil {
		return false
	}
	mode := b.GetAnnotations()[modeAnnotation]
	if mode == "" {
		mode = p.GetAnnotations()[modeAnnotation]
	}
	return group == api.NativeGroup || mode != shadow
}

func (v *view) fingerprint(e *etcd, group, policy string) string {
	var bindings []*Object
	var p *Object
	for _, k := range slices.SortedFunc(maps.Keys(v.knows), func(a, b nativepolicies.Key) int {
		return slices.Compare([]string{a.Group, a.Name}, []string{b.Group, b.Name})
	}) {
		switch o := v.knows[k]; {
		case k.Group != group:
		case k.Binding:
			bindings = append(bindings, e.object(o))
		case k.Name == policy:
			p = e.object(o)
		}
	}
	return fingerprint(p, bindings)
}

// promoter is one call of mapd promote. It may be late: it may execute an action that it decided
// on before other writes.
type promoter struct {
	Options
	proofs Proofs
	todo   []Action
	ask    Next
	ended  bool
}

// A request that was mutated before the move is mutated at every moment, even if promoters are
// killed, are late, or move in opposite directions, and if users edit objects meanwhile.
func TestNoRequestIsMissed(t *testing.T) {
	done := map[Direction]int{}
	backs := 0
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 15))
		e := newEtcd(t, policyOf(t, api.OwnGroup, "p", "v1"), bindingOf(t, api.OwnGroup, "bx", "p", "mapd.dev/mode: enforce"), bindingOf(t, api.OwnGroup, "by", "p", ""))
		servers, replicas := []*view{newView(), newView()}, []*view{newView(), newView()}
		configs := []*view{newView(), newView()} // what the servers know of mapd's webhook entries, which replicas write
		views := slices.Concat(servers, replicas, configs)
		for _, v := range views {
			v.hear(e, nil)
		}
		ids := 0
		var trace []string
		start := func() *promoter {
			ids++
			p := &promoter{Options: Options{To: Native, ID: "id" + strconv.Itoa(ids), Canary: random.IntN(4) > 0}}
			if random.IntN(2) == 0 {
				p.To = Mapd
			}
			if random.IntN(3) == 0 {
				p.Exempt = []string{"kube-system", "mapd-system"}
			}
			return p
		}
		crowd := []*promoter{start(), start()}
		check := func(step int, what string) {
			for i, s := range servers {
				for _, b := range []string{"bx", "by"} {
					if s.runs(api.NativeGroup, "p", b) {
						continue
					}
					for j, r := range replicas {
						// A server calls mapd for an entry; what is in shadow has one, too.
						c := configs[i].knows
						called := c[nativepolicies.Key{Group: api.OwnGroup, Name: "p"}] != nil && c[nativepolicies.Key{Group: api.OwnGroup, Binding: true, Name: b}] != nil
						if !called || !r.runs(api.OwnGroup, "p", b) {
							t.Fatalf("seed %d, step %d: after %s, server %d and replica %d do not mutate for binding %s; the last writes:\n%s", seed, step, what, i, j, b,
								strings.Join(trace[max(0, len(trace)-20):], "\n"))
						}
					}
				}
			}
		}
		for step := range 1000 {
			for _, v := range views {
				v.hear(e, random)
				check(step, "news")
			}
			switch random.IntN(60) {
			case 0: // the promoter is killed, and another one is started
				crowd[random.IntN(2)] = start()
			case 1: // an edit
				keys := slices.Collect(maps.Keys(e.objects))
				slices.SortFunc(keys, func(a, b nativepolicies.Key) int {
					return slices.Compare([]string{a.Group, a.Name}, []string{b.Group, b.Name})
				})
				k := keys[random.IntN(len(keys))]
				if !k.Binding {
					u := e.objects[k].DeepCopy()
					u.Object["spec"] = policyOf(t, k.Group, "p", "v"+strconv.Itoa(step)).Object["spec"]
					e.put(u)
				}
			}
			p := crowd[random.IntN(2)]
			switch {
			case p.ended:
				crowd[slices.Index(crowd, p)] = start()
			case len(p.todo) > 0:
				if a := p.todo[0]; !e.do(a) {
					p.todo = nil
				} else {
					p.todo = p.todo[1:]
					trace = append(trace, fmt.Sprint(step, " ", p.ID, " to ", p.To, ": ", a.String()))
					check(step, a.String())
				}
			case p.ask.Ask != "":
				known := func(views []*view, group string) bool {
					return !slices.ContainsFunc(views, func(v *view) bool { return v.fingerprint(e, group, "p") != p.ask.About })
				}
				switch {
				case p.ask.Ask == AskNative && known(servers, api.NativeGroup):
					p.proofs.Native = p.ask.About
				case p.ask.Ask == AskOwn && known(replicas, api.OwnGroup) && known(configs, api.OwnGroup):
					p.proofs.Own = p.ask.About
				case p.ask.Ask == AskCanary && random.IntN(2) == 0:
					p.proofs.Differs, p.proofs.Why = p.ask.About, "field a differs"
				case p.ask.Ask == AskCanary:
					p.proofs.Agreed = p.ask.About
				}
				p.ask = Next{}
			default:
				next := Decide(e.world("p"), p.Options, p.proofs)
				if next.Back != "" {
					p.To = Mapd
					backs++
				}
				p.todo, p.ask = next.Do, next
				if p.ended = next.Done || next.Err != nil; next.Done {
					done[p.To]++
				}
				if next.Err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, next.Err)
				}
			}
		}
	}
	t.Logf("%v moves were completed, %d steps of going back", done, backs)
	if done[Native] < 10 || done[Mapd] < 10 || backs < 3 {
		t.Errorf("%v moves were completed, %d steps of going back: nothing is shown", done, backs)
	}
}
