package language

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/layout"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// author is an expression of a policy, with the names that it can use.
type author struct {
	ctx    context.Context
	site   site
	types  *openapi.Types
	doc    *manifest.Document
	prefix string // of the policy in its document: "items[0]."
	spec   admissionregistrationv1.MutatingAdmissionPolicySpec
	// part and index identify the expression; before are the variables that are defined before
	// it.
	part   string
	index  int
	before int
	kinds  []*openapi.Kind
	params *openapi.Kind
	want   cel.Want
	scope  *cel.Scope
	work   int // that resolving did

	tokens []layout.Token
}

// maxWork bounds the work to resolve the names at one position.
const maxWork = 20_000

// author returns the expression at an offset of a file, nil if there is none.
func (w *Workspace) author(ctx context.Context, f *file, offset int) *author {
	s := locate(f.text, offset)
	if !s.inside || !expressionKeys[s.key()] {
		return nil
	}
	at := -1
	for i, step := range s.path {
		if step == "spec" {
			at = i
			break
		}
	}
	if at < 0 || len(s.path) < at+3 {
		return nil
	}
	a := &author{ctx: ctx, site: s, types: w.kinds(), part: s.path[at+1]}
	a.index, _ = strconv.Atoi(s.path[at+2])
	var object map[string]any
	a.doc, object = f.policyAt(&s, s.path[:at])
	if object == nil {
		return nil
	}
	for i := 0; i < at; i += 2 {
		a.prefix += "items[" + s.path[min(i+1, at-1)] + "]."
	}
	text, err := json.Marshal(object["spec"])
	if err != nil {
		return nil
	}
	_ = json.Unmarshal(text, &a.spec) // what cannot be decoded is left out
	a.before = len(a.spec.Variables)
	switch a.part {
	case "variables":
		a.before = min(a.index, a.before)
	case "matchConditions":
		a.before = 0
	}
	if a.part == "mutations" && len(s.path) > at+3 {
		a.want = cel.Object
		if s.path[at+3] == "jsonPatch" {
			a.want = cel.JSONPatch
		}
	}
	if a.spec.MatchConstraints != nil {
		kinds, _ := policy.Targets(a.spec.MatchConstraints, a.types)
		for _, gvk := range kinds[:min(len(kinds), maxKinds)] {
			if k, err := a.types.Kind(gvk); err == nil {
				a.kinds = append(a.kinds, k)
			}
		}
	}
	if p := a.spec.ParamKind; p != nil {
		if k, err := a.types.Kind(schema.FromAPIVersionAndKind(p.APIVersion, p.Kind)); err == nil {
			a.params = k
		}
	}
	env, err := w.language()
	if err != nil {
		return nil
	}
	version, _ := object["apiVersion"].(string)
	if strings.HasPrefix(version, api.OwnGroup+"/") {
		env = env.Asking()
	}
	a.scope = env.Within(ctx).Scope(cel.Vars{Params: a.spec.ParamKind != nil, Variables: a.part != "matchConditions"})
	for _, v := range a.spec.Variables[:a.before] {
		_ = a.scope.Define(v.Name, v.Expression) // a variable that does not compile has no type
	}
	a.tokens, _ = layout.Tokens(s.text)
	return a
}

// maxKinds bounds the kinds of a policy whose schemas are used.
const maxKinds = 16

// policyAt returns the document at a site, and the object at a path of it, for items of Lists.
// While the document is not valid YAML, it is the last valid version.
func (f *file) policyAt(s *site, path []string) (*manifest.Document, map[string]any) {
	d := readDocument(f.name, s.without(f.text))
	if d == nil {
		d = readDocument(f.name, s.repaired(f.text))
	}
	f.last.Lock()
	key := strings.Count(f.text[:s.start], "\n---")
	if d != nil {
		if f.last.documents == nil {
			f.last.documents = map[int]*manifest.Document{}
		}
		if len(f.last.documents) < 1000 {
			f.last.documents[key] = d
		}
	} else {
		d = f.last.documents[key]
	}
	f.last.Unlock()
	if d == nil {
		return nil, nil
	}
	var at any = d.Object.Object
	for _, step := range path {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil, nil
			}
			at = v[i]
		}
	}
	object, _ := at.(map[string]any)
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if group, _, _ := strings.Cut(version, "/"); !api.IsAdmission(group) || kind != api.PolicyKind && kind != "ValidatingAdmissionPolicy" {
		return nil, nil
	}
	return d, object
}

// readDocument reads one document, nil if it cannot be read.
func readDocument(name, text string) *manifest.Document {
	for d, err := range manifest.ReadWhole(name, bytes.NewReader([]byte(text))) {
		if err == nil && d.Object != nil {
			return d
		}
		return nil
	}
	return nil
}
