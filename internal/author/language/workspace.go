// Package language answers one question: what should an editor show for these documents?
//
// It takes texts and returns diagnostics, completions, documentation, places and edits. It reads
// no files and knows no protocol, so the language server (internal/author/lsp) and the playground
// give the same answers. Documents may be incomplete or hostile, so the work for each question is
// bounded. Start reading at Workspace.
package language

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/fixproof"
	"github.com/mapd-project/mapd/internal/author/format"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Bounds of a Workspace, in bytes and documents.
const (
	MaxDocument  = 1 << 20
	MaxDocuments = 5_000
	maxTotal     = 64 << 20
)

// Options say what a Workspace knows besides its documents.
type Options struct {
	// Lint are those of diagnostics; the zero value is the newest release.
	Lint lint.Options
	// Fixable makes Diagnostics try each fix of the linter, to find out whether Actions has it.
	// That takes longer than everything else.
	Fixable bool
}

// Workspace is a set of documents that belong together. It is safe for concurrent use.
type Workspace struct {
	opts     Options
	language func() (*cel.Env, error)
	linted   lint.Memory

	mu    sync.Mutex
	files map[string]*file
	total int
	types *openapi.Types // nil: to be made from the files
}

// file is a document of the workspace. Its text does not change.
type file struct {
	name, text  string
	object      bool                         // not for the linter
	definitions []*unstructured.Unstructured // CustomResourceDefinitions
	last        *remembered
	heads       func() []head
	checked     *checked
}

// remembered caches results for parts of a file.
type remembered struct {
	sync.Mutex
	documents map[int]*manifest.Document
}

// New returns a Workspace without documents.
func New(opts Options) *Workspace {
	if opts.Lint.Prove == nil {
		opts.Lint.Prove = new(fixproof.Prover).Prove
	}
	if opts.Lint.Oldest == 0 {
		opts.Lint.Oldest, opts.Lint.Newest = lint.CurrentMinor, lint.CurrentMinor
	}
	return &Workspace{opts: opts, files: map[string]*file{}, language: sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(cel.Options{Version: fmt.Sprintf("1.%d", opts.Lint.Newest)})
	})}
}

// ErrUnknown is returned for a document that the workspace does not have.
var ErrUnknown = errors.New("the document is not open")

var errFull = errors.New("there are too many documents")

// Set adds or replaces a document. If there is no room, it returns an error and changes nothing.
func (w *Workspace) Set(name, text string) error { return w.set(name, text, false) }

// SetObject is Set for an object on which policies are evaluated. The linter does not read it.
func (w *Workspace) SetObject(name, text string) error { return w.set(name, text, true) }

func (w *Workspace) set(name, text string, object bool) error {
	if len(text) > MaxDocument {
		return errTooLong
	}
	f := &file{name: name, text: text, object: object, last: &remembered{}, checked: &checked{}}
	f.heads = sync.OnceValue(func() []head { return heads(name, text) })
	if strings.Contains(text, api.DefinitionKind) && !object {
		f.definitions = definitions(name, text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.files[name]
	total := w.total + len(text)
	if old != nil {
		total -= len(old.text)
		f.last = old.last
	}
	if total > maxTotal || old == nil && len(w.files) >= MaxDocuments {
		return errFull
	}
	if len(f.definitions) > 0 || old != nil && len(old.definitions) > 0 {
		w.types = nil
	}
	w.files[name], w.total = f, total
	return nil
}

// Remove drops a document.
func (w *Workspace) Remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.files[name]; old != nil {
		if len(old.definitions) > 0 {
			w.types = nil
		}
		w.total -= len(old.text)
		delete(w.files, name)
	}
}

// Names are those of all documents.
func (w *Workspace) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.files))
}

// Text returns the text of a document.
func (w *Workspace) Text(name string) (string, bool) {
	f, err := w.file(name)
	if err != nil {
		return "", false
	}
	return f.text, true
}

func (w *Workspace) file(name string) (*file, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.files[name]; f != nil {
		return f, nil
	}
	return nil, ErrUnknown
}

func definitions(name, text string) (out []*unstructured.Unstructured) {
	for d, err := range manifest.ReadStream(name, strings.NewReader(text)) {
		if err != nil || d.Object == nil {
			continue
		}
		if gvk := d.Object.GroupVersionKind(); gvk.Group == api.DefinitionGroup && gvk.Kind == api.DefinitionKind {
			out = append(out, d.Object)
		}
	}
	return out
}

// kinds are those that are built in, and those of the workspace's definitions.
func (w *Workspace) kinds() *openapi.Types {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.types != nil {
		return w.types
	}
	sources := []openapi.Source{openapi.Builtin()}
	for _, f := range w.sorted() {
		for _, d := range f.definitions {
			if custom, err := openapi.CRDs(d); err == nil {
				sources = append(sources, custom)
			}
		}
	}
	w.types = openapi.New(sources...)
	return w.types
}

// sorted are the files by name. The caller has the lock.
func (w *Workspace) sorted() []*file {
	var out []*file
	for _, f := range w.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *file) int { return strings.Compare(a.name, b.name) })
	return out
}

// sources returns the documents for the linter. If of is not nil, these are only that document
// and those with definitions, on which all fixes depend.
func (w *Workspace) sources(of *file) []lint.Source {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []lint.Source
	for _, f := range w.sorted() {
		if f.object {
			continue
		}
		if of == nil || f.name != of.name && len(f.definitions) > 0 {
			out = append(out, lint.Source{Name: f.name, Data: []byte(f.text)})
		}
	}
	if of != nil {
		out = append(out, lint.Source{Name: of.name, Data: []byte(of.text)})
	}
	return out
}

// Diagnostic is what is wrong at a place.
type Diagnostic struct {
	Range    Range         `json:"range"`
	Severity lint.Severity `json:"severity"`
	Rule     string        `json:"rule"`
	Message  string        `json:"message"`
	Fixable  bool          `json:"fixable,omitempty"` // Actions has an edit that mends it; see Options
}

// maxDiagnostics bounds those of a document.
const maxDiagnostics = 500

// Diagnostics returns the findings of "mapd lint" by the names of documents, without documents
// that have none. It checks only what has changed, and what depends on that.
func (w *Workspace) Diagnostics(ctx context.Context) (map[string][]Diagnostic, error) {
	sources, opts := w.sources(nil), w.opts.Lint
	if !w.opts.Fixable {
		opts.Prove = nil
	}
	r, err := w.linted.Run(ctx, sources, opts)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, s := range sources {
		texts[s.Name] = string(s.Data)
	}
	out := w.misfits()
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Object == "" && !isPolicy(texts[f.File]) {
			continue
		}
		if len(out[f.File]) < maxDiagnostics {
			out[f.File] = append(out[f.File], diagnostic(texts[f.File], f))
		}
	}
	return out, nil
}

// isPolicy reports whether a text may be about policies. Templates of charts and other files
// that mapd does not read are left alone.
func isPolicy(text string) bool { return strings.Contains(text, "AdmissionPolicy") }

func diagnostic(text string, f *lint.Finding) Diagnostic {
	d := Diagnostic{Range: rangeAt(text, f.Line, f.Column), Severity: f.Severity, Rule: f.Rule, Message: f.Message, Fixable: f.Fixable || f.Near != ""}
	if at, ok := writtenAt(text, f.Line, f.Column, f.Written); ok {
		d.Range = rangeOf(text, at, at+len(f.Written))
	}
	return d
}

// writtenAt returns the offset of a word at a place or, on its line, before it: the place of a
// field in an expression may be that of its value.
func writtenAt(text string, line, column int, word string) (int, bool) {
	if word == "" {
		return 0, false
	}
	at := offsetAt(text, max(line, 1), max(column, 1))
	if rest := text[at:]; strings.HasPrefix(rest, word) {
		return at, true
	}
	begin := offsetAt(text, max(line, 1), 1)
	i := strings.LastIndex(text[begin:at], word)
	return begin + i, i >= 0
}

// word is what an error at its beginning is about.
var word = regexp.MustCompile(`^(?:[\pL\pN_]+(?:\.\??[\pL\pN_]+)*|"[^"\n]*"|'[^'\n]*'|[^\s\pL\pN_]{1,2})`)

// rangeAt returns the range of a finding, which is the word at its place, or the line.
func rangeAt(text string, line, column int) Range {
	start := offsetAt(text, max(line, 1), max(column, 1))
	end, _ := lineEnd(text[start:])
	rest := text[start : start+end]
	if column <= 0 {
		return rangeOf(text, start, start+len(strings.TrimRight(rest, " \t")))
	}
	return rangeOf(text, start, start+len(word.FindString(rest)))
}

// Format returns the edits that format the expressions of a document. Errors have the place
// of what cannot be parsed.
func (w *Workspace) Format(ctx context.Context, name string) ([]Edit, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	if !isPolicy(f.text) {
		return nil, nil
	}
	out, errs := format.Source(ctx, name, []byte(f.text))
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return difference(f.text, string(out)), nil
}

// Action is an edit that fixes something.
type Action struct {
	Title string `json:"title"`
	// Diagnostic is the diagnostic that the edit removes; nil for an action that fixes
	// everything.
	Diagnostic *Diagnostic `json:"diagnostic,omitempty"`
	Edits      []Edit      `json:"edits"`
}

// maxActions bounds the findings for which a single fix is tried per question.
const maxActions = 5

// Actions returns edits that fix the findings in a range, as "mapd lint --fix" does, and one that
// fixes the whole document. Each of these was tried: the policy compiles afterwards. It also
// returns edits that only the author can decide about: a similar name for an unknown one, a
// required field, a binding for a policy without one.
func (w *Workspace) Actions(ctx context.Context, name string, at Range) ([]Action, error) {
	f, err := w.file(name)
	if err != nil {
		return nil, err
	}
	sources := w.sources(f)
	r, err := lint.Run(ctx, sources, w.opts.Lint)
	if err != nil {
		return nil, err
	}
	var out, others []Action
	fixable := 0
	for i := range r.Findings {
		finding := &r.Findings[i]
		if finding.File == name && finding.Near != "" {
			others = append(others, nearAction(f.text, finding, at)...)
		}
		if finding.File != name || !finding.Fixable {
			continue
		}
		fixable++
		d := diagnostic(f.text, finding)
		if before(d.Range.End, at.Start) || before(at.End, d.Range.Start) || len(out) == maxActions {
			continue
		}
		edits, err := w.mended(ctx, f, sources, func(x *lint.Finding) bool {
			return x.Line == finding.Line && x.Column == finding.Column && x.Rule == finding.Rule && x.Message == finding.Message
		})
		if err != nil {
			return nil, err
		}
		if len(edits) > 0 {
			out = append(out, Action{Title: "Fix: " + finding.Message, Diagnostic: &d, Edits: edits})
		}
	}
	out = slices.Concat(out, others, w.corrections(f, at), w.completions(f, at), w.bindingFor(f, r.Findings, at))
	if fixable > 0 {
		edits, err := w.mended(ctx, f, sources, nil)
		if err != nil {
			return nil, err
		}
		if len(edits) > 0 {
			out = append(out, Action{Title: "Fix all that mapd can mend", Edits: edits})
		}
	}
	return out, nil
}

// mended returns the edits of a file that mend some of its findings.
func (w *Workspace) mended(ctx context.Context, f *file, sources []lint.Source, which func(*lint.Finding) bool) ([]Edit, error) {
	fixed, err := lint.FixSome(ctx, sources, w.opts.Lint, func(x *lint.Finding) bool { return x.File == f.name && (which == nil || which(x)) })
	if err != nil {
		return nil, err
	}
	for _, x := range fixed {
		if x.Name == f.name && !bytes.Equal(x.Data, []byte(f.text)) {
			return difference(f.text, string(x.Data)), nil
		}
	}
	return nil, nil
}

func before(a, b Position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Character < b.Character
}
