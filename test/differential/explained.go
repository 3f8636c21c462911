package differential

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/oracle"
)

// explained names the row of docs/reference/compat.md that makes two answers differ, or
// nothing if they have to agree. Every test asks both sides for a sign of the
// row: of what Kubernetes did, or of what mapd did instead.
func explained(ctx context.Context, c *cases.Case, want oracle.Result, got *engine.Decision) string {
	said := text(want.Status) + text(ignored(ctx, c))
	switch {
	case want.Panic != nil && got.Status == nil && !failed(got, ""):
		return "" // then mapd has to say so
	case want.Panic != nil:
		return "panics"
	case want.Status != nil && want.Status.Code == http.StatusInternalServerError &&
		failed(got, strings.TrimPrefix(want.Status.Message, "Internal error occurred: ")):
		return "decode-errors"
	case failed(got, "json: unsupported value: "):
		return "decode-errors" // in process nobody encodes what Kubernetes' object holds
	case want.Status != nil && strings.Contains(want.Status.Message, "json parse error") && failed(got, "the patched document is not an object"):
		return "decode-errors"
	case reflected.MatchString(said), reflects(c) && (more(notPlain, said, got) || more(unequal, said, got)):
		return "reflection-values"
	case failed(got, "does not fit int"):
		return "int32-overflow"
	}
	return ""
}

// ignored is what Kubernetes says about a case if no policy is to be ignored.
func ignored(ctx context.Context, c *cases.Case) *metav1.Status {
	loud := *c
	loud.Policies = nil
	for _, p := range c.Policies {
		p = p.DeepCopy()
		_ = unstructured.SetNestedField(p.Object, "Fail", "spec", "failurePolicy")
		loud.Policies = append(loud.Policies, p)
	}
	result, err := oracle.Run(ctx, &loud)
	if err != nil {
		return nil
	}
	return result.Status
}

// reflected is how a Go value shows in the texts of Kubernetes where mapd has
// plain data.
var reflected = regexp.MustCompile(`type conversion error from (struct type|'list\(dyn|'map\(dyn)|invalid type: (\*?v\d\.|map\[string\]string|\[\]string)|Value:(\*|\[\])*(v1|v2|resource|intstr)\.|Value:\[\]string\{|Value:map\[string\]string|got &\{[\[&]*\{|unsupported conversion to ref.Val: \(|reflectSchemalessTyped`)

// more reports whether Kubernetes says something more often than mapd.
func more(what *regexp.Regexp, said string, got *engine.Decision) bool {
	return len(what.FindAllString(said, -1)) > len(what.FindAllString(errorsOf(got), -1))
}

// notPlain is what a validation says of a Go struct, or a typed map or list,
// though it is a map or a list.
var notPlain = regexp.MustCompile(`list with keys may not have non-map elements|expected map, got &\{map\[|expected list, got &\{\[`)

// unequal is what a Go value says where data is unequal or missing.
var unequal = regexp.MustCompile(`no such overload|unsupported (map key|index) type: `)

// reflects says whether Kubernetes may hold Go values in a case: an object that
// conditions have been asked about, or what is always typed.
func reflects(c *cases.Case) bool {
	return slices.ContainsFunc(c.Policies, func(p *unstructured.Unstructured) bool {
		spec := p.Object["spec"].(map[string]any)
		return spec["matchConditions"] != nil || typed.MatchString(fmt.Sprint(spec["mutations"], spec["variables"]))
	})
}

var typed = regexp.MustCompile(`params|namespaceObject|request\.(options|userInfo)`)

// failed says whether some step of mapd's failed with an error that contains a
// text. Which of several errors comes first may differ: Kubernetes decodes what
// a patch moved in the order of Go's fields.
func failed(d *engine.Decision, with string) bool {
	with = unmarshal.ReplaceAllString(with, "unmarshal … into")
	return slices.ContainsFunc(d.Steps, func(s engine.Step) bool {
		if s.Err == nil {
			return false
		}
		err := unmarshal.ReplaceAllString(s.Err.Error(), "unmarshal … into")
		return strings.Contains(err, with) || letters(err) == letters(with)
	})
}

var unmarshal = regexp.MustCompile(`unmarshal \w+ into`)

func errorsOf(d *engine.Decision) string {
	var all strings.Builder
	for _, s := range d.Steps {
		if s.Err != nil {
			all.WriteString(s.Err.Error() + "\n")
		}
	}
	return all.String()
}

// text is everything that a status says.
func text(s *metav1.Status) string {
	if s == nil {
		return ""
	}
	out := s.Message
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			out += "\n" + c.Message
		}
	}
	return out
}

var (
	undeclared = regexp.MustCompile(`(typed object: )(?s:.*)field not declared in schema(?s:.*)`)
	invalid    = "typed object: errors:\n"
	offset     = regexp.MustCompile(`(illegal base64 data at input byte )\d+`)
	badType    = regexp.MustCompile(`(proto:.invalid type: )\S+`)
	address    = regexp.MustCompile(`0x[0-9a-f]{8,}`)
)

// settled is a status in which everything that Kubernetes leaves to chance is
// settled: the errors of a validation come in the order of Go maps, and end
// at the first field that is not declared, so which others there are is chance
// too. That the atomic guard's paths come sorted is test/oracle's work.
func settled(s *metav1.Status) *metav1.Status {
	if s == nil {
		return nil
	}
	settle := func(message string) string {
		message = address.ReplaceAllString(message, "0x…")
		message = offset.ReplaceAllString(message, "${1}…")
		message = badType.ReplaceAllString(message, "${1}…")
		message = undeclared.ReplaceAllString(message, "${1}… field not declared in schema …")
		if head, list, ok := strings.Cut(message, invalid); ok {
			lines := strings.Split(list, "\n")
			slices.Sort(lines)
			message = head + invalid + strings.Join(lines, "\n")
		}
		return message
	}
	out := s.DeepCopy()
	out.Message = settle(out.Message)
	if out.Details != nil {
		for i := range out.Details.Causes {
			out.Details.Causes[i].Message = settle(out.Details.Causes[i].Message)
		}
	}
	return out
}

// agree says whether two answers are one. Where a validation prints a whole
// map, its entries come in the order of Go maps: then it is enough that the
// texts have the same letters.
func agree(want, got *metav1.Status) bool {
	w, g := cases.FormatStatus(settled(want)), cases.FormatStatus(settled(got))
	return w == g || strings.Contains(w, "typed object: ") && letters(w) == letters(g)
}

func letters(s string) string {
	all := []rune(s)
	slices.Sort(all)
	return string(all)
}
