package webhook

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/mapd-project/mapd/pkg/memory"
)

// A complete body cannot be dropped to make room for others, because its review is under way.
// One that was dropped while its last bytes arrived gets the answer of a dropped one.
func TestCompleteBody(t *testing.T) {
	const limit = 4 * bodyPart
	bs := newBodies(limit)
	b := &body{all: bs, stop: func() { t.Error("a complete body was dropped") }}
	for range 2 {
		if err := bs.waitForRoom(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bs.complete(b) {
		t.Fatal("dropped, with room for two more")
	}
	if v := bs.largest(b.began); v != nil {
		t.Errorf("%v may be dropped", v)
	}

	last := lastMoment(func() {
		bs.mu.Lock()
		defer bs.mu.Unlock()
		for b := range bs.reading {
			b.victim = true
		}
	})
	_, err := bs.read(last, -1, func() {}, nil)
	if !errors.Is(err, errCrowded) {
		t.Errorf("%v instead of %v", err, errCrowded)
	}
}

// lastMoment is a body of one byte, whose end it reports.
type lastMoment func()

func (f lastMoment) Read(p []byte) (int, error) {
	f()
	return copy(p, "x"), io.EOF
}

// What the fast decoder was charged for is not charged again when the other one reads the
// same review.
func TestUnusualReviewIsChargedOnce(t *testing.T) {
	object := `{"metadata":{"name":"x"},"data":{` + string(bytes.Repeat([]byte(`"k":"v",`), 20_000)) + `"k":"v"}}`
	charged := func(user string) int64 {
		account := memory.New(1 << 30).Open()
		defer account.Close()
		text := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"ConfigMap"},
		"resource":{"group":"","version":"v1","resource":"configmaps"},"operation":"CREATE","object":` + object + `,"userInfo":` + user + `}}`
		if _, err := decodeReview(t.Context(), account, text); err != nil {
			t.Fatal(err)
		}
		return account.Charged()
	}
	if usual, got := charged(`{"username":"b"}`), charged(`{"username":"a","username":"b"}`); got > usual+chargeStep {
		t.Errorf("charged %d, and %d for a usual review of the same size", got, usual)
	}
}
