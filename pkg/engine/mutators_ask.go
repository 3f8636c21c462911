package engine

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/mapd-project/mapd/pkg/tree"
)

// maxFilled bounds the bytes that answers add to one object, since one answer may be written to
// any number of places.
const maxFilled = 7 << 20

var errFilled = fmt.Errorf("the answers would add more than %d MiB to the object", maxFilled>>20)

// answer asks for all pending strings of the object, and sets r.answered to the object with the
// answers.
func (r *setRun) answer() error {
	r.answered = r.draft.Keep()
	if !r.asks {
		return nil
	}
	places := tree.Places(r.answered.Object)
	if len(places) == 0 {
		return nil
	}
	questions := make([]Question, len(places))
	for i, p := range places {
		questions[i] = Question{p.Pending.Source, p.Pending.Key}
	}
	texts, failed := map[tree.Pending]string{}, map[string]bool{}
	var errs []error
	size := 0
	for i, a := range r.Ask(questions) {
		p := places[i].Pending
		switch {
		case a.Err == nil:
			texts[*p] = a.Value
		case !p.Must:
			texts[*p] = p.Fallback
		case !failed[a.Err.Error()]:
			failed[a.Err.Error()] = true
			errs = append(errs, r.unanswered(places[i], a.Err))
		}
		size += len(texts[*p])
	}
	if status := interrupted(r.ctx, r.Request); status != nil {
		return errors.New(status.Message)
	}
	if size > maxFilled {
		errs = append(errs, errFilled)
	}
	if len(errs) > 0 {
		return fmt.Errorf("failed to resolve external data placeholders: %w", utilerrors.NewAggregate(errs))
	}
	if err := r.Request.Memory.Charge(int64(100 * len(places))); err != nil {
		return err
	}
	r.fill(func(p *tree.Pending) string {
		if text, ok := texts[*p]; ok {
			return text
		}
		return "<" + p.String() + ">" // a later mutation replaced it, so it was not asked
	})
	return nil
}

// fill writes the answers into the object and, with Options.Trace, into the objects of the
// steps.
func (r *setRun) fill(text func(*tree.Pending) string) {
	filled := map[*unstructured.Unstructured]*unstructured.Unstructured{}
	in := func(object *unstructured.Unstructured) *unstructured.Unstructured {
		if object == nil {
			return nil
		}
		if filled[object] == nil {
			filled[object] = &unstructured.Unstructured{Object: tree.Fill(object.Object, text).(map[string]any)}
		}
		return filled[object]
	}
	r.answered = in(r.answered)
	if !r.options.Trace {
		return
	}
	for i := range r.steps {
		s := &r.steps[i]
		s.Before, s.After = in(s.Before), in(s.After)
	}
}

// unanswered records a question without an answer in the step that asked it, and returns the
// error for the client.
func (r *setRun) unanswered(at tree.Place, err error) error {
	for i := len(r.steps) - 1; i >= 0; i-- {
		s := &r.steps[i]
		if s.Outcome != Changed {
			continue
		}
		for _, p := range s.Paths() {
			if at.Path == p || strings.HasPrefix(at.Path, p+"/") {
				*r.step(r.pass, s.Policy, "", nil) = Step{Stage: s.Stage, Round: r.pass, Policy: s.Policy, Param: s.Param,
					Mutation: s.Mutation, Outcome: Failed, Err: err}
				return err
			}
		}
	}
	return err
}

// selected returns the object as selectors see it: without labels whose values are pending.
func (r *setRun) selected() *unstructured.Unstructured {
	object := r.draft.Object()
	if !r.asks {
		return object
	}
	set := rawLabels(object.Object)
	var known map[string]any
	for k, v := range set {
		if _, pending := v.(*tree.Pending); !pending {
			continue
		}
		if known == nil {
			known = maps.Clone(set)
		}
		delete(known, k)
	}
	if known == nil {
		return object
	}
	root := maps.Clone(object.Object)
	meta := maps.Clone(root["metadata"].(map[string]any))
	meta["labels"], root["metadata"] = known, meta
	return &unstructured.Unstructured{Object: root}
}
