package controllers

import (
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// ExpansionName is the ConfigMap in mapd's namespace that says what has become of
// Gatekeeper's expansion templates, and what else has no effect on what workloads create.
// The status of the templates is Gatekeeper's, which may be running.
const ExpansionName = "mapd-expansion"

// What can be said of an expansion template.
const (
	templateRunning = "running"
	templateCycle   = "cycle"   // it generates what the others of its circle expand
	templateRefused = "refused" // it is not valid
)

var expansionListing = listing{
	name: ExpansionName, key: "templates", about: "expansion templates", one: "template", many: "templates",
	states: []string{templateRunning, templateCycle, templateRefused},
	reason: "TemplateDisabled", action: "Check",
	read: func(s *store.Snapshot) (out listed, ok bool) {
		if s.Expansion == nil {
			return out, false
		}
		for _, t := range s.Expansion.Templates {
			o := listedObject{object: t.Object, id: t.Object.GetName(), state: templateRunning, bad: t.Err != nil}
			switch {
			case t.Cycle:
				o.state, o.text = templateCycle, t.Err.Error()
			case t.Err != nil:
				o.state, o.text = templateRefused, legacy.Reason(t.Err)
			}
			out.lines = append(out.lines, o)
		}
		out.problems = s.Expansion.Problems
		return out, true
	},
}
