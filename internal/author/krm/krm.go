// Package krm reads and writes the ResourceList of a KRM function.
//
// Tools such as kustomize and kpt run KRM functions. A function reads a ResourceList on standard
// input and writes it, with changed items and with results, to standard output. This package does
// not run policies; its caller does.
package krm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/mapd"
)

const (
	// Kind is the kind of the object that a function reads and writes.
	Kind = "ResourceList"
	// Group is its API group.
	Group = "config.kubernetes.io"
)

// A List is a ResourceList.
type List struct {
	// Config has the contents of functionConfig.
	Config *Config

	text    []byte
	doc     *mapd.Document
	edits   []mapd.Edit
	results []Result
	more    int // results beyond maxResults
}

// Read reads a ResourceList.
func Read(name string, text []byte) (*List, error) {
	l := &List{text: text}
	for d, err := range mapd.ReadWhole(name, bytes.NewReader(text)) {
		switch {
		case err != nil:
			return nil, err
		case d.Object() == nil:
		case l.doc != nil:
			return nil, d.Errorf("a second document: a function reads one %s", Kind)
		default:
			l.doc = d
			if err := l.check(); err != nil {
				return nil, err
			}
		}
	}
	if l.doc == nil {
		return nil, fmt.Errorf("%s: no %s; a function reads one of %s/v1, as kustomize and kpt write it", name, Kind, Group)
	}
	var err error
	l.Config, err = readConfig(l.doc)
	return l, err
}

// check returns an error unless the document is a ResourceList whose items are objects.
func (l *List) check() error {
	object := l.doc.Object().Object
	version, _ := object["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(version)
	if kind, _ := object["kind"].(string); err != nil || kind != Kind || gv.Group != Group {
		return l.doc.ErrorAt("kind", fmt.Errorf("expected a %s of %s/v1, as kustomize and kpt write it, not %s of %q; mapd post-render takes manifests as they are", Kind, Group, cmp.Or(kind, "an object"), version))
	}
	items, ok := object["items"].([]any)
	if object["items"] != nil && !ok {
		return l.doc.ErrorAt("items", errors.New("items must be a list"))
	}
	for i, v := range items {
		item, ok := v.(map[string]any)
		at := fmt.Sprintf("items[%d]", i)
		if !ok {
			return l.doc.ErrorAt(at, fmt.Errorf("%s is not an object", at))
		}
		for _, field := range []string{"apiVersion", "kind"} {
			if s, _ := item[field].(string); s == "" {
				return l.doc.ErrorAt(at, fmt.Errorf("%s.%s must be a string that is not empty", at, field))
			}
		}
	}
	if results := object["results"]; results != nil {
		if _, ok := results.([]any); !ok {
			return l.doc.ErrorAt("results", errors.New("results must be a list"))
		}
	}
	return nil
}

// local is the annotation of objects that are not applied to a cluster.
const local = Group + "/local-config"

// IsLocal reports whether an item is never applied to a cluster: it has the annotation
// config.kubernetes.io/local-config, or its group is that of a tool's configuration.
func IsLocal(d *mapd.Document) bool {
	u := d.Object()
	group := u.GroupVersionKind().Group
	return u.GetAnnotations()[local] == "true" || group == ConfigGroup || group == "kustomize.config.k8s.io" || group == "kpt.dev"
}

// Bare returns an item as it will be applied to a cluster: without the annotations by which the
// caller of the function identifies it.
func Bare(d *mapd.Document) (*mapd.Document, error) {
	bare, kept := split(d.Object().Object)
	if len(kept) == 0 {
		return d, nil
	}
	return d.Part("", bare)
}

// ofCaller are the annotations that the caller of a function sets and removes. An entry that ends
// with a slash is a prefix.
var ofCaller = []string{
	"internal.config.kubernetes.io/", "kustomize.config.k8s.io/",
	Group + "/index", Group + "/path", "config.k8s.io/id",
}

func isOfCaller(annotation string) bool {
	return slices.ContainsFunc(ofCaller, func(s string) bool {
		return annotation == s || strings.HasSuffix(s, "/") && strings.HasPrefix(annotation, s)
	})
}

// split returns an object without the annotations of the caller, and these annotations.
func split(object map[string]any) (bare, kept map[string]any) {
	meta, _ := object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	kept, others := map[string]any{}, map[string]any{}
	for name, v := range annotations {
		if isOfCaller(name) {
			kept[name] = v
		} else {
			others[name] = v
		}
	}
	if len(kept) == 0 {
		return object, nil
	}
	meta, bare = maps.Clone(meta), maps.Clone(object)
	meta["annotations"] = others
	if len(others) == 0 {
		delete(meta, "annotations")
	}
	bare["metadata"] = meta
	return bare, kept
}

// join returns an object with the annotations of the caller that split returned as kept. It
// removes others of the caller.
func join(object, kept map[string]any) map[string]any {
	if len(kept) == 0 {
		return object
	}
	meta, _ := object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	meta, annotations, object = maps.Clone(meta), maps.Clone(annotations), maps.Clone(object)
	if meta == nil {
		meta = map[string]any{}
	}
	if annotations == nil {
		annotations = map[string]any{}
	}
	maps.DeleteFunc(annotations, func(name string, _ any) bool { return isOfCaller(name) })
	maps.Copy(annotations, kept)
	meta["annotations"], object["metadata"] = annotations, meta
	return object
}

// Change replaces an item by after, which the policies made from Bare. The item keeps the
// annotations of the caller.
func (l *List) Change(d *mapd.Document, after map[string]any) {
	_, kept := split(d.Object().Object)
	l.edits = append(l.edits, d.Edit(join(after, kept)))
}

// Severities of results.
const (
	Error   = "error"
	Warning = "warning"
	Info    = "info"
)

// A Result is a message of a function about an item, or about the whole list.
type Result struct {
	Severity, Message string
	// Item is nil if the result is about the whole list.
	Item *mapd.Document
	// Field is the path of a field of the item. Before and After are its values; nil if the result
	// does not have them.
	Field         string
	Before, After any
}

// maxResults bounds the results that are not errors: nobody reads the changes of every field of
// thousands of objects.
const maxResults = 1000

// Say adds a result. If there are maxResults already, it only counts results that are not errors.
func (l *List) Say(r Result) {
	if len(l.results) >= maxResults && r.Severity != Error {
		l.more++
		return
	}
	l.results = append(l.results, r)
}

// Failed reports whether there is a result of severity error.
func (l *List) Failed() bool {
	return slices.ContainsFunc(l.results, func(r Result) bool { return r.Severity == Error })
}

// Write returns the list with results. If there is a result of severity error, no item is changed,
// and results of severity info, which describe changes, are left out.
func (l *List) Write() ([]byte, error) {
	results := l.results
	switch {
	case l.Failed():
		results = slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Severity == Info })
	case l.more > 0:
		results = append(slices.Clip(results), Result{Severity: Info, Message: fmt.Sprintf("and %d more", l.more)})
	}
	var edits []mapd.Edit
	if len(results) > 0 {
		after := maps.Clone(l.doc.Object().Object)
		all, _ := after["results"].([]any) // results of functions that ran before
		all = slices.Clip(all)
		for _, r := range results {
			all = append(all, r.tree())
		}
		after["results"] = all
		edits = append(edits, l.doc.Edit(after))
	}
	if !l.Failed() {
		edits = append(edits, l.edits...)
	}
	return mapd.Splice(l.text, edits)
}

// tree returns the result as an element of the list's field results.
func (r *Result) tree() map[string]any {
	out := map[string]any{"message": r.Message, "severity": r.Severity}
	if r.Field != "" {
		field := map[string]any{"path": r.Field}
		if r.Before != nil {
			field["currentValue"] = r.Before
		}
		if r.After != nil {
			field["proposedValue"] = r.After
		}
		out["field"] = field
	}
	if r.Item == nil {
		return out
	}
	u := r.Item.Object()
	ref := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "name": u.GetName()}
	if ns := u.GetNamespace(); ns != "" {
		ref["namespace"] = ns
	}
	out["resourceRef"] = ref
	annotations := u.GetAnnotations()
	if path := cmp.Or(annotations["internal."+Group+"/path"], annotations[Group+"/path"]); path != "" {
		file := map[string]any{"path": path}
		if n, err := strconv.ParseInt(cmp.Or(annotations["internal."+Group+"/index"], annotations[Group+"/index"]), 10, 64); err == nil {
			file["index"] = n
		}
		out["file"] = file
	}
	return out
}
