package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/language"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// A desk has what calls reuse of earlier ones: documents that were read, policies that were
// compiled, and the documents of the editor. It saves time only; no answer depends on it.
type desk struct {
	patience time.Duration

	mu        sync.Mutex
	texts     known
	documents mapd.Memory
	envs      map[kind]*cel.Env
	loaded    map[kind]*mapd.Policies
	workspace *language.Workspace
	opened    map[string]string // the documents in the workspace: text by name
	minor     string            // the minor release that the workspace is for
}

// kind identifies a CEL environment in which policies were compiled.
type kind struct {
	minor   string
	observe bool
}

func newDesk() *desk {
	return &desk{patience: patience, loaded: map[kind]*mapd.Policies{}, envs: map[kind]*cel.Env{}}
}

// read has what was read from the texts of a question.
type read struct {
	policies *mapd.Policies
	objects  []object
	opts     mapd.RequestOptions
	faults   []Fault  // besides those of single objects
	left     []string // documents that were left out
}

// object is an object, or the reason why it could not be read.
type object struct {
	document *mapd.Document
	fault    *Fault
}

// read reads the texts of a question and loads the policies. If it returns faults of documents,
// nothing can be evaluated.
func (d *desk) read(ctx context.Context, q *Question, observe bool) (*read, []Fault) {
	return d.readTexts(ctx, q, observe, false)
}

// readPart is like read, but leaves out policies with faults. Its result has these faults, and the
// names of the documents that were left out. It leaves out no other documents, because the
// policies' results depend on them.
func (d *desk) readPart(ctx context.Context, q *Question, observe bool) (*read, []Fault) {
	return d.readTexts(ctx, q, observe, true)
}

func (d *desk) readTexts(ctx context.Context, q *Question, observe, part bool) (*read, []Fault) {
	if err := small(q.Documents, q.Objects, q.Old); err != nil {
		return nil, faults(err)
	}
	if q.Operation != "" && !slices.Contains([]admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Connect, admissionv1.Delete}, admissionv1.Operation(q.Operation)) {
		return nil, []Fault{{Message: fmt.Sprintf("operation %q: want CREATE, UPDATE, CONNECT or DELETE", q.Operation)}}
	}
	docs, errs := d.documents.Read(files(q.Documents)...)
	if len(docs) > maxDocuments {
		return nil, faults(fmt.Errorf("there are %d documents; at most %d are read", len(docs), maxDocuments))
	}
	r := &read{}
	if len(errs) > 0 {
		r.faults = allFaults(errs)
		if r.left = unread(r.faults, q.Documents); !part || r.left == nil {
			return nil, r.faults
		}
	}
	in := kind{q.Kubernetes, observe}
	env, err := d.env(in)
	if err != nil {
		return nil, faults(err)
	}
	load := func(docs []*mapd.Document) (*mapd.Policies, error) {
		return mapd.LoadContext(ctx, mapd.Options{
			Kubernetes: q.Kubernetes, Namespace: q.Namespace, Unbound: q.Unbound,
			ToolOptions: mapd.ToolOptions{Documents: docs, Env: env, Observe: observe, Like: d.loaded[in]},
		})
	}
	r.policies, err = load(docs)
	if err != nil {
		wrong := faults(err)
		r.faults = append(r.faults, wrong...)
		rest, left := withoutPolicies(docs, wrong)
		if !part || left == nil {
			return nil, r.faults
		}
		if r.policies, err = load(rest); err != nil {
			return nil, r.faults
		}
		r.left = append(r.left, left...)
	}
	if len(r.left) > 0 && len(r.policies.Policies())+r.policies.Mutators()+r.policies.Kyverno() == 0 {
		return nil, r.faults // nothing is left that could change an object
	}
	maps.DeleteFunc(d.loaded, func(k kind, _ *mapd.Policies) bool { return k.minor != in.minor })
	d.loaded[in] = r.policies
	r.opts = mapd.RequestOptions{Operation: admissionv1.Operation(q.Operation), Subresource: q.Subresource, DryRun: q.DryRun, User: q.User}
	if len(q.Old) > 0 {
		old, errs := r.policies.Objects("the objects before the update", all(q.Old))
		if r.faults = append(r.faults, allFaults(errs)...); old.Len() > maxDocuments {
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

// kindLines finds the kinds of the documents of a text, even if it is not valid YAML.
var kindLines = regexp.MustCompile(`(?m)^["']?kind["']?:[ \t]*["']?([A-Za-z]*)`)

// unread names the documents that could not be read if they can only be policies and bindings,
// since their texts have no others; otherwise it returns nil.
func unread(faults []Fault, texts []Text) (left []string) {
	for _, f := range faults {
		i := slices.IndexFunc(texts, func(t Text) bool { return t.Name == f.File })
		if i < 0 {
			return nil
		}
		found := kindLines.FindAllStringSubmatch(texts[i].Text, -1)
		if len(found) == 0 || slices.ContainsFunc(found, func(m []string) bool { return m[1] != api.PolicyKind && m[1] != api.BindingKind }) {
			return nil
		}
		left = append(left, fmt.Sprintf("%s, document %d", f.File, f.Document))
	}
	return left
}

// withoutPolicies returns documents without the policies and mutators that have faults, without
// their bindings and without bindings that have faults, and the names of what it left out. It
// returns nil if other documents have faults.
func withoutPolicies(docs []*mapd.Document, wrong []Fault) (rest []*mapd.Document, left []string) {
	type place struct {
		file     string
		document int
	}
	at := map[place]bool{}
	for _, f := range wrong {
		at[place{f.File, f.Document}] = true
	}
	policies := map[string]bool{}
	for _, d := range docs {
		pos := d.Errorf("")
		if p := (place{pos.File, pos.Document}); at[p] && d.Object() != nil {
			gvk := d.Object().GroupVersionKind()
			if !d.IsContext() || gvk.Group == "" || gvk.Group == api.DefinitionGroup {
				return nil, nil
			}
			if gvk.Kind == api.PolicyKind {
				policies[d.Object().GetName()] = true
			}
			continue
		}
		rest = append(rest, d)
	}
	if len(rest) == len(docs) {
		return nil, nil
	}
	for _, d := range rest {
		if d.Object() != nil && d.Object().GetKind() == api.PolicyKind {
			delete(policies, d.Object().GetName()) // another policy of this name is left
		}
	}
	rest = slices.DeleteFunc(rest, func(d *mapd.Document) bool {
		if d.Object() == nil || d.Object().GetKind() != api.BindingKind {
			return false
		}
		policy, _, _ := unstructured.NestedString(d.Object().Object, "spec", "policyName")
		return policies[policy]
	})
	kept := map[*mapd.Document]bool{}
	for _, d := range rest {
		kept[d] = true
	}
	for _, d := range docs {
		if !kept[d] {
			left = append(left, d.Name())
		}
	}
	return rest, left
}

func (d *desk) env(k kind) (*cel.Env, error) {
	if env, ok := d.envs[k]; ok {
		return env, nil
	}
	env, err := cel.NewEnv(cel.Options{Version: k.minor, Observe: k.observe})
	if err == nil {
		d.envs[k] = env // bounded by the number of minor releases
	}
	return env, err
}

// small returns an error if texts are too large.
func small(lists ...[]Text) error {
	total, lines := 0, 0
	for _, list := range lists {
		for _, t := range list {
			total += len(t.Text)
		}
	}
	// This comes before the contents are read, because a question may refer to the same text many
	// times by its Ref.
	if total > maxTexts {
		return fmt.Errorf("the texts have %d bytes; at most %d are read", total, maxTexts)
	}
	for _, list := range lists {
		for _, t := range list {
			lines += strings.Count(t.Text, "\n") + strings.Count(t.Text, ",")
		}
	}
	if lines > maxLines {
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

// faults returns the Faults for an error: one for each error in a LoadError.
func faults(err error) []Fault {
	var several *mapd.LoadError
	if errors.As(err, &several) {
		return allFaults(several.Errs)
	}
	var at *mapd.Error
	var below *manifest.PositionError // what package mapd's imports return
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
