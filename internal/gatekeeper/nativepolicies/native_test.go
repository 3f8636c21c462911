package nativepolicies

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/test/hammer"
)

// assign is an Assign of Pods.
func assign(t *testing.T, name, location, value string) Mutator {
	t.Helper()
	return decode(t, fmt.Sprintf(`
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: %s, uid: uid-of-%[1]s}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: %s
  parameters: {assign: {value: %s}}
`, name, location, value))
}

func decode(t *testing.T, text string) Mutator {
	t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	m, err := legacy.Decode(&u)
	if err != nil {
		t.Fatal(err)
	}
	return Mutator{m, Owner{u.GetAPIVersion(), u.GetKind(), u.GetName(), u.GetUID()}}
}

const prune = `
apiVersion: mutations.gatekeeper.sh/v1
kind: ModifySet
metadata: {name: prune, uid: p}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: spec.containers[name:app].args
  parameters: {operation: prune, values: {fromList: [x]}}
`

func TestWant(t *testing.T) {
	tests := map[string]struct {
		in    []Mutator
		units map[string][]string // owners by name
		stay  map[string]string   // beginnings
	}{
		"nothing": {},
		"each its own": {
			in:    []Mutator{assign(t, "b", "spec.nodeName", "n"), assign(t, "a", "spec.hostNetwork", "false")},
			units: map[string][]string{"assign-a": {"Assign/a"}, "assign-b": {"Assign/b"}},
		},
		"one for those whose order matters": {
			in:    []Mutator{assign(t, "b", "spec.nodeName", "n"), assign(t, "a", "spec.nodeName", "m")},
			units: map[string][]string{"assign-a-and-assign-b": {"Assign/a", "Assign/b"}},
		},
		"what differs stays, and what comes after it": {
			in: []Mutator{decode(t, prune), assign(t, "a", "spec.nodeName", "n"),
				assign(t, "z", `'spec.containers[name:"app"].args'`, "[y]")},
			units: map[string][]string{"assign-a": {"Assign/a"}},
			stay:  map[string]string{"ModifySet/prune": "differs: T21: ", "Assign/z": "has to run after ModifySet/prune, which stays"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := Want(tt.in, Options{})
			units := map[string][]string{}
			for _, u := range w.Units {
				for _, o := range u.Owners {
					units[u.Name] = append(units[u.Name], o.ID())
				}
				refs := u.Policy.Object.GetOwnerReferences()
				if len(refs) != len(u.Owners) || refs[0].BlockOwnerDeletion != nil || refs[0].UID != u.Owners[0].UID {
					t.Errorf("owner references of %s: %v", u.Name, refs)
				}
			}
			if d := cmp.Diff(tt.units, units); d != "" && len(tt.units)+len(units) > 0 {
				t.Errorf("units (-want):\n%s", d)
			}
			for id, why := range w.Stay {
				if begin, ok := tt.stay[id]; !ok || !strings.HasPrefix(why, begin) {
					t.Errorf("%s stays: %s", id, why)
				}
			}
			if len(w.Stay) != len(tt.stay) {
				t.Errorf("%d stay, want %d", len(w.Stay), len(tt.stay))
			}
		})
	}
}

// What a Config and mapd leave alone, the policies leave alone.
func TestWantExempt(t *testing.T) {
	w := Want([]Mutator{assign(t, "a", "spec.nodeName", "n")}, Options{Exempt: []string{"mapd-system"}})
	selector, _, _ := unstructured.NestedSlice(w.Units[0].Binding.Object.Object, "spec", "matchResources", "namespaceSelector", "matchExpressions")
	want := map[string]any{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []any{"mapd-system"}}
	if !slices.ContainsFunc(selector, func(e any) bool { return cmp.Equal(e, any(want)) }) {
		t.Errorf("the binding's selector is %v", selector)
	}
}

// What has to stay gets no policy, nor does what has to run after it.
func TestWantStay(t *testing.T) {
	list := []Mutator{assign(t, "a", "spec.nodeName", "n"), assign(t, "b", "spec.nodeName", "m"), assign(t, "c", "spec.schedulerName", "s")}
	w := Want(list, Options{Stay: map[string]string{"Assign/a": "exception shop/x", "Assign/other": "y"}})
	if len(w.Units) != 1 || len(w.Units[0].Owners) != 1 || w.Units[0].Owners[0].Name != "c" || w.Stay["Assign/a"] != "exception shop/x" || w.Stay["Assign/b"] == "" || w.Stay["Assign/c"] != "" {
		t.Errorf("units %v, stay %v", w.Units, w.Stay)
	}
}

// cluster is what is stored, and what servers make of it.
type cluster struct {
	random  *rand.Rand
	now     time.Time
	stored  map[Key]*Object
	version int
	// known are the policies and bindings as servers know them. They hear of
	// deletions at once, and of all else a little later.
	known map[Key]*Object
	news  []news
	// asked is for which mutators servers call mapd, live what the stored
	// configuration says.
	asked, live string
}

type news struct {
	at  time.Time
	key Key
	obj *Object
	ask *string
}

const laziest = 1500 * time.Millisecond

func (c *cluster) later(n news, most time.Duration) {
	n.at = c.now.Add(time.Duration(c.random.Int64N(int64(most))))
	// One source of news keeps their order.
	for _, o := range c.news {
		if (o.ask == nil) == (n.ask == nil) && o.key == n.key && o.at.After(n.at) {
			n.at = o.at
		}
	}
	c.news = append(c.news, n)
}

// hear brings servers what is due.
func (c *cluster) hear() {
	var left []news
	for _, n := range c.news {
		switch {
		case n.at.After(c.now):
			left = append(left, n)
		case n.ask != nil:
			c.asked = *n.ask
		default:
			c.known[n.key] = n.obj
		}
	}
	c.news = left
}

func (c *cluster) do(a Action) {
	is := c.stored[a.Key]
	if a.Seen == nil && is != nil || a.Seen != nil && (is == nil || is.Version != a.Seen.Version) {
		return // refused
	}
	if a.Part == nil {
		c.remove(a.Key)
		return
	}
	c.version++
	u := a.Part.Object.DeepCopy()
	u.SetUID(types.UID(fmt.Sprint("u", c.version)))
	u.SetResourceVersion(fmt.Sprint(c.version))
	text, _ := json.Marshal(u.Object)
	o := ReadObject(u, text)
	c.stored[a.Key] = o
	c.later(news{key: a.Key, obj: o}, laziest)
}

func (c *cluster) remove(k Key) {
	delete(c.stored, k)
	delete(c.known, k)
	c.news = slices.DeleteFunc(c.news, func(n news) bool { return n.ask == nil && n.key == k })
}

// runs says that servers run a policy for a mutator.
func (c *cluster) runs(id string) bool {
	for k, o := range c.known {
		if b := c.known[k.partner()]; !k.Binding && o.owns(id) && b != nil && b.owns(id) {
			return true
		}
	}
	return false
}

// replica is one mapd.
type replica struct {
	Tracker
	places Places
}

// set names the mutators that the replica runs itself.
func (r *replica) set() string {
	var in []string
	for id, p := range r.places {
		if !p.Out {
			in = append(in, id)
		}
	}
	slices.Sort(in)
	return strings.Join(in, " ")
}

func (r *replica) look(c *cluster, w *Wanted) {
	// What a set needs is known when it is built.
	called := c.live == r.set()
	r.places, _ = r.Settle(w, Sight{Objects: maps.Clone(c.stored), Called: called}, c.now)
}

// However mutators change, policies are lost and replicas come and go: a mutator that
// has once been run is run until it is deleted, by the server or by every replica.
func TestNoMutatorIsLost(t *testing.T) {
	hammer.Alone(t)
	locations := []string{"spec.nodeName", "spec.hostNetwork", "spec.nodeName"}
	versions := map[string][]Mutator{}
	for i, name := range []string{"a", "b", "c"} {
		versions[name] = []Mutator{
			assign(t, name, locations[i], "v1"), assign(t, name, locations[i], "v2"), assign(t, name, "spec.schedulerName", "v3"),
			// No policy can do this one.
			decode(t, fmt.Sprintf("{apiVersion: mutations.gatekeeper.sh/v1, kind: Assign, metadata: {name: %s, uid: uid-of-%[1]s}, spec: {applyTo: [{groups: [''], versions: [v1], kinds: [Pod]}], location: spec.nodeName, parameters: {assign: {externalData: {provider: p, failurePolicy: UseDefault, default: d}}}}}", name)),
		}
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 4))
		c := &cluster{random: random, now: time.Unix(0, 0), stored: map[Key]*Object{}, known: map[Key]*Object{}}
		mutators := map[string]Mutator{}
		replicas := []*replica{{}, {}}
		wanted := Want(nil, Options{})
		back := false
		since := map[string]time.Time{}
		begun, settled := map[string]bool{}, 0
		for step := range 600 {
			c.now = c.now.Add(time.Duration(50+random.IntN(300)) * time.Millisecond)
			c.hear()
			changed := false
			switch random.IntN(40) {
			case 0, 1:
				name := []string{"a", "b", "c"}[random.IntN(3)]
				if _, there := mutators[name]; !there {
					since["Assign/"+name] = c.now
				}
				mutators[name], changed = versions[name][random.IntN(4)], true
			case 2:
				name := []string{"a", "b", "c"}[random.IntN(3)]
				delete(mutators, name)
				delete(begun, "Assign/"+name)
				changed = true
			case 3:
				for k := range c.stored { // any of them
					c.remove(k)
					// Until mapd has heard of it nobody can help.
					for id := range since {
						since[id] = c.now
					}
					clear(begun)
					break
				}
			case 4:
				replicas[random.IntN(2)] = &replica{}
			case 5:
				back, changed = !back, true
			}
			if changed {
				list := slices.SortedFunc(maps.Values(mutators), func(a, b Mutator) int { return strings.Compare(a.ID(), b.ID()) })
				if wanted = Want(list, Options{}); back {
					wanted = &Wanted{Stay: map[string]string{}}
					for _, m := range list {
						wanted.Stay[m.ID()] = "back"
					}
				}
			}
			for range 2 { // the set that comes of the first look is what the second is about
				for _, r := range replicas {
					r.look(c, wanted)
				}
			}
			writer := replicas[0]
			if random.IntN(3) > 0 {
				if need := writer.set(); need != c.live {
					c.live = need
					c.later(news{ask: &need}, ownHandover)
				}
			}
			var units []Placed
			for _, u := range wanted.Units {
				units = append(units, Placed{u, api.NativeGroup})
			}
			list := Plan(units, maps.Clone(c.stored), writer.places).List
			if len(list) == 0 {
				settled++
			}
			for i := range list {
				if random.IntN(4) == 0 {
					break
				}
				c.do(list[i])
			}
			for name := range mutators {
				id := "Assign/" + name
				in := slices.Contains(strings.Fields(c.asked), id)
				for _, r := range replicas {
					in = in && slices.Contains(strings.Fields(r.set()), id)
				}
				if in || c.runs(id) {
					// What servers did for an earlier one of that name does not count.
					begun[id] = c.now.Sub(since[id]) > 2*laziest
				} else if begun[id] {
					t.Fatalf("seed %d, step %d: nobody runs %s: set %q and %q, servers ask for %q, places %+v, wanted %v",
						seed, step, id, replicas[0].set(), replicas[1].set(), c.asked, writer.places[id], wanted.Stay)
				}
			}
		}
		if settled == 0 {
			t.Errorf("seed %d: there was always something to write", seed)
		}
	}
}

// owns reports whether the object was written for a mutator of that ID.
func (o *Object) owns(id string) bool {
	return slices.ContainsFunc(o.Owners, func(w Owner) bool { return w.ID() == id })
}
