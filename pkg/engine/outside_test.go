package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

type gone struct{ error }

func (gone) IsMissing() bool { return true }

// What one policy has asked, no other asks again; and there is an end to asking.
func TestPoliciesAsk(t *testing.T) {
	asks := func(provider string, keys ...string) policy.Mutator {
		return mutator(func(ctx context.Context, in policy.Input) (*unstructured.Unstructured, error) {
			values, err := in.Outside.External(ctx, provider, keys)
			if err != nil {
				return nil, err
			}
			return with(in.Object, "log", data(in.Object, "log")+fmt.Sprint(values)), nil
		})
	}
	c := &catalog{answer: func(_ context.Context, questions []Question) []Answer {
		out := make([]Answer, len(questions))
		for i, q := range questions {
			switch {
			case q.Key == "gone":
				out[i].Err = gone{errors.New("gone")}
			case q.Source == "down":
				out[i].Err = errors.New("down is down")
			default:
				out[i].Value = q.Key + q.Key
			}
		}
		return out
	}}
	admit := func(ms ...policy.Mutator) *Decision {
		c.asked = nil
		e := New(Options{Resolver: c})
		e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"shop"}}, newPolicy(t, "p", ms))))
		return e.Admit(t.Context(), creates(widgetWith(map[string]any{})))
	}
	d := admit(asks("p", "a"), asks("p", "a", "b", "gone"), asks("p", "b", "gone"))
	if got := data(d.Object, "log"); d.Status != nil || got != "map[a:aa]map[a:aa b:bb]map[b:bb]" || len(c.asked) != 2 || len(c.asked[1]) != 2 {
		t.Errorf("%v, log %s, asked %v", d.Status, got, c.asked)
	}
	if d := admit(asks("down", "a")); d.Status == nil || !strings.Contains(d.Status.Message, "down is down") {
		t.Errorf("status %+v", d.Status)
	}
	var many []policy.Mutator
	for i := range maxCalls + 1 {
		many = append(many, asks("p", fmt.Sprint(i)))
	}
	if d := admit(many...); d.Status == nil || !strings.Contains(d.Status.Message, "ask for all keys at once") || len(c.asked) != maxCalls {
		t.Errorf("status %+v, asked %d times", d.Status, len(c.asked))
	}
}
