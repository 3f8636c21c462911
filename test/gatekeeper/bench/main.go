// Command bench runs the mutating dispatcher of Kubernetes, Gatekeeper's mutation
// system and mapd in one process on the same workloads, which are those of
// test/bench, and prints what each costs, how they relate, and which goals of the
// project are met.
//
// All sides start where the request's object has been decoded and stop where the
// last pass is over: Kubernetes holds the object as its Go type, the others as a
// tree. Neither the decoding nor the patch of a webhook is in the figures. mapd's
// include the record of what each policy did. Gatekeeper changes the object that it
// is given, so it gets a copy each time, during which the clock stands still.
// Before anything is measured all sides answer, and an object that is not the
// right one ends the run with code 1. A goal that is not met does not.
//
// The sides take turns. A figure is the median of all turns ± its 95 % confidence
// interval, as benchstat prints it (∞ if there are fewer than six); a ratio is
// taken turn by turn.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mapd-project/mapd/test/bench"
)

type options struct {
	count     int
	benchtime time.Duration // 0: do it once
	format    string
	only      *regexp.Regexp
	counts    counts
}

func main() {
	testing.Init()
	o := options{counts: all}
	quick := flag.Bool("quick", false, "few policies, each side measured once and only once, to see that all runs")
	only := flag.String("run", "", "only the rows whose name matches this `regexp`, such as '^Admit/label.*/small'")
	flag.IntVar(&o.count, "count", 6, "how many turns each side has")
	flag.DurationVar(&o.benchtime, "benchtime", 100*time.Millisecond, "how long a turn is, unless doing it once takes longer")
	flag.StringVar(&o.format, "format", formats[0], strings.Join(formats[:2], ", ")+" or, for benchstat, "+formats[2])
	flag.Parse()
	if *quick {
		o.count, o.benchtime, o.counts = 1, 0, few
	}
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		err = run(context.Background(), os.Stdout, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, o options) error {
	switch {
	case !slices.Contains(formats, o.format):
		return fmt.Errorf("-format %s: want one of %s", o.format, strings.Join(formats, ", "))
	case o.count < 1:
		return fmt.Errorf("-count %d: want one turn at least", o.count)
	}
	chosen := slices.DeleteFunc(rows(o.counts), func(r *row) bool { return !o.only.MatchString(r.name) })
	if len(chosen) == 0 {
		return fmt.Errorf("-run %s: no row has such a name", o.only)
	}
	benchtime := "1x"
	if o.benchtime > 0 {
		benchtime = o.benchtime.String()
	}
	if err := flag.Set("test.benchtime", benchtime); err != nil {
		return err
	}
	return o.print(ctx, w, chosen)
}

func (o options) print(ctx context.Context, w io.Writer, chosen []*row) error {
	// What ran only once says nothing about goals.
	p := &printer{w: w, format: o.format, judge: o.benchtime > 0}
	for _, r := range chosen {
		p.width = max(p.width, len(r.name)-len(r.table.name)-1)
	}
	p.facts(facts(o))
	for _, r := range chosen {
		rs, err := r.measure(ctx, o)
		if err != nil {
			return err
		}
		p.row(r, rs)
	}
	p.summary()
	return nil
}

// facts are what figures have to be read with.
func facts(o options) []fact {
	var objects []string
	for _, b := range bench.Objects {
		objects = append(objects, fmt.Sprintf("%s %d containers %.1f KiB", b.Name, b.Containers(), float64(b.Size())/1024))
	}
	return []fact{
		{"commit", output("git", "describe", "--tags", "--always", "--dirty")},
		{"go", runtime.Version()},
		{"goos", runtime.GOOS},
		{"goarch", runtime.GOARCH},
		{"cpu", cpu()},
		{"cores", fmt.Sprint(runtime.GOMAXPROCS(0))},
		{"peers", peers()},
		{"command", strings.Join(append([]string{"go -C test/gatekeeper run ./bench"}, os.Args[1:]...), " ")},
		{"objects", strings.Join(objects, ", ")},
		{"turns", fmt.Sprintf("%d of %v for each side", o.count, o.benchtime)},
	}
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// cpu is what the processor calls itself, where Linux says it.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func peers() string {
	var all []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "k8s.io/apiserver" || strings.HasPrefix(d.Path, "github.com/open-policy-agent/gatekeeper/") {
				all = append(all, d.Path+" "+d.Version)
			}
		}
	}
	return strings.Join(all, ", ")
}
