package webhook

import (
	"net/http"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// TestAllocations bounds what a review of a small Pod costs from the first byte
// decoded to the last encoded. Most of it are the Pod's maps: two allocations
// each. A few more than measured are allowed, for what pools lose to the garbage
// collector.
func TestAllocations(t *testing.T) {
	const label = `[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`
	review := usualReviews(t)["create"]
	count := func(f func()) int { return int(hammer.Allocs(t, f)) }
	decode := count(func() {
		if _, err := DecodeReview(review); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("decode: %d", decode)
	if limit := 170; decode > limit {
		t.Errorf("decoding takes %d allocations, want at most %d", decode, limit)
	}
	for _, tt := range []struct {
		name     string
		policies int
		limit    int // beside decoding
	}{
		{"none matches", 0, 4},
		{"one label", 1, 45},
	} {
		h := NewHandler(Options{Admitter: labelEngine(t, label, tt.policies)})
		got := count(func() {
			if code, body := h.Review(t.Context(), review); code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
		}) - decode
		t.Logf("%s: %d", tt.name, got)
		if got > tt.limit {
			t.Errorf("%s: the rest takes %d allocations, want at most %d", tt.name, got, tt.limit)
		}
	}
}
