package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Limits, so that the memory of an audit does not depend on the number of objects.
const (
	maxPolicies = 20_000 // pairs of policy and binding
	maxFields   = 20_000 // names of fields, of all policies together
	maxValue    = 256    // bytes of a value in a difference
	maxChanges  = 50     // fields of one object
	maxText     = 300    // bytes of an error
	maxKept     = 8 << 20
)

// Result is what policies do to one object that they change, refuse or fail for.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Changes are the fields that differ, without the values of Secrets; a long value is cut.
	Changes []Change `json:"changes,omitempty"`
	// MoreChanges is the number of further changes.
	MoreChanges int `json:"moreChanges,omitempty"`
	// Replaces describes the Pods that a write would replace; nil: none.
	Replaces *Replacement `json:"replaces,omitempty"`
	// By are the policies that had an effect, in the order in which they ran.
	By []Actor `json:"by,omitempty"`
	// Owner is who applies the object from Git, see GitOpsOwner.
	Owner string `json:"owner,omitempty"`
	// Denied is the reason why the object would be refused. With Options.Base, it is also set if
	// only the base refuses the object, see DeniedBefore.
	Denied       string `json:"denied,omitempty"`
	DeniedBefore string `json:"deniedBefore,omitempty"`
	// Excepted are the exceptions that hold for the object, with Asking.Exceptions.
	Excepted []Excepted `json:"excepted,omitempty"`
	// Error is why the object could not be evaluated.
	Error string `json:"error,omitempty"`
	// Resource is that which was listed, and UID that of the object.
	Resource Resource  `json:"-"`
	UID      types.UID `json:"-"`
	// Controller is the controller of the object; nil if it has none.
	Controller *metav1.OwnerReference `json:"-"`
}

// Change is one field that differs.
type Change struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
	Moved  bool   `json:"moved,omitempty"`
}

// Actor is a policy, running because of one of its bindings.
type Actor struct {
	// Stage is the name of the stage; empty for mapd's policies.
	Stage   string `json:"stage,omitempty"`
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	// Mode is empty for a policy that is enforced.
	Mode   string   `json:"mode,omitempty"`
	Fields []string `json:"fields,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// Title returns the object as messages call it, such as "Pod shop/web".
func (r *Result) Title() string {
	if r.Namespace != "" {
		return r.Kind + " " + r.Namespace + "/" + r.Name
	}
	return r.Kind + " " + r.Name
}

// Diff returns the changes for internal/output/report.
func (r *Result) Diff() []report.Change {
	out := make([]report.Change, len(r.Changes))
	for i, c := range r.Changes {
		out[i] = report.Change(c)
	}
	return out
}

// cut returns the changes within the limits of a Result.
func cut(changes []report.Change) (out []Change, more int) {
	if len(changes) > maxChanges {
		changes, more = changes[:maxChanges], len(changes)-maxChanges
	}
	for _, c := range changes {
		out = append(out, Change{short(c.Path, maxText), shorten(c.Before), shorten(c.After), c.Moved})
	}
	return out, more
}

// shorten returns a value, or the beginning of its text if that is long.
func shorten(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v
	case string:
		return short(v, maxValue)
	}
	text, err := tree.AppendJSON(nil, v)
	if err != nil || len(text) > maxValue {
		return short(string(text), maxValue)
	}
	return v
}

// short returns the beginning of a long text and how long it is.
func short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", words.Cut(s, most), len(s))
}

// Totals count objects.
type Totals struct {
	// Objects were evaluated. Of those, Changed would change, Denied would be refused, and for
	// Failed a policy fails; an object may count in several. Unread could not be evaluated.
	Objects int `json:"objects"`
	Changed int `json:"changed"`
	Denied  int `json:"denied"`
	Failed  int `json:"failed"`
	Unread  int `json:"unread,omitempty"`
	// Exempt are in namespaces that no policy reaches.
	Exempt   int            `json:"exempt,omitempty"`
	Kinds    []KindTotal    `json:"kinds,omitempty"`
	Policies []*PolicyTotal `json:"policies,omitempty"`
	// Drift counts the objects that would differ from Git, by who applies them.
	Drift map[string]int `json:"drift,omitempty"`
	// OtherFields and OtherPolicies count changes that exceeded the limits for counting by field
	// and by policy.
	OtherFields   int `json:"otherFields,omitempty"`
	OtherPolicies int `json:"otherPolicies,omitempty"`

	fields int
	index  map[string]*PolicyTotal
}

// KindTotal counts the objects of a kind.
type KindTotal struct {
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	Version  string `json:"version"`
	Objects  int    `json:"objects"`
	Changed  int    `json:"changed"`
	Denied   int    `json:"denied"`
	Failed   int    `json:"failed"`
	// Unreadable is the reason why the kind could not be listed completely.
	Unreadable string `json:"unreadable,omitempty"`
}

// PolicyTotal counts the effects of a policy because of one of its bindings: on objects, and by
// field.
type PolicyTotal struct {
	Stage   string         `json:"stage,omitempty"`
	Policy  string         `json:"policy"`
	Binding string         `json:"binding,omitempty"`
	Mode    string         `json:"mode,omitempty"`
	Changed int            `json:"changed"`
	Failed  int            `json:"failed"`
	Fields  map[string]int `json:"fields,omitempty"`
	// Error is that of the first object for which the policy fails.
	Error string `json:"error,omitempty"`
}

// sortedFields returns the names of the fields, the most frequent first.
func (p *PolicyTotal) sortedFields() []string {
	return slices.SortedFunc(maps.Keys(p.Fields), func(a, b string) int {
		if d := p.Fields[b] - p.Fields[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}

func (t *Totals) policy(a *Actor) *PolicyTotal {
	if t.index == nil {
		t.index = map[string]*PolicyTotal{}
		for _, p := range t.Policies { // of a state
			t.index[p.Stage+"\x00"+p.Policy+"\x00"+p.Binding] = p
			t.fields += len(p.Fields)
		}
	}
	key := a.Stage + "\x00" + a.Policy + "\x00" + a.Binding
	p := t.index[key]
	if p == nil && len(t.Policies) < maxPolicies {
		p = &PolicyTotal{Stage: a.Stage, Policy: a.Policy, Binding: a.Binding, Mode: a.Mode, Fields: map[string]int{}}
		t.Policies = append(t.Policies, p)
		t.index[key] = p
	}
	return p
}

// add counts one object; r is nil if nothing happens to it.
func (t *Totals) add(kind *KindTotal, r *Result) {
	t.Objects++
	kind.Objects++
	if r == nil {
		return
	}
	failed := false
	for i := range r.By {
		a := &r.By[i]
		failed = failed || a.Error != ""
		p := t.policy(a)
		if p == nil {
			t.OtherPolicies++
			continue
		}
		if a.Error != "" {
			if p.Failed++; p.Error == "" {
				p.Error = a.Error
			}
		}
		if len(a.Fields) > 0 {
			p.Changed++
		}
		for _, f := range a.Fields {
			if _, known := p.Fields[f]; !known {
				if t.fields >= maxFields {
					t.OtherFields++
					continue
				}
				t.fields++
				if p.Fields == nil {
					p.Fields = map[string]int{}
				}
			}
			p.Fields[f]++
		}
	}
	switch {
	case r.Error != "":
		t.Unread++
	case r.Denied != "":
		t.Denied++
		kind.Denied++
	case len(r.Changes) > 0 || r.DeniedBefore != "":
		t.Changed++
		kind.Changed++
	}
	if r.drifts() {
		t.addDrift(r.Owner)
	}
	if failed {
		t.Failed++
		kind.Failed++
	}
}

// sort orders policies by what they do.
func (t *Totals) sort() {
	slices.SortStableFunc(t.Policies, func(a, b *PolicyTotal) int {
		if d := (b.Changed + b.Failed) - (a.Changed + a.Failed); d != 0 {
			return d
		}
		if d := strings.Compare(a.Policy, b.Policy); d != 0 {
			return d
		}
		return strings.Compare(a.Binding, b.Binding)
	})
}

// fieldName returns a JSON pointer without list indices, so that it is the same for many objects.
func fieldName(pointer string) string {
	tokens, err := tree.ParsePointer(pointer)
	if err != nil {
		return short(pointer, maxText)
	}
	field := ""
	for _, t := range tokens {
		if _, err := strconv.Atoi(t); err == nil || t == "-" {
			field += "[]"
		} else {
			field = tree.JoinField(field, t)
		}
	}
	return short(field, maxText)
}

// Kept are the first results, as many as there is room for.
type Kept struct {
	Results []Result `json:"results,omitempty"`
	// Left counts the results that are not kept.
	Left int `json:"left,omitempty"`

	bytes int
}

func (k *Kept) add(r *Result, most int) {
	if k.bytes == 0 { // of a state
		for i := range k.Results {
			k.bytes += k.Results[i].size()
		}
	}
	size := r.size()
	if len(k.Results) >= most || k.bytes+size > maxKept {
		k.Left++
		return
	}
	k.bytes += size
	k.Results = append(k.Results, *r)
}

func (r *Result) size() int {
	text, _ := json.Marshal(r) // of JSON values
	return len(text)
}
