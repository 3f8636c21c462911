package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/bench"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Every kind of row runs, and all answers are right.
func TestQuick(t *testing.T) {
	var out bytes.Buffer
	o := options{count: 1, format: "benchfmt", only: regexp.MustCompile(""), counts: few}
	if testing.Short() {
		o.only = regexp.MustCompile("/small|resource|bindings|Compile/label|Load|Rebuild")
	}
	if err := run(t.Context(), &out, o); err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for r := benchfmt.NewReader(&out, "out"); r.Scan(); {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			name, _, _ := strings.Cut(string(rec.Name.Full()), "/side=")
			read[name] = true
		}
	}
	for _, r := range rows(few) {
		if want := o.only.MatchString(r.name); read[r.name] != want {
			t.Errorf("%s is in the output: %v", r.name, !want)
		}
	}
}

// odd is a side of which one thing is wrong.
type odd struct{ label, run string }

func (s *odd) Prepare(_ context.Context, w *bench.Workload) (*unstructured.Unstructured, error) {
	got := w.WantObject.DeepCopy()
	if s.label != "" {
		got.SetLabels(map[string]string{s.label: "v"})
	}
	return got, nil
}

func (s *odd) Run(context.Context) (any, error) {
	if s.run != "" {
		return nil, errors.New(s.run)
	}
	return nil, nil
}

// Whoever answers wrong, or fails later, ends the run.
func TestWrongAnswer(t *testing.T) {
	w := bench.Match(bench.Label, bench.Objects[0], 1)
	for _, tb := range []*table{admitTable, compileTable} {
		for name, tt := range map[string]struct {
			side *odd
			want string
		}{
			"as wanted":   {side: &odd{}},
			"wrong label": {side: &odd{label: "wrong"}, want: `name: in-tree: the answer is wrong (-want +got)`},
			"fails":       {side: &odd{run: "no such thing"}, want: `name: in-tree: no such thing`},
		} {
			r := &row{table: tb, name: "name", entries: func() []entry {
				return []entry{{mapd, bench.Policies(), w}, {kubernetes, tt.side, w}}
			}}
			var out bytes.Buffer
			err := options{count: 1, format: "table", only: regexp.MustCompile("")}.print(t.Context(), &out, []*row{r})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("%s, %s: error %v", tb.name, name, err)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		o    options
		want string
	}{
		"format": {options{count: 1, format: "csv", only: regexp.MustCompile("")}, "-format csv: want one of table, markdown, benchfmt"},
		"count":  {options{format: "table", only: regexp.MustCompile("")}, "-count 0: want one turn at least"},
		"run":    {options{count: 1, format: "table", only: regexp.MustCompile("nothing")}, "-run nothing: no row has such a name"},
	} {
		if err := run(t.Context(), nil, tt.o); err == nil || err.Error() != tt.want {
			t.Errorf("%s: error %v, want %s", name, err, tt.want)
		}
	}
}

// samples are six turns, in seconds.
func samples(seconds ...float64) []sample {
	var all []sample
	for _, s := range seconds {
		all = append(all, sample{100, map[string]float64{perOp: s, allocs: 21}})
	}
	return all
}

// A median has the interval that benchstat gives it, and a ratio is taken turn by
// turn.
func TestSummary(t *testing.T) {
	rs := results{
		mapd:       samples(1, 2, 1, 1, 1, 1),
		kubernetes: samples(10, 20, 11, 9, 10, 10),
		gatekeeper: samples(3),
	}
	tests := map[string]struct {
		column column
		want   benchmath.Summary
	}{
		"figure":       {column{side: mapd, unit: perOp}, benchmath.Summary{Center: 1, Lo: 1, Hi: 2}},
		"ratio":        {column{side: mapd, unit: perOp, over: kubernetes}, benchmath.Summary{Center: 10, Lo: 9, Hi: 11}},
		"one turn":     {column{side: gatekeeper, unit: perOp}, benchmath.Summary{Center: 3, Lo: math.Inf(-1), Hi: math.Inf(1)}},
		"no such side": {column: column{side: baseline, unit: perOp}},
		"no such peer": {column: column{side: mapd, unit: perOp, over: baseline}},
		"no such unit": {column: column{side: mapd, unit: kept}},
	}
	for name, tt := range tests {
		got, ok := rs.summary(tt.column)
		if ok != (tt.want.Center != 0) || got.Center != tt.want.Center || got.Lo != tt.want.Lo || got.Hi != tt.want.Hi {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

// What a side needs for each run is made for each, and is not in the figures.
func TestFresh(t *testing.T) {
	if err := flag.Set("test.benchtime", "1000x"); err != nil {
		t.Fatal(err)
	}
	s, err := take(t.Context(), &copying{})
	if err != nil || s.n != 1000 || s.figures[allocs] < 0.9 || s.figures[allocs] > 1.1 {
		t.Errorf("%+v, %v, want one allocation", s, err)
	}
}

type copying struct {
	odd
	copy, sink *[64]byte
}

func (c *copying) Fresh() { c.copy = new([64]byte) }

func (c *copying) Run(context.Context) (any, error) {
	if c.copy == nil {
		return nil, errors.New("nothing fresh")
	}
	c.copy, c.sink = nil, new([64]byte)
	return nil, nil
}

func TestHold(t *testing.T) {
	s, err := hold(t.Context(), &big{}, time.Millisecond)
	// What else the program had before the first look may be gone at the second.
	if err != nil || s.n < 1 || s.figures[kept] < 0.75*(1<<20) || s.figures[kept] > 1.25*(1<<20) {
		t.Errorf("%+v, %v, want about a mebibyte", s, err)
	}
}

type big struct{ odd }

func (*big) Run(context.Context) (any, error) { return make([]byte, 1<<20), nil }

// The output of each format is in testdata.
func TestPrinter(t *testing.T) {
	admit := &row{table: admitTable, name: "Admit/label/small/10", goals: []goal{
		{"in-tree/mapd", 20, 0}, {"Gatekeeper/mapd", 1.5, 0}}}
	alone := &row{table: admitTable, name: "Admit/assign/small/1", goals: []goal{{"in-tree/mapd", 20, 0}}}
	compiled := &row{table: compileTable, name: "Compile/label", goals: []goal{{"mapd keeps", 0, 16 << 10}, {"mapd", 0, 0.02}}}
	requests := results{
		kubernetes: samples(2.1e-3, 2.2e-3, 2.0e-3, 2.1e-3, 2.1e-3, 2.1e-3),
		gatekeeper: samples(33e-6, 31e-6, 32e-6, 30e-6, 33e-6, 33e-6),
		mapd:       samples(31.5e-6, 31.5e-6, 31.4e-6, 30.9e-6, 33e-6, 32e-6),
	}
	kept := results{mapd: []sample{{3, map[string]float64{perOp: 0.0312, kept: 1100}}}}
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			p := &printer{w: &out, format: format, width: 14, judge: true}
			p.facts([]fact{{"commit", "abc"}, {"go", "go1"}})
			p.row(admit, requests)
			p.row(alone, results{gatekeeper: requests[gatekeeper][:2], mapd: requests[mapd][:2]})
			p.row(compiled, kept)
			p.summary()
			golden := filepath.Join("testdata", format+".golden")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Every goal is that of a row, and of a column which that row can have.
func TestGoals(t *testing.T) {
	used := 0
	for _, r := range rows(all) {
		for _, g := range r.goals {
			used++
			if !slices.ContainsFunc(r.table.columns, func(c column) bool { return c.head == g.column }) {
				t.Errorf("%s has no column %s", r.name, g.column)
			}
		}
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(rows(all), func(r *row) bool { return slices.Contains(r.goals, w.goal) && slices.Contains(goalsOf(r.name), w.goal) }) {
			t.Errorf("no row is meant by %s", w.rows)
		}
	}
	if used < len(wanted) {
		t.Errorf("%d goals in rows, %d in all", used, len(wanted))
	}
	for v, want := range map[float64]bool{1: false, 2: true, 3: true, 4: false} {
		if (goal{"", 2, 3}).met(v) != want {
			t.Errorf("%v is met: %v", v, !want)
		}
	}
}
