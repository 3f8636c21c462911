package controllers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/fakeapi"
	"github.com/mapd-project/mapd/test/hammer"
)

var configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")

// counting is what one replica has counted of the policy p.
type counting struct{ n atomic.Uint64 }

func (c *counting) counts() []history.Counted {
	n := c.n.Load()
	if n == 0 {
		return nil
	}
	return []history.Counted{{Pair: history.Pair{Policy: "p", Binding: "p"}, Counts: history.Counts{Seen: 2 * n, Would: 1, Changed: n, Time: time.Duration(n)},
		Last: &history.Example{Kind: "ConfigMap", Namespace: "shop", Name: "web", Fields: []string{"/metadata/labels/a"}}}}
}

// rolloutIn is the rollout in the status of the binding p.
func (c *cluster) rolloutIn() string {
	s := statusOf(c.Get(api.OwnBindings, "", "p"))
	if s.Rollout == nil {
		return "none"
	}
	return fmt.Sprintf("%s %d %d %d %d %v", s.Rollout.Mode, s.Rollout.Seen, s.Rollout.Would, s.Rollout.Changed, s.Rollout.Failed, s.Rollout.Last)
}

// countMapsOf lists the ConfigMaps of counts, but that of earlier ones.
func (c *cluster) countMapsOf() (names []string) {
	for _, m := range c.List(configMapResource) {
		if m.GetLabels()[countsLabel] == "replica" {
			names = append(names, m.GetName())
		}
	}
	return names
}

func TestCountsInStatus(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		var one, two counting
		with := func(n *counting) func(*Options) { return func(o *Options) { o.Counts = n.counts } }
		_, stopOne := c.replica(t, "a", with(&one))
		_, stopTwo := c.replica(t, "b", with(&two))
		time.Sleep(2 * countsEvery)
		if got := c.rolloutIn(); got != "enforce 0 0 0 0 <nil>" {
			t.Errorf("at first: %s", got)
		}
		one.n.Store(3)
		two.n.Store(4)
		expect := func(what string, changed int) {
			t.Helper()
			time.Sleep(3 * countsEvery)
			if want, got := fmt.Sprintf(" %d 0 &{ConfigMap shop web [/metadata/labels/a]}", changed), c.rolloutIn(); !strings.HasSuffix(got, want) {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		expect("of both", 7)
		if got := len(c.countMapsOf()); got != 2 {
			t.Errorf("%d ConfigMaps", got)
		}
		calls := len(c.Writes())
		time.Sleep(countsRenewed / 2)
		for _, r := range c.Writes()[calls:] {
			if r.Resource.Resource != "leases" {
				t.Errorf("written although nothing has changed: %v", r)
			}
		}
		// One ends in order, and begins again with nothing.
		stopTwo()
		expect("of one that has ended", 7)
		var three counting
		three.n.Store(10)
		_, stopThree := c.replica(t, "c", with(&three))
		expect("of another one", 17)
		stopOne()
		three.n.Store(11)
		expect("after a takeover", 18)
		time.Sleep(countsKept + 3*countsEvery)
		if got := c.countMapsOf(); len(got) != 1 {
			t.Errorf("ConfigMaps of replicas that are gone stay: %v", got)
		}
		expect("after they are deleted", 18)

		// The mode is that of the binding, or else of its policy.
		p := c.Get(api.OwnPolicies, "", "p")
		p.SetAnnotations(map[string]string{api.ModeAnnotation: "warn"})
		c.Put(api.OwnPolicies, "", "p", p.Object)
		time.Sleep(time.Minute)
		if got := c.rolloutIn(); !strings.HasPrefix(got, "warn ") {
			t.Errorf("the policy's mode: %s", got)
		}
		b := c.Get(api.OwnBindings, "", "p")
		b.SetAnnotations(map[string]string{api.ModeAnnotation: "enforce", api.BreakerAnnotation: "errors=5%"}) // only a policy can have one
		c.Put(api.OwnBindings, "", "p", b.Object)
		time.Sleep(time.Minute)
		if got := c.rolloutIn(); !strings.HasPrefix(got, "shadow ") {
			t.Errorf("the mode of a binding with an annotation at fault: %s", got)
		}
		b.SetAnnotations(map[string]string{api.ModeAnnotation: "shadow"})
		c.Put(api.OwnBindings, "", "p", b.Object)
		expect("in shadow", 18)
		if got := c.rolloutIn(); !strings.HasPrefix(got, "shadow ") {
			t.Errorf("the binding's mode: %s", got)
		}

		// What is of a binding that is gone goes as well.
		c.Put(api.OwnBindings, "", "p", nil)
		time.Sleep(2 * countsEvery)
		earlier := &corev1.ConfigMap{}
		if c.Get(configMapResource, "own", countsName) == nil {
			t.Fatal("there is no ConfigMap of earlier counts")
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Get(configMapResource, "own", countsName).Object, earlier); err != nil {
			t.Fatal(err)
		}
		if left, err := history.Unpack(earlier.BinaryData[keyCounts]); err != nil || len(left) != 0 {
			t.Errorf("left: %v %v", left, err)
		}
		stopThree()
	})
}

// A replica that cannot write for long counts as gone. When it can again, nothing counts
// twice and nothing is lost.
func TestCountsOfAReplicaThatComesBack(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		var one, two counting
		_, stopOne := c.replica(t, "a", func(o *Options) { o.Counts = one.counts })
		time.Sleep(time.Minute)
		_, stopTwo := c.replica(t, "b", func(o *Options) { o.Counts = two.counts })
		one.n.Store(1)
		two.n.Store(100)
		time.Sleep(3 * countsEvery)
		sum := func(want int) {
			t.Helper()
			if got := c.rolloutIn(); !strings.Contains(got, fmt.Sprintf(" %d 0 &", want)) {
				t.Errorf("%s, want %d", got, want)
			}
		}
		sum(101)
		c.refuse(func(r fakeapi.Request) error {
			if r.Resource == configMapResource && r.Verb == "update" && of(r) == "b" && closedIn(r) == "" {
				return errors.New("cut off")
			}
			return nil
		})
		two.n.Store(150)
		time.Sleep(countsGone + 5*countsEvery)
		sum(101)
		c.refuse(nil)
		two.n.Store(200)
		time.Sleep(3 * countsEvery)
		sum(201)
		stopTwo()
		stopOne()
	})
}

// of is the replica whose ConfigMap a request writes.
func of(r fakeapi.Request) string { return annotation(r, replicaAnnotation) }

func closedIn(r fakeapi.Request) string { return annotation(r, closedAnnotation) }

func annotation(r fakeapi.Request, name string) string {
	metadata, _ := r.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[name].(string)
	return text
}

// Whichever reads and writes of ConfigMaps fail, also the last ones of a replica that
// ends: nothing counts twice, and what was written is never lost.
func TestCountsOfReplicasThatAreKilled(t *testing.T) {
	for seed := range uint64(hammer.Count(2)) {
		in(t, func(t *testing.T, c *cluster) {
			random, pauses := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // mu is for random
			var mu sync.Mutex
			fail := true
			c.refuse(func(r fakeapi.Request) error {
				mu.Lock()
				defer mu.Unlock()
				if fail && r.Resource == configMapResource && r.Verb != "get" && random.IntN(4) == 0 {
					return errors.New("cut off")
				}
				return nil
			})
			total := uint64(0)
			stops := map[int]func(){}
			killed := func(n *counting) func(*Options) {
				return func(o *Options) { o.Counts = n.counts }
			}
			for i := range 4 {
				n := &counting{}
				_, stops[i] = c.replica(t, fmt.Sprintf("r%d-%d", seed, i), killed(n))
				n.n.Store(uint64(1 + i))
				total += uint64(1 + i)
				mu.Lock()
				fail = false // so that each is written once before it ends
				mu.Unlock()
				time.Sleep(3 * countsEvery)
				mu.Lock()
				fail = true
				mu.Unlock()
				if i > 0 {
					stops[i-1]()
					delete(stops, i-1)
				}
				time.Sleep(time.Duration(pauses.IntN(25)) * time.Minute)
			}
			mu.Lock()
			fail = false
			mu.Unlock()
			time.Sleep(time.Hour)
			if got := statusOf(c.Get(api.OwnBindings, "", "p")).Rollout; got == nil || uint64(got.Changed) != total {
				t.Errorf("seed %d: %+v, want %d", seed, got, total)
			}
			if got := c.countMapsOf(); len(got) != 1 {
				t.Errorf("seed %d: %v", seed, got)
			}
			for _, stop := range stops {
				stop()
			}
		})
	}
}

// The steps by which a replica that is gone is folded may be taken by one holder after
// the other, or by two at a time.
func TestFoldStepByStep(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		var n counting
		n.n.Store(5)
		replica, stop := c.replica(t, "a", nil)
		time.Sleep(time.Minute)
		// These two take the steps, and do not run besides.
		options := replica.o
		options.Counts = n.counts
		w, other := New(options), New(options)
		p := &publication{closed: map[history.Pair]history.Counts{}}
		if err := w.publish(t.Context(), p, false); err != nil {
			t.Fatal(err)
		}
		changed := func(w *Writer) uint64 {
			t.Helper()
			if err := w.addUp(t.Context(), w.o.Store.Snapshot()); err != nil {
				t.Fatal(err)
			}
			return (*w.totals.Load())[history.Pair{Policy: "p", Binding: "p"}].Changed
		}
		time.Sleep(countsGone + time.Second)
		for i := range 8 {
			for _, x := range []*Writer{w, other} {
				if got := changed(x); got != 5 {
					t.Errorf("step %d: %d", i, got)
				}
			}
			if i == 3 {
				// It was not gone, and begins again.
				n.n.Store(6)
				if err := w.publish(t.Context(), p, false); err != nil {
					t.Fatal(err)
				}
				if got := changed(other); got != 6 {
					t.Errorf("when it is back: %d", got)
				}
				n.n.Store(5)
				break
			}
		}
		// A conflict with another holder is an error, and counts nothing.
		c.refuse(func(r fakeapi.Request) error {
			if r.Verb == "update" && r.Name == countsName {
				return errors.New("another holder has written")
			}
			return nil
		})
		time.Sleep(countsGone + time.Second)
		for range 3 {
			_ = w.addUp(t.Context(), w.o.Store.Snapshot())
			if got := (*w.totals.Load())[history.Pair{Policy: "p", Binding: "p"}].Changed; got != 6 {
				t.Errorf("beside another holder: %d", got)
			}
		}
		c.refuse(nil)
		time.Sleep(countsKept + time.Second)
		for range 4 {
			if got := changed(other); got != 6 {
				t.Errorf("at last: %d", got)
			}
		}
		if got := c.countMapsOf(); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
		stop()
	})
}

// The counts of 10,000 bindings fit into a ConfigMap, with an example each.
func TestCountsOfManyBindings(t *testing.T) {
	hammer.Alone(t)
	var all []history.Counted
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		all = append(all, history.Counted{
			Pair:   history.Pair{Policy: fmt.Sprintf("team-%d-labels.example.com", i/3), Binding: fmt.Sprintf("team-%d-labels-in-namespace-%d", i/3, random.IntN(5000))},
			Counts: history.Counts{Seen: random.Uint64N(1e9), Would: random.Uint64N(1e6), Changed: random.Uint64N(1e8), Time: time.Duration(random.Int64N(1e15))},
			Last: &history.Example{Time: time.UnixMilli(random.Int64N(1e12)), Kind: "Pod", Namespace: fmt.Sprintf("team-%d", i), Name: fmt.Sprintf("web-%d-", random.IntN(1e6)),
				Fields: []string{"/metadata/labels/team", "/spec/securityContext"}},
		})
	}
	text, omitted, err := history.Pack(all, maxCounts)
	if err != nil || omitted > 0 || len(text) > maxCounts {
		t.Fatalf("%d bytes, %d left out, %v", len(text), omitted, err)
	}
	back, err := history.Unpack(text)
	if err != nil || len(back) != len(all) || back[0].Last == nil {
		t.Fatalf("%d of %d, %v", len(back), len(all), err)
	}
	t.Logf("%d bytes", len(text))
	// Without room examples go first, and then those that have seen the least.
	text, omitted, err = history.Pack(all, maxCounts/8)
	if err != nil || omitted == 0 || len(text) > maxCounts/8 {
		t.Fatalf("%d bytes, %d left out, %v", len(text), omitted, err)
	}
	back, err = history.Unpack(text)
	if err != nil || len(back)+omitted != len(all) || back[0].Last != nil {
		t.Fatalf("%d and %d of %d, %v", len(back), omitted, len(all), err)
	}
	seen := func(a, b history.Counted) int { return int(a.Seen) - int(b.Seen) }
	if least := slices.MinFunc(back, seen); least.Seen < 1e8 {
		t.Errorf("one that has seen %d is kept", least.Seen)
	}
}

// What is no list of counts is refused, however little or much it becomes.
func TestUnpackHostile(t *testing.T) {
	for _, text := range []string{"", "x", "\x1f\x8b"} {
		if _, err := history.Unpack([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// Counts that change all the time make a bounded number of writes.
func TestCountsOfManyStatuses(t *testing.T) {
	const n = maxCountStatuses + 50
	r := &reporter{written: map[key]written{}}
	snapshot, totals := &store.Snapshot{}, map[history.Pair]*history.Counted{}
	for i := range n {
		p := history.Pair{Policy: "p", Binding: fmt.Sprint(i)}
		totals[p] = &history.Counted{Pair: p, Counts: history.Counts{Seen: 1}}
		object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": p.Binding}}}
		snapshot.Bindings = append(snapshot.Bindings, store.BindingState{Object: object, PolicyName: "p", PolicyFound: true})
	}
	totals[history.Pair{Policy: "Assign/a"}] = &history.Counted{Counts: history.Counts{Seen: 1}}
	for _, want := range []int{maxCountStatuses, n - maxCountStatuses, 0} {
		r.grant(snapshot, totals)
		if got := len(r.granted); got != want {
			t.Errorf("%d are written, want %d", got, want)
		}
		for i := range snapshot.Bindings {
			b := &snapshot.Bindings[i]
			// What was not granted stays as it is.
			if is := r.rollout(key{api.OwnBindings, b.Object.GetName()}, *b, api.Rollout{Mode: api.Warn}); is.Mode != "warn" {
				t.Fatalf("%+v", is)
			} else if is.Seen == 1 {
				b.Object.Object["status"] = map[string]any{"rollout": map[string]any{"mode": "warn", "seen": int64(1)}}
			}
		}
	}
	r.grant(nil, totals)
	if len(r.granted) > 0 {
		t.Error("granted without a snapshot")
	}
}
