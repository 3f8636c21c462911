package openapi

import (
	"strings"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// Difference returns the apply configuration that has exactly the fields in which after differs
// from before, and the keys of list elements. It also has the fields of owned, a set in the
// form of managedFields, since an applier gives up the fields that it leaves out. exact says
// that applying the configuration to before results in after; it does not if something was
// removed or a list has another order. k may be nil: lists are atomic then. Difference returns
// nil if the objects do not fit the schema.
func (k *Kind) Difference(before, after map[string]any, owned []byte) (config map[string]any, exact bool) {
	kind := smd.DeducedParseableType
	if k != nil {
		var schema *smd.Schema
		if schema, kind.TypeRef = k.Schema(); schema == nil {
			return nil, false
		}
		kind.Schema = schema
	}
	old, err := kind.FromUnstructured(before)
	if err != nil {
		return nil, false
	}
	now, err := kind.FromUnstructured(after)
	if err != nil {
		return nil, false
	}
	difference, err := old.Compare(now)
	if err != nil {
		return nil, false
	}
	set := difference.Added.Union(difference.Modified)
	if len(owned) > 0 {
		had := smd.NewSet()
		if err := had.FromJSON(strings.NewReader(string(owned))); err != nil {
			return nil, false
		}
		set = set.Union(had)
	}
	part := now.ExtractItems(set.Leaves(), smd.WithAppendKeyFields())
	config, ok := part.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, false
	}
	merged, err := old.Merge(part)
	if err != nil {
		return config, false
	}
	rest, err := merged.Compare(now)
	return config, err == nil && rest.IsSame()
}
