package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// suiteFile is the name by which mapd test finds a suite.
const suiteFile = "mapd-test.yaml"

// suite returns a suite with a case for each object of a question, which expects the present
// result, and the files that the suite names.
func (d *desk) suite(ctx context.Context, q Question) (*SuiteAnswer, error) {
	r, wrong := d.read(ctx, &q, false)
	if wrong != nil {
		return &SuiteAnswer{Errors: wrong}, nil
	}
	a := &SuiteAnswer{Errors: r.faults}
	if p := r.policies; len(p.Policies())+p.Mutators() == 0 {
		a.Errors = append(a.Errors, Fault{Message: "there is no policy among the documents"})
	}
	for _, n := range r.policies.Notes() {
		if n.Kind == mapd.Unasked {
			a.Errors = append(a.Errors, Fault{Message: n.String() + "; mapd test would run it with recorded answers, which the page does not have"})
		}
	}
	var list [][]cases.Field
	names := map[string]int{}
	for _, o := range r.objects {
		c, err := r.testCase(ctx, &q, o)
		if err != nil {
			a.Errors = append(a.Errors, faults(err)...)
			continue
		}
		name := o.document.Name()
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, names[name])
		}
		list = append(list, append([]cases.Field{{Name: "name", Value: name}}, c...))
	}
	if len(list) == 0 && len(a.Errors) == 0 {
		a.Errors = []Fault{{Message: "there is no object"}}
	}
	if len(a.Errors) > 0 {
		return a, nil
	}
	var policies []any
	taken := map[string]bool{suiteFile: true}
	for _, t := range q.Documents {
		if strings.TrimSpace(t.Text) == "" {
			continue
		}
		name := fileName(t.Name, taken)
		policies = append(policies, name)
		a.Files = append(a.Files, Text{Name: name, Text: t.Text})
	}
	spec := []cases.Field{{Name: "policies", Value: policies}}
	for _, f := range []cases.Field{{Name: "kubernetes", Value: q.Kubernetes}, {Name: "namespace", Value: q.Namespace}} {
		if f.Value != "" {
			spec = append(spec, f)
		}
	}
	if q.Unbound {
		spec = append(spec, cases.Field{Name: "unbound", Value: true})
	}
	text := cases.Write("# The playground of mapd wrote these cases: they expect what the policies did there. Run them with mapd test.\n", spec, list)
	a.Files = append([]Text{{Name: suiteFile, Text: string(text)}}, a.Files...)
	return a, nil
}

// testCase returns a case without its name.
func (r *read) testCase(ctx context.Context, q *Question, o object) ([]cases.Field, error) {
	if o.fault != nil {
		return nil, errors.New(o.fault.Message)
	}
	made, err := r.policies.Eval(ctx, o.document, r.opts)
	if err != nil {
		return nil, err
	}
	fields := []cases.Field{{Name: "object", Value: o.document.Object().Object}}
	if r.opts.Operation == admissionv1.Delete {
		fields[0].Name = "old"
	}
	if old := made.Request.Old(); old != nil {
		fields = append(fields, cases.Field{Name: "old", Value: old.Object().Object})
	}
	for _, f := range []cases.Field{{Name: "operation", Value: q.Operation}, {Name: "subresource", Value: q.Subresource}} {
		if f.Value != "" {
			fields = append(fields, f)
		}
	}
	if q.DryRun {
		fields = append(fields, cases.Field{Name: "dryRun", Value: true})
	}
	if user := userOf(q); len(user) > 0 {
		fields = append(fields, cases.Field{Name: "user", Value: user})
	}
	return append(fields, cases.Field{Name: "expect", Value: cases.From(made, nil)}), nil
}

func userOf(q *Question) map[string]any {
	user := map[string]any{}
	if q.User.Username != "" {
		user["name"] = q.User.Username
	}
	if q.User.UID != "" {
		user["uid"] = q.User.UID
	}
	if len(q.User.Groups) > 0 {
		user["groups"] = anys(q.User.Groups)
	}
	if len(q.User.Extra) > 0 {
		extra := map[string]any{}
		for key, values := range q.User.Extra {
			extra[key] = anys(values)
		}
		user["extra"] = extra
	}
	return user
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// fileName returns a name for a file that is similar to name, is not taken, and has no directory.
func fileName(name string, taken map[string]bool) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, path.Base(name))
	ext := path.Ext(name)
	base := strings.TrimLeft(strings.TrimSuffix(name, ext), ".-")
	if ext = strings.ToLower(ext); ext != ".yaml" && ext != ".yml" && ext != ".json" {
		base, ext = strings.TrimLeft(name, ".-"), ".yaml"
	}
	const longest = 100
	base = cmp.Or(base[:min(len(base), longest)], "documents")
	out := base + ext
	for n := 2; taken[strings.ToLower(out)]; n++ {
		out = fmt.Sprintf("%s-%d%s", base, n, ext)
	}
	taken[strings.ToLower(out)] = true
	return out
}
