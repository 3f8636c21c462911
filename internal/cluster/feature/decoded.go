package feature

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/engine"
)

// Decoded is an object of a cluster and what was decoded of it.
type Decoded[T any] struct {
	// Object has only apiVersion, kind, namespace, name, uid and generation.
	Object *unstructured.Unstructured
	// Value is what applies, nil if nothing does. Err is the reason why the stored object does
	// not apply.
	Value *T
	Err   error

	says string // the result of Decoder.Says
}

// Decoder says how to decode objects of a kind.
type Decoder[T any] struct {
	// Decode may return a value with an error.
	Decode func(u *unstructured.Unstructured) (*T, error)
	// Last: the last valid Value continues to apply while the stored object is not valid.
	Last bool
	// Says returns the parts of an object that matter besides its spec, as text. A change of the
	// spec shows in the generation. It may be nil.
	Says func(u *unstructured.Unstructured) string
}

// Keep is a function for watch.Options: it decodes an object unless old has the same UID,
// generation and text of Says. Writes to a status do not change the generation, and a running
// Gatekeeper makes them all the time.
func (d Decoder[T]) Keep(u *unstructured.Unstructured, old *Decoded[T]) *Decoded[T] {
	says := ""
	if d.Says != nil {
		says = d.Says(u)
	}
	sameObject := old != nil && old.Object.GetUID() == u.GetUID()
	if sameObject && old.Object.GetGeneration() == u.GetGeneration() && u.GetGeneration() > 0 && old.says == says {
		return old
	}
	now := &Decoded[T]{Object: Head(u), says: says}
	now.Err = Guarded(func() (err error) {
		now.Value, err = d.Decode(u)
		return err
	})
	if now.Err != nil && d.Last {
		now.Value = nil
		if sameObject {
			now.Value = old.Value
		}
	}
	return now
}

// Head returns an object with only the fields that identify u.
func Head(u *unstructured.Unstructured) *unstructured.Unstructured {
	head := &unstructured.Unstructured{Object: map[string]any{}}
	head.SetAPIVersion(u.GetAPIVersion())
	head.SetKind(u.GetKind())
	head.SetNamespace(u.GetNamespace())
	head.SetName(u.GetName())
	head.SetUID(u.GetUID())
	head.SetGeneration(u.GetGeneration())
	return head
}

// Guarded calls f, and returns a panic as an error: one broken object must not stop all others.
func Guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %s", engine.PanicText(v))
		}
	}()
	return f()
}

// Versions returns a kind in several versions, for watch.Options.
func Versions(group, kind string, versions ...string) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for _, v := range versions {
		out = append(out, schema.GroupVersionKind{Group: group, Version: v, Kind: kind})
	}
	return out
}

// Watch returns a mirror of a kind that the server may or may not serve.
func Watch[T any](d Deps, keep func(*unstructured.Unstructured, T) T, kinds []schema.GroupVersionKind) *watch.Mirror[T] {
	return watch.New(watch.Options[T]{
		Client: d.Client, Log: d.Log, Types: d.Policy.Types, Kinds: kinds, Keep: keep, Changed: d.Changed, StateChanged: d.Changed,
	})
}

// Sorted returns the items of mirrors, by kind, namespace and name.
func Sorted[T any](mirrors ...*watch.Mirror[*Decoded[T]]) (list []*Decoded[T]) {
	for _, m := range mirrors {
		m.EachNamespace(func(_ string, items map[string]*Decoded[T]) {
			for _, item := range items {
				list = append(list, item)
			}
		})
	}
	slices.SortFunc(list, func(a, b *Decoded[T]) int {
		return cmp.Or(strings.Compare(a.Object.GetKind(), b.Object.GetKind()), strings.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()),
			strings.Compare(a.Object.GetName(), b.Object.GetName()))
	})
	return list
}

// Source is the interface of all watch.Mirrors.
type Source interface {
	Run(ctx context.Context)
	Look()
	Settled() error
	Problem() error
}

// Sources are the mirrors of a feature.
type Sources []Source

// Run runs all mirrors until ctx is done.
func (s Sources) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, m := range s {
		all.Go(func() { m.Run(ctx) })
	}
	all.Wait()
}

// Look makes all mirrors check again whether the server has their kinds.
func (s Sources) Look() {
	for _, m := range s {
		m.Look()
	}
}

// Settled returns nil once all existing objects have been read, and otherwise an error that names
// what is missing.
func (s Sources) Settled() error {
	var errs []error
	for _, m := range s {
		errs = append(errs, m.Settled())
	}
	return errors.Join(errs...)
}

// Problems returns the reasons why objects cannot be read.
func (s Sources) Problems() (out []string) {
	for _, m := range s {
		if err := m.Problem(); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// LogInvalid logs the errors of objects in list, unless before has the same object.
func LogInvalid[T any](log *slog.Logger, text string, list, before []*Decoded[T]) {
	for _, d := range list {
		if d.Err != nil && !slices.Contains(before, d) {
			log.Error(text, "kind", d.Object.GetKind(), "name", d.Object.GetName(), "error", d.Err)
		}
	}
}
