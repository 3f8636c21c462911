package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// stored returns what the last Store of a Recorder says, read again.
func stored(t *testing.T, l *Recorder, most int, earlier Mark) (*Stored, []Entry) {
	t.Helper()
	s, err := l.Store(most, earlier)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Unstore(s.Text)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Entries) != s.Entries || a.Replica != "a" || a.Since.IsZero() {
		t.Fatalf("%d entries of %d, %+v", len(a.Entries), s.Entries, a.Header)
	}
	return s, a.Entries
}

func TestStore(t *testing.T) {
	l := New("a")
	if s, _ := stored(t, l, 1<<20, Mark{}); s.Entries != 0 || s.Mark != (Mark{}) {
		t.Errorf("%+v of an empty Recorder", s)
	}
	for i := range 3 {
		l.Record(request("shop", fmt.Sprint(i), nil), decided(changed("p", "b", "x")), 0)
	}
	s, all := stored(t, l, 1<<20, Mark{})
	if s.New != 3 || s.Missed != 0 || s.Mark != l.Mark() || all[0].Name != "2" || all[2].Acts[0].Paths[0] != "/metadata/labels/x" {
		t.Errorf("%+v", s)
	}
	mark := s.Mark
	l.Record(request("other", "web", nil), decided(changed("p", "b", "x")), 0)
	if mark == l.Mark() {
		t.Error("an entry does not change the mark")
	}
	if s, _ = stored(t, l, 1<<20, mark); s.Entries != 4 || s.New != 1 || s.Missed != 0 {
		t.Errorf("one later: %+v", s)
	}
	if _, err := Unstore([]byte("no gzip")); err == nil {
		t.Error("nonsense is read")
	}
}

// What is stored is bounded, and one namespace does not displace another's entries.
func TestStoreUnderAttack(t *testing.T) {
	l := New("a")
	l.Record(request("quiet", "web", nil), decided(changed("p", "b", "x")), 0)
	loud := "loud"
	for i := 0; l.history.part(loud) == l.history.part("quiet"); i++ {
		loud = fmt.Sprintf("loud-%d", i)
	}
	const n = 40_000
	d := decided(changed("p", "b", "x"))
	for i := range n {
		l.Record(request(loud, fmt.Sprintf("\x1b[2J\x00\xff%d-%d", i, i*i*7919), nil), d, 0)
	}
	for _, most := range []int{512 << 10, 10_000, 100} {
		s, all := stored(t, l, most, Mark{})
		if len(s.Text) > most || s.New+s.Missed != n+1 || int(s.New) != s.Entries {
			t.Errorf("%d bytes, %d entries, %d new, %d missed", len(s.Text), s.Entries, s.New, s.Missed)
		}
		if most >= 10_000 && !slices.ContainsFunc(all, func(e Entry) bool { return e.Namespace == "quiet" }) {
			t.Errorf("of %d entries in %d bytes none is of the quiet namespace", len(all), most)
		}
	}
}

func TestFeed(t *testing.T) {
	l := New("a")
	f := l.Feed()
	names := func() (all []string) {
		for e := range f.Take() {
			all = append(all, e.Name+" "+e.Acts[0].Policy)
		}
		return all
	}
	if got := names(); got != nil {
		t.Errorf("at first %v", got)
	}
	for round := range 3 {
		for i := range 2 {
			l.Record(request("shop", fmt.Sprint(i), nil), decided(changed("p", "b", "x")), 0)
		}
		if got := names(); !slices.Equal(got, []string{"0 p", "1 p"}) {
			t.Errorf("round %d: %v", round, got)
		}
	}
	for range f.Take() {
		t.Error("taken twice")
	}
}

// Whatever is recorded while nobody takes it: memory is bounded, recording goes on without
// allocations, and what is lost is counted.
func TestFeedThatNobodyTakes(t *testing.T) {
	l, req, d := New("a"), request("shop", strings.Repeat("n", 10*maxText), nil), decided(plain("a"))
	f := l.Feed()
	const n = 20_000
	for range n {
		l.Record(req, d, 0)
	}
	if got := hammer.Allocs(t, func() { l.Record(req, d, 0) }); got > 0 {
		t.Errorf("%v allocations", got)
	}
	if len(f.waiting) > feedBytes || cap(f.waiting) > 2*feedBytes {
		t.Errorf("%d bytes wait in %d", len(f.waiting), cap(f.waiting))
	}
	taken := uint64(0)
	for range f.Take() {
		taken++
	}
	l.Delivered(taken, 1)
	sent, dropped := l.DeliveredTotals()
	all := uint64(0)
	for _, added := range l.Mark() {
		all += added
	}
	if sent == 0 || dropped < 2 || sent+dropped-1 != all {
		t.Errorf("%d sent and %d dropped of %d", sent, dropped, all)
	}
}

// TestStoreRoom holds how many records fit into the store; docs/operate/observe.md has the numbers.
func TestStoreRoom(t *testing.T) {
	l, random := New("mapd-7d4b9c6f8-x2x5w_b9bb3f6e-38a2-4bb8-9e75-2d37f3f8cba0"), rand.New(rand.NewPCG(1, 2))
	d := decided(changed("team-labels", "all", "team", "cost-center"), changed("sidecar", "mesh", "istio"))
	for i := range 12_000 {
		uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", random.Uint32(), random.Int64N(1<<48))
		l.Record(request(fmt.Sprintf("team-%d", i%50), "", map[string]any{
			"generateName": fmt.Sprintf("service-%d-7d4b9c6f8-", i%300), "ownerReferences": []any{map[string]any{"uid": uid, "controller": true}},
		}), d, 0)
	}
	s, err := l.Store(512<<10, Mark{})
	if err != nil || s.Entries < 8_000 {
		t.Fatalf("%d entries, %v", s.Entries, err)
	}
	t.Logf("%d entries in %d KiB", s.Entries, len(s.Text)>>10)
}
