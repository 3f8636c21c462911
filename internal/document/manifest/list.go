package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// open yields the objects of a document: the items of a List one by one, also in nested Lists,
// and any other object as it is.
func (d *Document) open(yield func(*Document, error) bool) bool {
	if d.Object == nil {
		return yield(d, nil)
	}
	if err := check(d); err != nil {
		return yield(nil, err)
	}
	items, ok := d.Object.Object["items"].([]any)
	kind, isList := strings.CutSuffix(d.Object.GetKind(), "List")
	if !isList || (!ok && d.Object.Object["items"] != nil) {
		return yield(d, nil)
	}
	var nodes []*yaml.Node
	if n, _ := lookup(d.root(), "items"); n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == len(items) {
		nodes = n.Content
	}
	if d.list == nil {
		d.list = &listText{text: d.text}
	}
	for i, v := range items {
		m, ok := v.(map[string]any)
		if !ok {
			if !yield(nil, d.ErrorAt(fmt.Sprintf("items[%d]", i), fmt.Errorf("items[%d] is not an object", i))) {
				return false
			}
			continue
		}
		item := &Document{parent: d, at: i, File: d.File, Index: d.Index, Line: d.Line, Explicit: i > 0 || d.Explicit, text: d.text, first: d.first, item: true, inJSON: d.JSON || d.inJSON, list: d.list}
		if nodes != nil {
			item.node = nodes[i]
			item.Line = d.first + nodes[i].Line - 1
		}
		item.Object = &unstructured.Unstructured{Object: typed(m, kind, d.Object.GetAPIVersion())}
		item.source = m
		item.Raw = Rewrite(item, item.Object.Object)
		if !item.open(yield) {
			return false
		}
		if item.packed != nil { // so nobody needs this part of the List, of which there may be very much
			items[i] = nil
			if nodes != nil {
				nodes[i] = &yaml.Node{}
			}
		}
	}
	return true
}

// Typed returns an item of a List with the kind that it may leave to the List.
func Typed(item, list map[string]any) map[string]any {
	l := unstructured.Unstructured{Object: list}
	kind, isList := strings.CutSuffix(l.GetKind(), "List")
	if !isList {
		return item
	}
	return typed(item, kind, l.GetAPIVersion())
}

// typed adds to an item of a typed List (PodList) the kind that it may omit.
func typed(m map[string]any, kind, apiVersion string) map[string]any {
	if kind == "" || m["kind"] != nil && m["apiVersion"] != nil {
		return m
	}
	c := make(map[string]any, len(m)+2)
	for k, v := range m {
		c[k] = v
	}
	if c["kind"] == nil {
		c["kind"] = kind
	}
	if c["apiVersion"] == nil {
		c["apiVersion"] = apiVersion
	}
	return c
}
