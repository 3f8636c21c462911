package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/load"
)

// drive sends reviews to a webhook that runs already, and prints the results.
func drive(ctx context.Context, f *flags) error {
	ca, err := os.ReadFile(f.ca)
	if err != nil {
		return fmt.Errorf("-ca: %w", err)
	}
	review, err := load.PodReview(pods.New(3, 0))
	if f.review != "" {
		var data []byte
		if data, err = os.ReadFile(f.review); err == nil {
			review, err = load.ParseReview(data)
		}
	}
	if err != nil {
		return err
	}
	client, err := load.NewClient(load.Target{URL: f.url, CA: ca, Connections: f.connections})
	if err != nil {
		return err
	}
	defer client.Close()
	m, err := measure(ctx, client, review, f.limits, f.pid)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "%d requests in %s, %.0f a second, %d errors\n", m.Requests, m.Took.Round(time.Millisecond), m.perSecond(), m.Errors)
	fmt.Fprintf(f.out, "p50 %s, p90 %s, p99 %s, max %s\n", ms(m.Latency.P50), ms(m.Latency.P90), ms(m.Latency.P99), ms(m.Latency.Max))
	if f.pid != 0 {
		fmt.Fprintf(f.out, "CPU for a request %s, RSS %s, %s without files, at the most %s\n", ms(m.cpu), mib(m.used.RSS), mib(m.used.Anon), mib(m.used.Peak))
	}
	return m.Err
}

// measurement is a Result and what the server's process used; 0 means that it is not known.
type measurement struct {
	load.Result
	cpu  time.Duration // for each request
	used load.Usage    // at the end
}

func (m *measurement) perSecond() float64 { return float64(m.Requests) / m.Took.Seconds() }

func measure(ctx context.Context, client *load.Client, review *load.Review, limits load.Limits, pid int) (*measurement, error) {
	var before load.Usage
	known := pid != 0
	result, err := client.Run(ctx, review, limits, func() error {
		var err error
		if before, err = load.ReadUsage(pid); err != nil {
			known = false
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := &measurement{Result: *result}
	if after, err := load.ReadUsage(pid); known && err == nil {
		m.cpu = (after.CPU - before.CPU) / time.Duration(max(1, result.Requests))
		m.used = after
	}
	return m, nil
}

// ms writes a time, mib a size.
func ms(d time.Duration) string {
	if d == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.3g ms", float64(d)/1e6)
}

func mib(n int64) string {
	if n == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
