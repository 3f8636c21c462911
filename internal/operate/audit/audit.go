package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/parallel"
	"github.com/mapd-project/mapd/pkg/lookup"
)

// Options configure Run. Cluster and Set are required.
type Options struct {
	Cluster *Cluster
	Set     *Set
	// Base, if not nil, has policies to compare with: results are the differences between what
	// Set and what Base do to an object.
	Base *Set
	Asking
	// Namespace and Labels select the objects that are read, and Kinds the kinds: names of kinds
	// or resources, in any case, optionally with their group, such as deployments.apps.
	Namespace, Labels string
	Kinds             []string
	// First, if not 0, bounds the objects of each kind; at most one page is read.
	First int
	// Keep bounds the results in a Report.
	Keep int
	// Each is called with each result, in the order of the lists, unless it is nil.
	Each func(*Result) error
	// State, if not nil, is the state at which an interrupted audit continues. Save is called
	// from time to time with the present state.
	State *State
	Save  func(*State) error
	// SaveEvery is the minimum time between two calls of Save within a kind; 0 calls it after
	// each page.
	SaveEvery time.Duration
	// Progress is called after each page; it may be nil.
	Progress func(Progress)
	// Background uses at most half of one processor, and continues with the other kinds if one
	// cannot be listed.
	Background bool
}

// Progress says how much of an audit is done.
type Progress struct {
	Kind        string
	Done, Kinds int // kinds
	Objects     int
	Changed     int
}

// Report is the outcome of an audit.
type Report struct {
	Totals
	Kept
	// Notes say what was left out.
	Notes      []string `json:"notes,omitempty"`
	incomplete bool     // of the Set
}

// State is the state of an audit that is not finished. Its size is bounded like that of a Report.
type State struct {
	// Digest identifies policies and options: an audit can only continue with the same ones.
	Digest string   `json:"digest"`
	Kinds  []string `json:"kinds,omitempty"` // finished
	Kind   string   `json:"kind,omitempty"`  // not finished
	At     cursor   `json:"at"`
	Totals Totals   `json:"totals"`
	Kept   Kept     `json:"kept"`
}

// ErrStateOther is returned for a state of other policies or options.
var ErrStateOther = errors.New("the state is of an audit with other policies, parameters or options")

// digest returns a text that identifies the policies and options.
func (o *Options) digest() string {
	parts := []string{o.Set.Digest, string(o.Operation), o.User.Username, strings.Join(o.User.Groups, ","), o.Namespace, o.Labels,
		strings.Join(o.Kinds, ","), strings.Join(o.Exempt, ","), fmt.Sprint(o.Keep), o.Set.options}
	if o.Base != nil {
		parts = append(parts, o.Base.Digest)
	}
	text, _ := json.Marshal(parts) // of strings
	return string(text)
}

// target is a resource that is audited.
type target struct {
	Resource
	id string
}

// targets returns the resources to list, each in the one version in which policies can match it.
func (o *Options) targets() (out []target, notes []string) {
	byName := map[schema.GroupResource][]Resource{}
	var names []schema.GroupResource
	for _, r := range o.Cluster.Resources {
		gr := r.GVR.GroupResource()
		if byName[gr] == nil {
			names = append(names, gr)
		}
		byName[gr] = append(byName[gr], r)
	}
	slices.SortFunc(names, func(a, b schema.GroupResource) int {
		return strings.Compare(a.Group+"/"+a.Resource, b.Group+"/"+b.Resource)
	})
	subresources := 0
	events := byName[schema.GroupResource{Group: "events.k8s.io", Resource: "events"}] != nil
	for _, gr := range names {
		if events && gr == (schema.GroupResource{Resource: "events"}) {
			continue // events.k8s.io has the same objects
		}
		versions := byName[gr]
		slices.SortStableFunc(versions, func(a, b Resource) int {
			switch {
			case a.Preferred == b.Preferred:
				return 0
			case a.Preferred:
				return -1
			}
			return 1
		})
		at := slices.IndexFunc(versions, func(r Resource) bool {
			req := o.request(&r, nil)
			return o.Set.mayMeet(req) || o.Base != nil && o.Base.mayMeet(req)
		})
		if at < 0 {
			continue
		}
		r := versions[at]
		if !o.wants(r) {
			continue
		}
		if o.Namespace != "" && !r.Namespaced {
			continue
		}
		for _, sub := range r.Subresources {
			req := o.request(&r, nil)
			req.SubResource, req.RequestSubResource = sub, sub
			if o.Set.mayMeet(req) {
				subresources++
			}
		}
		out = append(out, target{r, r.GVR.Resource + "." + r.GVR.Version + "." + r.GVR.Group})
	}
	if subresources > 0 {
		notes = append(notes, fmt.Sprintf("policies also match %d subresources, such as status and scale: those have no objects of their own and were left out", subresources))
	}
	return out, notes
}

// wants reports whether Kinds includes the resource.
func (o *Options) wants(r Resource) bool {
	if len(o.Kinds) == 0 {
		return true
	}
	return slices.ContainsFunc(o.Kinds, r.is)
}

// is reports whether kind names the resource, as kubectl understands it: by its name, singular,
// short name or kind, with or without the group.
func (r *Resource) is(kind string) bool {
	name, group, grouped := strings.Cut(strings.ToLower(kind), ".")
	return (name == r.GVR.Resource || name == strings.ToLower(r.GVK.Kind) || slices.Contains(r.Names, name)) && (!grouped || group == r.GVR.Group)
}

// Unknown returns an error for the first of Kinds that the cluster does not serve, because its
// audit would always find nothing.
func (o *Options) Unknown() error {
	for _, kind := range o.Kinds {
		if _, err := o.Cluster.Find(kind); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the resource that kind names, as kubectl understands it, in the version that its
// group prefers.
func (c *Cluster) Find(kind string) (Resource, error) {
	var names []string
	at := -1
	for i, r := range c.Resources {
		if r.is(kind) && (at < 0 || r.Preferred && !c.Resources[at].Preferred && r.GVR.Group == c.Resources[at].GVR.Group) {
			at = i
		}
		names = append(names, r.GVR.Resource)
	}
	if at >= 0 {
		return c.Resources[at], nil
	}
	err := fmt.Errorf("the cluster has no kind or resource %q", kind)
	if near := lookup.Nearest(strings.ToLower(kind), names); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return Resource{}, err
}

// Created reads an object, and returns it without what the server has added at its creation.
func (c *Cluster) Created(ctx context.Context, r Resource, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := c.of(r, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return asNew(u), nil
}

// Run audits a cluster. For a kind that cannot be read, the Report has the reason.
func Run(ctx context.Context, o Options) (*Report, error) {
	targets, notes := o.targets()
	notes = append(slices.Clone(o.Cluster.Notes), notes...)
	state := o.State
	if state == nil {
		state = &State{Digest: o.digest()}
	}
	if state.Digest != o.digest() {
		return nil, ErrStateOther
	}
	a := &audit{Options: &o, state: state, saved: time.Now()}
	for i, t := range targets {
		if slices.Contains(state.Kinds, t.id) {
			continue
		}
		if err := a.kind(ctx, &targets[i], i, len(targets)); err != nil {
			return nil, err
		}
		state.Kinds, state.Kind, state.At = append(state.Kinds, t.id), "", cursor{}
		if err := a.save(true); err != nil {
			return nil, err
		}
	}
	state.Totals.sort()
	if state.Totals.Exempt > 0 {
		notes = append(notes, fmt.Sprintf("%d objects are in namespaces that no policy of mapd's reaches: %s", state.Totals.Exempt, strings.Join(o.Exempt, ", ")))
	}
	return &Report{Totals: state.Totals, Kept: state.Kept, incomplete: o.Set.Incomplete, Notes: append(slices.Clone(o.Set.Problems), notes...)}, nil
}

// audit is the state of one Run.
type audit struct {
	*Options
	state *State
	saved time.Time
	busy  time.Duration // time for the last page, for Background
}

func (a *audit) save(now bool) error {
	if a.Save == nil || !now && time.Since(a.saved) < a.SaveEvery {
		return nil
	}
	a.saved = time.Now()
	return a.Save(a.state)
}

// kind audits one kind, from where the state says.
func (a *audit) kind(ctx context.Context, t *target, done, kinds int) error {
	s := a.state
	if s.Kind != t.id || len(s.Totals.Kinds) == 0 {
		s.Kind, s.At = t.id, cursor{}
		s.Totals.Kinds = append(s.Totals.Kinds, KindTotal{Kind: t.GVK.Kind, Resource: t.GVR.GroupResource().String(), Version: t.GVR.Version})
	}
	current := func() *KindTotal { return &s.Totals.Kinds[len(s.Totals.Kinds)-1] }
	l := newLister(a.Cluster, t.Resource, query{namespace: a.Namespace, labels: a.Labels}, s.At)
	if a.First > 0 {
		l.limit = a.First
	}
	for !l.at.Over {
		err := l.next(ctx, func(items []json.RawMessage) error { return a.judgeAll(ctx, t, current(), items) })
		switch {
		case err == nil:
		case (unreadable(err) || a.Background && refused(err)) && ctx.Err() == nil:
			current().Unreadable = short(err.Error(), maxText)
			return nil
		default:
			return fmt.Errorf("%s: %w", t.GVR.GroupResource(), err)
		}
		s.At = l.at
		if a.First > 0 {
			return nil
		}
		if err := Sleep(ctx, a.busy); err != nil {
			return err
		}
		a.busy = 0
		if a.Progress != nil {
			a.Progress(Progress{Kind: t.GVK.Kind, Done: done, Kinds: kinds, Objects: s.Totals.Objects, Changed: s.Totals.Changed})
		}
		if !l.at.Over {
			if err := a.save(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeAll evaluates objects on all cores and counts them in their order.
func (a *audit) judgeAll(ctx context.Context, t *target, total *KindTotal, items []json.RawMessage) error {
	type judged struct {
		result *Result
		exempt bool
	}
	results := make([]judged, len(items))
	judge := func(i int) {
		if ctx.Err() == nil {
			results[i].result, results[i].exempt = a.judge(ctx, a.Set, a.Base, &t.Resource, items[i])
		}
	}
	if a.Background {
		began := time.Now()
		for i := range items {
			judge(i)
		}
		a.busy += time.Since(began)
	} else {
		parallel.Each(len(items), judge)
	}
	if err := ctx.Err(); err != nil {
		return err // results may be errors of ctx, and must not count
	}
	for _, j := range results {
		if j.exempt {
			a.state.Totals.Exempt++
			continue
		}
		a.state.Totals.add(total, j.result)
		if j.result == nil {
			continue
		}
		j.result.Resource = t.Resource
		a.state.Kept.add(j.result, a.Keep)
		if a.Each != nil {
			if err := a.Each(j.result); err != nil {
				return err
			}
		}
	}
	return nil
}
