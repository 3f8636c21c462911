package store

import (
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// own implements feature.Own.
type own struct{ *Store }

// Each implements feature.Own.
func (o own) Each(f func(object *unstructured.Unstructured, text []byte)) (served, read bool) {
	gvk := schema.GroupVersionKind{Group: api.OwnGroup, Version: "v1", Kind: api.PolicyKind}
	if _, served := o.schemas.Types().ResourceFor(gvk); !served && o.schemas.Ready() {
		return false, true
	}
	if f != nil {
		for _, p := range o.compiler.policies {
			f(p.object, p.text)
		}
		for _, b := range o.compiler.bindings {
			f(b.object, b.text)
		}
	}
	return true, o.policies.IsRead() && o.bindings.IsRead()
}

// Called implements feature.Own.
func (o own) Called() func(name string) bool {
	c, live := o.compiler.catalogue, o.moves.live()
	uncalled := sync.OnceValue(func() map[string]bool {
		needed := o.moves.needed(c)
		out := map[string]bool{}
		for i, b := range c.bindings {
			if id := c.ids[i]; id == (webhook.ID{}) || !equalRoutes(live, needed, id.Name()) {
				out[b.policyName] = true
			}
		}
		return out
	})
	return func(name string) bool {
		p, ok := find(c.policies, name)
		return ok && len(p.errs) == 0 && !p.nowhere && !uncalled()[name]
	}
}

// Routed implements feature.Own.
func (o own) Routed(name string, entry *admissionregistrationv1.MutatingWebhook) bool {
	var needed routing
	if entry != nil {
		needed = routings(&admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{*entry}})
	}
	return equalRoutes(o.moves.live(), needed, name)
}

// Base implements feature.Own.
func (o own) Base() admissionregistrationv1.MutatingWebhook { return o.moves.base }

// Follow implements feature.Own.
func (o own) Follow() { o.moves.always.Store(true) }
