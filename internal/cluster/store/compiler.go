package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// compiler compiles policies and bindings that have changed, and keeps the results for the
// others. It is not safe for concurrent use.
type compiler struct {
	deps policy.Deps
	slow *slow // the first update creates it if it is nil
	catalogue
	reaches []*webhookconfig.Reach // one for each binding
}

// catalogue is all policies and bindings. Its lists are replaced, never modified.
type catalogue struct {
	policies []*compiledPolicy  // by name
	bindings []*compiledBinding // by name
	// named has the index of each binding's policy, -1 if it does not exist.
	named []int
	// entries are the webhook entries that policies need. ids has the entry in which each
	// binding's policy runs because of that binding; the zero ID if there is none.
	entries []*webhookconfig.Entry
	ids     []webhook.ID
}

// stored is a stored policy or binding. Only a part is decoded, because a decoded object takes
// several times the memory of its JSON.
type stored struct {
	name string
	// object has the metadata and the status.
	object *unstructured.Unstructured
	// text has everything else, with the name and the annotations that influence the effect, as
	// JSON with sorted keys.
	text []byte
}

// keepStored splits an object, which it modifies. It drops managedFields and the annotation of
// kubectl apply, which nobody reads.
func keepStored(u *unstructured.Unstructured, old *stored) *stored {
	// A repeated list, for example after a lost connection, is no change.
	if old != nil && old.object.GetUID() == u.GetUID() && old.object.GetResourceVersion() == u.GetResourceVersion() {
		return old
	}
	rest := maps.Clone(u.Object)
	delete(rest, "status")
	rest["metadata"] = readMetadata(u)
	text, err := json.Marshal(rest)
	if err != nil {
		text = nil // counts as a broken policy; it cannot happen, because the object was JSON
	}
	maps.DeleteFunc(u.Object, func(field string, _ any) bool {
		return field != "apiVersion" && field != "kind" && field != "metadata" && field != "status"
	})
	meta, _ := u.Object["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	return &stored{name: u.GetName(), object: u, text: text}
}

// readMetadata returns the metadata that influences requests.
func readMetadata(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{"name": u.GetName()}
	var annotations map[string]any
	for _, key := range api.RolloutAnnotations {
		if value, ok, _ := unstructured.NestedString(u.Object, "metadata", "annotations", key); ok {
			if annotations == nil {
				annotations = map[string]any{}
				out["annotations"] = annotations
			}
			annotations[key] = value
		}
	}
	return out
}

// compiledPolicy is a stored policy with the result of compiling it.
type compiledPolicy struct {
	*stored
	*policyResult
}

// policyResult is the result of compiling a policy's text. Versions of a policy that differ in
// their metadata or status only share it.
type policyResult struct {
	policy *policy.Policy
	group  webhook.Group
	errs   []error
	// nowhere: it is unknown which requests the policy matches, so it has no effect on any.
	nowhere bool
	// pending: the policy is still being compiled.
	pending  bool
	warnings warnings
	// breaker is nil unless the policy's annotation asks for one. After it has tripped, closed is
	// the result from before; otherwise closed is nil.
	breaker *breaker.Breaker
	closed  *policyResult
}

// compiledBinding is a stored binding with the result of compiling it.
type compiledBinding struct {
	*stored
	*bindingResult
}

type bindingResult struct {
	policyName string
	binding    *binding.Binding // nil if the binding has no effect
	err        error
	// reach has the requests that the binding and its policy of match; divide keeps both up to
	// date.
	reach *webhookconfig.Reach
	of    *policyResult
}

// broken returns the number of policies that cannot run.
func (c *catalogue) broken() int {
	n := 0
	for _, p := range c.policies {
		if len(p.errs) > 0 {
			n++
		}
	}
	return n
}

func (p *compiledPolicy) key() string  { return p.stored.name }
func (b *compiledBinding) key() string { return b.stored.name }

// source identifies the version of an object.
func (s *stored) source() *stored { return s }

// compiled describes what an update did.
type compiled struct {
	policies, bindings int      // number of compiled ones
	broken             []string // the policies among them that cannot run, by name
	changed            bool     // a policy has changed, or runs in another way than before
}

// update compiles changed policies and bindings; a nil value means that the object is gone.
func (c *compiler) update(policies, bindings map[string]*stored) compiled {
	var work compiled
	changed := c.compile(policies, &work.policies)
	work.changed = len(changed) > 0
	renamed := false // a policy was added or deleted
	for name, p := range changed {
		old, ok := find(c.policies, name)
		renamed = renamed || ok != (p != nil)
		if p != nil && len(p.errs) > 0 && (!ok || old.policyResult != p.policyResult) {
			work.broken = append(work.broken, name)
		}
	}
	slices.Sort(work.broken)
	c.policies = merge(c.policies, changed)
	c.bindings = merge(c.bindings, compileAll(bindings, func(name string, now *stored) (*compiledBinding, bool) {
		if old, ok := find(c.bindings, name); ok && bytes.Equal(old.text, now.text) {
			return &compiledBinding{now, old.bindingResult}, false
		}
		return &compiledBinding{now, compileBinding(now.text)}, true
	}, &work.bindings))
	if renamed || len(bindings) > 0 {
		c.named = c.resolve()
	}
	switched := c.switchBreakers()
	if len(changed) > 0 || len(bindings) > 0 || switched {
		c.divide()
	}
	work.changed = work.changed || switched
	return work
}

// compile returns the results for changed policies, including those of earlier updates that have
// been finished since. A policy that is still being compiled stays as it was, or cannot run if it
// is new.
func (c *compiler) compile(policies map[string]*stored, count *int) map[string]*compiledPolicy {
	if c.slow == nil {
		c.slow = newSlow(func() {})
	}
	changed := c.slow.takeFinished(policies)
	*count = len(changed)
	todo := map[string]*stored{}
	for name, now := range policies {
		if _, done := changed[name]; done || c.slow.jobs[name] != nil {
			continue
		}
		old, ok := find(c.policies, name)
		switch {
		case now == nil:
			changed[name] = nil
		case ok && !old.pending && bytes.Equal(old.text, now.text):
			changed[name] = &compiledPolicy{now, old.policyResult}
		default:
			todo[name] = now
		}
	}
	results := c.slow.compileAll(todo, c.deps)
	*count += len(results)
	for name, now := range todo {
		if result := results[name]; result != nil {
			changed[name] = &compiledPolicy{now, result}
		} else if _, ok := find(c.policies, name); !ok {
			pending := brokenPolicy(readable(name, now.text), errCompiling)
			pending.pending = true
			other := *now
			changed[name] = &compiledPolicy{&other, pending}
		}
	}
	return changed
}

// divide computes the webhook entries. While no Reach changes, the entries stay the same pointers.
func (c *compiler) divide() {
	reaches := make([]*webhookconfig.Reach, len(c.bindings))
	for i, b := range c.bindings {
		if at := c.named[i]; at >= 0 && b.binding != nil && !c.policies[at].nowhere {
			p := c.policies[at]
			if b.of != p.policyResult {
				reach := webhookconfig.ReachOf(p.policy.Object(), b.binding.Object().Spec.MatchResources)
				if p.policy.Err() != nil {
					reach = reach.Ungated()
				}
				if p.policy.Rollout().With(b.binding.Rollout()) != api.Enforce {
					reach = reach.Dispensable()
				}
				if i < len(c.reaches) && reach.Equal(c.reaches[i]) {
					reach = c.reaches[i] // most edits do not change the matched requests
				}
				b.of, b.reach = p.policyResult, reach
			}
			reaches[i] = b.reach
		}
	}
	if c.ids != nil && slices.Equal(reaches, c.reaches) {
		return
	}
	entries, of := webhookconfig.Divide(reaches)
	c.reaches, c.entries, c.ids = reaches, entries, make([]webhook.ID, len(of))
	for i, at := range of {
		if at >= 0 {
			c.ids[i] = entries[at].ID
		}
	}
}

// holds reports whether a policy exists and, if bindingName is not empty, a binding of that name
// for it.
func (c *catalogue) holds(policyName, bindingName string) bool {
	if _, ok := find(c.policies, policyName); !ok || bindingName == "" {
		return ok
	}
	b, ok := find(c.bindings, bindingName)
	return ok && b.policyName == policyName
}

// resolve returns the index of each binding's policy.
func (c *catalogue) resolve() []int {
	index := make(map[string]int, len(c.policies))
	for i, p := range c.policies {
		index[p.key()] = i
	}
	named := make([]int, len(c.bindings))
	for i, b := range c.bindings {
		at, ok := index[b.policyName]
		if !ok {
			at = -1
		}
		named[i] = at
	}
	return named
}

// bound reports, for each policy, whether a binding with an effect names it.
func (c *catalogue) bound() []bool {
	bound := make([]bool, len(c.policies))
	for i, b := range c.bindings {
		if at := c.named[i]; at >= 0 && b.binding != nil {
			bound[at] = true
		}
	}
	return bound
}

// compileAll compiles objects on all cores. It counts the objects that had to be compiled.
func compileAll[T any](objects map[string]*stored, compile func(name string, now *stored) (*T, bool), count *int) map[string]*T {
	if len(objects) == 0 {
		return nil
	}
	names := slices.Collect(maps.Keys(objects))
	results := make([]*T, len(names))
	var done atomic.Int64
	parallel.Each(len(names), func(i int) {
		now := objects[names[i]]
		if now == nil {
			return
		}
		result, fresh := compile(names[i], now)
		if results[i] = result; fresh {
			done.Add(1)
		}
	})
	*count = int(done.Load())
	out := make(map[string]*T, len(names))
	for i, name := range names {
		out[name] = results[i]
	}
	return out
}

// listed is an element of a list that is sorted by name.
type listed interface{ key() string }

func find[T listed](list []T, name string) (found T, ok bool) {
	i, ok := search(list, name)
	if ok {
		found = list[i]
	}
	return found, ok
}

func search[T listed](list []T, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(t T, name string) int { return cmp.Compare(t.key(), name) })
}

// changes returns the items of w that differ from those in list, and nil for each item of list
// that w does not have. list has the results for an earlier w.
func changes[T interface {
	listed
	source() *stored
}](list []T, w *watch.Mirror[*stored]) map[string]*stored {
	out := map[string]*stored{}
	names, all := w.TakeChanged()
	if !all {
		w.Inspect("", func(now map[string]*stored) {
			for name := range names {
				old, ok := find(list, name)
				if s := now[name]; s != nil && (!ok || old.source() != s) || s == nil && ok {
					out[name] = s
				}
			}
		})
		return out
	}
	w.Inspect("", func(now map[string]*stored) {
		known := 0
		for _, t := range list {
			s, ok := now[t.key()]
			if ok {
				known++
			}
			if s != t.source() {
				out[t.key()] = s
			}
		}
		if known == len(now) {
			return
		}
		for name, s := range now {
			if _, ok := find(list, name); !ok {
				out[name] = s
			}
		}
	})
	return out
}

// merge returns list with the changed items replaced or added; a nil item is removed.
func merge[T any, P interface {
	*T
	listed
}](list []P, changed map[string]*T) []P {
	if len(changed) == 0 {
		return list
	}
	out := slices.Clone(list)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		i, ok := search(out, name)
		switch p := changed[name]; {
		case p == nil && ok:
			out = slices.Delete(out, i, i+1)
		case p != nil && ok:
			out[i] = P(p)
		case p != nil:
			out = slices.Insert(out, i, P(p))
		}
	}
	return out
}

// compilePolicy compiles a stored policy. Usually it was validated when it was stored. It was not
// if mapd's webhook was unavailable then, or if it was written for a later version of mapd.
func compilePolicy(ctx context.Context, name string, text []byte, deps policy.Deps) (result *policyResult) {
	// A panic for one policy must not stop all others.
	defer func() {
		if v := recover(); v != nil {
			result = brokenPolicy(readable(name, text), fmt.Errorf("panic while compiling: %s", engine.PanicText(v)))
		}
	}()
	p := compile.NewPolicy(ctx, text, compile.Stored, deps)
	switch {
	case p.Object == nil:
		return brokenPolicy(readable(name, text), p.Err).withBreaker(text)
	case p.Err != nil:
		return brokenPolicy(p.Object, p.Err).withBreaker(text)
	}
	return (&policyResult{policy: p.Program, group: webhook.GroupOf(p.Object)}).withBreaker(text)
}

func brokenPolicy(obj *admissionregistrationv1.MutatingAdmissionPolicy, err error) *policyResult {
	// A policy without rules would match every request (spec §2.1: no rules are no restriction),
	// or be an error for each.
	if obj.Spec.MatchConstraints == nil {
		obj.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
		api.SetMatchDefaults(obj.Spec.MatchConstraints)
	}
	p := policy.Broken(obj, err)
	return &policyResult{
		policy: p, group: webhook.GroupOf(obj), errs: p.Errs(),
		nowhere: len(obj.Spec.MatchConstraints.ResourceRules) == 0,
	}
}

// readable decodes a policy that may be invalid: it leaves out fields that are unknown or have a
// wrong type.
func readable(name string, text []byte) *admissionregistrationv1.MutatingAdmissionPolicy {
	obj := &admissionregistrationv1.MutatingAdmissionPolicy{}
	// json.Unmarshal continues after a field of a wrong type, and returns the error at the end.
	_ = json.Unmarshal(text, obj)
	obj.TypeMeta = metav1.TypeMeta{APIVersion: api.NativeGroup + "/v1", Kind: api.PolicyKind}
	obj.ObjectMeta = metav1.ObjectMeta{Name: name, Annotations: obj.Annotations}
	if f := obj.Spec.FailurePolicy; f == nil || *f != admissionregistrationv1.Ignore {
		fail := admissionregistrationv1.Fail
		obj.Spec.FailurePolicy = &fail
	}
	api.SetMatchDefaults(obj.Spec.MatchConstraints)
	return obj
}

// compileBinding compiles a stored binding. An invalid one is still applied, as by an API server
// that has stored it: a selector that cannot be parsed is an error for each request that it might
// match. Ignoring the binding would let requests pass without their policy.
func compileBinding(text []byte) (result *bindingResult) {
	var head struct {
		Spec struct {
			PolicyName string `json:"policyName"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(text, &head) // the name may be readable even if the rest is not
	policyName := head.Spec.PolicyName
	result = &bindingResult{policyName: policyName}
	defer func() {
		if v := recover(); v != nil {
			result = &bindingResult{policyName: policyName, err: fmt.Errorf("panic while compiling: %s", engine.PanicText(v))}
		}
	}()
	b := compile.NewBinding(text, compile.Stored)
	result.binding, result.err = b.Program, b.Err
	if faults := (api.Faults)(nil); errors.As(b.Err, &faults) {
		result.err = faults.ToAggregate()
	}
	return result
}
