package promote

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
)

// Annotations and labels of objects that are moved.
const (
	// recordAnnotation has the Record of a move, on mapd's policy, and the ID of that
	// record on its bindings.
	recordAnnotation = "mapd.dev/promotion"
	// keptAnnotation has what a native object needs to become mapd's again.
	keptAnnotation = "mapd.dev/promoted"
	// fromLabel marks native objects that were promoted.
	fromLabel = "mapd.dev/promoted-from"

	modeAnnotation        = "mapd.dev/mode"
	lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"
	namespaceNameLabel    = "kubernetes.io/metadata.name"
)

// Direction says where a policy is to run.
type Direction string

// The directions.
const (
	Native Direction = "native"
	Mapd   Direction = "mapd"
)

// phase is the progress of a promotion. A demotion is always in phase both.
type phase string

const (
	both    phase = "both"    // mapd's policy is enforced
	compare phase = "compare" // mapd's policy is in shadow, because API servers run the native one
	leave   phase = "leave"   // mapd's objects are being deleted
)

// Record is the state of a move. It stands on mapd's policy.
type Record struct {
	To    Direction `json:"to"`
	Phase phase     `json:"phase"`
	// ID identifies the promoter that began to move in this direction. All objects that must stay
	// have it, so that a late promoter that still moves in the other direction cannot delete
	// them: they have changed since it has seen them.
	ID string `json:"id"`
	// Why is the reason why a promotion goes back.
	Why string `json:"why,omitempty"`
	// Modes are the mode annotations before phase compare: that of the policy under "", those of
	// bindings under their names.
	Modes map[string]string `json:"modes,omitempty"`
	// Restore says that missing bindings of mapd are created from the native ones.
	Restore bool `json:"restore,omitempty"`
	// Digest is the digest of mapd's policy when it was created from the native one.
	Digest string `json:"digest,omitempty"`
}

// kept is the value of the annotation keptAnnotation: what is needed to turn a native object back
// into mapd's.
type kept struct {
	ID          string            `json:"id"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Exempt are the namespaces that were excluded because mapd excludes them.
	Exempt []string `json:"exempt,omitempty"`
	// Exceptions are the names of the matchConditions that stand for exceptions.
	Exceptions []string `json:"exceptions,omitempty"`
}

// recordOf returns the Record of a policy of mapd, nil if it is not being moved.
func recordOf(policy *unstructured.Unstructured) (*Record, error) {
	text, ok := policy.GetAnnotations()[recordAnnotation]
	if !ok {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil || r.To != Native && r.To != Mapd {
		return nil, fmt.Errorf("the annotation %s of the policy cannot be read: %q; remove it if nobody moves the policy", recordAnnotation, text)
	}
	return r, nil
}

// Object is a stored policy or binding.
type Object struct {
	*unstructured.Unstructured
	Digest string
}

// NewObject returns the Object of u.
func NewObject(u *unstructured.Unstructured) *Object {
	part := nativepolicies.NewPart(u)
	return &Object{u, part.Digest}
}

func (o *Object) going() bool    { return o.GetDeletionTimestamp() != nil }
func (o *Object) promoted() bool { return o.GetLabels()[fromLabel] == api.OwnGroup }

// Of returns the name of the policy that a binding refers to.
func Of(binding *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(binding.Object, "spec", "policyName")
	return name
}

// World has the stored policies of one name in both groups, and the bindings that refer to them.
// It may have other objects, too.
type World struct {
	Policy  string
	Objects map[nativepolicies.Key]*Object
	// Excepted are the exceptions from the policy.
	Excepted Excepted
}

// Moving reports whether the policy is being moved, or its promoter ended before the move was
// complete.
func (w *World) Moving() bool {
	own := w.Objects[nativepolicies.Key{Group: api.OwnGroup, Name: w.Policy}]
	return own != nil && isMoving(own.Unstructured)
}

// Options say how to move a policy.
type Options struct {
	To Direction
	// ID names the promoter.
	ID string
	// Canary compares the results of mapd and the API servers for some requests before mapd's
	// policy is deleted.
	Canary bool
	// Exempt are namespaces that native bindings have to exclude.
	Exempt []string
	// Adopt allows demoting a native policy that was not promoted.
	Adopt bool
}

// Proofs are the answers that a promoter has found to questions. Each field is the fingerprint of
// the objects for which the answer is yes, so it does not hold after they change.
type Proofs struct {
	Native string // every API server runs the native objects
	Own    string // every replica runs mapd's objects, and every API server calls it for them
	Agreed string // both sides gave the same result for enough requests
	// Differs is the fingerprint of objects for which the results differ, and Why describes the
	// difference.
	Differs, Why string
}

// Question is something that Decide has to know before it can return the next action.
type Question string

// The questions.
const (
	AskNative Question = "native" // does every API server run the native objects?
	AskOwn    Question = "own"    // does every replica run mapd's objects?
	AskCanary Question = "canary" // do they agree?
	AskGone   Question = "gone"   // has the object that is being deleted disappeared?
)

// Action is one write. If Annotate is set, the action only changes these annotations of the
// object, if it is still in the version that was read; a nil value removes an annotation.
type Action struct {
	nativepolicies.Action
	Annotate map[string]*string
}

func (a Action) String() string {
	if a.Annotate == nil {
		return a.Action.String()
	}
	kind := "policy"
	if a.Binding {
		kind = "binding"
	}
	return fmt.Sprintf("annotate %s %s.%s: %s", kind, a.Name, a.Group, strings.Join(slices.Sorted(maps.Keys(a.Annotate)), ", "))
}

// Next is the next step: execute Do and call Decide again, or answer Ask for the fingerprint
// About and call Decide again. There is no next step if Done or Err is set.
type Next struct {
	Do    []Action
	Ask   Question
	About string
	Done  bool
	Err   error
	// Back is the reason why a promotion is undone; "" if it is not.
	Back string
}

func stop(format string, args ...any) Next { return Next{Err: fmt.Errorf(format, args...)} }

// errNoPolicy is the error if neither group has a policy of that name.
var errNoPolicy = errors.New("there is no such policy")

// sides has the input of Decide, and the objects of the World by group and kind.
type sides struct {
	Options
	p                     Proofs
	policy                string
	all                   map[nativepolicies.Key]*Object
	own, native           *Object
	ownBindings, natives  []*Object // bindings of the policy in each group, sorted by name
	record                *Record
	excepted              Excepted
	ownPrint, nativePrint string
	ownPolicyKey          nativepolicies.Key
}

// Decide returns what to do next to move a policy.
func Decide(w *World, o Options, p Proofs) Next {
	s := &sides{Options: o, p: p, policy: w.Policy, all: w.Objects, excepted: w.Excepted}
	s.ownPolicyKey = nativepolicies.Key{Group: api.OwnGroup, Name: w.Policy}
	s.own, s.native = w.Objects[s.ownPolicyKey], w.Objects[nativepolicies.Key{Group: api.NativeGroup, Name: w.Policy}]
	for k, obj := range w.Objects {
		switch {
		case !k.Binding || Of(obj.Unstructured) != w.Policy:
		case k.Group == api.OwnGroup:
			s.ownBindings = append(s.ownBindings, obj)
		default:
			s.natives = append(s.natives, obj)
		}
	}
	byName := func(a, b *Object) int { return cmp.Compare(a.GetName(), b.GetName()) }
	slices.SortFunc(s.ownBindings, byName)
	slices.SortFunc(s.natives, byName)
	s.ownPrint, s.nativePrint = fingerprint(s.own, s.ownBindings), fingerprint(s.native, s.natives)
	if s.own != nil {
		var err error
		if s.record, err = recordOf(s.own.Unstructured); err != nil {
			return Next{Err: err}
		}
		if s.own.GetLabels()[nativepolicies.LiveLabel] != "" {
			return stop("the policy stands for a mutator of Gatekeeper, and mapd writes it itself (--legacy=native)")
		}
	}
	if s.record != nil && s.record.To == Mapd && s.record.Why != "" {
		next := s.toMapd()
		next.Back = s.record.Why
		return next
	}
	if s.To == Mapd {
		return s.toMapd()
	}
	return s.toNative()
}

// fingerprint identifies the present versions of a policy and its bindings, which are sorted by
// name. For mapd's objects it uses metadata.generation and not a digest of the spec, because
// replicas, which compute it too, need not keep the spec.
func fingerprint(policy *Object, bindings []*Object) string {
	h := sha256.New()
	for _, o := range append([]*Object{policy}, bindings...) {
		if o == nil {
			continue
		}
		version := o.Digest
		if o.GroupVersionKind().Group == api.OwnGroup {
			version = fmt.Sprint(o.GetGeneration())
		}
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00%v", o.GetName(), o.GetUID(), version, o.going())
		for _, a := range api.RolloutAnnotations {
			fmt.Fprintf(h, "\x00%s", o.GetAnnotations()[a])
		}
		fmt.Fprintln(h)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Running returns the fingerprint of the policy and the bindings of mapd that a replica runs. Of
// the objects it needs only the metadata. The policy may be nil.
func Running(policy *unstructured.Unstructured, bindings []*unstructured.Unstructured) string {
	var p *Object
	if policy != nil {
		p = &Object{Unstructured: policy}
	}
	list := make([]*Object, len(bindings))
	for i, b := range bindings {
		list[i] = &Object{Unstructured: b}
	}
	slices.SortFunc(list, func(a, b *Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return fingerprint(p, list)
}

// toNative returns the next step of a promotion.
func (s *sides) toNative() Next {
	switch {
	case s.own == nil && s.native == nil:
		return Next{Err: errNoPolicy}
	case s.own == nil && !s.native.promoted():
		return stop("there is a native policy of that name, and none of mapd")
	case s.own == nil:
		return Next{Done: true}
	}
	if why := s.foreign(); why != "" {
		return stop("%s", why)
	}
	rec := s.record
	if rec != nil && (rec.To != Native || rec.Phase == leave) && len(s.ownBindings) > 0 {
		// The phases in which goBack could undo the promotion are over or were skipped, so this is
		// the last check.
		if why := s.limits(rec); why != "" {
			return stop("the policy is being moved, and mapd no longer enforces it as a server would: %s; or go back with mapd promote --demote", why)
		}
	}
	if rec == nil || rec.To != Native {
		next := Record{To: Native, Phase: both, ID: s.claim(s.own)}
		if rec != nil {
			// A demotion was under way. mapd may still lack bindings whose native ones exist, and
			// phase leave does not delete these.
			next.Phase, next.Modes = leave, rec.Modes
		}
		return s.write(next)
	}
	if rec.Phase != leave {
		if why := s.limits(rec); why != "" {
			return s.goBack(rec, why)
		}
	}
	if next, ok := s.writeNative(rec); !ok {
		return next
	}
	if s.p.Native != s.nativePrint {
		return Next{Ask: AskNative, About: s.nativePrint}
	}
	switch {
	case rec.Phase != leave && !s.Canary:
		next := *rec
		next.Phase = leave
		return s.write(next)
	case rec.Phase == both:
		next := *rec
		next.Phase, next.Modes = compare, map[string]string{"": s.own.GetAnnotations()[modeAnnotation]}
		return s.writeMode(next, new(shadow))
	case rec.Phase == compare:
		return s.compare(rec)
	}
	return s.deleteAll(s.ownBindings, s.own)
}

const shadow = "shadow"

// limits returns the first reason why a server would do more than mapd did before the move.
func (s *sides) limits(rec *Record) string {
	bindings := make([]*unstructured.Unstructured, len(s.ownBindings))
	for i, b := range s.ownBindings {
		bindings[i] = b.Unstructured
	}
	if why := limits(s.own.Unstructured, bindings, rec.Modes); len(why) > 0 {
		return why[0]
	}
	if len(s.excepted.Unsaid) > 0 {
		return s.excepted.Unsaid[0]
	}
	return ""
}

// goBack returns the step that turns a promotion into a demotion, for the reason why.
func (s *sides) goBack(rec *Record, why string) Next {
	next := *rec
	next.To, next.Phase, next.ID, next.Why = Mapd, both, s.claim(s.own), why
	return s.write(next)
}

// foreign returns why the native objects cannot be written.
func (s *sides) foreign() string {
	if s.native != nil && !s.native.promoted() {
		return "there is a native policy of that name that was not promoted; rename one of the two, or delete the one that is not wanted"
	}
	for _, b := range s.ownBindings {
		n := s.all[nativepolicies.Key{Group: api.NativeGroup, Binding: true, Name: b.GetName()}]
		if n != nil && !n.promoted() {
			return fmt.Sprintf("there is a native binding %s that was not promoted; rename one of the two, or delete the one that is not wanted", n.GetName())
		}
	}
	return ""
}

// writeNative returns the step that makes the native objects correspond to mapd's, or true if they
// already do.
func (s *sides) writeNative(rec *Record) (Next, bool) {
	var list []Action
	wanted := map[string]bool{}
	for _, from := range append([]*Object{s.own}, s.ownBindings...) {
		if from.going() && rec.Phase != leave {
			return Next{Ask: AskGone, About: s.ownPrint}, false
		}
		part := s.nativePart(from, rec.ID)
		key := nativepolicies.Key{Group: api.NativeGroup, Binding: from != s.own, Name: from.GetName()}
		is := s.all[key]
		wanted[key.Name] = wanted[key.Name] || key.Binding
		switch {
		case is == nil:
		case is.going():
			return Next{Ask: AskGone, About: s.nativePrint}, false
		case is.Digest == part.Digest && is.promoted() && is.GetAnnotations()[keptAnnotation] == part.Object.GetAnnotations()[keptAnnotation]:
			continue
		}
		list = append(list, apply(key, part, is))
	}
	for _, b := range s.natives {
		if rec.Phase != leave && !wanted[b.GetName()] && b.promoted() && !b.going() {
			list = append(list, remove(nativepolicies.Key{Group: api.NativeGroup, Binding: true, Name: b.GetName()}, b))
		}
	}
	return Next{Do: list}, len(list) == 0
}

// nativePart returns the native form of an object of mapd.
func (s *sides) nativePart(from *Object, id string) *nativepolicies.Part {
	u := bare(from, api.NativeGroup)
	key := ""
	if from.GetKind() == api.BindingKind {
		key = from.GetName()
	}
	var modes map[string]string
	if s.record != nil {
		modes = s.record.Modes
	}
	k := kept{ID: id, Labels: from.GetLabels(), Annotations: original(from.GetAnnotations(), modes, key)}
	for _, a := range []string{lastAppliedAnnotation, recordAnnotation} {
		delete(k.Annotations, a)
	}
	if from.GetKind() == api.BindingKind && len(s.Exempt) > 0 {
		k.Exempt = s.Exempt
		exempt(u, s.Exempt)
	}
	if from.GetKind() == api.PolicyKind {
		withConditions(u, s.excepted.Conditions)
		for _, c := range s.excepted.Conditions {
			k.Exceptions = append(k.Exceptions, c.Name)
		}
	}
	text, err := json.Marshal(k)
	if err != nil {
		panic(fmt.Sprintf("promote: %v", err)) // strings only
	}
	u.SetLabels(map[string]string{fromLabel: api.OwnGroup})
	u.SetAnnotations(map[string]string{keptAnnotation: string(text)})
	return new(nativepolicies.NewPart(u))
}

// ownPart returns the form of a native object in mapd's group.
func ownPart(from *Object, annotation func(digest string) string) *nativepolicies.Part {
	u := bare(from, api.OwnGroup)
	k := kept{Labels: from.GetLabels(), Annotations: maps.Clone(from.GetAnnotations())}
	for _, a := range api.RolloutAnnotations { // a server has ignored them
		delete(k.Annotations, a)
	}
	if from.promoted() {
		k = kept{}
		_ = json.Unmarshal([]byte(from.GetAnnotations()[keptAnnotation]), &k) // labels that cannot be read are lost, and nothing else
		unexempt(u, k.Exempt)
		withoutConditions(u, k.Exceptions)
	}
	delete(k.Annotations, lastAppliedAnnotation)
	delete(k.Annotations, keptAnnotation)
	if k.Annotations == nil {
		k.Annotations = map[string]string{}
	}
	u.SetLabels(k.Labels)
	k.Annotations[recordAnnotation] = annotation(nativepolicies.NewPart(u).Digest)
	u.SetAnnotations(k.Annotations)
	return new(nativepolicies.NewPart(u))
}

// bare returns an object without metadata but its name.
func bare(from *Object, group string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": from.DeepCopy().Object["spec"]}}
	u.SetAPIVersion(group + "/v1")
	u.SetKind(from.GetKind())
	u.SetName(from.GetName())
	return u
}

var selectorPath = []string{"spec", "matchResources", "namespaceSelector", "matchExpressions"}

func exemption(namespaces []string) map[string]any {
	values := make([]any, len(namespaces))
	for i, n := range namespaces {
		values[i] = n
	}
	return map[string]any{"key": namespaceNameLabel, "operator": "NotIn", "values": values}
}

// exempt makes a binding exclude namespaces.
func exempt(u *unstructured.Unstructured, namespaces []string) {
	list, _, _ := unstructured.NestedSlice(u.Object, selectorPath...)
	_ = unstructured.SetNestedSlice(u.Object, append(list, exemption(namespaces)), selectorPath...) // of another type it would not be stored
}

// unexempt removes from a binding what exempt added.
func unexempt(u *unstructured.Unstructured, namespaces []string) {
	if len(namespaces) == 0 {
		return
	}
	list, _, _ := unstructured.NestedSlice(u.Object, selectorPath...)
	want := fmt.Sprint(exemption(namespaces))
	list = slices.DeleteFunc(list, func(e any) bool { return fmt.Sprint(e) == want })
	if len(list) > 0 {
		_ = unstructured.SetNestedSlice(u.Object, list, selectorPath...)
		return
	}
	unstructured.RemoveNestedField(u.Object, selectorPath...)
	for n := len(selectorPath) - 1; n > 1; n-- {
		if m, _, _ := unstructured.NestedMap(u.Object, selectorPath[:n]...); len(m) == 0 {
			unstructured.RemoveNestedField(u.Object, selectorPath[:n]...)
		}
	}
}

// compare returns the next step of a promotion in phase compare.
func (s *sides) compare(rec *Record) Next {
	next := *rec
	next.Modes = maps.Clone(rec.Modes)
	var list []Action
	for _, b := range s.ownBindings {
		mode, set := b.GetAnnotations()[modeAnnotation]
		if !set || mode == shadow {
			continue
		}
		if _, known := next.Modes[b.GetName()]; !known {
			next.Modes[b.GetName()] = mode
		}
		list = append(list, annotate(b, map[string]*string{modeAnnotation: new(shadow)}))
	}
	switch about := s.ownPrint + s.nativePrint; {
	case len(next.Modes) != len(rec.Modes), s.own.GetAnnotations()[modeAnnotation] != shadow:
		return s.writeMode(next, new(shadow))
	case len(list) > 0:
		return Next{Do: list}
	case s.p.Own != s.ownPrint:
		return Next{Ask: AskOwn, About: s.ownPrint}
	case s.p.Differs == about:
		return s.goBack(rec, s.p.Why)
	case s.p.Agreed == about:
		next.Phase = leave
		return s.write(next)
	default:
		return Next{Ask: AskCanary, About: about}
	}
}

// deleteAll returns the step that deletes bindings, and their policy once they are gone.
func (s *sides) deleteAll(bindings []*Object, policy *Object) Next {
	var list []Action
	for _, o := range bindings {
		if o.going() {
			return Next{Ask: AskGone, About: o.GetName()}
		}
		list = append(list, remove(keyOf(o), o))
	}
	switch {
	case len(list) > 0:
		return Next{Do: list}
	case policy == nil:
		return Next{}
	case policy.going():
		return Next{Ask: AskGone, About: policy.GetName()}
	}
	return Next{Do: []Action{remove(keyOf(policy), policy)}}
}

// toMapd returns the next step of a demotion, or of a promotion that is undone.
func (s *sides) toMapd() Next {
	leaving := slices.DeleteFunc(slices.Clone(s.natives), func(b *Object) bool {
		return !b.promoted() && (s.record == nil || !s.record.Restore)
	})
	if why := s.taken(); why != "" {
		return stop("%s", why)
	}
	switch {
	case s.own == nil && s.native == nil:
		return Next{Err: errNoPolicy}
	case s.own == nil && !s.native.promoted() && !s.Adopt:
		return stop("the native policy was not promoted")
	case s.own == nil:
		if s.native.going() {
			return Next{Ask: AskGone, About: s.nativePrint}
		}
		part := s.ownPolicy(Record{To: Mapd, Phase: both, ID: s.claim(s.native), Restore: true})
		return Next{Do: []Action{apply(s.ownPolicyKey, part, nil)}}
	case s.own.going():
		return Next{Ask: AskGone, About: s.ownPrint}
	case s.record == nil && s.native == nil:
		return Next{Done: true}
	case s.record == nil && !s.native.promoted():
		return stop("there is a policy of mapd and a native one of that name, and neither was made from the other")
	case s.record == nil || s.record.To != Mapd:
		next := Record{To: Mapd, Phase: both, ID: s.claim(s.own), Restore: true}
		if s.record != nil {
			next.Modes, next.Restore = s.record.Modes, s.record.Phase == leave
		}
		return s.write(next)
	}
	if next, ok := s.writeOwn(leaving); !ok {
		return next
	}
	if s.native == nil && len(leaving) == 0 {
		return s.forget()
	}
	if s.p.Own != s.ownPrint {
		return Next{Ask: AskOwn, About: s.ownPrint}
	}
	return s.deleteAll(leaving, s.native)
}

// taken returns the reason why a binding of mapd cannot be created from a native one: another
// policy of mapd has a binding of that name. It returns "" if there is no such binding.
func (s *sides) taken() string {
	if rec := s.record; s.native == nil || rec != nil && !rec.Restore && (rec.To == Mapd || rec.Phase != leave) {
		return ""
	}
	for _, n := range s.natives {
		is := s.all[nativepolicies.Key{Group: api.OwnGroup, Binding: true, Name: n.GetName()}]
		if is != nil && Of(is.Unstructured) != s.policy {
			return fmt.Sprintf("the native binding %s cannot become one of mapd, which has a binding of that name, of the policy %s; rename one of the two, or delete the one that is not wanted",
				n.GetName(), Of(is.Unstructured))
		}
	}
	return ""
}

// ownPolicy returns mapd's policy as it is made from the native one.
func (s *sides) ownPolicy(rec Record) *nativepolicies.Part {
	return ownPart(s.native, func(digest string) string {
		rec.Digest = digest
		return rec.text()
	})
}

// writeOwn returns the step after which mapd's objects are enforced, or true if nothing has to be
// written. leaving are the native bindings that will be deleted.
func (s *sides) writeOwn(leaving []*Object) (Next, bool) {
	rec := s.record
	if s.native != nil && rec.Digest != "" && rec.Digest == s.own.Digest {
		if part := s.ownPolicy(*rec); part.Digest != s.own.Digest { // somebody has changed the native one
			return Next{Do: []Action{apply(s.ownPolicyKey, part, s.own)}}, false
		}
	}
	relied := s.native != nil || len(leaving) > 0
	var list []Action
	for _, n := range leaving {
		key := nativepolicies.Key{Group: api.OwnGroup, Binding: true, Name: n.GetName()}
		is := s.all[key]
		switch {
		case is == nil && !rec.Restore, n.going():
		case is == nil:
			list = append(list, apply(key, ownPart(n, func(digest string) string { return rec.ID + " " + digest }), nil))
		case is.going():
			return Next{Ask: AskGone, About: s.ownPrint}, false
		case is.GetAnnotations()[recordAnnotation] == rec.ID+" "+is.Digest:
			part := ownPart(n, func(digest string) string { return rec.ID + " " + digest })
			if part.Digest != is.Digest {
				list = append(list, apply(key, part, is))
			}
		}
	}
	for _, b := range s.ownBindings {
		change := map[string]*string{}
		if mode, ok := rec.Modes[b.GetName()]; ok && b.GetAnnotations()[modeAnnotation] == shadow {
			change[modeAnnotation] = orNone(mode)
		}
		if relied && !isMarked(b, rec.ID) {
			change[recordAnnotation] = new(rec.ID)
		}
		if len(change) > 0 {
			list = append(list, annotate(b, change))
		}
	}
	if len(list) > 0 {
		return Next{Do: list}, false
	}
	if len(rec.Modes) > 0 {
		next := *rec
		next.Modes = nil
		return s.writeMode(next, orNone(rec.Modes[""])), false
	}
	return Next{}, true
}

// forget returns the step that removes the annotations of a move from mapd's objects, from the
// policy last.
func (s *sides) forget() Next {
	var list []Action
	none := map[string]*string{recordAnnotation: nil}
	for _, o := range append(slices.Clone(s.ownBindings), s.own) {
		if _, marked := o.GetAnnotations()[recordAnnotation]; marked {
			list = append(list, annotate(o, none))
		}
	}
	return Next{Do: list}
}

// isMarked reports whether a binding carries the ID of a record.
func isMarked(b *Object, id string) bool {
	mark, _, _ := strings.Cut(b.GetAnnotations()[recordAnnotation], " ")
	return mark == id
}

// claim returns an ID that no other record has, not even another one of the same promoter.
func (s *sides) claim(o *Object) string { return s.ID + "." + o.GetResourceVersion() }

func orNone(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (r *Record) text() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("promote: %v", err)) // strings only
	}
	return string(text)
}

// write returns the action that gives mapd's policy a record.
func (s *sides) write(r Record) Next {
	return Next{Do: []Action{annotate(s.own, map[string]*string{recordAnnotation: new(r.text())})}}
}

// writeMode is write that also sets the mode; nil removes it.
func (s *sides) writeMode(r Record, mode *string) Next {
	return Next{Do: []Action{annotate(s.own, map[string]*string{recordAnnotation: new(r.text()), modeAnnotation: mode})}}
}

func keyOf(o *Object) nativepolicies.Key {
	return nativepolicies.Key{Group: o.GroupVersionKind().Group, Binding: o.GetKind() == api.BindingKind, Name: o.GetName()}
}

func seen(o *Object) *nativepolicies.Object {
	if o == nil {
		return nil
	}
	return &nativepolicies.Object{Key: keyOf(o), UID: o.GetUID(), Version: o.GetResourceVersion()}
}

func apply(key nativepolicies.Key, part *nativepolicies.Part, is *Object) Action {
	return Action{Action: nativepolicies.Action{Key: key, Part: part, Unit: key.Name, Seen: seen(is)}}
}

func remove(key nativepolicies.Key, is *Object) Action {
	return Action{Action: nativepolicies.Action{Key: key, Seen: seen(is)}}
}

func annotate(o *Object, change map[string]*string) Action {
	return Action{Action: nativepolicies.Action{Key: keyOf(o), Seen: seen(o)}, Annotate: change}
}
