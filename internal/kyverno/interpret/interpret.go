package interpret

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Request is the creation or update of an object.
type Request struct {
	Operation string         // CREATE or UPDATE
	Object    map[string]any // not modified
	Old       map[string]any
	// NamespaceLabels are those of the object's Namespace.
	NamespaceLabels map[string]string
	User            string
	Groups          []string
	// ConfigMaps has the data of all existing ConfigMaps by namespace/name; nil if they are not
	// known.
	ConfigMaps map[string]map[string]string
}

// Result is the outcome for an object. Either Refused or Object is set. Failed: a rule failed,
// and the policy's failurePolicy ignores that.
type Result struct {
	Object  map[string]any
	Refused string
	Failed  bool
}

// Policy is a policy that is ready to run. It is not safe for concurrent use.
type Policy struct {
	policy *policy.Policy
	rules  []made
	parsed *expressions
}

// New prepares a policy. It runs only the rules for which on returns true; a nil on runs all
// rules that mutate. The other rules still influence for which controllers Kyverno generates
// rules. The error is an Unknown.
func New(p *policy.Policy, on func(rule string) bool) (*Policy, error) {
	out := &Policy{policy: p, parsed: newExpressions()}
	err := known(func() {
		if p.CEL != nil {
			unknown("CEL: the converted policy has the same expressions, so there is nothing to compare")
		}
		if a := p.Rules.Admission; a != nil && !*a {
			unknown("admission: false")
		}
		if w := p.Rules.WebhookConfiguration; w != nil && len(w.MatchConditions) > 0 {
			unknown("webhookConfiguration.matchConditions")
		}
		for _, r := range rules(p) {
			if r.Mutate != nil && (on == nil || on(r.of)) {
				if err := json.Unmarshal(encoded(r.Rule), &r.whole); err != nil {
					unknown("a rule that is no JSON")
				}
				out.rules = append(out.rules, r)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// run is the state of one request.
type run struct {
	*scope
	request *Request
	gvk     schema.GroupVersionKind
}

// Mutate returns the outcome for an object. The error is an Unknown, or that of the context.
func (p *Policy) Mutate(ctx context.Context, r Request) (result Result, err error) {
	err = known(func() { result = p.mutate(ctx, &r) })
	return result, err
}

func (p *Policy) mutate(ctx context.Context, request *Request) Result {
	unchanged := Result{Object: request.Object}
	// Kyverno's own ConfigMap excludes them (resourceFilters).
	if (&unstructured.Unstructured{Object: request.Object}).GetKind() == "ReplicaSet" {
		return unchanged
	}
	if ns := p.policy.Namespace; ns != "" {
		for _, obj := range []map[string]any{request.Object, request.Old} {
			if obj != nil && (&unstructured.Unstructured{Object: obj}).GetNamespace() != ns {
				return unchanged
			}
		}
	}
	r := &run{
		scope: &scope{ctx: ctx, data: requestData(request), parsed: p.parsed, configMaps: request.ConfigMaps, namespace: p.policy.Namespace}, request: request,
		gvk: (&unstructured.Unstructured{Object: request.Object}).GroupVersionKind(),
	}
	loader, err := r.newVariable("images")
	if err != nil {
		unknown("images")
	}
	loader.load = func() error {
		found, err := images(request.Object)
		if err == nil && len(found) > 0 {
			r.data["images"] = found
		}
		return err
	}
	r.save()
	object := request.Object
	for i := range p.rules {
		rule := &p.rules[i]
		if !r.matches(&rule.Rule, object) {
			continue
		}
		after, err := r.rule(rule, object)
		if err != nil {
			// With Ignore, one error undoes all rules of the policy.
			if failurePolicy(p.policy.Rules) == "Ignore" {
				return Result{Object: request.Object, Failed: true}
			}
			return Result{Refused: fmt.Sprintf("%s: %v", rule.Name, err)}
		}
		changed := !tree.Equal(after, object)
		object = after
		if one := p.policy.Rules.ApplyRules; one != nil && *one == "One" && changed {
			break
		}
	}
	return Result{Object: object}
}

func failurePolicy(s *policy.Spec) string {
	switch {
	case s.WebhookConfiguration != nil && s.WebhookConfiguration.FailurePolicy != nil:
		return *s.WebhookConfiguration.FailurePolicy
	case s.FailurePolicy != nil:
		return *s.FailurePolicy
	}
	return "Fail"
}

// requestData returns the variable request, and the other variables that Kyverno derives from a
// request.
func requestData(r *Request) map[string]any {
	u := &unstructured.Unstructured{Object: r.Object}
	gvk := u.GroupVersionKind()
	namespace := u.GetNamespace()
	if gvk.Kind == "Namespace" && gvk.Group == "" {
		namespace = u.GetName()
	}
	user := map[string]any{}
	request := map[string]any{
		"kind":      map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind},
		"operation": r.Operation, "userInfo": user, "object": floats(r.Object), "oldObject": nil,
	}
	if r.Old != nil {
		request["oldObject"] = floats(r.Old)
	}
	// Empty fields are left out.
	for _, f := range []struct {
		in          map[string]any
		name, value string
	}{{request, "name", u.GetName()}, {request, "namespace", namespace}, {user, "username", r.User}} {
		if f.value != "" {
			f.in[f.name] = f.value
		}
	}
	if len(r.Groups) > 0 {
		user["groups"] = anyList(r.Groups)
	}
	data := map[string]any{"request": request, "serviceAccountName": "", "serviceAccountNamespace": ""}
	if rest, ok := strings.CutPrefix(r.User, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok {
			name, _, _ = strings.Cut(name, ":")
			data["serviceAccountName"], data["serviceAccountNamespace"] = name, namespace
		}
	}
	return data
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		unknown("a value that is no JSON")
	}
	return data
}

func decodeObject(data []byte) (map[string]any, error) { return tree.Decode(data) }

// decodeInto decodes JSON with whole numbers as integers.
func decodeInto(data []byte, out any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(data, out)
}

// normal returns an object as it is after it was encoded to JSON and decoded again.
func normal(v any) any {
	out, err := tree.Reread(map[string]any{"v": v})
	if err != nil {
		unknown("a value that is no JSON")
	}
	return out["v"]
}

// rule applies one rule.
func (r *run) rule(rule *made, object map[string]any) (after map[string]any, err error) {
	r.save()
	defer func() {
		r.restore()
		if err == nil {
			r.setObject(after)
		}
	}()
	if len(rule.Mutate.Targets) > 0 {
		return object, nil // Kyverno runs the rule later, in the background
	}
	if err := r.declare(rule.Context); err != nil {
		return nil, err
	}
	ok, err := r.holds(rule.Preconditions)
	if err != nil || !ok {
		return object, err
	}
	if rule.Mutate.ForEach != nil {
		return r.forEach(rule.Mutate.ForEach, object, 0)
	}
	// Kyverno fills in the variables of the whole rule, and the rule fails if any of them is
	// missing.
	filled, err := r.substitute(rule.whole)
	if err != nil {
		return nil, err
	}
	mutate, _ := filled.(map[string]any)["mutate"].(map[string]any)
	return r.patch(object, mutate["patchStrategicMerge"], mutate["patchesJson6902"])
}

// setObject sets request.object.
func (s *scope) setObject(object map[string]any) {
	if request, ok := s.data["request"].(map[string]any); ok {
		request["object"] = object
	}
}

// patch applies merge or text, whichever is set.
func (r *run) patch(object map[string]any, merge, text any) (map[string]any, error) {
	r.spend(size(object) + size(merge))
	if merge != nil {
		return r.overlay(object, normal(merge))
	}
	switch text := text.(type) {
	case string:
		if text == "" {
			return nil, fmt.Errorf("there is no patch")
		}
		return jsonPatch(object, text)
	case nil:
		return nil, fmt.Errorf("there is no patch")
	}
	return nil, fmt.Errorf("the patch is no text")
}

// forEach applies the parts of a foreach, each to the result of the one before.
func (r *run) forEach(parts []policy.ForEach, object map[string]any, nesting int) (map[string]any, error) {
	for i := range parts {
		part := &parts[i]
		found, err := r.query(part.List)
		if err != nil {
			return nil, err
		}
		list, ok := found.([]any)
		if !ok {
			list = []any{found}
		}
		after, err := r.eachElement(part, list, object, nesting)
		if err != nil {
			return nil, err
		}
		if !tree.Equal(after, object) {
			object = after
			r.setObject(object)
		}
	}
	return object, nil
}

func (r *run) eachElement(part *policy.ForEach, list []any, object map[string]any, nesting int) (map[string]any, error) {
	r.save()
	defer r.restore()
	backwards := part.PatchStrategicMerge != nil
	if part.Order != nil {
		backwards = *part.Order == "Descending"
	}
	indices := make([]int, len(list))
	for i := range indices {
		indices[i] = i
	}
	if backwards {
		slices.Reverse(indices)
	}
	for _, i := range indices {
		if list[i] == nil {
			continue
		}
		r.step()
		r.reset()
		element := loose(list[i])
		for name, v := range map[string]any{"element": element, "elementIndex": int64(i)} {
			r.data[name], r.data[fmt.Sprintf("%s%d", name, nesting)] = v, v
		}
		if err := r.declare(part.Context); err != nil {
			return nil, err
		}
		ok, err := r.holds(part.Preconditions)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if len(part.ForEach) > 0 {
			object, err = r.forEach(part.ForEach, object, nesting+1)
		} else {
			var filled any
			// Both fields are set; a missing one is null.
			filled, err = r.substitute(map[string]any{"patchStrategicMerge": part.PatchStrategicMerge, "patchesJson6902": part.PatchesJSON6902})
			if err == nil {
				patches := filled.(map[string]any)
				object, err = r.patch(object, patches["patchStrategicMerge"], patches["patchesJson6902"])
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return object, nil
}
