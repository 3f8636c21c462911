package main

import (
	"fmt"

	"github.com/mapd-project/mapd/test/bench"
)

// table is rows with the same columns.
type table struct {
	name, title string
	columns     []column
	// hold measures what results keep, too.
	hold bool
}

// column is a figure of a side or, with over, how many times that of side another
// side's is.
type column struct {
	head, side, unit, over string
}

// The sides. The baseline is mapd with less to do.
const (
	kubernetes = "in-tree"
	gatekeeper = "Gatekeeper"
	mapd       = "mapd"
	baseline   = "baseline"
)

var (
	times = []column{
		{kubernetes, kubernetes, perOp, ""}, {gatekeeper, gatekeeper, perOp, ""}, {mapd, mapd, perOp, ""},
	}
	ratios   = []column{{"in-tree/mapd", mapd, perOp, kubernetes}, {"Gatekeeper/mapd", mapd, perOp, gatekeeper}}
	requests = concat(times, []column{{"mapd allocs", mapd, allocs, ""}}, ratios)
	// flat has mapd with less to do beside it.
	flat  = concat(times, []column{{"mapd allocs", mapd, allocs, ""}, {baseline, baseline, perOp, ""}}, ratios, []column{{"mapd/baseline", baseline, perOp, mapd}})
	loads = concat(times, ratios, []column{
		{"in-tree keeps", kubernetes, kept, ""}, {"Gatekeeper keeps", gatekeeper, kept, ""}, {"mapd keeps", mapd, kept, ""},
	})
)

func concat(all ...[]column) []column {
	var out []column
	for _, columns := range all {
		out = append(out, columns...)
	}
	return out
}

var (
	admitTable   = &table{name: "Admit", title: "Policies, or mutators, that all apply: case, object, how many", columns: requests}
	missTable    = &table{name: "Miss", title: "None applies, small Pod: what they are about, how many; baseline: mapd with none", columns: flat}
	selectTable  = &table{name: "Select", title: "None applies, small Pod, all by the same selector or ten: who selects, by which labels, how many; baseline: mapd with ten", columns: flat}
	tenantsTable = &table{name: "Tenants", title: "One of many applies, each for its own namespace: bindings of one policy or policies, how many; baseline: mapd with that one", columns: flat}
	compileTable = &table{name: "Compile", title: "Compile one policy, or put in one mutator", columns: loads, hold: true}
	loadTable    = &table{name: "Load", title: "From stored to ready on one core: what, how many", columns: loads, hold: true}
	changeTable  = &table{name: "Rebuild", title: "One of so many policies changes, first request after it included", columns: times}
)

// row is a row of a table.
type row struct {
	table *table
	name  string
	goals []goal
	// entries are its sides in the order of their turns.
	entries func() []entry
}

type entry struct {
	name     string
	side     bench.Side
	workload *bench.Workload
}

// counts are how many policies rows have.
type counts struct{ admit, miss, selects, tenants, load, change []int }

var (
	// The in-tree plugin keeps half a megabyte for each compiled policy, so it gets no
	// more than mostInTree.
	all        = counts{[]int{1, 10, 100}, []int{0, 100, 1000, 10_000}, []int{1000, 10_000}, []int{10, 100, 1000, 10_000}, []int{1000, 10_000}, []int{10_000}}
	few        = counts{[]int{1, 10}, []int{0, 10}, []int{20}, []int{10}, []int{20}, []int{20}}
	mostInTree = 1000
	// Mutators for locations of their own are as many shapes; nobody has more.
	mostShapes = 1000
)

// rows are all rows.
func rows(n counts) []*row {
	var out []*row
	add := func(t *table, name string, entries func() []entry) {
		r := &row{table: t, name: t.name + "/" + name, entries: entries}
		r.goals = goalsOf(r.name)
		out = append(out, r)
	}
	for _, c := range bench.Cases {
		for _, o := range bench.Objects {
			for _, n := range n.admit {
				add(admitTable, fmt.Sprintf("%s/%s/%d", c.Name, o.Name, n), func() []entry { return admitEntries(bench.Match(c, o, n)) })
			}
		}
	}
	for _, how := range bench.Misses {
		for _, n := range n.miss {
			add(missTable, fmt.Sprintf("%s/%d", how, n), func() []entry {
				w := bench.Miss(how, n)
				return append(requestEntries(w, n <= mostInTree), entry{baseline, bench.Policies(), bench.Miss(how, 0)})
			})
		}
	}
	for _, way := range bench.Selectors {
		for _, n := range n.selects {
			add(selectTable, fmt.Sprintf("%s/%d", way, n), func() []entry {
				w, few := bench.Select(way, n), bench.Select(way, 10)
				if len(w.Policies) == 0 {
					return []entry{{gatekeeper, &theirs{}, w}, {mapd, bench.Mutators(), w}, {baseline, bench.Mutators(), few}}
				}
				return []entry{{mapd, bench.Policies(), w}, {baseline, bench.Policies(), few}}
			})
		}
	}
	for _, how := range bench.Tenants {
		for _, n := range n.tenants {
			add(tenantsTable, fmt.Sprintf("%s/%d", how, n), func() []entry {
				w := bench.Tenant(how, n, false)
				return append(requestEntries(w, len(w.Policies) <= mostInTree), entry{baseline, bench.Policies(), bench.Tenant(how, n, true)})
			})
		}
	}
	for _, c := range bench.Cases {
		add(compileTable, c.Name, func() []entry { return compileEntries(bench.Match(c, bench.Objects[0], 1)) })
	}
	for _, c := range []*bench.Case{bench.Label, bench.Shapes, bench.Cases[len(bench.Cases)-1]} {
		for _, n := range n.load {
			if c.HasPolicy() || n <= mostShapes {
				add(loadTable, fmt.Sprintf("%s/%d", c.Name, n), func() []entry { return loadEntries(bench.Many(c, n)) })
			}
		}
	}
	for _, n := range n.change {
		add(changeTable, fmt.Sprint(n), func() []entry {
			w := bench.Tenant("policies", n, false)
			return []entry{{gatekeeper, &theirsChanged{}, w}, {mapd, bench.Changed(), w}}
		})
	}
	return out
}

func admitEntries(w *bench.Workload) []entry {
	if len(w.Policies) == 0 {
		return []entry{{gatekeeper, &theirs{}, w}, {mapd, bench.Mutators(), w}}
	}
	all := requestEntries(w, true)
	if len(w.Mutators) == 0 {
		all = append(all[:1], all[2:]...)
	}
	return all
}

func requestEntries(w *bench.Workload, inTreeToo bool) []entry {
	all := []entry{{kubernetes, &inTree{}, w}, {gatekeeper, &theirs{}, w}, {mapd, bench.Policies(), w}}
	if !inTreeToo {
		return all[1:]
	}
	return all
}

func compileEntries(w *bench.Workload) []entry {
	var all []entry
	if len(w.Mutators) > 0 {
		all = append(all, entry{gatekeeper, &theirsLoaded{}, w})
	}
	if len(w.Policies) == 0 {
		return append(all, entry{mapd, bench.LoadedMutators(), w})
	}
	return append(all, entry{kubernetes, &inTreeCompiled{}, w}, entry{mapd, bench.Compiled(), w})
}

func loadEntries(w *bench.Workload) []entry {
	var all []entry
	if len(w.Mutators) > 0 {
		all = append(all, entry{gatekeeper, &theirsLoaded{}, w})
	}
	if len(w.Policies) == 0 {
		return append(all, entry{mapd, bench.LoadedMutators(), w})
	}
	if len(w.Policies) <= mostInTree {
		all = append(all, entry{kubernetes, &inTreeLoaded{}, w})
	}
	return append(all, entry{mapd, bench.Loaded(), w})
}
