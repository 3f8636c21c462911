package language

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mapd-project/mapd/internal/author/forms"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// misfit is a field or value that does not match the form of its document.
type misfit struct {
	at      *manifest.PositionError
	key     bool // the name is at fault
	written string
	near    string // a likely correction; "" if none is known
	linted  bool   // the linter reports it, too
	form    bool   // mapd reads the document, and refuses it
}

// checked caches the misfits of a file, for the types that were known.
type checked struct {
	sync.Mutex
	types *openapi.Types
	found []misfit
	done  bool
}

// Rules of diagnostics that the linter does not have. Documents that the linter reads get the
// linter's messages.
const (
	fieldRule = "unknown-field"
	typeRule  = "wrong-type"
)

// misfits returns the diagnostics of documents that the linter does not read: suites, and objects
// of known kinds.
func (w *Workspace) misfits() map[string][]Diagnostic {
	out := map[string][]Diagnostic{}
	w.mu.Lock()
	files := w.sorted()
	w.mu.Unlock()
	for _, f := range files {
		for _, m := range w.check(f) {
			if m.linted || len(out[f.name]) >= maxDiagnostics {
				continue
			}
			out[f.name] = append(out[f.name], m.diagnostic(f.text))
		}
	}
	return out
}

func (m *misfit) diagnostic(text string) Diagnostic {
	d := Diagnostic{Range: rangeAt(text, m.at.Line, m.at.Column), Severity: lint.Warning, Rule: typeRule, Message: m.at.Err.Error(), Fixable: m.near != ""}
	if m.form {
		d.Severity = lint.Error
	}
	if m.key {
		d.Rule = fieldRule
	}
	return d
}

// check compares the documents of a file with their forms.
func (w *Workspace) check(f *file) []misfit {
	types := w.kinds()
	f.checked.Lock()
	defer f.checked.Unlock()
	if f.checked.done && f.checked.types == types {
		return f.checked.found
	}
	c := checker{w: w}
	for d, err := range manifest.ReadStream(f.name, strings.NewReader(f.text)) {
		if err != nil || d.Object == nil {
			continue
		}
		c.document(d)
		if len(c.found) > maxDiagnostics {
			break
		}
	}
	f.checked.types, f.checked.found, f.checked.done = types, c.found, true
	return c.found
}

type checker struct {
	w      *Workspace
	d      *manifest.Document
	form   bool // of package forms
	linted bool
	found  []misfit
}

func (c *checker) document(d *manifest.Document) {
	apiVersion, kind := d.Object.GetAPIVersion(), d.Object.GetKind()
	form := c.w.formOf(apiVersion, kind)
	if form == nil {
		return
	}
	c.d = d
	c.form = forms.Of(apiVersion, kind) != nil
	c.linted = c.form && apiVersion != forms.SuiteVersion || groupOf(apiVersion) == api.NativeGroup
	c.value(form, d.Object.Object, "")
}

func (c *checker) note(at *manifest.PositionError, key bool, written, near string) {
	if len(c.found) <= maxDiagnostics {
		c.found = append(c.found, misfit{at, key, written, near, c.linted, c.form})
	}
}

// value compares a value at a path with a form.
func (c *checker) value(f form, v any, path string) {
	if f == nil || v == nil || isFree(f) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if f.list() || f.scalar() != "" {
			c.mistyped(f, path, "an object")
			return
		}
		c.fields(f, v, path)
	case []any:
		if !f.list() && (f.scalar() != "" || len(f.fields()) > 0) {
			c.mistyped(f, path, "a list")
			return
		}
		for i, e := range v {
			c.value(f.element(), e, fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		c.scalar(f, v, path)
	}
}

func (c *checker) fields(f form, v map[string]any, path string) {
	names := f.fields()
	for _, name := range slices.Sorted(maps.Keys(v)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if strings.ContainsAny(name, ".[]/") {
			at = path + "[" + name + "]"
		}
		if f.refuses(name) {
			near := lookup.Nearest(name, names)
			err := fmt.Errorf("%s has no field %s", c.name(path), name)
			if near != "" && v[near] == nil {
				err = fmt.Errorf("%w; did you mean %s?", err, near)
			} else {
				near = ""
			}
			c.note(c.d.ErrorAtKey(at, err), true, name, near)
			continue
		}
		c.value(f.field(name), v[name], at)
	}
	if !c.form || c.linted {
		return
	}
	for _, name := range f.needs() {
		if _, ok := v[name]; !ok {
			c.note(c.d.ErrorAt(path, fmt.Errorf("%s is required", strings.TrimPrefix(path+"."+name, "."))), false, "", "")
		}
	}
}

// name is what errors call a place.
func (c *checker) name(path string) string {
	if path == "" {
		return c.d.Object.GetKind()
	}
	return path
}

func (c *checker) mistyped(f form, path, found string) {
	c.note(c.d.ErrorAt(path, fmt.Errorf("%s: want %s, not %s", path, f.describe(), found)), false, "", "")
}

func (c *checker) scalar(f form, v any, path string) {
	found := "a number"
	switch v.(type) {
	case string:
		found = "a text"
	case bool:
		found = "true or false"
	}
	want := f.scalar()
	switch {
	case want == "" && (f.list() || len(f.fields()) > 0) && !takesText(f):
		c.mistyped(f, path, found)
	case want == "string" && found != "a text", want == "boolean" && found != "true or false", want == "number" && found != "a number":
		c.mistyped(f, path, found)
	case want == "string":
		written, ok := f.(writtenForm)
		values := f.values()
		if text := v.(string); ok && len(written.Enum) > 0 && !slices.Contains(values, text) && !slices.Contains(values, quoted(text)) {
			near := lookup.Nearest(text, values)
			err := fmt.Errorf("%s: %q is none of %s", path, text, strings.Join(values, ", "))
			if near != "" {
				err = fmt.Errorf("%w; did you mean %s?", err, near)
			}
			c.note(c.d.ErrorAt(path, err), false, text, near)
		}
	}
}

// takesText reports whether a form with fields also accepts a text or true.
func takesText(f form) bool {
	w, ok := f.(writtenForm)
	return ok && (len(w.Type) != 1 || len(w.AnyOf) > 0)
}
