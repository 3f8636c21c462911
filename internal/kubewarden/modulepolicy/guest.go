package modulepolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/kubewarden/wapc"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// guest runs the module of one policy. It implements policy.Mutator.
type guest struct {
	policy   *kubewarden.Policy
	settings []byte
	module   *wapc.Module
	types    *openapi.Types
	objects  binding.Params
	slots    chan struct{} // shared by all guests of the Loader, bounds concurrent evaluations
}

// Mutate asks the module about the request, and treats the answer as policy-server and then an
// API server would (Kubewarden spec §2.6–2.9). In mode monitor the answer is recorded in the
// remarks only.
func (g *guest) Mutate(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
	a, err := g.ask(ctx, in)
	if err == nil && in.Remarks != nil {
		g.remark(in.Remarks, a)
	}
	var next *unstructured.Unstructured
	if err == nil {
		next, err = g.follow(in, a)
	}
	if !g.policy.Monitor || ctx.Err() != nil || in.Request.Memory.Refused() != nil {
		return next, err
	}
	if in.Remarks != nil {
		in.Remarks.Withheld = "mode monitor: " + withheld(in, next, err)
	}
	return in.Object, nil
}

// withheld describes what the answer would have changed or refused in mode protect.
func withheld(in policy.Input, next *unstructured.Unstructured, err error) string {
	var refused *apierrors.StatusError
	switch {
	case errors.As(err, &refused):
		return "would refuse: " + refused.ErrStatus.Message
	case err != nil:
		return "would fail: " + err.Error()
	case next == in.Object:
		return "would accept"
	}
	paths := tree.Changed(in.Object.Object, next.Object)
	const most = 16
	var fields []string
	for _, p := range paths[:min(len(paths), most)] {
		fields = append(fields, tree.Field(p))
	}
	if n := len(paths); n > most {
		fields = append(fields, fmt.Sprintf("%d more", n-most))
	}
	return bounded("would change "+strings.Join(fields, ", "), maxMessage)
}

// ask calls the module and returns its answer.
func (g *guest) ask(ctx context.Context, in policy.Input) (*answer, error) {
	account := in.Request.Memory
	question, err := payload(in, g.settings)
	if err != nil {
		return nil, err
	}
	if err := account.Charge(int64(2 * len(question))); err != nil { // for the question, and for the buffers that it has outgrown
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, g.policy.Timeout)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-limited.Done():
		return nil, errors.New("no time was left to run the policy: all processors run other policies")
	}
	text, err := g.module.Call(limited, "validate", question, &host{policy: g.policy, objects: g.objects, account: account})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, g.advice(err, in))
	}
	if err := account.Charge(int64(len(text)) + webhook.WeighJSON(text)); err != nil {
		return nil, err
	}
	return readAnswer(text)
}

// advice names a likely cause of a trap (Kubewarden spec §8, trap 9).
func (g *guest) advice(err error, in policy.Input) string {
	var failed *wapc.Error
	if errors.As(err, &failed) && failed.Reason == wapc.Trapped && in.Object == nil {
		return " (the request has no object, which some policies do not expect; leave DELETE and CONNECT out of the policy's rules)"
	}
	return ""
}

// follow returns the object that an answer asks for, or the refusal as an error.
func (g *guest) follow(in policy.Input, a *answer) (*unstructured.Unstructured, error) {
	mutates := a.MutatedObject != nil
	if mutates && in.Object == nil {
		return nil, g.refuse("Incoming object is null, which happens only with DELETE operations, but the policy is attempting a mutation. This is not allowed", 0)
	}
	if mutates && tree.Equal(in.Object.Object, a.MutatedObject) {
		mutates = false
	}
	switch {
	case mutates && !g.policy.Mutating && !g.policy.Monitor:
		return nil, g.refuse(fmt.Sprintf("Request rejected by policy %s. The policy attempted to mutate the request, but it is currently configured to not allow mutations.", g.policy.ID()), 0)
	case !*a.Accepted:
		message, code := "", 0
		if a.Message != nil {
			message = bounded(*a.Message, maxMessage)
		}
		if a.Code != nil {
			code = int(*a.Code)
		}
		return nil, g.refuse(message, code)
	case !mutates:
		return in.Object, nil
	}
	return g.settle(in, a.MutatedObject)
}

// settle returns the module's object as an API server would decode it.
func (g *guest) settle(in policy.Input, mutated any) (*unstructured.Unstructured, error) {
	after, ok := mutated.(map[string]any)
	if !ok {
		return nil, errors.New("mutated_object is not an object")
	}
	for _, name := range [...]string{"apiVersion", "kind"} {
		if have, want := after[name], in.Object.Object[name]; have != want {
			return nil, fmt.Errorf("mutated_object has another %s than the object: %.64q instead of %q", name, fmt.Sprint(have), fmt.Sprint(want))
		}
	}
	kind, _ := g.types.Kind(in.Kind)
	settled, err := kind.Settle(in.Object.Object, after, openapi.FromJSONPatch)
	if err != nil {
		return nil, fmt.Errorf("mutated_object: %w", err)
	}
	if tree.Equal(in.Object.Object, settled) {
		return in.Object, nil
	}
	return &unstructured.Unstructured{Object: settled}, nil
}

// refuse returns an error that refuses the request whatever failurePolicy is. If the policy has a
// message, the error has that instead of the module's.
func (g *guest) refuse(message string, code int) error {
	status := metav1.Status{Status: metav1.StatusFailure, Message: message, Code: int32(code)}
	if own := g.policy.Message; own != "" {
		status.Message = own
		if message != "" {
			status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: message}}}
		}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// remark copies the warnings and annotations of an answer, within bounds.
func (g *guest) remark(out *policy.Remarks, a *answer) {
	for _, w := range a.Warnings[:min(len(a.Warnings), maxWarnings)] {
		out.Warnings = append(out.Warnings, bounded(*w, maxMessage))
	}
	if len(a.AuditAnnotations) == 0 {
		return
	}
	out.Annotations = map[string]string{}
	for i, key := range slices.Sorted(maps.Keys(a.AuditAnnotations)) {
		if i == maxAnnotations {
			break
		}
		out.Annotations[bounded(key, maxKey)] = bounded(*a.AuditAnnotations[key], maxAnnotation)
	}
}
