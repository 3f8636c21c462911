package blame

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// maxFields bounds the lines for one event.
	maxFields = 1000

	patchPrefix    = "patch.webhook.admission.k8s.io/"
	mutationPrefix = "mutation.webhook.admission.k8s.io/"
)

// writes are the verbs of requests that change an object.
var writes = []string{"create", "update", "patch", "apply", "delete"}

// noWrites are subresources to which clients create something that is not stored.
var noWrites = []string{"attach", "exec", "portforward", "proxy", "token"}

// event emits the lines for an event if it is about the target.
func (l *Log) event(e *auditEvent) error {
	t, ref := l.target, &e.ObjectRef
	if e.Stage != "ResponseComplete" || !slices.Contains(writes, e.Verb) || slices.Contains(noWrites, ref.Subresource) ||
		!t.isResource(ref.APIGroup, ref.Resource) || !t.isHere(ref.Resource, ref.Namespace) {
		return nil
	}
	if u, err := url.Parse(e.RequestURI); err == nil && u.Query().Has("dryRun") {
		return nil
	}
	response := decodeObject(e.ResponseObject)
	name, uid := ref.Name, ref.UID
	if meta, ok := response["metadata"].(map[string]any); ok && response["kind"] != "Status" && ref.Subresource == "" {
		if s, ok := meta["name"].(string); ok && name == "" {
			name = s
		}
		if s, ok := meta["uid"].(string); ok {
			uid = s
		}
	}
	switch {
	case name == "" && e.Verb == "create":
		l.nameless.add(e, l.linesOf(e, nil))
		return nil
	case name != t.Name, uid != "" && t.UID != "" && uid != string(t.UID):
		return nil
	}
	l.Events++
	if e.Verb == "create" && ref.Subresource == "" {
		l.nameless.clear()
		l.last = nil
	} else if err := l.settleNameless(e); err != nil {
		return err
	}
	lines := l.linesOf(e, response)
	if e.Verb == "delete" {
		l.last = nil
	} else if response != nil && response["kind"] != "Status" && ref.Subresource == "" && e.ResponseStatus.Code < 300 {
		l.last = response
	}
	for _, line := range lines {
		if err := l.emit(line); err != nil {
			return err
		}
	}
	return nil
}

func decodeObject(text []byte) map[string]any {
	if len(text) == 0 {
		return nil
	}
	m, _ := tree.Decode(text)
	return m
}

// linesOf returns the lines for an event, as if it were about the target.
func (l *Log) linesOf(e *auditEvent, response map[string]any) []Line {
	user := e.User.Username
	if e.ImpersonatedUser != nil {
		user = e.ImpersonatedUser.Username
	}
	what := e.Verb
	if sub := e.ObjectRef.Subresource; sub != "" {
		what += " " + sub
	}
	made := eventLines{from: Line{Object: l.target.String(), User: user, Operation: what, Time: e.Received, Source: FromLog}}
	if e.ResponseStatus.Code >= 300 {
		made.outcomes(e, fmt.Sprintf("refused the request: code %d", e.ResponseStatus.Code))
		return made.lines
	}
	hooks := eventLines{from: made.from}
	hooks.webhooks(e)
	hooks.outcomes(e, "")
	made.user(e, hooks.lines, l.last, response)
	return append(made.lines, hooks.lines...) // in the order in which it happened
}

// eventLines are the lines that are made from one event.
type eventLines struct {
	from  Line
	lines []Line
	left  int
}

func (m *eventLines) add(field webhook.Word, by string, kind Kind, note string) {
	if len(m.lines) >= maxFields {
		if m.left++; m.left > 1 {
			last := &m.lines[len(m.lines)-1]
			last.Note = fmt.Sprintf("and %d fields more", m.left)
			return
		}
		field, by, kind, note = webhook.Word{}, "", "", "and 1 field more"
	}
	line := m.from
	line.Field, line.Cut, line.By, line.Kind, line.Note = field.Text, field.Cut, by, kind, note
	if kind == ByUser {
		line.User = ""
	}
	m.lines = append(m.lines, line)
}

// webhooks adds lines for the fields that webhooks wrote: those of mapd's policies from mapd's
// audit annotations, and those of other webhooks from the API server's.
func (m *eventLines) webhooks(e *auditEvent) {
	ours := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		hook, kind, _ := strings.Cut(key, "/")
		if kind != webhook.MutatedBy {
			continue
		}
		ours[hook] = true
		acted, more, err := webhook.ParseAnnotation(e.Annotations[key])
		for _, a := range acted {
			m.acted(&a)
		}
		if more > 0 {
			m.add(webhook.Word{}, hook, ByWebhook, fmt.Sprintf("%d policies more changed the object, which the annotation has no room for", more))
		}
		if err != nil {
			m.add(webhook.Word{}, hook, ByWebhook, "its annotation mutated-by cannot be read to the end")
		}
	}
	patched := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		if !strings.HasPrefix(key, patchPrefix) {
			continue
		}
		var p struct {
			Webhook string `json:"webhook"`
			Patch   []struct {
				Path string `json:"path"`
			} `json:"patch"`
		}
		if json.Unmarshal([]byte(e.Annotations[key]), &p) != nil || ours[p.Webhook] {
			continue
		}
		patched[p.Webhook] = true
		var paths []string
		for _, op := range p.Patch {
			paths = append(paths, op.Path)
		}
		slices.Sort(paths)
		for _, path := range slices.Compact(paths) {
			m.add(webhook.Word{Text: path}, cmp.Or(p.Webhook, "unknown"), ByWebhook, "")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		var p struct {
			Webhook string `json:"webhook"`
			Mutated bool   `json:"mutated"`
		}
		if !strings.HasPrefix(key, mutationPrefix) || json.Unmarshal([]byte(e.Annotations[key]), &p) != nil ||
			!p.Mutated || ours[p.Webhook] || patched[p.Webhook] {
			continue
		}
		patched[p.Webhook] = true
		m.add(webhook.Word{}, cmp.Or(p.Webhook, "unknown"), ByWebhook, "changed something; the log has no patch at level "+e.Level)
	}
}

func (m *eventLines) acted(a *webhook.Acted) {
	name := a.Name.String()
	for _, field := range a.Fields {
		m.add(field, name, ByPolicy, "")
	}
	switch {
	case a.More > 0:
		m.add(webhook.Word{}, name, ByPolicy, fmt.Sprintf("%d fields more, which the annotation has no room for", a.More))
	case len(a.Fields) == 0:
		m.add(webhook.Word{}, name, ByPolicy, "")
	}
}

// outcomes adds lines for policies that failed. refused is the note for policies because of which
// the request was refused; "" if it was not.
func (m *eventLines) outcomes(e *auditEvent, refused string) {
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		hook, kind, _ := strings.Cut(key, "/")
		note := ""
		switch kind {
		case webhook.FailedPolicies:
			note = refused
		case webhook.IgnoredFailures:
			note = "failed, and its failurePolicy is Ignore"
		}
		if note == "" {
			continue
		}
		acted, more, err := webhook.ParseAnnotation(e.Annotations[key])
		for _, a := range acted {
			m.add(webhook.Word{}, a.Name.String(), ByPolicy, note)
			m.lines[len(m.lines)-1].Failed = true
		}
		if more > 0 || err != nil {
			m.add(webhook.Word{}, hook, ByWebhook, "more of its policies "+note)
			m.lines[len(m.lines)-1].Failed = true
		}
	}
}

// user adds lines for what the user's request wrote, as far as the log has it. For a new object
// that is everything. If the log has the object before and after, it is the difference, without
// the fields that webhooks wrote in the same request (hooks). Else it is the fields of the patch.
func (m *eventLines) user(e *auditEvent, hooks []Line, last any, response map[string]any) {
	by := m.from.User
	add := func(paths []string, hooks []Line) {
		n := 0
		for _, path := range paths {
			if boring(path) || slices.ContainsFunc(hooks, func(l Line) bool { return l.Field != "" && within(path, l.Field) }) {
				continue
			}
			if n++; n <= maxFields/2 {
				m.add(webhook.Word{Text: path}, by, ByUser, "")
			}
		}
		if left := n - maxFields/2; left > 0 {
			m.add(webhook.Word{}, by, ByUser, fmt.Sprintf("%d fields more", left))
		}
	}
	switch sub := e.ObjectRef.Subresource; {
	case e.Verb == "delete" && sub == "":
		m.add(webhook.Word{}, by, ByUser, "deleted the object")
	case e.Verb == "create" && sub == "":
		m.add(webhook.Word{}, by, ByUser, "created the object: every field that no other line names")
	case last != nil && response != nil && response["kind"] != "Status" && sub == "":
		add(tree.Changed(last, any(response)), hooks)
	case (e.Verb == "patch" || e.Verb == "apply") && len(e.RequestObject) > 0:
		add(patchPaths(e.RequestObject), nil)
	default:
		m.add(webhook.Word{}, by, ByUser, "the log does not say which fields, at level "+e.Level)
	}
}

// boring reports whether a field is left out of a difference: the server writes it with every
// change, or it identifies the object.
func boring(path string) bool {
	return within(path, "/metadata/managedFields") || path == "/metadata/resourceVersion" || path == "/metadata/generation" ||
		path == "/apiVersion" || path == "/kind" || path == "/metadata/name" || path == "/metadata/namespace" || path == "/metadata/uid"
}

// patchPaths returns the JSON Pointers of the fields in a patch, which is a JSON Patch or an
// object.
func patchPaths(text []byte) []string {
	var ops []struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	if json.Unmarshal(text, &ops) == nil {
		var out []string
		for _, op := range ops {
			if op.Op != "test" {
				out = append(out, op.Path)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	if m := decodeObject(text); m != nil {
		return leaves(m, maxFields)
	}
	return nil
}
