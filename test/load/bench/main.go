// Command bench measures what mapd costs over HTTPS, beside plain servers that do
// as little as a webhook can: one that decodes a review and allows it, and one that
// decodes the Pod too, labels it and encodes it again.
//
// Each server is a process of its own, and they are measured in turn. Before a measurement, bench
// applies the patch of an answer and checks the Pod; during it, every answer has to be equal to
// that one. A wrong answer or an error ends the run with exit code 1. A missed goal does not,
// because times depend on the machine and on its other load.
//
// With -url it sends to one webhook that runs already, on this machine; with -floor it is one of
// the plain servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mapd-project/mapd/test/load"
)

type flags struct {
	out io.Writer

	mapd  string
	quick bool
	scale bool
	turns int
	each  time.Duration

	url, ca, review string
	pid             int
	connections     int
	limits          load.Limits

	floor, cert, key string
}

func main() {
	f := flags{out: os.Stdout}
	flag.StringVar(&f.mapd, "mapd", "bin/mapd", "the program to measure")
	flag.BoolVar(&f.quick, "quick", false, "one short measurement of few servers, to see that it runs")
	flag.BoolVar(&f.scale, "scale", false, "measure a replica with the policies of clusters of 50, 500 and 5,000 nodes instead (docs/operate/scale.md)")
	flag.IntVar(&f.turns, "turns", 3, "how many times each server is measured, 1 to 20")
	flag.DurationVar(&f.each, "each", time.Second, "how long a measurement takes, up to 10s")
	flag.StringVar(&f.url, "url", "", "drive this webhook instead; the host is a loopback address")
	flag.StringVar(&f.ca, "ca", "", "with -url: file with the authority of its certificate")
	flag.StringVar(&f.review, "review", "", "with -url: file with an AdmissionReview (default that of a small Pod)")
	flag.IntVar(&f.pid, "pid", 0, "with -url: the webhook's process, for CPU and memory")
	flag.IntVar(&f.connections, "connections", 1, fmt.Sprintf("with -url: up to %d", load.MaxConnections))
	flag.IntVar(&f.limits.Requests, "requests", 100_000, fmt.Sprintf("with -url: how many requests at the most, up to %d", load.MaxRequests))
	flag.DurationVar(&f.limits.Time, "time", 10*time.Second, fmt.Sprintf("with -url: for how long at the most, up to %s", load.MaxTime))
	flag.StringVar(&f.floor, "floor", "", "be the plain server allow or patch, on a free port")
	flag.StringVar(&f.cert, "tls-cert", "", "with -floor: file with the certificate")
	flag.StringVar(&f.key, "tls-key", "", "with -floor: file with its key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &f); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, f *flags) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: there are no arguments", flag.Args())
	}
	switch {
	case f.floor != "":
		return serveFloor(ctx, f)
	case f.url != "":
		return drive(ctx, f)
	case f.turns < 1 || f.turns > 20:
		return fmt.Errorf("-turns %d: must be 1 to 20", f.turns)
	case f.each <= 0 || f.each > 10*time.Second:
		return fmt.Errorf("-each %s: must be more than nothing and at most 10s", f.each)
	}
	plan := whole
	if f.quick {
		plan = short
		f.turns, f.each = 1, 20*time.Millisecond
	}
	what := func() error { return table(ctx, f, plan) }
	if f.scale {
		what = func() error { return scale(ctx, f) }
	}
	err := what()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
