package language

import (
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/api"
)

// overlaps reports whether ranges have a place in common.
func overlaps(a, b Range) bool { return !before(a.End, b.Start) && !before(b.End, a.Start) }

// nearAction returns an action that replaces a finding's word by the likely correction.
func nearAction(text string, finding *lint.Finding, at Range) []Action {
	start, ok := writtenAt(text, finding.Line, finding.Column, finding.Written)
	d := diagnostic(text, finding)
	if !ok || !overlaps(d.Range, at) {
		return nil
	}
	return []Action{{Title: "Write " + finding.Near, Diagnostic: &d, Edits: []Edit{{rangeOf(text, start, start+len(finding.Written)), finding.Near}}}}
}

// corrections returns actions that replace fields and values which the form of the document does
// not have by similar ones that it has.
func (w *Workspace) corrections(f *file, at Range) (out []Action) {
	for _, m := range w.check(f) {
		d := m.diagnostic(f.text)
		start, ok := writtenAt(f.text, m.at.Line, m.at.Column, m.written)
		if m.near == "" || !ok || !overlaps(d.Range, at) || len(out) == maxActions {
			continue
		}
		out = append(out, Action{Title: "Write " + m.near, Diagnostic: &d, Edits: []Edit{{rangeOf(f.text, start, start+len(m.written)), m.near}}})
	}
	return out
}

// skeletons are the texts that completions inserts for required fields of policies.
var skeletons = map[string]string{
	"reinvocationPolicy": "Never",
	"matchConstraints":   "\n  resourceRules:\n  - apiGroups: [\"\"]\n    apiVersions: [v1]\n    operations: [CREATE]\n    resources: [pods]",
	"resourceRules":      "\n- apiGroups: [\"\"]\n  apiVersions: [v1]\n  operations: [CREATE]\n  resources: [pods]",
	"mutations":          "\n- patchType: ApplyConfiguration\n  applyConfiguration:\n    expression: Object{}",
	"apiGroups":          `[""]`,
	"apiVersions":        "[v1]",
	"operations":         "[CREATE]",
	"resources":          "[pods]",
}

// completions returns actions that insert fields which the form of a policy or a binding requires
// and the document lacks.
func (w *Workspace) completions(f *file, at Range) (out []Action) {
	p := placeAt(f.text, offsetOf(f.text, at.Start))
	for n := range p.nodes {
		node := &p.nodes[n]
		if len(node.keys) == 0 || len(out) >= maxActions {
			continue
		}
		// The place of a mapping is its key, or the whole element.
		end := p.nodes[node.keys[0]].at
		if !overlaps(rangeOf(f.text, node.at, max(end, node.at)), at) {
			continue
		}
		form, _ := w.formAt(&p, n)
		written, ok := form.(writtenForm)
		if !ok {
			continue
		}
		for _, name := range written.needs() {
			if p.child(n, name) < 0 {
				if a, ok := insertion(f.text, &p, n, name); ok {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// insertion returns an action that inserts a field before the first one of a mapping in block
// style.
func insertion(text string, p *place, n int, name string) (Action, bool) {
	value := skeletons[name]
	if name == "patchType" {
		switch {
		case p.child(n, "jsonPatch") >= 0:
			value = "JSONPatch"
		case p.child(n, "applyConfiguration") >= 0:
			value = "ApplyConfiguration"
		}
	}
	if value == "" {
		return Action{}, false
	}
	at := p.nodes[p.nodes[n].keys[0]].at
	line := strings.LastIndexByte(text[:at], '\n') + 1
	if strings.Trim(text[line:at], " -") != "" {
		return Action{}, false // between brackets, or behind a key
	}
	indent := strings.Repeat(" ", at-line)
	if value[0] != '\n' {
		value = " " + value
	}
	field := name + ":" + strings.ReplaceAll(value, "\n", "\n"+indent) + "\n" + indent
	where := positionOf(text, at)
	d := Diagnostic{Range: rangeOf(text, p.nodes[n].at, at), Severity: lint.Error, Rule: "invalid", Message: name + " is required", Fixable: true}
	return Action{Title: "Add " + name, Diagnostic: &d, Edits: []Edit{{Range{where, where}, field}}}, true
}

// bindingFor returns an action that adds a binding after a policy without one in a range.
// findings are those of the file alone.
func (w *Workspace) bindingFor(f *file, findings []lint.Finding, at Range) (out []Action) {
	for i := range findings {
		finding := &findings[i]
		if finding.File != f.name || finding.Rule != "binding" || finding.Field != "metadata.name" || strings.HasPrefix(strings.TrimSpace(f.text), "{") {
			continue
		}
		d := diagnostic(f.text, finding)
		if !overlaps(d.Range, at) {
			continue
		}
		for _, h := range f.heads() {
			if h.document != finding.Document || h.title != finding.Object || len(w.names(func(b head) bool {
				return b.policyName == h.name && groupOf(b.apiVersion) == groupOf(h.apiVersion)
			})) > 0 {
				continue
			}
			text := "---\n" + string(manifest.Encode(map[string]any{
				"apiVersion": h.apiVersion, "kind": api.BindingKind,
				"metadata": map[string]any{"name": h.name}, "spec": map[string]any{"policyName": h.name},
			}))
			if !strings.HasSuffix(f.text, "\n") {
				text = "\n" + text
			}
			end := positionOf(f.text, len(f.text))
			out = append(out, Action{Title: "Add a binding", Diagnostic: &d, Edits: []Edit{{Range{end, end}, text}}})
			break
		}
	}
	return out
}
