package lint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	kyverno "github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// A Memory lints files repeatedly, of which few change between two runs, as in an editor. It
// finds what [Run] finds, but checks again only documents that have changed and those that depend
// on them: policies depend on their bindings, and all documents on CustomResourceDefinitions. The
// zero value is ready to use; all runs have to have the same Options. It is safe for concurrent
// use; runs wait for each other.
type Memory struct {
	mu    sync.Mutex
	known memory
	fixes map[string]tried // by file
}

// tried is the result of fixing one file.
type tried struct {
	of       []Source // the file and those that its fixes depend on, as they were
	verdicts map[fixID]string
}

// Run works like the function Run, and reuses the results of the last run.
func (m *Memory) Run(ctx context.Context, sources []Source, opts Options) (*Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.known.run(ctx, sources, opts)
	if err == nil && opts.Prove != nil {
		err = m.mark(ctx, r, sources, opts)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// mark sets Fixable or NotFixed of each finding that has a fix.
func (m *Memory) mark(ctx context.Context, r *Result, sources []Source, opts Options) error {
	now := map[string]tried{}
	defer func() {
		if ctx.Err() != nil {
			maps.Copy(m.fixes, now) // after an interruption, the next run reuses them
			return
		}
		m.fixes = now
	}()
	if m.fixes == nil {
		m.fixes = map[string]tried{}
	}
	files := map[string]bool{}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.fix != nil {
			files[f.File] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		of := m.known.related(name, sources)
		t, ok := m.fixes[name]
		if !ok || !slices.EqualFunc(t.of, of, func(a, b Source) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }) {
			w := &mender{opts: opts, files: slices.Clone(of), memory: m.known, which: func(f *Finding) bool { return f.File == name }}
			if err := w.mend(ctx); err != nil {
				return err
			}
			t = tried{of, w.verdicts()}
		}
		now[name] = t
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.fix != nil {
			f.NotFixed = now[f.File].verdicts[f.fixID()]
			f.Fixable = f.NotFixed == ""
		}
	}
	return nil
}

// memory has what the last run read, compiled and found. It may be copied: what its fields refer
// to is replaced and never changed, except for subjects, which only one run at a time may use.
type memory struct {
	texts       manifest.Memory
	docs        []*manifest.Document
	definitions []*manifest.Document
	types       *openapi.Types
	presence    map[string]presence
	policies    map[*manifest.Document]*knownPolicy
	bindings    map[*manifest.Document]compile.Binding
	found       map[*manifest.Document]map[string]found // by documents and then rules
}

// knownPolicy is a compiled policy with the findings for its present bindings.
type knownPolicy struct {
	compiled compile.Policy
	subject  *subject
	bindings []*manifest.Document
}

// found has the findings of one rule in one policy or document.
type found struct {
	findings []Finding
	more     bool
}

// run does the work of Run, without marking fixes.
func (m *memory) run(ctx context.Context, sources []Source, opts Options) (*Result, error) {
	if opts.Oldest < OldestMinor || opts.Oldest > opts.Newest || opts.Newest > NewestMinor {
		return nil, fmt.Errorf("minors %d to %d: only %d to %d are known", opts.Oldest, opts.Newest, OldestMinor, NewestMinor)
	}
	s := &set{ctx: ctx, opts: opts, count: map[*manifest.Document]int{}}
	if err := m.read(s, sources); err != nil {
		return nil, err
	}
	if err := m.compile(s); err != nil {
		return nil, err
	}
	var rules []Rule
	for _, r := range ruleList() {
		if len(opts.Only) == 0 || slices.Contains(opts.Only, r.Name) {
			rules = append(rules, r)
		}
	}
	if err := m.look(s, rules); err != nil {
		return nil, err
	}
	for _, r := range rules {
		for _, p := range s.policies {
			s.take(p.found[r.Name])
			if r.beside && p.sound {
				r.policy(&pass{set: s, rule: &r, subject: p})
			}
		}
		if r.document != nil {
			for _, d := range slices.Concat(s.mutators, s.kyverno) {
				s.take(m.found[d][r.Name])
			}
		}
		if r.set != nil {
			r.set(&pass{set: s, rule: &r})
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return s.result(sources), nil
}

// read parses the sources, and drops results for documents that no longer exist.
func (m *memory) read(s *set, sources []Source) error {
	texts := make([]manifest.Text, len(sources))
	for i, src := range sources {
		texts[i] = manifest.Text{Name: src.Name, Content: string(src.Data)}
	}
	docs, errs := m.texts.Read(texts)
	for _, err := range errs {
		switch at := (*manifest.PositionError)(nil); {
		case errors.As(err, &at) && kindless(at.Err):
			// Directories may have files that are no manifests, such as values of a chart or
			// answers of a provider.
		case errors.As(err, &at):
			s.readErrors = append(s.readErrors, Finding{Rule: invalidRule, Severity: Error, File: at.File, Document: at.Document,
				Line: max(at.Line, 1), Column: at.Column, Message: at.Err.Error(), at: at, unread: true})
		default:
			return err
		}
	}
	m.docs = slices.DeleteFunc(docs, func(d *manifest.Document) bool { return d.Object == nil })
	var definitions []*manifest.Document
	for _, d := range m.docs {
		if gvk := d.Object.GroupVersionKind(); gvk.Group == api.DefinitionGroup && gvk.Kind == api.DefinitionKind {
			definitions = append(definitions, d)
		}
	}
	if m.types == nil || !slices.Equal(definitions, m.definitions) {
		*m = memory{texts: m.texts, docs: m.docs, definitions: definitions, types: openapi.New(openapi.Builtin()), presence: map[string]presence{}}
		crds := make([]*unstructured.Unstructured, len(definitions))
		for i, d := range definitions {
			crds[i] = d.Object
		}
		if custom, err := openapi.CRDs(crds...); err == nil {
			m.types = openapi.New(openapi.Builtin(), custom)
		}
	}
	m.policies, m.bindings, m.found = only(m.policies, m.docs), only(m.bindings, m.docs), only(m.found, m.docs)
	s.types, s.presence = m.types, m.presence
	return nil
}

// only returns the entries of a map for some documents.
func only[V any](of map[*manifest.Document]V, docs []*manifest.Document) map[*manifest.Document]V {
	out := make(map[*manifest.Document]V, len(of))
	for _, d := range docs {
		if v, ok := of[d]; ok {
			out[d] = v
		}
	}
	return out
}

// compile sorts the documents by their kind, and compiles policies and bindings.
func (m *memory) compile(s *set) error {
	named := map[string][]*bound{} // bindings by the group and name of their policy
	var policies []*manifest.Document
	for _, d := range m.docs {
		gvk := d.Object.GroupVersionKind()
		switch {
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.PolicyKind:
			policies = append(policies, d)
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.BindingKind:
			b, ok := m.bindings[d]
			if !ok {
				text, err := json.Marshal(d.Object.Object)
				if err != nil {
					return err
				}
				b = compile.NewBinding(text, compile.New)
				m.bindings[d] = b
			}
			is := &bound{doc: d, object: b.Object, faults: api.FaultsOf(b.Err)}
			if s.bindings = append(s.bindings, is); is.object != nil {
				key := gvk.Group + "/" + is.object.Spec.PolicyName
				named[key] = append(named[key], is)
			}
		case gvk.Group == "" && gvk.Kind == "Namespace":
			s.namespaces = append(s.namespaces, d.Object)
		case legacy.IsMutator(gvk):
			s.mutators = append(s.mutators, d)
		case api.IsException(gvk):
			s.exceptions = append(s.exceptions, d)
		case kyverno.Is(gvk):
			s.kyverno = append(s.kyverno, d)
		default:
			if group(d) == api.NativeGroup || strings.TrimSuffix(gvk.Kind, "Binding") == api.PolicyKind {
				s.misspelt = append(s.misspelt, d)
			}
			s.others = append(s.others, d.Object)
		}
	}
	for _, d := range policies {
		k, err := m.policy(s, d)
		if err != nil {
			return err
		}
		var bindings []*bound
		if k.compiled.Object != nil {
			bindings = named[group(d)+"/"+k.compiled.Object.Name]
		}
		if k.subject == nil || !slices.EqualFunc(k.bindings, bindings, func(d *manifest.Document, b *bound) bool { return d == b.doc }) {
			k = &knownPolicy{compiled: k.compiled, subject: &subject{doc: d, object: k.compiled.Object, faults: api.FaultsOf(k.compiled.Err), program: k.compiled.Program}}
			for _, b := range bindings {
				k.bindings = append(k.bindings, b.doc)
			}
			if err := k.subject.understand(s); err != nil {
				return err
			}
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			m.policies[d] = k
		}
		for _, b := range bindings {
			b.policy = k.subject
		}
		k.subject.bindings = bindings
		s.policies = append(s.policies, k.subject)
	}
	return nil
}

// policy returns the knownPolicy for a document, and compiles the policy if it has changed.
func (m *memory) policy(s *set, d *manifest.Document) (*knownPolicy, error) {
	if k := m.policies[d]; k != nil {
		return k, nil
	}
	text, err := json.Marshal(d.Object.Object)
	if err != nil {
		return nil, err
	}
	env, err := language(s.opts.Newest)
	if err != nil {
		return nil, err
	}
	k := &knownPolicy{compiled: compile.NewPolicy(s.ctx, text, compile.New, policy.Deps{Env: env, Types: s.types})}
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx) // the compiler may have been interrupted
	}
	m.policies[d] = k
	return k, nil
}

// look runs rules on those policies and documents that have changed since the last run.
func (m *memory) look(s *set, rules []Rule) error {
	each := func(apply func(*pass, Rule) bool) (map[string]found, error) {
		out := map[string]found{}
		for _, r := range rules {
			own := *s
			own.findings, own.count, own.more = nil, map[*manifest.Document]int{}, false
			if apply(&pass{set: &own, rule: &r}, r) && (len(own.findings) > 0 || own.more) {
				out[r.Name] = found{own.findings, own.more}
			}
			if s.ctx.Err() != nil {
				return nil, context.Cause(s.ctx)
			}
		}
		return out, nil
	}
	for _, p := range s.policies {
		if !p.sound || p.found != nil {
			continue
		}
		found, err := each(func(on *pass, r Rule) bool {
			if r.policy == nil || r.beside {
				return false
			}
			on.subject = p
			r.policy(on)
			return true
		})
		if err != nil {
			delete(m.policies, p.doc) // interrupted within a rule, so it cannot be used again
			return err
		}
		p.found, p.presence = found, nil
	}
	for _, d := range slices.Concat(s.mutators, s.kyverno) {
		if m.found[d] != nil {
			continue
		}
		found, err := each(func(on *pass, r Rule) bool {
			if r.document != nil {
				r.document(on, d)
			}
			return r.document != nil
		})
		if err != nil {
			return err
		}
		m.found[d] = found
	}
	return nil
}

// take adds the findings that a rule had in an earlier run.
func (s *set) take(f found) {
	s.more = s.more || f.more
	for i := range f.findings {
		if s.counted(f.findings[i].doc) {
			s.findings = append(s.findings, f.findings[i])
		}
	}
}

// related returns a file and the files on which the effect of a fix in it depends: those with
// CustomResourceDefinitions, and those with policies and bindings that belong to its own.
func (m *memory) related(file string, sources []Source) (out []Source) {
	names := map[string]bool{file: true}
	for _, d := range m.definitions {
		names[d.File] = true
	}
	for d, k := range m.policies {
		for _, b := range k.bindings {
			switch file {
			case d.File:
				names[b.File] = true
			case b.File:
				names[d.File] = true
			}
		}
	}
	for _, s := range sources {
		if names[s.Name] {
			out = append(out, s)
		}
	}
	return out
}
