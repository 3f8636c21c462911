package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/internal/author/language"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// A desk has what calls leave for the next ones: documents that were read, policies that
// were compiled, and the documents of the editor. No answer depends on it.
type desk struct {
	patience time.Duration

	mu        sync.Mutex
	documents mapd.Memory
	envs      map[kind]*cel.Env
	loaded    map[kind]*mapd.Policies
	workspace *language.Workspace
	opened    map[string]string // what is in it
	minor     string            // for which it is
}

// kind is one of the languages in which policies were compiled.
type kind struct {
	minor   string
	observe bool
}

func newDesk() *desk {
	return &desk{patience: patience, loaded: map[kind]*mapd.Policies{}, envs: map[kind]*cel.Env{}}
}

// read is a question of which the texts were read.
type read struct {
	policies *mapd.Policies
	objects  []object
	opts     mapd.RequestOptions
	faults   []Fault // besides those of single objects
}

// object is an object, or what is wrong with it.
type object struct {
	document *mapd.Document
	fault    *Fault
}

// read reads the texts of a question and loads the policies. Its faults are those of
// documents, with which nothing can be evaluated.
func (d *desk) read(ctx context.Context, q *Question, observe bool) (*read, []Fault) {
	if err := small(q.Documents, q.Objects, q.Old); err != nil {
		return nil, faults(err)
	}
	if q.Operation != "" && !slices.Contains([]admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Connect, admissionv1.Delete}, admissionv1.Operation(q.Operation)) {
		return nil, []Fault{{Message: fmt.Sprintf("operation %q: want CREATE, UPDATE, CONNECT or DELETE", q.Operation)}}
	}
	docs, errs := d.documents.Read(files(q.Documents)...)
	if len(docs) > maxDocuments {
		errs = append(errs, fmt.Errorf("there are %d documents; at most %d are read", len(docs), maxDocuments))
	}
	if len(errs) > 0 {
		return nil, allFaults(errs)
	}
	in := kind{q.Kubernetes, observe}
	env, err := d.env(in)
	if err != nil {
		return nil, faults(err)
	}
	r := &read{}
	r.policies, err = mapd.LoadContext(ctx, mapd.Options{
		Kubernetes: q.Kubernetes, Namespace: q.Namespace, Unbound: q.Unbound,
		ToolOptions: mapd.ToolOptions{Documents: docs, Env: env, Observe: observe, Like: d.loaded[in]},
	})
	if err != nil {
		return nil, faults(err)
	}
	maps.DeleteFunc(d.loaded, func(k kind, _ *mapd.Policies) bool { return k.minor != in.minor })
	d.loaded[in] = r.policies
	r.opts = mapd.RequestOptions{Operation: admissionv1.Operation(q.Operation), Subresource: q.Subresource, DryRun: q.DryRun, User: q.User}
	if len(q.Old) > 0 {
		old, errs := r.policies.Objects("the objects before the update", all(q.Old))
		if r.faults = allFaults(errs); old.Len() > maxDocuments {
			r.faults = append(r.faults, Fault{Message: fmt.Sprintf("there are %d objects before the update; at most %d are read", old.Len(), maxDocuments)})
		}
		r.opts.Old = old
	}
	for o, err := range all(q.Objects) {
		switch {
		case err == nil && o.Object() == nil:
			continue
		case len(r.objects) == maxObjects:
			r.faults = append(r.faults, Fault{Message: fmt.Sprintf("there are more than %d objects; the others are left out", maxObjects)})
			return r, nil
		case err != nil:
			r.objects = append(r.objects, object{fault: &faults(err)[0]})
		default:
			r.objects = append(r.objects, object{document: o})
		}
	}
	return r, nil
}

func (d *desk) env(k kind) (*cel.Env, error) {
	if env, ok := d.envs[k]; ok {
		return env, nil
	}
	env, err := cel.NewEnv(cel.Options{Version: k.minor, Observe: k.observe})
	if err == nil {
		d.envs[k] = env // there are only as many as minors
	}
	return env, err
}

// small returns an error if texts are too large.
func small(lists ...[]Text) error {
	total, lines := 0, 0
	for _, list := range lists {
		for _, t := range list {
			total += len(t.Text)
			lines += strings.Count(t.Text, "\n") + strings.Count(t.Text, ",")
		}
	}
	switch {
	case total > maxTexts:
		return fmt.Errorf("the texts have %d bytes; at most %d are read", total, maxTexts)
	case lines > maxLines:
		return fmt.Errorf("the texts have %d lines and commas; at most %d are read", lines, maxLines)
	}
	return nil
}

func files(texts []Text) []mapd.File {
	out := make([]mapd.File, len(texts))
	for i, t := range texts {
		out[i] = mapd.File{Name: t.Name, Data: []byte(t.Text)}
	}
	return out
}

// all yields the documents of texts.
func all(texts []Text) func(yield func(*mapd.Document, error) bool) {
	return func(yield func(*mapd.Document, error) bool) {
		for _, t := range texts {
			for d, err := range mapd.Read(t.Name, strings.NewReader(t.Text)) {
				if !yield(d, err) {
					return
				}
			}
		}
	}
}

// faults returns an error, or each of those that it lists.
func faults(err error) []Fault {
	var several *mapd.LoadError
	if errors.As(err, &several) {
		return allFaults(several.Errs)
	}
	var at *mapd.Error
	var below *manifest.PositionError // which the rooms below return
	if errors.As(err, &below) {
		at = (*mapd.Error)(below)
	}
	if at != nil || errors.As(err, &at) {
		return []Fault{{at.File, at.Document, at.Line, at.Column, at.Err.Error()}}
	}
	return []Fault{{Message: err.Error()}}
}

func allFaults(errs []error) (out []Fault) {
	for _, err := range errs {
		out = append(out, faults(err)...)
	}
	return out
}
