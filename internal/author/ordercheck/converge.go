package ordercheck

import (
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// converge submits the result again, as an update.
func (c *checker) converge(out *Result) {
	second := slices.DeleteFunc(slices.Clone(c.base.Steps), func(s engine.Step) bool { return s.Stage != engine.PolicyStage || s.Round < 2 })
	fought := c.pingPong(second)
	if c.base.Status == nil && c.base.Object != nil {
		differences, also := c.update(c.base.Object.Object)
		out.Differences = append(out.Differences, differences...)
		for _, f := range also {
			if !slices.ContainsFunc(fought, func(g Difference) bool { return slices.Equal(f.Members, g.Members) }) {
				fought = append(fought, f)
			}
		}
	}
	out.Differences = append(out.Differences, fought...)
}

func (c *checker) update(object map[string]any) (found, fought []Difference) {
	// again submits an object as an update. It returns the object of that request, the decision,
	// and the object that the server would store.
	again := func(object map[string]any) (map[string]any, *engine.Decision, map[string]any, error) {
		req, err := c.request.Again(object)
		if req == nil || err != nil {
			return nil, nil, nil, err
		}
		d := c.engine.Admit(c.ctx, req)
		if d.Status != nil || d.Object == nil || c.ctx.Err() != nil {
			return req.Object.Object, d, nil, nil
		}
		stored, err := c.request.Stored(d.Object.Object)
		return req.Object.Object, d, stored, err
	}
	before, d, after, err := again(object)
	switch {
	case err != nil:
		return []Difference{{Kind: Again, Refusals: [2]string{err.Error()}}}, nil
	case d == nil || c.ctx.Err() != nil:
		return nil, nil
	}
	if d.Status != nil {
		return []Difference{{Kind: Again, Refusals: [2]string{refusal(d)}}}, nil
	}
	fought = c.pingPong(d.Steps)
	changes := c.diff(before, after)
	if len(changes) == 0 {
		return nil, fought
	}
	next := ""
	if _, third, stored, err := again(d.Object.Object); third != nil || err != nil {
		switch {
		case err != nil || third.Status != nil:
			next = "the next update is refused"
		case tree.Equal(stored, after):
			next = "a second update changes nothing"
		case tree.Equal(stored, before):
			next = "a second update changes it back"
		default:
			next = "each update changes it"
		}
	}
	steps := c.history(d.Steps)
	for _, change := range changes {
		var by []string
		for _, s := range steps {
			if !slices.Contains(by, s.by) && (within(fieldsOf(s.change.Path), fieldsOf(change.Path)) || s.foreign) {
				by = append(by, s.by)
			}
		}
		if n := len(found); n > 0 && slices.Equal(found[n-1].Members, by) {
			found[n-1].Changes = append(found[n-1].Changes, change)
			continue
		}
		found = append(found, Difference{Kind: Again, Members: by, Changes: []report.Change{change}, Next: next})
	}
	return found, fought
}

// fieldsOf splits a path at its dots and brackets, roughly: it is only compared.
func fieldsOf(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// wrote is a field that a step changed.
type wrote struct {
	by      string
	change  report.Change
	foreign bool
}

// history returns what steps changed.
func (c *checker) history(steps []engine.Step) (out []wrote) {
	for i := range steps {
		s := &steps[i]
		if s.Outcome != engine.Changed || s.Before == nil || s.After == nil {
			continue
		}
		w := wrote{by: s.Policy}
		if at, ok := c.index[identity{s.Policy, s.Binding, s.Param}]; ok && s.Stage == engine.PolicyStage {
			w.by, w.foreign = c.members[at].shown, c.members[at].foreign
		}
		before, after := s.Before.Object, s.After.Object
		if !w.foreign {
			before, after = c.stored(before), c.stored(after)
		}
		for _, w.change = range c.diff(before, after) {
			out = append(out, w)
		}
	}
	return out
}

// pingPong finds fields that several members change, and that finally have their original value.
func (c *checker) pingPong(steps []engine.Step) (out []Difference) {
	fields := map[string][]wrote{}
	var paths []string
	for _, w := range c.history(steps) {
		p := w.change.Path
		if len(fields[p]) == 0 {
			paths = append(paths, p)
		}
		fields[p] = append(fields[p], w)
	}
	for _, p := range paths {
		list := fields[p]
		first, last := list[0], list[len(list)-1]
		if !tree.Equal(first.change.Before, last.change.After) {
			continue
		}
		var by []string
		for _, w := range list {
			if !slices.Contains(by, w.by) {
				by = append(by, w.by)
			}
		}
		if len(by) < 2 {
			continue
		}
		change := report.Change{Path: p, Before: first.change.After, After: last.change.After}
		if n := len(out); n > 0 && slices.Equal(out[n-1].Members, by) {
			out[n-1].Changes = append(out[n-1].Changes, change)
			continue
		}
		out = append(out, Difference{Kind: PingPong, Members: by, Changes: []report.Change{change}})
	}
	return out
}
