package mapd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// A Note says something about a result that is not an error but that a person should know: an
// assumption that mapd made, or what has no effect and why.
type Note struct {
	Kind NoteKind
	// About are the names of the objects that the note is about.
	About []string
	text  string
}

// String returns the note as a sentence.
func (n Note) String() string { return n.text }

// NoteKind identifies the kind of a note, for programs that write their own text.
type NoteKind uint8

const (
	// Other notes are identified by their text only.
	Other NoteKind = iota
	// Unbound policies have no binding, so they have no effect.
	Unbound
	// BoundToAll policies have no binding and run because of Options.Unbound.
	BoundToAll
	// UnknownParams are kinds of parameters that no document defines.
	UnknownParams
	// UnknownKind is the kind of a custom object that no document defines, and the resource
	// that mapd assumes for it.
	UnknownKind
	// TakenAsIs is the kind of an object that a server would reject. Only mutators run on it,
	// which need no schema, so it is evaluated without one.
	TakenAsIs
	// Mistake is a part of a policy, the first of About, that always fails when it is
	// evaluated, or a document whose kind is misspelt.
	Mistake
	// Unasked are mutators with external data, which do not run without Options.Resolver.
	Unasked
	// OnlyGenerated are mutators that run only on objects that workloads create.
	OnlyGenerated
	// NoNamespace are Namespaces whose labels or fields a policy reads and that no document
	// has.
	NoNamespace
	// NoRBAC says that a policy asked the authorizer, and that no document is an RBAC object.
	NoRBAC
	// Unconverted is a mutate rule of one of Kyverno's policies that was not converted and
	// changes nothing.
	Unconverted
)

func note(kind NoteKind, about []string, format string, args ...any) Note {
	return Note{kind, about, fmt.Sprintf(format, args...)}
}

// Notes returns what has no effect among the documents, and what may have another effect than
// its author expects.
func (p *Policies) Notes() []Note {
	var notes []Note
	l := p.loaded
	list := func(kind NoteKind, names []string, separator, text string) {
		if len(names) > 0 {
			notes = append(notes, note(kind, names, "%s: %s", text, strings.Join(names, separator)))
		}
	}
	if p.unbound {
		list(BoundToAll, l.Unbound, ", ", "no binding, run as if bound to everything")
	} else {
		list(Unbound, l.Unbound, ", ", "no binding, so no effect")
	}
	list(Other, l.Dangling, ", ", "bindings whose policy was not given, so no effect")
	list(UnknownParams, l.UnknownParams, "; ", "unknown paramKind, give its CustomResourceDefinition")
	list(Other, l.NotLoaded(), ", ", "policies of Kubewarden do not run here, since this program has no WebAssembly runtime")
	for _, text := range slices.Concat(l.Misspelt, l.Apart, l.Unheeded) {
		notes = append(notes, note(Mistake, nil, "%s", text))
	}
	for _, x := range l.Exceptions() {
		for _, text := range x.Problems(time.Now()) {
			notes = append(notes, note(Mistake, []string{x.Name()}, "exception %s %s", x.Name(), text))
		}
	}
	var documents map[string]*manifest.Document
	for i, warnings := range p.warned.of(l.Policies, l.Types) {
		if len(warnings) > 0 && documents == nil {
			documents = l.PolicyDocuments()
		}
		name := l.Policies[i].Name()
		for _, text := range warningTexts(l.Policies[i], warnings, documents[name]) {
			notes = append(notes, note(Mistake, []string{name}, "%s", text))
		}
	}
	for _, text := range slices.Concat(l.Older, l.Tripped) {
		notes = append(notes, note(Other, nil, "%s", text))
	}
	for _, r := range l.Kyverno() {
		kind := Other
		if r.Unconverted != "" {
			kind = Unconverted
		}
		if text := r.Text(); text != "" {
			notes = append(notes, note(kind, []string{r.Name}, "%s", text))
		}
	}
	list(Other, l.NotMutating(), "; ", "rules of Kyverno that do not mutate are left alone")
	for _, m := range l.Mutators() {
		about := []string{m.Mutator.ID()}
		if !m.Running {
			kind := Other
			switch {
			case m.Generated:
				kind = OnlyGenerated
			case m.Mutator.Asks() && m.Conflict == nil:
				kind = Unasked
			}
			notes = append(notes, note(kind, about, "%s does not run: %s", m.Mutator.ID(), m.Reason))
		}
		for _, n := range m.Notes {
			if m.Generated && n.Field == "spec.match.source" {
				continue // said above
			}
			notes = append(notes, note(Other, about, "%s: %s: %s", m.Mutator.ID(), n.Field, n.Message))
		}
	}
	return notes
}

// warningTexts returns the texts of the warnings about a policy. Warnings about one place for
// several kinds become one text. The position in a text is the line and the column in the file,
// or those in the expression for a policy of a cluster.
func warningTexts(p *policy.Policy, warnings []policy.Warning, d *manifest.Document) []string {
	var texts []string
	for i := 0; i < len(warnings); {
		w, messages := warnings[i], []string{}
		for ; i < len(warnings) && warnings[i].Field == w.Field && warnings[i].Line == w.Line && warnings[i].Column == w.Column; i++ {
			messages = append(messages, warnings[i].Message)
		}
		w.Message = strings.Join(messages, "; ")
		text := fmt.Sprintf("%s: %s", p.Name(), w)
		if d != nil && d.File != d.Name() { // one of a cluster has its own name for a file
			if expression, ok := applied(p, w.Field); ok {
				pos := d.PosIn(w.Field, expression, w.Line, w.Column)
				text = fmt.Sprintf("%s:%d:%d: %s: %s: %s", d.File, pos.Line, pos.Column, p.Name(), w.Field, w.Message)
			}
		}
		texts = append(texts, text)
	}
	return texts
}

// applied returns the apply configuration expression of the policy at field, which is a path.
func applied(p *policy.Policy, field string) (string, bool) {
	mutations, i := p.Object().Spec.Mutations, 0
	if n, err := fmt.Sscanf(field, "spec.mutations[%d].applyConfiguration.expression", &i); n != 1 || err != nil || i >= len(mutations) || mutations[i].ApplyConfiguration == nil {
		return "", false
	}
	return mutations[i].ApplyConfiguration.Expression, true
}

// warned caches the warnings about policies, since finding them takes as long as compiling.
type warned struct {
	mu    sync.Mutex
	known map[*policy.Policy][]policy.Warning
}

// again returns a cache that starts with the entries of w, for a set of policies that has some
// in common.
func (w *warned) again() *warned {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &warned{known: w.known} // of replaces the map and never modifies it
}

func (w *warned) of(policies []*policy.Policy, types *openapi.Types) [][]policy.Warning {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, now := make([][]policy.Warning, len(policies)), make(map[*policy.Policy][]policy.Warning, len(policies))
	for i, p := range policies {
		warnings, ok := w.known[p]
		if !ok {
			warnings = policy.Warnings(p, types)
		}
		out[i], now[p] = warnings, warnings
	}
	w.known = now
	return out
}

// exempt has the namespaces that mapd's webhook does not reach in a cluster, but in which
// policies changed objects here.
type exempt struct {
	own   string // mapd's namespace
	mu    sync.Mutex
	names map[string]bool
}

// look records the namespace of a request if a policy changed an object there that mapd's
// webhook would not receive.
func (e *exempt) look(native map[string]bool, req *policy.Request, d *engine.Decision) {
	if !d.Changed || req.Namespace != e.own && !slices.Contains(api.ExemptNamespaces(), req.Namespace) {
		return
	}
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Outcome == engine.Changed && (s.Stage != engine.PolicyStage || !native[s.Policy]) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.names[req.Namespace] = true
			return
		}
	}
}

func (e *exempt) namespaces() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.names))
}

// readsNamespaces reports whether a policy may read more of a Namespace than its name. It
// assumes that mutators and module policies do.
func (p *Policies) readsNamespaces() bool {
	l := p.loaded
	selects := func(r *admissionregistrationv1.MatchResources) bool {
		if r == nil || r.NamespaceSelector == nil {
			return false
		}
		for key := range r.NamespaceSelector.MatchLabels {
			if key != corev1.LabelMetadataName {
				return true
			}
		}
		return slices.ContainsFunc(r.NamespaceSelector.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key != corev1.LabelMetadataName })
	}
	return len(l.Mutators())+len(l.Modules()) > 0 ||
		slices.ContainsFunc(l.Index.Bindings(), func(b *binding.Binding) bool { return selects(b.Object().Spec.MatchResources) }) ||
		slices.ContainsFunc(l.Policies, func(p *policy.Policy) bool {
			spec := p.Object().Spec
			text, err := json.Marshal(spec)
			return err != nil || selects(spec.MatchConstraints) || bytes.Contains(text, []byte("namespaceObject"))
		})
}

// Assumed returns what evaluations until now assumed: Namespaces that no document has, answers
// of the authorizer, and namespaces that mapd's webhook does not reach.
func (p *Policies) Assumed() []Note {
	var notes []Note
	if names := p.loaded.Namespaces.Synthesised(); len(names) > 0 {
		kind := Other
		if p.readsNamespaces() {
			kind = NoNamespace
		}
		notes = append(notes, note(kind, names, "Namespaces not given, taken as Active with only the label kubernetes.io/metadata.name: %s", words.Some(names, 10)))
	}
	if p.loaded.AuthorizerAsked() && !p.loaded.HasRBAC {
		notes = append(notes, note(NoRBAC, nil, "no RBAC objects given: every check of a policy's authorizer was answered with no opinion"))
	}
	names := p.exempt.namespaces()
	if i := slices.Index(names, p.exempt.own); i >= 0 {
		notes = append(notes, note(Other, names[i:i+1], "in a cluster mapd leaves objects in %s, its own namespace, as they are; an API server's own policies run there", names[i]))
		names = slices.Concat(names[:i], names[i+1:])
	}
	if len(names) > 0 {
		notes = append(notes, note(Other, names, "in a cluster mapd leaves objects in %s as they are, unless its --exempt-namespace says otherwise; an API server's own policies run there", strings.Join(names, " and ")))
	}
	return notes
}
