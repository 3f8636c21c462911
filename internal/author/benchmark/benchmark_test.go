package benchmark

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mapd-project/mapd/pkg/engine"
)

func TestQuantile(t *testing.T) {
	var low, high histogram
	for i := range 100 {
		low.add(time.Duration(i+1) * time.Nanosecond)
		high.add(time.Duration(i+101) * time.Nanosecond)
	}
	low.merge(&high)
	for part, want := range map[float64]time.Duration{0: 1, 0.5: 100, 0.9: 180, 0.99: 198, 1: 200} {
		if got := low.quantile(part); got != want {
			t.Errorf("quantile(%v) = %v, want %v", part, got, want)
		}
	}
	if got := (&histogram{}).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}

// Every duration is found again within half a percent, and longer ones are never
// shorter.
func FuzzHistogram(f *testing.F) {
	for _, v := range []int64{0, 1, 127, 128, 255, 256, 257, 1 << 20, math.MaxInt64, -1} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v int64) {
		var h histogram
		h.add(time.Duration(v))
		want := float64(max(v, 0))
		if got := float64(h.quantile(0.5)); math.Abs(got-want) > want/200 {
			t.Errorf("the median of %v is %v", v, got)
		}
		if v > 0 && bucket(uint64(v)) < bucket(uint64(v-1)) {
			t.Errorf("%d is in an earlier bucket than %d", v, v-1)
		}
	})
}

func TestLimit(t *testing.T) {
	for _, tt := range []struct{ iterations, workers int }{{1, 1}, {10, 3}, {2, 4}, {7, 7}} {
		sum := 0
		for i := range tt.workers {
			if l, any := (limit{iterations: tt.iterations}).share(i, tt.workers); any {
				for sum0 := sum; l.more(sum-sum0, 0); sum++ {
				}
			}
		}
		if sum != tt.iterations {
			t.Errorf("%d workers send %d requests, want %d", tt.workers, sum, tt.iterations)
		}
	}
	timed := limit{duration: time.Second}
	if got := []bool{timed.more(0, time.Hour), timed.more(5, time.Second/2), timed.more(5, time.Second)}; !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("more = %v", got)
	}
}

// result is a Result of one request.
func result(name string, change func(*Figures)) *Result {
	f := Figures{
		Name: name, Answer: "changed", Requests: 5000, PerSecond: 20000, P50: 40_000, P90: 60_000, P99: 99_960, Max: 2.5e9,
		CPU: 50_000, Allocations: 275, Bytes: 16.5 * 1024,
	}
	if change != nil {
		change(&f)
	}
	return &Result{
		Format: format, Mapd: "v1", Go: "go1", Platform: "linux/amd64", CPUs: 2, Concurrency: 1, Policies: 2,
		Setup:    Setup{Read: 999, Compile: 1_234_567},
		Requests: []Figures{f},
		Parts: []Part{
			{Kind: Decode, Time: 30_000, Percent: 75},
			{Kind: Policy, Name: "add-owner", Time: 10_000, Percent: 25, Cost: 41},
		},
	}
}

func TestCompareThreshold(t *testing.T) {
	tests := map[string]struct {
		change func(*Figures)
		limits Limits
		want   []string
	}{
		"noise of a busy machine": {
			change: func(f *Figures) { f.P99 *= 9; f.P90 *= 9; f.CPU *= 9; f.PerSecond /= 9; f.Allocations *= 2 },
			limits: Limits{Figures: Stable}, want: []string{"allocs"},
		},
		"the same":                            {limits: Limits{}},
		"exactly the threshold":               {change: func(f *Figures) { f.P50 *= 1.25 }, limits: Limits{Percent: 25}},
		"above the threshold":                 {change: func(f *Figures) { f.P50 *= 1.5 }, limits: Limits{Percent: 25}, want: []string{"p50"}},
		"better":                              {change: func(f *Figures) { f.P50, f.CPU, f.PerSecond = 1, 1, 1e6 }, limits: Limits{}},
		"fewer requests a second are worse":   {change: func(f *Figures) { f.PerSecond /= 2 }, limits: Limits{Percent: 25}, want: []string{"req/s"}},
		"a rate is held against a time":       {change: func(f *Figures) { f.PerSecond /= 2 }, limits: Limits{Percent: 25, Time: 51 * time.Microsecond}},
		"a longer maximum is bad luck":        {change: func(f *Figures) { f.Max *= 100 }, limits: Limits{Percent: 25}},
		"a time that is too short to matter":  {change: func(f *Figures) { f.P99 *= 2 }, limits: Limits{Percent: 25, Time: time.Millisecond}},
		"a time that is long enough":          {change: func(f *Figures) { f.P99 *= 2 }, limits: Limits{Percent: 25, Time: 10 * time.Microsecond}, want: []string{"p99"}},
		"the least time is for times":         {change: func(f *Figures) { f.Allocations++; f.Bytes++ }, limits: Limits{Time: time.Hour}, want: []string{"allocs", "bytes"}},
		"no answer in a second":               {change: func(f *Figures) { f.PerSecond = 0 }, limits: Limits{Percent: 99, Time: time.Hour}, want: []string{"req/s"}},
		"several figures, in their own order": {change: func(f *Figures) { f.Bytes *= 2; f.P90 *= 2; f.CPU *= 2 }, limits: Limits{Percent: 99}, want: []string{"p90", "cpu", "bytes"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.limits.Figures == nil {
				tt.limits.Figures = FigureNames()
			}
			c := Compare(result("a", nil), result("a", tt.change), tt.limits)
			var got []string
			for _, r := range c.Rows {
				if r.Regression {
					got = append(got, r.Figure)
				}
			}
			if n, of := c.Regressions(); !slices.Equal(got, tt.want) || n != len(tt.want) || of != len(tt.limits.Figures) {
				t.Errorf("regressions = %q (%d of %d), want %q", got, n, of, tt.want)
			}
			solid := slices.Contains(got, "allocs") || slices.Contains(got, "bytes")
			if c.OnlyTimes() != (len(got) > 0 && !solid) {
				t.Errorf("OnlyTimes = %v for %q", c.OnlyTimes(), got)
			}
		})
	}
}

func TestCompareRequests(t *testing.T) {
	earlier, current := result("a", func(f *Figures) { f.CPU = 0 }), result("a", func(f *Figures) { f.Answer = "unchanged" })
	earlier.Requests = append(earlier.Requests, Figures{Name: "gone"})
	current.Requests = append(current.Requests, Figures{Name: "new"})
	current.Concurrency = 4
	c := Compare(earlier, current, Limits{})
	want := &Comparison{
		New: []string{"new"}, Gone: []string{"gone"},
		Notes: []string{"concurrency: 1 then, 4 now", `a was answered "changed" and is "unchanged" now`},
	}
	if d := cmp.Diff(want, c, cmpopts.IgnoreFields(Comparison{}, "Rows")); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if n, of := c.Regressions(); len(c.Rows) != len(figures) || n != 0 || of != len(Stable) {
		t.Errorf("%d rows, %d of %d regressions", len(c.Rows), n, of)
	}
	for _, r := range c.Rows {
		if (r.Delta == nil) != (r.Figure == "cpu") {
			t.Errorf("%s: delta %v", r.Figure, r.Delta)
		}
	}
}

func TestWriteTable(t *testing.T) {
	r := result("Pod shop/web\n", nil)
	earlier := result("Pod shop/web\n", func(f *Figures) { f.P50, f.CPU = 30_000, 0 })
	r.Comparison = Compare(earlier, r, Limits{Percent: 10})
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	want := `REQUEST         ANSWER   REQUESTS  REQ/S  P50     P90     P99    MAX    CPU     ALLOCS  BYTES
Pod shop/web\n  changed  5000      20000  40.0µs  60.0µs  100µs  2.50s  50.0µs  275     16.5KiB

PART              TIME    SHARE  COST
decode            30.0µs  75.0%  -
policy add-owner  10.0µs  25.0%  41

SETUP    TIME
read     999ns
compile  1.23ms

REQUEST         FIGURE  OLD      NEW      DELTA   VERDICT
Pod shop/web\n  req/s   20000    20000    +0.0%   not checked
Pod shop/web\n  p50     30.0µs   40.0µs   +33.3%  regression
Pod shop/web\n  p90     60.0µs   60.0µs   +0.0%   not checked
Pod shop/web\n  p99     100µs    100µs    +0.0%   not checked
Pod shop/web\n  cpu     0ns      50.0µs   -       not checked
Pod shop/web\n  allocs  275      275      +0.0%
Pod shop/web\n  bytes   16.5KiB  16.5KiB  +0.0%
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

var unreadable = map[string]struct{ in, err string }{
	"nothing":             {in: "", err: "byte 0: unexpected end of JSON input"},
	"not JSON":            {in: "a: b", err: "byte 1: invalid character 'a' looking for beginning of value"},
	"not an object":       {in: "[]", err: "must be an object, is a JSON array"},
	"something else":      {in: `{"kind": "Pod"}`, err: "mapdBench: must be 1, as mapd bench --save writes it"},
	"a later format":      {in: `{"mapdBench": 2}`, err: "mapdBench: must be 1, as mapd bench --save writes it"},
	"a text for a number": {in: `{"mapdBench": 1, "requests": [{"name": "a", "p50Nanoseconds": "4"}]}`, err: "requests.p50Nanoseconds: a JSON string has no place here"},
	"no name":             {in: `{"mapdBench": 1, "requests": [{}]}`, err: "requests[0].name: must not be empty"},
	"a name twice":        {in: `{"mapdBench": 1, "requests": [{"name": "a"}, {"name": "a"}]}`, err: `requests[1].name: "a" is there twice`},
	"a negative time":     {in: `{"mapdBench": 1, "requests": [{"name": "a", "p99Nanoseconds": -1}]}`, err: "requests[0].p99Nanoseconds: must not be negative"},
}

func TestReadErrors(t *testing.T) {
	for name, tt := range unreadable {
		t.Run(name, func(t *testing.T) {
			if _, err := Read([]byte(tt.in)); err == nil || err.Error() != tt.err {
				t.Errorf("Read(%q) error = %v, want %s", tt.in, err, tt.err)
			}
		})
	}
}

// What Read reads is written and read again as the same, and compares with itself
// without a regression.
func FuzzRead(f *testing.F) {
	for _, tt := range unreadable {
		f.Add([]byte(tt.in))
	}
	r := result("Pod shop/web", nil)
	r.Comparison = Compare(r, r, Limits{Percent: 10})
	data, err := Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(data)
		if err != nil {
			return
		}
		r.Comparison = Compare(r, r, Limits{})
		text, err := Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := cmp.Diff(r, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Result{}, "Comparison")); d != "" {
			t.Errorf("-first +second\n%s", d)
		}
		c := Compare(r, again, Limits{})
		if n, _ := c.Regressions(); n > 0 || len(c.New)+len(c.Gone)+len(c.Notes) > 0 {
			t.Errorf("it differs from itself: %+v", c)
		}
		if err := r.WriteTable(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	})
}

// review is a request that an engine without policies answers with Want.
func review() Request {
	return Request{
		Name: "a", Answer: "no match",
		Body: []byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE", "name": "a",
			"kind": {"version": "v1", "kind": "Node"}, "resource": {"version": "v1", "resource": "nodes"},
			"userInfo": {}, "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}}}`),
		Want: []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true}}`),
	}
}

func TestRun(t *testing.T) {
	r, err := Run(t.Context(), engine.New(engine.Options{}), []Request{review()}, Options{Iterations: 10, Concurrency: 4})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Requests[0]; f.Requests != 10 || f.Name != "a" || f.Answer != "no match" || f.Allocations < 1 || f.Bytes < 1 || f.P50 > f.P99 || f.P99 > f.Max {
		t.Errorf("figures: %+v", f)
	}
	var kinds []string
	percent := 0.0
	for _, p := range r.Parts {
		kinds = append(kinds, p.Kind)
		percent += p.Percent
	}
	if !slices.Equal(kinds, []string{Decode, Match, Encode}) || math.Abs(percent-100) > 1e-6 {
		t.Errorf("parts: %+v", r.Parts)
	}
}

func TestRunErrors(t *testing.T) {
	e := engine.New(engine.Options{})
	wrong := review()
	wrong.Want = []byte("{}")
	if _, err := Run(t.Context(), e, []Request{wrong}, Options{Iterations: 1}); err == nil ||
		err.Error() != "a: request 1 has another answer than the first: 200 "+string(review().Want) {
		t.Errorf("another answer: error = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, e, []Request{review()}, Options{Duration: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error = %v", err)
	}
}
