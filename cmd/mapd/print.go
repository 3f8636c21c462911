package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// printer writes standard output.
type printer struct {
	w      io.Writer
	format string
	colour report.Colour
	begun  bool
	// undefaulted are the built-in kinds of changed objects whose defaults are
	// not known.
	undefaulted map[string]bool
	builtin     bool // an object of a built-in kind was changed
}

func newPrinter(w io.Writer, format string) *printer {
	return &printer{w: w, format: format, undefaulted: map[string]bool{}, colour: report.Colour(isTerminal(w) && os.Getenv("NO_COLOR") == "")}
}

// unwritable is why a decision has no text in the format that is asked for. It is the
// fault of one object; other errors of a printer are of its writer.
type unwritable struct{ error }

func (u unwritable) Unwrap() error { return u.error }

// comments passes on a document of nothing but comments.
func (p *printer) comments(d *manifest.Document) error {
	if p.format != "yaml" {
		return nil
	}
	return p.yaml(d, d.Raw)
}

func (p *printer) print(e *evaluation, s *subject, d *engine.Decision) error {
	if p.format == "review" {
		out, err := webhook.EncodeResponse(s.asGiven(d))
		if err != nil {
			return unwritable{err}
		}
		return p.line(out)
	}
	if d.Status != nil || s.object == nil {
		return nil
	}
	after := s.object
	if d.Changed {
		if s.kind != nil && s.kind.Builtin() {
			p.builtin = true
			if !s.defaulted && !s.review {
				p.undefaulted[s.kind.GroupVersionKind().Kind] = true
			}
		}
		after = s.result(d)
	}
	switch p.format {
	case "yaml":
		if !d.Changed && !s.review {
			return p.yaml(s.doc, s.doc.Raw)
		}
		var text []byte
		if s.review {
			text = manifest.Encode(after)
		} else {
			text = manifest.Rewrite(s.doc, after)
		}
		if text == nil {
			return unwritable{errors.New("the result is no JSON data")}
		}
		return p.yaml(s.doc, text)
	case "json":
		if !d.Changed && s.doc.JSON && !s.review {
			return p.line(s.doc.Raw)
		}
		out, err := marshal(after, "    ")
		if err != nil {
			return err
		}
		return p.line(out)
	case "patch":
		ops := tree.Diff(s.object, after)
		if ops == nil {
			ops = []tree.Op{}
		}
		out, err := marshal(ops, "")
		if err != nil {
			return err
		}
		return p.line(out)
	case "diff":
		if !d.Changed {
			return nil
		}
		if _, err := marshal(after, ""); err != nil {
			return err
		}
		return report.WriteDiff(p.w, s.name, report.Diff(s.object, after, e.keys(d.Object)), p.colour)
	}
	if !d.Changed {
		return nil
	}
	return p.line([]byte(kubectlName(s)))
}

// result is the change that the policies made to the object as a server holds
// it, made to the object as it was given. If it has no place there, it is the
// server's object.
func (s *subject) result(d *engine.Decision) map[string]any {
	after, ok := manifest.Replay(s.object, s.request.Object.Object, d.Object.Object)
	if !ok {
		return d.Object.Object
	}
	// The proof: of the printed object a server must make what it makes of the
	// policies' result.
	check := after
	if m, _ := after["metadata"].(map[string]any); m["namespace"] == nil && d.Object.GetNamespace() != "" {
		check = withNamespace(&unstructured.Unstructured{Object: after}, d.Object.GetNamespace()).Object
	}
	printed, err := s.decode(check)
	if err != nil {
		return d.Object.Object
	}
	meant, err := s.decode(d.Object.Object)
	if err != nil || !tree.Equal(printed, meant) {
		return d.Object.Object
	}
	return after
}

// asGiven is what a response is written from: the request and its decision, about
// the object as it was given, since a patch of the server's form of it need not
// fit.
func (s *subject) asGiven(d *engine.Decision) (*policy.Request, *engine.Decision) {
	if d.Status != nil || !d.Changed || s.object == nil {
		return s.request, d
	}
	given := *d
	given.Object = &unstructured.Unstructured{Object: s.result(d)}
	return &policy.Request{UID: s.request.UID, Object: &unstructured.Unstructured{Object: s.object}}, &given
}

// yaml writes one document of a stream.
func (p *printer) yaml(d *manifest.Document, text []byte) error {
	var b bytes.Buffer
	switch {
	case bytes.HasPrefix(text, []byte("---")):
	case bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("%")):
		if p.begun {
			b.WriteString("...\n") // or the directive would be content
		}
	case p.begun || d.Explicit:
		b.WriteString("---\n")
	}
	p.begun = true
	b.Write(text)
	if !bytes.HasSuffix(text, []byte("\n")) {
		b.WriteByte('\n')
	}
	_, err := p.w.Write(b.Bytes())
	return err
}

func (p *printer) line(out []byte) error {
	_, err := fmt.Fprintf(p.w, "%s\n", bytes.TrimRight(out, "\r\n"))
	return err
}

func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, unwritable{err}
	}
	return b.Bytes(), nil
}

// kubectlName is "deployment.apps/web".
func kubectlName(s *subject) string {
	kind := strings.ToLower(s.request.Kind.Kind)
	if g := s.request.Kind.Group; g != "" {
		kind += "." + g
	}
	name := s.request.Name
	if name == "" && s.request.Object != nil {
		if name = s.request.Object.GetName(); name == "" {
			name = s.request.Object.GetGenerateName()
		}
	}
	return kind + "/" + name
}

// refusal is a status as kubectl prints it.
func refusal(status *metav1.Status) string {
	d := status.Details
	if status.Reason == metav1.StatusReasonInvalid {
		text := "The request is invalid"
		if d != nil && d.Kind != "" {
			text = fmt.Sprintf("The %s %q is invalid", d.Kind, d.Name)
		}
		if d == nil || len(d.Causes) <= 1 {
			return text + ": " + status.Message
		}
		var b strings.Builder
		b.WriteString(text + ":")
		for _, c := range d.Causes {
			b.WriteString("\n* " + c.Message)
		}
		return b.String()
	}
	if status.Reason == "" {
		return "Error from server: " + status.Message
	}
	text := fmt.Sprintf("Error from server (%s): %s", status.Reason, status.Message)
	if d != nil && len(d.Causes) > 1 {
		for _, c := range d.Causes[1:] {
			text += "\n* " + c.Message
		}
	}
	return text
}
