package lookup

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/mapd-project/mapd/test/hammer"
)

func parse(t testing.TB, s string) labels.Selector {
	t.Helper()
	sel, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return sel
}

// The rarest need decides, so that a shared one leads to nobody.
func TestRarestNeed(t *testing.T) {
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf("env=prod,tenant=t%d", i))
	}
	items = append(items, "env=prod,env=prod", "env in (prod,prod,test)", "env", "env!=dev", "!tenant")
	table := New(items, func(needs []Need, s string) []Need { return Needs(needs, Object, parse(t, s)) })
	tests := map[string]struct {
		set  Labels
		want []string
	}{
		"nothing":         {nil, nil},
		"a shared label":  {Labels{"env": "prod"}, []string{"env", "env in (prod,prod,test)", "env=prod,env=prod"}},
		"one of its own":  {Labels{"tenant": "t7"}, []string{"env=prod,tenant=t7"}},
		"both":            {Labels{"tenant": "t7", "env": "test"}, []string{"env", "env in (prod,prod,test)", "env=prod,tenant=t7"}},
		"a null label":    {Labels{"env": nil}, []string{"env"}},
		"no label at all": {Labels{"env": int64(1)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found := table.Find(nil, Object, tt.set)
			slices.Sort(found)
			if !slices.Equal(found, tt.want) {
				t.Errorf("Find(%v) = %q, want %q", tt.set, found, tt.want)
			}
		})
	}
	if want := []string{"env!=dev", "!tenant"}; !slices.Equal(table.Always, want) {
		t.Errorf("Always = %q, want %q", table.Always, want)
	}
	if !table.Uses(Object) || table.Uses(Namespace) || table.Uses(Name) {
		t.Error("Uses() is wrong")
	}
}

// A selector that holds is found, if there are fewer keys than labels and if there
// are more.
func TestFindsAllThatHold(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	pick := func(s ...string) string { return s[rnd.Intn(len(s))] }
	held, found := 0, 0
	for round := range 500 {
		var items []labels.Selector
		for range rnd.Intn(20) {
			text := ""
			for i := range rnd.Intn(4) {
				if i > 0 {
					text += ","
				}
				key := pick("a", "b", "c", "d", "e")
				text += fmt.Sprintf(pick("%s=1", "%s=2", "%s!=1", "%s in (1,2,3)", "%s notin (2,3)", "%s", "!%s", "%s>1"), key)
			}
			items = append(items, parse(t, text))
		}
		table := New(items, func(needs []Need, s labels.Selector) []Need { return Needs(needs, Namespace, s) })
		for range 10 {
			set := Labels{}
			for range rnd.Intn(8) {
				set[pick("a", "b", "c", "f", "g")] = pick("1", "2", "4")
			}
			may := append(slices.Clone(table.Always), table.Find(nil, Namespace, set)...)
			found += len(may)
			for _, s := range items {
				if !s.Matches(set) {
					continue
				}
				held++
				if !slices.ContainsFunc(may, func(f labels.Selector) bool { return f.String() == s.String() }) {
					t.Fatalf("round %d: %q holds for %v and is not found", round, s, set)
				}
			}
		}
	}
	if held < 1000 || found > 3*held {
		t.Errorf("%d selectors hold, %d are found", held, found)
	}
}

// What is not found costs nothing, however much there is.
func TestFindAllocatesNothing(t *testing.T) {
	items := make([]int, 10_000)
	for i := range items {
		items[i] = i
	}
	table := New(items, func(needs []Need, i int) []Need {
		return append(needs, Need{Object, fmt.Sprint("k", i%100), []string{fmt.Sprint("v", i)}})
	})
	set := Labels{"app": "web", "k1": "v2"}
	if n := hammer.Allocs(t, func() {
		if found := table.Find(nil, Object, set); found != nil {
			t.Errorf("Find() = %v, want nil", found)
		}
	}); n != 0 {
		t.Errorf("Find() makes %v allocations, want 0", n)
	}
}
