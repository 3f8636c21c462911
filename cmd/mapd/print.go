//go:build !server

package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// printer prints results to standard output.
type printer struct {
	w       io.Writer
	format  string
	colour  bool
	begun   bool
	builtin bool // an object of a built-in kind was changed
}

func newPrinter(w io.Writer, format string) *printer {
	return &printer{w: w, format: format, colour: coloured(w)}
}

// comments prints a document of nothing but comments.
func (p *printer) comments(d *mapd.Document) error {
	if p.format != "yaml" {
		return nil
	}
	return p.yaml(d.Separated(), d.Text())
}

func (p *printer) print(r *mapd.Result) error {
	req, doc := r.Request, r.Request.Document()
	if p.format == "review" {
		out, err := webhook.EncodeResponse(r.AsGiven())
		if err != nil {
			return unwritable{err}
		}
		return p.line(out)
	}
	if p.format == traceFormat {
		return p.trace(r)
	}
	if p.format == "patch" && req.Object() != nil {
		return p.patch(r)
	}
	if p.format == "markdown" && req.Object() != nil && (r.Changed() || r.Denied()) {
		return p.markdown(r)
	}
	if r.Denied() || req.Object() == nil {
		return nil
	}
	p.noteDefaults(r)
	switch p.format {
	case blameFormat:
		return p.yaml(false, []byte(r.BlameText()))
	case "yaml":
		text, err := r.Text()
		if err != nil {
			return unwritable{err}
		}
		if req.Admission.Source == policy.Generated {
			text = append([]byte("# "+report.Line(req.Name())+"\n"), text...)
		}
		return p.yaml(doc.Separated() && req.Written(), text)
	case "json":
		if !r.Changed() && doc.JSON() && req.Written() {
			return p.line(doc.Text())
		}
		out, err := marshal(r.Object(), "    ")
		if err != nil {
			return err
		}
		return p.line(out)
	}
	if !r.Changed() {
		return nil
	}
	if p.format == "diff" {
		if _, err := marshal(r.Object(), ""); err != nil {
			return err
		}
		_, err := io.WriteString(p.w, r.DiffText(p.colour))
		return err
	}
	return p.line([]byte(report.Line(kubectlName(req.Admission)))) // a name may have line breaks
}

// named is the part of a JSON line that identifies the object.
type named struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Generated  bool   `json:"generated,omitempty"`
	Denied     string `json:"denied,omitempty"`
}

func namedOf(r *mapd.Result) named {
	req := r.Request.Admission
	id := named{req.Kind.GroupVersion().String(), req.Kind.Kind, req.Namespace, req.Name, req.Source == policy.Generated, r.Refusal()}
	if req.Object != nil {
		id.Name = req.Object.GetName()
	}
	return id
}

// patch prints one line for an object, which identifies the object.
func (p *printer) patch(r *mapd.Result) error {
	p.noteDefaults(r)
	line := struct {
		named
		Patch *[]tree.Op `json:"patch,omitempty"`
	}{named: namedOf(r)}
	if !r.Denied() {
		ops := r.Patch()
		if ops == nil {
			ops = []tree.Op{}
		}
		line.Patch = &ops
	}
	out, err := marshal(line, "")
	if err != nil {
		return err
	}
	return p.line(out)
}

// totals prints the summary of all objects below the blocks of Markdown, if there are any.
func (p *printer) totals(text string) error {
	if !p.begun {
		return nil
	}
	_, err := fmt.Fprintf(p.w, "\n%s\n", text)
	return err
}

// markdown prints a code block for an object, in which GitHub and GitLab highlight a diff. The
// block's text cannot end the block.
func (p *printer) markdown(r *mapd.Result) error {
	if _, err := marshal(r.Object(), ""); err != nil && !r.Denied() {
		return err
	}
	p.noteDefaults(r)
	what := strings.TrimSuffix(r.Summary(), "\n")
	var text string
	if r.Denied() {
		text = "- " + strings.ReplaceAll(what, "\n", "\n# ") + "\n"
	} else {
		_, changes, _ := strings.Cut(r.DiffText(false), "\n") // the title is part of what, too
		text = "# " + strings.ReplaceAll(what, "\n", "\n# ") + "\n" + changes
		text = strings.ReplaceAll(text, "\n~ ", "\n! ") // a changed line
	}
	if p.begun {
		fmt.Fprintln(p.w)
	}
	p.begun = true
	_, err := fmt.Fprintln(p.w, page.Fence("diff", text))
	return err
}

// failure writes the block of an input that failed.
func (p *printer) failure(text string) error {
	if p.begun {
		fmt.Fprintln(p.w)
	}
	p.begun = true
	_, err := fmt.Fprintln(p.w, page.Fence("diff", "- failed: "+strings.ReplaceAll(report.Printable(text), "\n", "\n# ")+"\n"))
	return err
}

// noteDefaults records whether the notes have to mention defaults of changed objects.
func (p *printer) noteDefaults(r *mapd.Result) {
	p.builtin = p.builtin || r.Changed() && r.Request.Builtin()
}

// yaml writes one document of a stream. separated puts "---" before the first, too.
func (p *printer) yaml(separated bool, text []byte) error {
	var b bytes.Buffer
	switch {
	case bytes.HasPrefix(text, []byte("---")):
	case bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("%")):
		if p.begun {
			b.WriteString("...\n") // otherwise the directive would be content of the document before
		}
	case p.begun || separated:
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

// kubectlName returns the object's name in kubectl's form, such as "deployment.apps/web".
func kubectlName(r *policy.Request) string {
	kind := strings.ToLower(r.Kind.Kind)
	if g := r.Kind.Group; g != "" {
		kind += "." + g
	}
	name := r.Name
	if name == "" && r.Object != nil {
		if name = r.Object.GetName(); name == "" {
			name = r.Object.GetGenerateName()
		}
	}
	return kind + "/" + name
}
