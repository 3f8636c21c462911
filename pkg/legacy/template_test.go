package legacy_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// The texts are Gatekeeper's; test/gatekeeper compares them.
func TestDecodeTemplate(t *testing.T) {
	applyTo := []any{map[string]any{"groups": []any{"apps"}, "versions": []any{"v1"}, "kinds": []any{"Deployment"}}}
	generates := map[string]any{"version": "v1", "kind": "Pod"}
	many := make([]any, 200)
	for i := range many {
		many[i] = "k"
	}
	for name, c := range map[string]struct {
		version string
		spec    any
		want    string
	}{
		"v1beta1":      {"v1beta1", map[string]any{"applyTo": applyTo, "templateSource": "spec.template", "generatedGVK": generates}, ""},
		"v1alpha1":     {"v1alpha1", map[string]any{"applyTo": applyTo, "templateSource": "spec.template", "generatedGVK": generates, "enforcementAction": "warn"}, ""},
		"not served":   {"v1", map[string]any{}, `ExpansionTemplate/t: apiVersion: no kind "ExpansionTemplate" is registered for version "expansion.gatekeeper.sh/v1"`},
		"no spec":      {"v1beta1", nil, "ExpansionTemplate/t: spec.templateSource: ExpansionTemplate t has empty source field"},
		"no kind":      {"v1beta1", map[string]any{"templateSource": "spec"}, "ExpansionTemplate/t: spec.generatedGVK: ExpansionTemplate t has empty generatedGVK field"},
		"no applyTo":   {"v1beta1", map[string]any{"templateSource": "spec", "generatedGVK": generates}, "ExpansionTemplate/t: spec.applyTo: ExpansionTemplate t must specify ApplyTo"},
		"itself":       {"v1beta1", map[string]any{"applyTo": applyTo, "templateSource": "spec", "generatedGVK": map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"}}, "ExpansionTemplate/t: spec.generatedGVK: ExpansionTemplate t generates GVK apps/v1, Kind=Deployment, but also applies to that same GVK"},
		"wrong type":   {"v1beta1", map[string]any{"applyTo": "apps"}, "ExpansionTemplate/t: spec.applyTo: expected a list, got a string"},
		"wrong source": {"v1beta1", map[string]any{"templateSource": []any{"spec"}}, "ExpansionTemplate/t: spec.templateSource: expected a string, got a list"},
		"too many": {"v1beta1", map[string]any{"applyTo": []any{map[string]any{"groups": many, "versions": many, "kinds": many}}, "templateSource": "spec", "generatedGVK": generates},
			"ExpansionTemplate/t: spec.applyTo: applyTo names more than 10000 kinds"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := legacy.DecodeTemplate(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "expansion.gatekeeper.sh/" + c.version, "kind": "ExpansionTemplate", "metadata": map[string]any{"name": "t"}, "spec": c.spec,
			}})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && (got.Generates.Kind != "Pod" || len(got.Kinds()) != 1):
				t.Errorf("decoded %+v", got)
			case c.want != "" && (err == nil || err.Error() != c.want):
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	long := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "expansion.gatekeeper.sh/v1beta1", "kind": "ExpansionTemplate"}}
	if _, err := legacy.DecodeTemplate(long); err == nil || legacy.Reason(err) != "metadata.name: ExpansionTemplate has empty name field" {
		t.Errorf("without a name: %v", err)
	}
	long.SetName(strings.Repeat("n", 64))
	if _, err := legacy.DecodeTemplate(long); err == nil || legacy.Reason(err) != "metadata.name: ExpansionTemplate name must be less than 64 characters" {
		t.Errorf("with a long name: %v", err)
	}
}
