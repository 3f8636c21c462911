package binding

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Exception is a PolicyException with its rules and selectors parsed. It is immutable.
type Exception struct {
	object      *api.PolicyException
	from, until time.Time // zero: no beginning, no end
	match       *matcher  // nil: no restriction
	whole       bool      // applies to objects of all namespaces
}

// CompileException parses an exception that was decoded; the error is api.Faults.
func CompileException(obj *api.PolicyException, rules api.ExceptionRules) (*Exception, error) {
	if faults := api.ValidateException(obj, rules); len(faults) > 0 {
		return nil, faults
	}
	x := &Exception{object: obj, whole: rules.Whole(obj.Namespace)}
	x.from, x.until = obj.Spec.Times()
	if obj.Spec.Match != nil {
		x.match = matcherOf(obj.Spec.Match)
	}
	return x, nil
}

// Object returns the exception as it was compiled. It must not be modified.
func (x *Exception) Object() *api.PolicyException { return x.object }

// Name returns namespace/name.
func (x *Exception) Name() string { return x.object.Namespace + "/" + x.object.Name }

// Whole reports whether the exception applies to objects of all namespaces.
func (x *Exception) Whole() bool { return x.whole }

// Times returns the first time at which the exception is in effect and the first at which it is
// not any more; zero if it has no such time.
func (x *Exception) Times() (from, until time.Time) { return x.from, x.until }

// Begun reports whether the exception has begun. It is in effect from then until it has Ended.
func (x *Exception) Begun(now time.Time) bool { return !now.Before(x.from) }

// Ended reports whether the exception has ended.
func (x *Exception) Ended(now time.Time) bool { return !x.until.IsZero() && !now.Before(x.until) }

// String returns the exception's name, its end and its owner as text.
func (x *Exception) String() string {
	text := "exception " + x.Name() + " " + UntilText(x.until)
	if owner := x.object.Spec.Owner; owner != "" {
		text += ", owner " + owner
	}
	return text
}

// UntilText returns the end of an exception as text: only the day if the end is midnight in
// UTC.
func UntilText(until time.Time) string {
	switch until = until.UTC(); {
	case until.IsZero():
		return "without an end"
	case until.Equal(until.Truncate(24 * time.Hour)):
		return "until " + until.Format(time.DateOnly)
	}
	return "until " + until.Format(time.RFC3339)
}

// Bounds of Exceptions. For each policy that it matches, a request is matched against the
// exceptions of its namespace and those for all namespaces.
const (
	MaxExceptions            = 10_000
	MaxExceptionsOfNamespace = 200
)

// TooManyExceptions is why an exception beyond these bounds is not in effect.
var TooManyExceptions = fmt.Sprintf("there are more than %d in its namespace, or %d in all, and this is one of the later ones", MaxExceptionsOfNamespace, MaxExceptions)

// Older compares exceptions by their creation, for sorting: if there are too many, the oldest
// are in effect.
func Older(a, b *Exception) int {
	return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time), strings.Compare(a.Name(), b.Name()))
}

// Known are the existing policies and bindings, by their names in exceptions.
type Known struct {
	policies map[exceptionKey]bool
	bindings map[string]bool
}

// everywhere is the namespace under which Known has each namespaced policy once more, for
// exceptions that apply to all namespaces.
const everywhere = "*"

// Add adds a policy or a binding, and ignores other objects.
func (k *Known) Add(gvk schema.GroupVersionKind, namespace, name string) {
	if k.policies == nil {
		k.policies, k.bindings = map[exceptionKey]bool{}, map[string]bool{}
	}
	if policy := api.ExceptionName(gvk, name); policy != "" {
		k.policies[exceptionKey{policy, namespace}] = true
		if namespace != "" {
			k.policies[exceptionKey{policy, everywhere}] = true
		}
	} else if api.IsAdmission(gvk.Group) && gvk.Kind == api.BindingKind {
		k.bindings[name] = true
	}
}

// Policy reports whether the policy that an exception names exists. A namespaced policy exists
// for the exceptions of its namespace, and for those that apply to all namespaces.
func (k *Known) Policy(x *Exception, name string) bool {
	return k.policies[exceptionKey{name, ""}] || k.policies[exceptionKey{name, x.object.Namespace}] || x.whole && k.policies[exceptionKey{name, everywhere}]
}

// Unknown returns descriptions of the policies and bindings that an exception names and that do
// not exist. nothing says that none of its policies exists.
func (k *Known) Unknown(x *Exception) (missing []string, nothing bool) {
	for _, name := range x.object.Spec.Policies {
		if !k.Policy(x, name) {
			missing = append(missing, "policy "+name)
		}
	}
	nothing = len(missing) == len(x.object.Spec.Policies)
	for _, name := range x.object.Spec.Bindings {
		if !k.Binding(name) {
			missing = append(missing, "binding "+name)
		}
	}
	return missing, nothing
}

// Binding reports whether a binding of that name exists.
func (k *Known) Binding(name string) bool { return k.bindings[name] }

// Exceptions are all exceptions at one time. They are immutable; nil means none.
type Exceptions struct {
	now func() time.Time
	of  map[exceptionKey][]*Exception // those that end last first
}

// Latest compares exceptions by their ends, for sorting the last one first.
func Latest(a, b *Exception) int { return latest(a.until, b.until) }

// exceptionKey is a policy and the namespace of an exception, "" for all namespaces.
type exceptionKey struct{ policy, namespace string }

// NewExceptions returns the Exceptions of a list, nil for an empty list, and those of the list
// that exceed the bounds: in each namespace, and of all, the first ones in the list are kept.
// now is the clock.
func NewExceptions(list []*Exception, now func() time.Time) (_ *Exceptions, tooMany []*Exception) {
	if len(list) == 0 {
		return nil, nil
	}
	xs := &Exceptions{now: now, of: map[exceptionKey][]*Exception{}}
	count, all := map[string]int{}, 0
	for _, x := range list {
		namespace := x.object.Namespace
		if count[namespace] == MaxExceptionsOfNamespace || all == MaxExceptions {
			tooMany = append(tooMany, x)
			continue
		}
		count[namespace]++
		all++
		if x.whole {
			namespace = ""
		}
		for _, policy := range x.object.Spec.Policies {
			k := exceptionKey{policy, namespace}
			xs.of[k] = append(xs.of[k], x)
		}
	}
	for _, of := range xs.of {
		slices.SortFunc(of, func(a, b *Exception) int {
			return cmp.Or(latest(a.until, b.until), strings.Compare(a.Name(), b.Name()))
		})
	}
	return xs, tooMany
}

// Last returns for each policy the exception that ends last, of those that have not ended. next
// is the time at which the result changes, zero if it never does. xs may be nil.
func (xs *Exceptions) Last(now time.Time) (of map[string]*Exception, next time.Time) {
	of = map[string]*Exception{}
	if xs == nil {
		return of, next
	}
	for k, list := range xs.of {
		x := list[0]
		if x.Ended(now) {
			continue
		}
		if before := of[k.policy]; before == nil || cmp.Or(Latest(x, before), strings.Compare(x.Name(), before.Name())) < 0 {
			of[k.policy] = x
		}
	}
	for _, x := range of {
		if !x.until.IsZero() && (next.IsZero() || x.until.Before(next)) {
			next = x.until
		}
	}
	return of, next
}

// latest compares times, for sorting the last one first; a zero time, no end, is the last.
func latest(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return -1
	case b.IsZero():
		return 1
	}
	return b.Compare(a)
}

// excepts reports whether there are any exceptions.
func (t *target) excepts() bool {
	if t.ix.src.Exceptions == nil {
		return false
	}
	if !t.excepting {
		t.excepting, t.exceptions = true, t.ix.src.Exceptions()
	}
	return t.exceptions != nil
}

// Excepting matches one request against exceptions from policies that are in no Index.
type Excepting struct{ target target }

// Excepting returns an Excepting for a request, nil if there are no exceptions. Selectors are
// matched against object, as in SelectInto. s may be nil.
func (s *Sources) Excepting(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) *Excepting {
	if s == nil || s.Exceptions == nil || s.Exceptions() == nil {
		return nil
	}
	return &Excepting{target{ctx: ctx, ix: &Index{src: *s}, req: req, resource: keyOf(req).resource, object: object}}
}

// From returns the exception that excludes the request from a policy, nil if there is none. e
// may be nil.
func (e *Excepting) From(policy string) *Exception {
	if e == nil {
		return nil
	}
	return e.target.exception(policy, "")
}

// exception returns the exception that excludes a request from a policy by a binding; of
// several, the one that ends last; nil if there is none. All ways to evaluate a policy call it.
func (t *target) exception(policy, binding string) *Exception {
	if !t.excepts() {
		return nil
	}
	if t.ix.src.Excepted != nil {
		policy = t.ix.src.Excepted(policy)
	}
	namespace := t.req.Namespace
	if t.resource.GroupResource() == namespacesResource.GroupResource() {
		namespace = "" // the owner of a namespace's exceptions does not own the Namespace object
	}
	var found *Exception
	for _, x := range t.exceptions.of[exceptionKey{policy, ""}] {
		if t.holds(x, binding) {
			found = x
			break
		}
	}
	if namespace == "" {
		return found
	}
	for _, x := range t.exceptions.of[exceptionKey{policy, namespace}] {
		if found != nil && latest(x.until, found.until) >= 0 {
			break
		}
		if t.holds(x, binding) {
			return x
		}
	}
	return found
}

// holds reports whether an exception from the policy applies to a request, by a binding. It
// does not apply if that cannot be decided, such as by the labels of a missing Namespace.
func (t *target) holds(x *Exception, binding string) bool {
	if t.at.IsZero() {
		if t.at = t.req.Time; t.at.IsZero() {
			t.at = t.exceptions.now()
		}
	}
	spec := &x.object.Spec
	switch {
	case !x.Begun(t.at) || x.Ended(t.at):
		return false
	case len(spec.Bindings) > 0 && !slices.Contains(spec.Bindings, binding):
		return false
	case len(spec.Names) > 0 && !slices.Contains(spec.Names, t.req.Name):
		return false
	case len(spec.Namespaces) > 0 && !slices.Contains(spec.Namespaces, t.req.Namespace):
		return false
	case x.match == nil:
		return true
	}
	return t.matches(x.match)
}

// matches reports whether a matcher that is in no table matches the request.
func (t *target) matches(m *matcher) bool {
	v, ok := t.judged[m.rules]
	if !ok {
		k := keyOf(t.req)
		var equivalents []Equivalent
		if t.ix.src.Equivalents != nil && m.rules != nil && m.rules.equivalent {
			equivalents = t.ix.src.Equivalents(k.resource)
		}
		v = m.rules.judge(&k, equivalents)
		if t.judged == nil {
			t.judged = map[*ruleset]*answer{}
		}
		t.judged[m.rules] = v
	}
	_, failed, err := m.test(t, v)
	return err == nil && failed == Satisfied
}
