package main

import "path"

// goal is what a column of a row has to reach: at least or at most so much.
type goal struct {
	column          string
	atLeast, atMost float64
}

func (g goal) met(v float64) bool {
	return v >= g.atLeast && (g.atMost == 0 || v <= g.atMost)
}

// wanted are the goals of the project for rows by their names. Times are never a
// reason to fail: machines differ, and ratios do with them.
var wanted = []struct {
	rows string // a path.Match pattern
	goal goal
}{
	{"Admit/label-*/small/1", goal{"in-tree/mapd", 10, 0}},
	{"Admit/label-*/small/10", goal{"in-tree/mapd", 20, 0}},
	{"Admit/label-*/small/100", goal{"in-tree/mapd", 50, 0}},
	{"Admit/label-*/big/1", goal{"in-tree/mapd", 100, 0}},
	{"Admit/label-*/big/10", goal{"in-tree/mapd", 300, 0}},
	{"Admit/label-*/big/100", goal{"in-tree/mapd", 500, 0}},
	{"Admit/containers/small/1", goal{"in-tree/mapd", 10, 0}},
	{"Admit/containers/small/10", goal{"in-tree/mapd", 20, 0}},
	{"Admit/containers/small/100", goal{"in-tree/mapd", 50, 0}},
	{"Admit/containers/big/1", goal{"in-tree/mapd", 30, 0}},
	{"Admit/containers/big/10", goal{"in-tree/mapd", 50, 0}},
	{"Admit/containers/big/100", goal{"in-tree/mapd", 100, 0}},
	{"Admit/variables/small/1", goal{"in-tree/mapd", 10, 0}},
	{"Admit/variables/small/10", goal{"in-tree/mapd", 20, 0}},
	{"Admit/variables/small/100", goal{"in-tree/mapd", 50, 0}},

	{"Admit/label-jsonpatch/small/1", goal{"Gatekeeper/mapd", 10, 0}},
	{"Admit/label-jsonpatch/small/10", goal{"Gatekeeper/mapd", 5, 0}},
	{"Admit/label-jsonpatch/small/100", goal{"Gatekeeper/mapd", 1.5, 0}},
	{"Admit/assignmetadata/small/1", goal{"Gatekeeper/mapd", 10, 0}},
	{"Admit/assignmetadata/small/10", goal{"Gatekeeper/mapd", 5, 0}},
	{"Admit/assignmetadata/small/100", goal{"Gatekeeper/mapd", 1.5, 0}},
	{"Admit/label-jsonpatch/big/*", goal{"Gatekeeper/mapd", 10, 0}},
	{"Admit/assignmetadata/big/*", goal{"Gatekeeper/mapd", 10, 0}},
	{"Admit/containers/small/1", goal{"Gatekeeper/mapd", 10, 0}},
	{"Admit/containers/small/10", goal{"Gatekeeper/mapd", 5, 0}},
	{"Admit/containers/small/100", goal{"Gatekeeper/mapd", 2, 0}},
	{"Admit/assign/small/1", goal{"Gatekeeper/mapd", 10, 0}},
	{"Admit/assign/small/10", goal{"Gatekeeper/mapd", 5, 0}},
	{"Admit/assign/small/100", goal{"Gatekeeper/mapd", 2, 0}},
	{"Admit/containers/big/*", goal{"Gatekeeper/mapd", 20, 0}},
	{"Admit/assign/big/*", goal{"Gatekeeper/mapd", 20, 0}},

	{"Miss/*/*00", goal{"mapd/baseline", 0, 1.1}},
	{"Select/*/*", goal{"mapd/baseline", 0, 1.2}},
	{"Tenants/*/*", goal{"mapd/baseline", 0, 1.1}},

	{"Compile/[^a]*", goal{"in-tree/mapd", 10, 0}}, // all but the mutators
	{"Compile/[^a]*", goal{"mapd keeps", 0, 16 << 10}},
	{"Load/*/10000", goal{"mapd", 0, 5}},
	{"Load/*/10000", goal{"mapd keeps", 0, 300 << 20}},
	{"Rebuild/10000", goal{"mapd", 0, 0.020}},
}

func goalsOf(row string) []goal {
	var all []goal
	for _, w := range wanted {
		ok, err := path.Match(w.rows, row)
		if err != nil {
			panic(err) // the patterns are above
		}
		if ok {
			all = append(all, w.goal)
		}
	}
	return all
}
