//go:build e2e

package bench

import (
	"fmt"
	"time"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/load"
)

func (x *bench) print() {
	for _, p := range x.pods {
		fmt.Printf("\n| create --dry-run=server, %s Pod (%.1f KiB) | at a time | p50 | p99 | CPU API server | CPU mapd | requests | reviews |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
			p.name, float64(len(p.body))/1024)
		for _, s := range subjects {
			for _, n := range atATime {
				row := x.rows[key{s.name, p.name, n}]
				replica := "–"
				if s.group == api.OwnGroup {
					replica = ms(row.replica)
				}
				fmt.Printf("| %s | %d | %s | %s | %s | %s | %d | %d |\n", s.name, n, ms(row.latency.P50), ms(row.latency.P99), ms(row.server), replica, row.requests, row.reviews)
			}
		}
	}
	fmt.Print("\n| native ÷ mapd, one at a time | Pod | p50 | p99 | CPU of all |\n| --- | --- | --- | --- | --- |\n")
	x.compare(func(what, pod string, native, mapd figures) {
		fmt.Printf("| %s | %s | %s | %s | %s |\n", what, pod, times(native.latency.P50, mapd.latency.P50),
			times(native.latency.P99, mapd.latency.P99), times(native.cpu(), mapd.cpu()))
	})
	fmt.Printf("\n| more than %q, one at a time | Pod | p50 | CPU API server |\n| --- | --- | --- | --- |\n", floorOfLabels.name)
	for _, p := range x.pods {
		floor := x.rows[key{floorOfLabels.name, p.name, 1}]
		for _, group := range []string{api.NativeGroup, api.OwnGroup} {
			what := title(group, load.Label, 100)
			row := x.rows[key{what, p.name, 1}]
			fmt.Printf("| %s | %s | %s | %s |\n", what, p.name, more(row.latency.P50, floor.latency.P50), more(row.server, floor.server))
		}
	}
	fmt.Print("\n| one at a time | Pod | p50 | CPU of all |\n| --- | --- | --- | --- |\n")
	for _, p := range x.pods {
		for _, pair := range [][2]subject{{idle, noPolicy}, {entries(2), entries(1)}, {entries(4), entries(1)}} {
			row, than := x.rows[key{pair[0].name, p.name, 1}], x.rows[key{pair[1].name, p.name, 1}]
			fmt.Printf("| %s, more than %q | %s | %s | %s |\n", pair[0].name, pair[1].name, p.name,
				more(row.latency.P50, than.latency.P50), more(row.cpu(), than.cpu()))
		}
	}
	fmt.Print("\n| goal | is | |\n| --- | --- | --- |\n")
	for _, p := range x.pods {
		if p.name == "small" {
			p50 := x.rows[key{title(api.OwnGroup, load.Label, 100), p.name, 1}].latency.P50
			goal("mapd, 100 labels, small Pod: p50 ≤ 3 ms", ms(p50), p50 <= 3*time.Millisecond)
		}
	}
	x.compare(func(what, pod string, native, mapd figures) {
		factor := time.Duration(1)
		switch what {
		case "1 label":
			return
		case "100 labels", "100 container fields":
			factor = 15
		}
		is := times(native.latency.P50, mapd.latency.P50)
		goal(fmt.Sprintf("%s, %s Pod: native p50 ≥ %d× mapd's", what, pod, factor), is, native.latency.P50 >= factor*mapd.latency.P50)
	})
}

// compare calls f with each pair that does the same.
func (x *bench) compare(f func(what, pod string, native, mapd figures)) {
	for _, p := range x.pods {
		for _, s := range subjects {
			if s.group != api.OwnGroup || len(s.selectors) > 0 {
				continue
			}
			native := title(api.NativeGroup, s.kind, s.n)
			f(title("", s.kind, s.n)[len(", "):], p.name, x.rows[key{native, p.name, 1}], x.rows[key{s.name, p.name, 1}])
		}
	}
}

func goal(what, is string, met bool) {
	verdict := "not met"
	if met {
		verdict = "met"
	}
	fmt.Printf("| %s | %s | %s |\n", what, is, verdict)
}

// ms writes a time; one that is not known is 0.
func ms(d time.Duration) string {
	if d == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.3g ms", float64(d)/1e6)
}

func more(a, b time.Duration) string {
	if a == 0 || b == 0 {
		return "not known"
	}
	return fmt.Sprintf("%+.2f ms", float64(a-b)/1e6)
}

func times(a, b time.Duration) string {
	if a == 0 || b == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.1f×", float64(a)/float64(b))
}
