//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

const (
	// promise is how long a change may take until it acts, at the median.
	promise = time.Second
	// patience is what a single change gets.
	patience = 3 * time.Second
)

// allowed is how long something may take that is promised, on a machine on which a
// request takes so long: on one that is busy, everything does.
func allowed(promise, request time.Duration) time.Duration { return max(promise, 40*request) }

var (
	policiesGVR = schema.GroupVersionResource{Group: "admissionregistration.mapd.dev", Version: "v1", Resource: "mutatingadmissionpolicies"}
	bindingsGVR = schema.GroupVersionResource{Group: "admissionregistration.mapd.dev", Version: "v1", Resource: "mutatingadmissionpolicybindings"}
)

// TestLife changes everything that decisions depend on while requests flow.
func TestLife(t *testing.T) {
	// Not in parallel with others: it measures.
	a := &admin{Mapd: cluster.Installed(t, cluster.InstallOptions{Replicas: 2})}
	a.namespace(t, "e2e-life", map[string]string{"e2e": "life"})
	t.Run("changes act", a.changesAct)
	t.Run("the configuration follows", a.configurationFollows)
	t.Run("requests flow", a.requestsFlow)
	t.Run("status", a.status)
	t.Run("broken", a.broken)
}

// admin is a cluster with mapd as its administrator handles it.
type admin struct{ *cluster.Mapd }

// changesAct measures, in a quiet cluster, how long a change takes until every
// request knows of it, on both replicas.
func (a *admin) changesAct(t *testing.T) {
	took, requests := map[string][]time.Duration{}, map[string][]time.Duration{}
	measure := func(change, want string, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		after, request := a.awaitLabel(t, "acts", want)
		took[change], requests[change] = append(took[change], after), append(requests[change], request)
	}
	for i := range 8 {
		d := drawing{
			name: fmt.Sprintf("e2e-life-acts-%d", i), failure: []string{"Fail", "Ignore"}[i%2], reinvocation: []string{"Never", "IfNeeded"}[i/2%2],
			resources: "configmaps", namespaces: "e2e: life", mutations: []string{label("acts", `"1"`)},
		}
		created := "a policy, first of its entry"
		if i >= 4 {
			// One of the same kind that does something else stays.
			created = "a policy, not the first of its entry"
			other := d
			other.name, other.mutations = fmt.Sprintf("e2e-life-other-%d", i), []string{label("other", `"1"`)}
			a.draw(t, other)
			a.await(t, "the other policy", func(o metav1.Object) error { return has(o, "other", "1") })
		}
		measure(created, "1", func() error { return a.draws(t, d) })
		d.mutations = []string{label("acts", `"2"`)}
		measure("a changed policy", "2", func() error { return a.update(t.Context(), d) })
		measure("a deleted binding", "", func() error {
			return a.Dynamic.Resource(bindingsGVR).Delete(t.Context(), d.name, metav1.DeleteOptions{})
		})
		a.erase(t, d.name, fmt.Sprintf("e2e-life-other-%d", i))
	}
	for _, change := range slices.Sorted(maps.Keys(took)) {
		judge(t, change, took[change], requests[change])
	}
}

// judge holds times to the promise. The requests are those with which they were
// measured.
func judge(t *testing.T, what string, all, requests []time.Duration) {
	t.Helper()
	slices.Sort(all)
	slices.Sort(requests)
	median, most, request := all[len(all)/2], all[len(all)-1], requests[len(requests)/2]
	t.Logf("%s: median %s, most %s of %d; a request took %s", what, median.Round(time.Millisecond), most.Round(time.Millisecond), len(all),
		request.Round(time.Millisecond))
	if want := allowed(promise, request); median > want {
		t.Errorf("%s: median %s, want %s", what, median, want)
	}
}

// awaitLabel returns how long it takes from now until several requests at once
// all show a label with a value, or none if want is "", and how long those took.
func (a *admin) awaitLabel(t *testing.T, key, want string) (took, request time.Duration) {
	t.Helper()
	start := time.Now()
	var end time.Time
	request = a.await(t, fmt.Sprintf("label %s to be %q", key, want), func(o metav1.Object) error {
		end = time.Now()
		return has(o, key, want)
	})
	return end.Sub(start), request
}

// await sends requests, several at once because connections stay with one replica,
// until check likes all of a set, and returns how long that set took.
func (a *admin) await(t *testing.T, what string, check func(metav1.Object) error) (took time.Duration) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, what, func(ctx context.Context) error {
		start := time.Now()
		const several = 6
		var errs [several]error
		var mu sync.Mutex
		var wait sync.WaitGroup
		for i := range several {
			wait.Go(func() {
				o, err := a.Kubernetes.CoreV1().ConfigMaps("e2e-life").Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{GenerateName: "await-"},
				}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					err = check(o)
				}
				errs[i] = err
			})
		}
		wait.Wait()
		took = time.Since(start)
		return errors.Join(errs[:]...)
	})
	return took
}

func has(o metav1.Object, key, want string) error {
	if got, found := o.GetLabels()[key]; got != want || found != (want != "") {
		return fmt.Errorf("label %s is %q, want %q", key, got, want)
	}
	return nil
}

// configurationFollows lets entries come and go, up to all four.
func (a *admin) configurationFollows(t *testing.T) {
	a.NeedNoBindings(t)
	names := []string{"fail.never.mapd.dev", "ignore.never.mapd.dev", "fail.ifneeded.mapd.dev", "ignore.ifneeded.mapd.dev"}
	resources := []string{"configmaps", "secrets", "services", "serviceaccounts"}
	var all []drawing
	var took, requests []time.Duration
	want := map[string]string{}
	settle := func() {
		t.Helper()
		start := time.Now()
		cluster.Eventually(t, cluster.Patience, fmt.Sprintf("the entries %v", want), func(ctx context.Context) error {
			start := time.Now()
			c, err := a.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "000.mapd.dev", metav1.GetOptions{})
			requests = append(requests, time.Since(start))
			if err != nil {
				return err
			}
			return sameEntries(c.Webhooks, names, want)
		})
		took = append(took, time.Since(start))
	}
	for i, name := range names {
		d := drawing{
			name: "e2e-life-entry-" + fmt.Sprint(i), failure: []string{"Fail", "Ignore"}[i%2], reinvocation: []string{"Never", "IfNeeded"}[i/2],
			resources: resources[i], namespaces: "e2e: none", mutations: []string{label("entry", `"1"`)},
		}
		all = append(all, d)
		a.draw(t, d)
		want[name] = resources[i]
		settle()
	}
	// Another policy adds its rule, and takes it away again.
	more := all[0]
	more.name, more.resources = "e2e-life-entry-more", "pods"
	a.draw(t, more)
	want[names[0]] = "configmaps pods"
	settle()
	a.erase(t, more.name)
	want[names[0]] = "configmaps"
	settle()
	// A policy that moves to another entry.
	all[3].failure = "Fail"
	if err := a.update(t.Context(), all[3]); err != nil {
		t.Fatal(err)
	}
	delete(want, names[3])
	want[names[2]] = "serviceaccounts services"
	settle()
	// A policy without a binding needs no entry.
	if err := a.Dynamic.Resource(bindingsGVR).Delete(t.Context(), all[1].name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(want, names[1])
	settle()
	for i, entry := range []string{names[0], "", "", names[2]} {
		a.erase(t, all[i].name)
		switch {
		case i == 2:
			want[names[2]] = "serviceaccounts"
		case entry != "":
			delete(want, entry)
		}
		settle()
	}
	judge(t, "a change of the configuration", took, requests)
}

// sameEntries compares entries, in the order of names, with the resources that
// they should have.
func sameEntries(webhooks []admissionregistrationv1.MutatingWebhook, names []string, want map[string]string) error {
	var got, wanted []string
	for _, w := range webhooks {
		var resources []string
		for _, r := range w.Rules {
			resources = append(resources, r.Resources...)
		}
		slices.Sort(resources)
		got = append(got, w.Name+" "+strings.Join(resources, " "))
		if len(w.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("%s has no caBundle", w.Name)
		}
		if strings.HasPrefix(w.Name, "fail.") != (*w.FailurePolicy == admissionregistrationv1.Fail) {
			return fmt.Errorf("%s has failurePolicy %s", w.Name, *w.FailurePolicy)
		}
	}
	for _, n := range names {
		if r, ok := want[n]; ok {
			wanted = append(wanted, n+" "+r)
		}
	}
	if !slices.Equal(got, wanted) {
		return fmt.Errorf("got %q, want %q", got, wanted)
	}
	return nil
}

// A timeline knows which state something was in, as far as one who asks for it by
// requests can know: it changes some time between the sending of a request and a
// while after its answer.
type timeline struct {
	mu     sync.Mutex
	states []state // state i is that after change i
}

type state struct{ sent, known time.Time }

// change makes the next state by a request.
func (l *timeline) change(do func(n int) error) error {
	l.mu.Lock()
	n := len(l.states)
	l.states = append(l.states, state{sent: time.Now()})
	l.mu.Unlock()
	err := do(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states[n].known = time.Now()
	return err
}

// between returns the states that a request may see that is sent at start and
// answered at end, if changes act after a grace.
func (l *timeline) between(start, end time.Time, grace time.Duration) (first, last int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.states {
		if !s.known.IsZero() && !s.known.Add(grace).After(start) {
			first = i
		}
		if !s.sent.After(end) {
			last = i
		}
	}
	return first, last
}

// traffic is requests and what came of them.
type traffic struct {
	sent, late atomic.Int64
	mu         sync.Mutex
	errs       []string
	seen       []observation

	policy, param, namespace, binding, group, selected timeline
}

// An observation is a request that was answered, and the labels it got.
type observation struct {
	start, end time.Time
	labels     map[string]string
}

func (r *traffic) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// requestsFlow changes policies, bindings, parameters, namespaces and kinds under
// a stream of requests. None may fail or see half of a change, and changes act.
func (a *admin) requestsFlow(t *testing.T) {
	a.GrantParams(t, "life.mapd.dev", "*")
	r := &traffic{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	// What changes, first as it is at the beginning.
	const workloads = "configmaps, pods, deployments"
	always := drawing{name: "e2e-life-always", resources: workloads, namespaces: "e2e: life", mutations: []string{label("always", `"yes"`)}}
	policy := func(n int) drawing {
		// The same number in a variable, in the first mutation and in the second.
		return drawing{
			name: "e2e-life-policy", resources: workloads, namespaces: "e2e: life", variable: fmt.Sprintf(`"%d"`, n),
			mutations: []string{label("policy-a", "variables.v"), label("policy-b", fmt.Sprintf(`"%d"`, n))},
		}
	}
	param := func(n int) *corev1.ConfigMap {
		s := fmt.Sprint(n)
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "param", Namespace: "e2e-life-params"}, Data: map[string]string{"a": s, "b": s}}
	}
	params := drawing{
		name: "e2e-life-param", resources: workloads, namespaces: "e2e: life", paramKind: "{apiVersion: v1, kind: ConfigMap}",
		paramRef:  "{name: param, namespace: e2e-life-params, parameterNotFoundAction: Deny}",
		mutations: []string{label("param-a", "params.data.a"), label("param-b", "params.data.b")},
	}
	selected := params
	selected.name, selected.paramRef = "e2e-life-selected", "{selector: {matchLabels: {life: selected}}, namespace: e2e-life-params, parameterNotFoundAction: Allow}"
	selected.mutations = []string{label("selected", "params.data.a")}
	namespaced := drawing{
		name: "e2e-life-namespace", resources: workloads, namespaces: "e2e: life",
		mutations: []string{label("namespace-a", `namespaceObject.metadata.labels["life-a"]`), label("namespace-b", `namespaceObject.metadata.labels["life-b"]`)},
	}
	bound := drawing{name: "e2e-life-binding", resources: workloads, namespaces: "e2e: life", mutations: []string{label("binding", `"1"`)}}
	group := drawing{
		name: "e2e-life-group", failure: "Ignore", reinvocation: "IfNeeded", resources: workloads, namespaces: "e2e: life",
		mutations: []string{label("group", `"1"`)},
	}
	relabel := func(n int) error {
		patch := fmt.Sprintf(`{"metadata": {"labels": {"life-a": "%d", "life-b": "%d"}}}`, n, n)
		_, err := a.Kubernetes.CoreV1().Namespaces().Patch(ctx, "e2e-life", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	a.namespace(t, "e2e-life-params", nil)
	configMaps := a.Kubernetes.CoreV1().ConfigMaps("e2e-life-params")
	if _, err := configMaps.Create(ctx, param(0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	none := func(int) error { return nil }
	for what, err := range map[string]error{
		"namespace": r.namespace.change(relabel), "policy": r.policy.change(func(n int) error { return a.draws(t, policy(n)) }),
		"param": r.param.change(none), "binding": r.binding.change(none), "group": r.group.change(none), "selected": r.selected.change(none),
	} {
		if err != nil {
			t.Fatal(what, err)
		}
	}
	for _, d := range []drawing{always, params, selected, namespaced, bound} {
		a.draw(t, d)
	}
	if err := a.Dynamic.Resource(bindingsGVR).Delete(ctx, bound.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.await(t, "the policies to act", func(o metav1.Object) error {
		return errors.Join(has(o, "always", "yes"), has(o, "policy-b", "0"), has(o, "param-b", "0"), has(o, "namespace-b", "0"), has(o, "binding", ""))
	})

	var requests, changes sync.WaitGroup
	every := func(pause time.Duration, do func(ctx context.Context, n int) error) {
		requests.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				// What is under way at the end is seen through.
				if err := do(context.WithoutCancel(ctx), n); err != nil {
					r.fail("%v", err)
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	a.send(every, r)

	// The changes, each in its own time.
	t0 := time.Now()
	change := func(line *timeline, pause time.Duration, do func(n int) error) {
		changes.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for time.Since(t0) < 10*time.Second && ctx.Err() == nil {
				if err := line.change(do); err != nil {
					r.fail("change: %v", err)
					return
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	change(&r.policy, 300*time.Millisecond, func(n int) error { return a.update(ctx, policy(n)) })
	change(&r.param, 250*time.Millisecond, func(n int) error {
		_, err := configMaps.Update(ctx, param(n), metav1.UpdateOptions{})
		return err
	})
	change(&r.namespace, 350*time.Millisecond, relabel)
	// Those that are there in odd states. They last for longer than a change takes
	// to act, so that both states are seen.
	change(&r.binding, 1300*time.Millisecond, func(n int) error {
		if n%2 == 0 {
			return a.Dynamic.Resource(bindingsGVR).Delete(ctx, bound.name, metav1.DeleteOptions{})
		}
		_, err := a.Dynamic.Resource(bindingsGVR).Create(ctx, parse(t, bound.bindingYAML()), metav1.CreateOptions{})
		return err
	})
	change(&r.group, 1500*time.Millisecond, func(n int) error {
		if n%2 == 0 {
			a.erase(t, group.name)
			return nil
		}
		return a.create(ctx, group)
	})
	change(&r.selected, 1100*time.Millisecond, func(n int) error {
		if n%2 == 0 {
			return configMaps.Delete(ctx, "selected", metav1.DeleteOptions{})
		}
		p := param(1)
		p.Name, p.Labels = "selected", map[string]string{"life": "selected"}
		_, err := configMaps.Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	a.customKind(t)
	changes.Wait()
	stop()
	requests.Wait()
	slowest := time.Duration(0)
	for _, o := range r.seen {
		slowest = max(slowest, o.end.Sub(o.start))
	}
	t.Logf("the slowest request took %s", slowest.Round(time.Millisecond))
	for _, o := range r.seen {
		r.check(o, allowed(patience, slowest))
	}

	for i, e := range r.errs {
		if i == 10 {
			t.Errorf("and %d more", len(r.errs)-i)
			break
		}
		t.Error(e)
	}
	t.Logf("%d requests; %d changes of a policy, %d of a param, %d of a namespace, %d of a binding, %d of a group, %d of selected params; %d requests saw a state more than %s old",
		r.sent.Load(), len(r.policy.states), len(r.param.states), len(r.namespace.states), len(r.binding.states), len(r.group.states), len(r.selected.states),
		r.late.Load(), promise)
	if r.sent.Load() < 30 {
		t.Errorf("only %d requests were sent", r.sent.Load())
	}
	a.erase(t, always.name, policy(0).name, params.name, selected.name, namespaced.name, bound.name, group.name)
}

// send starts requests of several kinds.
func (a *admin) send(every func(time.Duration, func(ctx context.Context, n int) error), r *traffic) {
	const namespace = "e2e-life"
	dry := []string{metav1.DryRunAll}
	configMaps := a.Kubernetes.CoreV1().ConfigMaps(namespace)
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{"k": "v"}}
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "life"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	seen := func(start time.Time, o metav1.Object, err error) error {
		r.sent.Add(1)
		if err != nil {
			return fmt.Errorf("a request failed: %w", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, observation{start, time.Now(), o.GetLabels()})
		return nil
	}
	every(60*time.Millisecond, func(ctx context.Context, n int) error { // the whole life of an object
		name := fmt.Sprintf("flow-%d", n)
		start := time.Now()
		o, err := configMaps.Create(ctx, configMap(name), metav1.CreateOptions{})
		if err := seen(start, o, err); err != nil {
			return err
		}
		start = time.Now()
		o, err = configMaps.Update(ctx, configMap(name), metav1.UpdateOptions{})
		err = seen(start, o, err)
		return errors.Join(err, configMaps.Delete(ctx, name, metav1.DeleteOptions{}))
	})
	for range 2 {
		every(30*time.Millisecond, func(ctx context.Context, n int) error {
			start := time.Now()
			o, err := a.Kubernetes.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "flow-", Labels: map[string]string{"app": "life"}}, Spec: template.Spec,
			}, metav1.CreateOptions{DryRun: dry})
			return seen(start, o, err)
		})
	}
	every(40*time.Millisecond, func(ctx context.Context, n int) error { // server-side apply
		data, err := yaml.Marshal(&appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: "flow", Namespace: namespace},
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		})
		if err != nil {
			return err
		}
		start := time.Now()
		o, err := a.Kubernetes.AppsV1().Deployments(namespace).Patch(ctx, "flow", types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "life", DryRun: dry})
		return seen(start, o, err)
	})
	every(700*time.Millisecond, func(ctx context.Context, n int) error { // in a namespace that has just been made
		name := fmt.Sprintf("e2e-life-new-%d", n)
		namespaces := a.Kubernetes.CoreV1().Namespaces()
		if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{cluster.Label: cluster.LabelValue, "e2e": "life", "life-a": "new", "life-b": "new"},
		}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		o, err := a.Kubernetes.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
		r.sent.Add(1)
		if err != nil {
			return fmt.Errorf("a request in a new namespace failed: %w", err)
		}
		if err := errors.Join(has(o, "always", "yes"), has(o, "namespace-a", "new")); err != nil {
			return fmt.Errorf("in a new namespace: %w", err)
		}
		return namespaces.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// check holds what a request got against what was to be seen at the time.
func (r *traffic) check(o observation, patience time.Duration) {
	start, end, labels := o.start, o.end, o.labels
	if labels["always"] != "yes" {
		r.fail("a request was not mutated by the policy that was always there: %v", labels)
	}
	for what, line := range map[string]*timeline{"policy": &r.policy, "param": &r.param, "namespace": &r.namespace} {
		a, b := labels[what+"-a"], labels[what+"-b"]
		if a != b {
			r.fail("half of a %s: %s and %s", what, a, b)
			continue
		}
		first, last := line.between(start, end, patience)
		var n int
		if _, err := fmt.Sscan(a, &n); err != nil || n < first || n > last {
			r.fail("%s %q, want %d to %d", what, a, first, last)
		}
		if first, _ := line.between(start, end, promise); n < first {
			r.late.Add(1)
		}
	}
	for what, line := range map[string]*timeline{"binding": &r.binding, "group": &r.group, "selected": &r.selected} {
		there := 0
		if labels[what] == "1" {
			there = 1
		}
		first, last := line.between(start, end, patience)
		if first == last && first%2 != there {
			r.fail("%s: label is %q in state %d", what, labels[what], first)
		}
		if first, last := line.between(start, end, promise); first == last && first%2 != there {
			r.late.Add(1)
		}
	}
}

// customKind makes a kind, policies and parameters of it, changes its schema, and
// removes it.
func (a *admin) customKind(t *testing.T) {
	t.Helper()
	widgets := schema.GroupVersionResource{Group: "life.mapd.dev", Version: "v1", Resource: "widgets"}
	definition := func(more string) string {
		return `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.life.mapd.dev, labels: ` + mine + `}, spec: {
			group: life.mapd.dev, scope: Namespaced, names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
				size: {type: integer}` + more + `}}}}}}]}}`
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widget := func() *unstructured.Unstructured {
		return parse(t, `{apiVersion: life.mapd.dev/v1, kind: Widget, metadata: {name: flow}, spec: {}}`)
	}
	quiet := rest.CopyConfig(a.Config)
	quiet.WarningHandler = rest.NoWarnings{}
	dynamicClient := a.DynamicClient(t, quiet)
	try := func(ctx context.Context, want map[string]any) error {
		// By apply, because a server keeps other creations waiting for the first two
		// seconds of a kind (k8s.io/apiextensions-apiserver pkg/apiserver
		// customresource_handler.go).
		o, err := dynamicClient.Resource(widgets).Namespace("e2e-life").Apply(ctx, "flow", widget(), metav1.ApplyOptions{FieldManager: "life", DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if got := o.Object["spec"]; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("spec is %v, want %v", got, want)
		}
		return nil
	}
	d := drawing{
		name: "e2e-life-widget", groups: "life.mapd.dev", resources: "widgets", namespaces: "e2e: life",
		mutations: []string{"Object{spec: Object.spec{size: 7}}"},
	}
	a.draw(t, d) // before there is such a kind
	for round := range 2 {
		if _, err := a.Dynamic.Resource(crds).Create(t.Context(), parse(t, definition("")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		cluster.Eventually(t, cluster.Patience, "the kind to be served", func(ctx context.Context) error {
			_, err := a.Dynamic.Resource(widgets).Namespace("e2e-life").List(ctx, metav1.ListOptions{})
			return err
		})
		start, request := time.Now(), time.Duration(0)
		cluster.Eventually(t, cluster.Patience, "the kind to be usable", func(ctx context.Context) error {
			sent := time.Now()
			defer func() { request = time.Since(sent) }()
			return try(ctx, map[string]any{"size": int64(7)})
		})
		took := time.Since(start)
		t.Logf("round %d: a kind was usable %s after it was served", round, took.Round(time.Millisecond))
		if want := allowed(2*time.Second, request); took > want {
			t.Errorf("a kind was usable %s after it was served, want %s", took, want)
		}
		for range 10 {
			if err := try(t.Context(), map[string]any{"size": int64(7)}); err != nil {
				t.Errorf("after the kind was usable: %v", err)
			}
		}

		// The schema learns a field, and the policy uses it.
		crd, err := a.Dynamic.Resource(crds).Get(t.Context(), "widgets.life.mapd.dev", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		next := parse(t, definition(", color: {type: string}"))
		next.SetResourceVersion(crd.GetResourceVersion())
		if _, err := a.Dynamic.Resource(crds).Update(t.Context(), next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		d.mutations = []string{`Object{spec: Object.spec{size: 7, color: "red"}}`}
		if err := a.update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		cluster.Eventually(t, cluster.Patience, "the new field to be usable", func(ctx context.Context) error {
			return try(ctx, map[string]any{"color": "red", "size": int64(7)})
		})
		t.Logf("round %d: a new field was usable after %s", round, time.Since(start).Round(time.Millisecond))
		if err := a.Dynamic.Resource(crds).Delete(t.Context(), "widgets.life.mapd.dev", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		d.mutations = []string{"Object{spec: Object.spec{size: 7}}"}
		if err := a.update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		cluster.Eventually(t, cluster.Patience, "the kind to be gone", func(ctx context.Context) error {
			_, err := a.Dynamic.Resource(crds).Get(ctx, "widgets.life.mapd.dev", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
	a.erase(t, d.name)
}

// status is what people see of policies: conditions, columns, events, warnings.
func (a *admin) status(t *testing.T) {
	crd := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teams.status.mapd.dev, labels: ` + mine + `}
spec:
  group: status.mapd.dev
  scope: Cluster
  names: {kind: Team, plural: teams, singular: team, listKind: TeamList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
	fine := drawing{name: "e2e-status-fine", resources: "configmaps", namespaces: "e2e: none", mutations: []string{label("a", `"b"`)}}
	params := fine
	params.name, params.paramKind, params.paramRef = "e2e-status-params", "{apiVersion: status.mapd.dev/v1, kind: Team}", "{name: x, parameterNotFoundAction: Allow}"
	unbound := fine
	unbound.name = "e2e-status-unbound"
	dangling := fine
	dangling.name = "e2e-status-dangling"
	unknown := drawing{
		name: "e2e-status-unknown", resources: "pods", namespaces: "e2e: none",
		mutations: []string{"Object{spec: Object.spec{hostNetwrk: true}}"},
	}
	for _, d := range []drawing{fine, params, unbound, dangling, unknown} {
		t.Cleanup(func() { a.erase(t, d.name) })
	}
	out := a.kubectl(t, fine.yaml()+params.yaml()+unbound.policyYAML()+dangling.bindingYAML()+unknown.yaml(), "apply", "-f", "-")
	if out.code != 0 {
		t.Fatal(out)
	}
	wantWarning := "spec.mutations[0].applyConfiguration.expression:1:26: "
	if !strings.Contains(out.stderr, "Warning: "+wantWarning) || !strings.Contains(out.stderr, "hostNetwrk") || strings.Count(out.stderr, "Warning:") != 1 {
		t.Errorf("kubectl apply warned:\n%swant one Warning: %s… about hostNetwrk", out.stderr, wantWarning)
	}

	conditions := func(gvr schema.GroupVersionResource, name, want string) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, "conditions of "+name, func(ctx context.Context) error {
			o, err := a.Dynamic.Resource(gvr).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := ""
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range list {
				c := c.(map[string]any)
				got += fmt.Sprintf("%v=%v/%v ", c["type"], c["status"], c["reason"])
				if c["observedGeneration"] != o.GetGeneration() {
					return fmt.Errorf("observedGeneration is %v, want %d", c["observedGeneration"], o.GetGeneration())
				}
			}
			if got = strings.TrimSpace(got); got != want {
				return fmt.Errorf("got %s, want %s", got, want)
			}
			return nil
		})
	}
	conditions(policiesGVR, fine.name, "Ready=True/InUse Compiled=True/Compiled ParamKindFound=True/NotNeeded")
	conditions(policiesGVR, unbound.name, "Ready=True/NotBound Compiled=True/Compiled ParamKindFound=True/NotNeeded")
	conditions(policiesGVR, params.name, "Ready=False/ParamKindNotFound Compiled=True/Compiled ParamKindFound=False/ParamKindNotFound")
	conditions(policiesGVR, unknown.name, "Ready=True/InUse Compiled=True/Compiled ParamKindFound=True/NotNeeded")
	conditions(bindingsGVR, fine.name, "Ready=True/InUse PolicyFound=True/Found")
	conditions(bindingsGVR, dangling.name, "Ready=False/PolicyNotFound PolicyFound=False/PolicyNotFound")

	o, err := a.Dynamic.Resource(policiesGVR).Get(t.Context(), unknown.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	warnings, _, _ := unstructured.NestedSlice(o.Object, "status", "typeChecking", "expressionWarnings")
	if len(warnings) != 1 || !strings.Contains(fmt.Sprint(warnings), "hostNetwrk") || !strings.Contains(fmt.Sprint(warnings), "spec.mutations[0].applyConfiguration.expression") {
		t.Errorf("status.typeChecking has %v", warnings)
	}

	// The columns.
	out = a.kubectl(t, "", "get", "map,mapb")
	for _, want := range []string{
		"NAME FAILUREPOLICY REINVOCATION PARAM READY TRIPPED AGE",
		".admissionregistration.mapd.dev/e2e-status-fine Fail Never True ",
		".admissionregistration.mapd.dev/e2e-status-params Fail Never Team False ",
		"NAME POLICY PARAM READY MODE CHANGED WOULD FAILED AGE",
		".admissionregistration.mapd.dev/e2e-status-params e2e-status-params x True ",
		".admissionregistration.mapd.dev/e2e-status-dangling e2e-status-dangling False ",
	} {
		if !strings.Contains(squeeze(out.stdout), want) {
			t.Errorf("kubectl get map,mapb has no %q:\n%s", want, out.stdout)
		}
	}
	if out := a.kubectl(t, "", "get", "map", params.name, "-o", "wide"); !strings.Contains(squeeze(out.stdout), "COMPILED MESSAGE") ||
		!strings.Contains(squeeze(out.stdout), "the API server does not serve status.mapd.dev/v1, kind Team") {
		t.Errorf("kubectl get map -o wide:\n%s", out.stdout)
	}
	// It heals in the order in which an administrator may find out.
	out = a.kubectl(t, crd, "apply", "-f", "-")
	if out.code != 0 {
		t.Fatal(out)
	}
	t.Cleanup(func() { a.kubectl(t, crd, "delete", "--wait=false", "-f", "-") })
	conditions(policiesGVR, params.name, "Ready=False/ParamsForbidden Compiled=True/Compiled ParamKindFound=True/Found")
	// The event, where people look for it. (That a kind is missing is worth one only
	// if it does not come for a while.)
	cluster.Eventually(t, cluster.Patience, "an event", func(context.Context) error {
		out := a.kubectl(t, "", "describe", "map", params.name)
		if !strings.Contains(squeeze(out.stdout), "Warning ParamsForbidden") {
			return fmt.Errorf("kubectl describe:\n%s", out.stdout)
		}
		return nil
	})
	a.GrantParams(t, "status.mapd.dev", "teams")
	conditions(policiesGVR, params.name, "Ready=True/InUse Compiled=True/Compiled ParamKindFound=True/Found")
	a.erase(t, fine.name)
	conditions(bindingsGVR, dangling.name, "Ready=False/PolicyNotFound PolicyFound=False/PolicyNotFound")
	if out := a.kubectl(t, dangling.policyYAML(), "apply", "-f", "-"); out.code != 0 {
		t.Fatal(out)
	}
	conditions(bindingsGVR, dangling.name, "Ready=True/InUse PolicyFound=True/Found")
}

// broken stores policies that cannot run, which takes a mapd that is away.
func (a *admin) broken(t *testing.T) {
	a.NeedProcesses(t)
	d := drawing{name: "e2e-broken", resources: "configmaps", namespaces: "e2e: life", mutations: []string{`Object{metadata: Object.metadata{labels: {"broken": nobody}}}`}}
	ignored := d
	ignored.name, ignored.failure = "e2e-broken-ignored", "Ignore"
	if out := a.kubectl(t, d.yaml(), "apply", "-f", "-"); out.code == 0 || !strings.Contains(out.stderr, "undeclared reference to 'nobody'") {
		t.Fatalf("a broken policy was not refused: %s", out)
	}
	a.Scale(t, 0)
	if out := a.kubectl(t, d.yaml()+ignored.yaml(), "apply", "-f", "-"); out.code != 0 {
		t.Fatal(out)
	}
	t.Cleanup(func() { a.erase(t, d.name, ignored.name) })
	a.Scale(t, 2)

	configMaps := a.Kubernetes.CoreV1().ConfigMaps("e2e-life")
	create := func(ctx context.Context) error {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "broken-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	// The text of a policy that does not compile, as natively.
	want := `policy 'e2e-broken' with binding 'e2e-broken' denied request: `
	cluster.Eventually(t, cluster.Patience, "the broken policy to deny", func(ctx context.Context) error {
		if err := create(ctx); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "undeclared reference to 'nobody'") {
			return fmt.Errorf("got %v, want …%s… nobody", err, want)
		}
		return nil
	})
	for name, failure := range map[string]string{d.name: "Fail", ignored.name: "Ignore"} {
		cluster.Eventually(t, cluster.Patience, "status and event of "+name, func(ctx context.Context) error {
			out := squeeze(a.kubectl(t, "", "describe", "map", name).stdout)
			for _, want := range []string{"Failure Policy: " + failure, "Reason: NotCompiled", "undeclared reference to 'nobody'", "Warning NotCompiled"} {
				if !strings.Contains(out, want) {
					return fmt.Errorf("kubectl describe has no %q", want)
				}
			}
			return nil
		})
	}
	// With the Fail policy repaired, the other one harms nobody.
	d.mutations = []string{label("broken", `"no"`)}
	if out := a.kubectl(t, d.yaml(), "apply", "-f", "-"); out.code != 0 {
		t.Fatal(out)
	}
	a.await(t, "the repaired policy to act", func(o metav1.Object) error { return has(o, "broken", "no") })
}

// mine is the label, in YAML, of what a test makes.
const mine = `{` + cluster.Label + `: ` + cluster.LabelValue + `}`

// A drawing is a policy and a binding of the same name.
type drawing struct {
	name                string
	failure             string // default Fail
	reinvocation        string // default Never
	groups, versions    string // default "", apps; v1
	resources           string // names with commas
	operations          string // default CREATE, UPDATE
	namespaces, objects string // the label that they must have; "": all
	paramKind, paramRef string // YAML
	condition           string // an expression
	variable            string // the expression of variables.v
	mutations           []string
	patches             bool   // the mutations are JSON patches
	apiVersion          string // default admissionregistration.mapd.dev/v1
}

// label is an ApplyConfiguration that sets a label to the value of an expression.
func label(key, value string) string {
	return fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"%s": %s}}}`, key, value)
}

func (d drawing) version() string {
	if d.apiVersion == "" {
		return "admissionregistration.mapd.dev/v1"
	}
	return d.apiVersion
}

func (d drawing) policyYAML() string {
	or := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: %s\nkind: MutatingAdmissionPolicy\nmetadata: {name: %s, labels: %s}\nspec:\n", d.version(), d.name, mine)
	fmt.Fprintf(&b, "  failurePolicy: %s\n  reinvocationPolicy: %s\n", or(d.failure, "Fail"), or(d.reinvocation, "Never"))
	if d.paramKind != "" {
		fmt.Fprintf(&b, "  paramKind: %s\n", d.paramKind)
	}
	fmt.Fprintf(&b, "  matchConstraints: {resourceRules: [{apiGroups: [%s], apiVersions: [%s], operations: [%s], resources: [%s]}]}\n",
		or(d.groups, `"", apps`), or(d.versions, "v1"), or(d.operations, "CREATE, UPDATE"), d.resources)
	if d.condition != "" {
		fmt.Fprintf(&b, "  matchConditions: [{name: c, expression: %q}]\n", d.condition)
	}
	if d.variable != "" {
		fmt.Fprintf(&b, "  variables: [{name: v, expression: %q}]\n", d.variable)
	}
	fmt.Fprintf(&b, "  mutations:\n")
	for _, m := range d.mutations {
		kind, field := "ApplyConfiguration", "applyConfiguration"
		if d.patches {
			kind, field = "JSONPatch", "jsonPatch"
		}
		fmt.Fprintf(&b, "  - {patchType: %s, %s: {expression: %q}}\n", kind, field, m)
	}
	return b.String()
}

func (d drawing) bindingYAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: %s\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: %s, labels: %s}\nspec:\n  policyName: %s\n", d.version(), d.name, mine, d.name)
	if d.paramRef != "" {
		fmt.Fprintf(&b, "  paramRef: %s\n", d.paramRef)
	}
	if d.namespaces != "" || d.objects != "" {
		fmt.Fprintf(&b, "  matchResources: {namespaceSelector: {matchLabels: {%s}}, objectSelector: {matchLabels: {%s}}}\n", d.namespaces, d.objects)
	}
	return b.String()
}

func (d drawing) yaml() string { return d.policyYAML() + d.bindingYAML() }

// create makes the policy and then the binding.
func (a *admin) create(ctx context.Context, d drawing) error {
	policy, err := parsed(d.policyYAML())
	if err != nil {
		return err
	}
	binding, err := parsed(d.bindingYAML())
	if err != nil {
		return err
	}
	if _, err := a.Dynamic.Resource(policiesGVR).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = a.Dynamic.Resource(bindingsGVR).Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// draw is create, and removes both when the test ends.
func (a *admin) draw(t testing.TB, d drawing) {
	t.Helper()
	if err := a.draws(t, d); err != nil {
		t.Fatal(err)
	}
}

func (a *admin) draws(t testing.TB, d drawing) error {
	t.Cleanup(func() { a.erase(t, d.name) })
	return a.create(t.Context(), d)
}

// update replaces the policy.
func (a *admin) update(ctx context.Context, d drawing) error {
	next, err := parsed(d.policyYAML())
	if err != nil {
		return err
	}
	for {
		old, err := a.Dynamic.Resource(policiesGVR).Get(ctx, d.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		next.SetResourceVersion(old.GetResourceVersion())
		// A status may be written in between.
		if _, err = a.Dynamic.Resource(policiesGVR).Update(ctx, next, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// erase removes policies and bindings that are there; bindings first, so that
// nothing runs without its binding's restrictions.
func (a *admin) erase(t testing.TB, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Patience)
	defer cancel()
	for _, gvr := range []schema.GroupVersionResource{bindingsGVR, policiesGVR} {
		for _, name := range names {
			if err := a.Dynamic.Resource(gvr).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s %s cannot be deleted: %v", gvr.Resource, name, err)
			}
		}
	}
}

// namespace makes a namespace for as long as the test lasts.
func (a *admin) namespace(t testing.TB, name string, labels map[string]string) {
	t.Helper()
	all := map[string]string{cluster.Label: cluster.LabelValue}
	maps.Copy(all, labels)
	namespaces := a.Kubernetes.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cluster.Patience)
		defer cancel()
		if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o, err := parsed(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func parsed(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(strings.TrimPrefix(text, "---\n")))
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, text)
	}
	return o, o.UnmarshalJSON(data)
}

// squeeze makes one space of several.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// printedBy is what a command printed.
type printedBy struct {
	command, stdout, stderr string
	code                    int
}

func (p printedBy) String() string {
	return fmt.Sprintf("%s: exit code %d\n%s%s", p.command, p.code, p.stdout, p.stderr)
}

// kubectl runs kubectl as the administrator.
func (a *admin) kubectl(t testing.TB, stdin string, args ...string) printedBy {
	t.Helper()
	return commandIn(t, a.Cluster, stdin, cluster.Program(t, "kubectl"), args...)
}

// mapd runs mapd as the administrator.
func (a *admin) mapd(t testing.TB, args ...string) printedBy {
	t.Helper()
	return commandIn(t, a.Cluster, "", cluster.Binary(t), args...)
}

// commandIn runs a command with the administrator's kubeconfig, also after the
// test has ended.
func commandIn(t testing.TB, c *cluster.Cluster, stdin, path string, args ...string) printedBy {
	t.Helper()
	kubeconfig := c.Kubeconfig(t, c.Config, "")
	defer os.Remove(kubeconfig)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.Dir)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", path, err)
	}
	return printedBy{filepath.Base(path) + " " + strings.Join(args, " "), stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
