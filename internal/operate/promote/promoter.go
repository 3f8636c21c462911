package promote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/cluster/list"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
)

const (
	// Manager is the field manager of the objects that a Promoter writes.
	Manager = "mapd-promote"
	// probeLabel marks the probes of a Promoter, so that Sweep finds those that earlier ones left.
	probeLabel = "mapd.dev/promotion-probe"
	// pollEvery is how often a question is asked again.
	pollEvery = 250 * time.Millisecond
	// reachable is how long an API server may take to answer at its own address.
	reachable = 3 * time.Second
	// handover is how long a probe has to succeed through the common address of the API servers,
	// if they cannot all be asked at their own addresses.
	handover = 10 * time.Second
)

// probeNamespaces are the namespaces that probes may use, which every cluster has. A probe
// applies its ConfigMap there as a dry run only.
var probeNamespaces = []string{"default", "kube-public", "kube-node-lease", "kube-system"}

// Replicas asks the replicas of mapd.
type Replicas interface {
	// Running returns the Running fingerprint of a policy on each replica, by the name of the
	// replica.
	Running(ctx context.Context, policy string) (map[string]string, error)
	// Counts returns the counts of requests to which a policy in shadow applied, by the name of
	// the replica.
	Counts(ctx context.Context, policy string) (map[string]Counts, error)
	// Exempt returns the namespaces that replicas exclude.
	Exempt(ctx context.Context) ([]string, error)
}

// Counts are about a policy in shadow on one replica.
type Counts struct {
	Since               time.Time
	Seen, Would, Failed uint64
	Example             string
}

// Promoter moves policies of a cluster.
type Promoter struct {
	Config     *rest.Config
	Dynamic    dynamic.Interface
	Kubernetes kubernetes.Interface
	Replicas   Replicas
	ID         string
	// Namespace is the namespace of mapd; exceptions there hold for all namespaces. "" means
	// api.Installation.
	Namespace string
	// Exempt are namespaces that native bindings have to exclude.
	Exempt []string
	// Patience is how long the answer to a question may take.
	Patience time.Duration
	// Settle is how long to wait once every API server runs the native policy. A server may have
	// passed its native policies for a request before that, and still be waiting for a slow
	// webhook before it calls mapd; such a request still needs mapd's policy.
	Settle time.Duration
	// CanaryRequests and CanaryTime end the comparison, whichever comes first. If fewer than
	// CanaryLeast requests were compared by then, the promotion goes back.
	CanaryRequests, CanaryLeast uint64
	CanaryTime                  time.Duration
	// Window says that policies may be moved that change their own result again (flag
	// --allow-window). The commands that an error suggests then have that flag, too.
	Window bool
	// Progress is called with messages about the progress.
	Progress func(format string, args ...any)

	servers []server // set by Connect
}

// server is one API server, or, if all is set, all of them behind the address of the Config.
type server struct {
	name   string
	client dynamic.Interface
	all    bool
}

// Connect finds the addresses of the API servers.
func (p *Promoter) Connect(ctx context.Context) error {
	p.servers = nil
	slices_, err := p.Kubernetes.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	var missed []string
	if err != nil {
		missed = append(missed, err.Error())
	} else {
		for _, s := range slices_.Items {
			for _, e := range s.Endpoints {
				for _, address := range e.Addresses {
					for _, port := range s.Ports {
						if port.Port == nil {
							continue
						}
						at := net.JoinHostPort(address, strconv.Itoa(int(*port.Port)))
						one, err := p.direct(ctx, at)
						if err != nil {
							missed = append(missed, fmt.Sprintf("%s: %v", at, err))
							continue
						}
						p.servers = append(p.servers, one)
					}
				}
			}
		}
	}
	if len(missed) == 0 && len(p.servers) > 0 {
		p.Progress("%d API servers are asked, each at its own address", len(p.servers))
		return nil
	}
	// A server that cannot be reached at its own address may still answer at that of the Config.
	p.servers = append(p.servers, server{name: p.Config.Host, client: nil, all: true})
	for _, m := range missed {
		p.Progress("not reached: %s", m)
	}
	p.Progress("API servers are also asked through %s again and again for %v, since not each can be reached at its own address", p.Config.Host, handover)
	return nil
}

// errUnverified is the reason why servers are not asked at their own addresses.
var errUnverified = errors.New("with insecure-skip-tls-verify nobody verifies who is at the address that an EndpointSlice names, so it gets no credentials")

// direct returns the API server at an address.
func (p *Promoter) direct(ctx context.Context, at string) (server, error) {
	if p.Config.Insecure {
		return server{}, errUnverified
	}
	config := rest.CopyConfig(p.Config)
	config.Host, config.APIPath = "https://"+at, ""
	if config.ServerName == "" {
		config.ServerName = "kubernetes.default.svc"
	}
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return server{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, reachable)
	defer cancel()
	if err := kube.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return server{}, err
	}
	client, err := dynamic.NewForConfig(config)
	return server{name: at, client: client}, err
}

// fresh returns a client with connections of its own, so that a load balancer may choose another
// server, and a function that closes these connections.
func (p *Promoter) fresh() (dynamic.Interface, func(), error) {
	config := rest.CopyConfig(p.Config)
	config.WarningHandler = rest.NoWarnings{}
	dialer := &net.Dialer{}
	config.Dial = dialer.DialContext // client-go shares connections between equal configurations, unless they have a Dial
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	d, err := dynamic.NewForConfigAndClient(config, client)
	return d, client.CloseIdleConnections, err
}

// Result is the outcome of a move.
type Result struct {
	Policy string    `json:"policy"`
	At     Direction `json:"at"`
	// Back is the reason why a promotion was undone; "" if it was not.
	Back string `json:"back,omitempty"`
	// Compared is the number of requests for which the canary found the same result on both sides.
	Compared uint64 `json:"compared,omitempty"`
	// Both is the time during which requests may have been mutated by both sides.
	Both time.Duration `json:"both,omitempty"`
}

// Move moves a policy. Its error says in which state the policy is.
func (p *Promoter) Move(ctx context.Context, policy string, o Options) (Result, error) {
	out := Result{Policy: policy, At: o.To}
	o.ID, o.Exempt = p.ID, p.Exempt
	var proofs Proofs
	var begun time.Time
	c := &canary{}
	going := time.Time{} // when Move began to wait for an object to disappear; zero if it does not wait
	for {
		w, err := p.World(ctx, policy)
		if err != nil {
			return out, p.where(policy, o, err)
		}
		if begun.IsZero() {
			begun = w.bothSince()
		}
		next := Decide(w, o, proofs)
		if next.Back != "" && out.Back == "" {
			out.Back, o.To, out.At = next.Back, Mapd, Mapd
			p.Progress("%s: goes back to mapd: %s", policy, next.Back)
		}
		switch {
		case next.Ask != AskGone:
			going = time.Time{}
		case going.IsZero():
			going = time.Now()
		case time.Since(going) > p.Patience:
			return out, p.where(policy, o, fmt.Errorf("not gone within %v: %s: deleted already, and a finalizer keeps it", p.Patience, strings.Join(w.going(), ", ")))
		}
		switch {
		case next.Err != nil:
			return out, fmt.Errorf("%s: %w", policy, next.Err)
		case next.Done:
			out.Compared = c.agreed
			if !begun.IsZero() {
				out.Both = max(0, time.Since(begun))
			}
			return out, nil
		case len(next.Do) > 0:
			err = p.do(ctx, next.Do)
		default:
			err = p.answer(ctx, w, policy, next, &proofs, c)
		}
		if err != nil {
			return out, p.where(policy, o, err)
		}
	}
}

// going names the objects that are being deleted.
func (w *World) going() (out []string) {
	for k, o := range w.Objects {
		if o.going() {
			out = append(out, fmt.Sprintf("%s.%s %s", o.GetKind(), k.Group, k.Name))
		}
	}
	slices.Sort(out)
	return out
}

// where adds to an error that the policy still works, and the commands to go on or go back.
func (p *Promoter) where(policy string, o Options, err error) error {
	window := ""
	if p.Window {
		window = " --allow-window"
	}
	on, back := "mapd promote"+window+" "+policy, "mapd promote --demote"+window+" "+policy
	if o.To == Mapd {
		on, back = back, on
	}
	return fmt.Errorf("%s: %w\nevery request is still mutated; go on with: %s\nor back with: %s", policy, err, on, back)
}

// bothSince returns since when both groups have the policy: the later of the two creation times.
// If a group lacks it, bothSince returns the zero time.
func (w *World) bothSince() time.Time {
	own, native := w.Objects[nativepolicies.Key{Group: api.OwnGroup, Name: w.Policy}], w.Objects[nativepolicies.Key{Group: api.NativeGroup, Name: w.Policy}]
	if own == nil || native == nil {
		return time.Time{}
	}
	a, b := own.GetCreationTimestamp(), native.GetCreationTimestamp()
	if a.Before(&b) {
		return b.Time
	}
	return a.Time
}

// do executes actions. If an object has changed since it was read, if only in its status, do
// returns nil after a pause, so that the caller reads the objects again.
func (p *Promoter) do(ctx context.Context, list []Action) error {
	for _, a := range list {
		var err error
		if a.Annotate != nil {
			err = p.annotate(ctx, a)
		} else {
			err = gatekeeper.Execute(ctx, p.Dynamic, a.Action, Manager)
		}
		switch {
		case err == nil:
			p.Progress("%s", a)
		case apierrors.IsConflict(err), apierrors.IsNotFound(err) && a.Seen != nil, apierrors.IsAlreadyExists(err) && a.Seen == nil:
			p.Progress("%s: not yet, it has changed since it was read; reading it again", a)
			return pause(ctx, pollEvery)
		default:
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

func (p *Promoter) annotate(ctx context.Context, a Action) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": a.Seen.UID, "resourceVersion": a.Seen.Version, "annotations": a.Annotate,
	}})
	if err != nil {
		return err
	}
	_, err = p.Dynamic.Resource(resource(a.Group, a.Binding)).Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	return err
}

func resource(group string, binding bool) schema.GroupVersionResource {
	r := api.OwnPolicies
	if binding {
		r = api.OwnBindings
	}
	r.Group = group
	return r
}

// World reads the policy and its bindings in both groups, and bindings that have the name of one
// of these in the other group.
func (p *Promoter) World(ctx context.Context, policy string) (*World, error) {
	w := &World{Policy: policy, Objects: map[nativepolicies.Key]*Object{}}
	bindings, names := map[string][]*unstructured.Unstructured{}, map[string]bool{}
	for _, group := range []string{api.OwnGroup, api.NativeGroup} {
		u, err := p.Dynamic.Resource(resource(group, false)).Get(ctx, policy, metav1.GetOptions{})
		switch {
		case err == nil:
			w.Objects[nativepolicies.Key{Group: group, Name: policy}] = NewObject(u)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
		if bindings[group], err = listAll(ctx, p.Dynamic.Resource(resource(group, true))); err != nil {
			return nil, err
		}
		for _, b := range bindings[group] {
			if Of(b) == policy {
				names[b.GetName()] = true
			}
		}
	}
	for group, all := range bindings {
		for _, b := range all {
			if names[b.GetName()] {
				w.Objects[nativepolicies.Key{Group: group, Binding: true, Name: b.GetName()}] = NewObject(b)
			}
		}
	}
	if w.Objects[nativepolicies.Key{Group: api.OwnGroup, Name: policy}] == nil {
		return w, nil
	}
	var own []string
	for _, b := range bindings[api.OwnGroup] {
		if Of(b) == policy {
			own = append(own, b.GetName())
		}
	}
	var err error
	if w.Excepted, err = p.exceptionsFrom(ctx, policy, own); err != nil {
		return nil, err
	}
	return w, nil
}

// listAll returns all objects of a resource; none if the server does not serve it.
func listAll(ctx context.Context, client dynamic.ResourceInterface) ([]*unstructured.Unstructured, error) {
	all, err := list.All[*unstructured.Unstructured](ctx, client.List, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// answer finds the answer to next.Ask and stores it in proofs. It may return before there is one;
// the caller then asks again.
func (p *Promoter) answer(ctx context.Context, w *World, policy string, next Next, proofs *Proofs, c *canary) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch next.Ask {
	case AskNative:
		p.Progress("%s: waiting until every API server runs the native policy", policy)
		if err := p.everyServer(ctx, api.NativeGroup); err != nil {
			return err
		}
		p.Progress("%s: every API server runs the native policy; requests that began before have %v to end", policy, p.Settle)
		if err := pause(ctx, p.Settle); err != nil {
			return err
		}
		proofs.Native = next.About
	case AskOwn:
		p.Progress("%s: waiting until every replica of mapd runs its policy as it is stored", policy)
		if err := p.everyReplica(ctx, policy, next.About); err != nil {
			return err
		}
		if err := p.everyServer(ctx, api.OwnGroup); err != nil {
			return err
		}
		p.Progress("%s: every replica of mapd runs its policy as it is stored, and every API server calls mapd", policy)
		proofs.Own = next.About
	case AskCanary:
		why, done, err := c.look(ctx, p, policy, next.About)
		switch {
		case err != nil:
			return err
		case why != "":
			proofs.Differs, proofs.Why = next.About, why
		case done:
			proofs.Agreed = next.About
			if c.agreed == 0 {
				p.Progress("%s: no request met the policy within %v, so nothing was compared", policy, p.CanaryTime)
			} else {
				p.Progress("%s: mapd and the API servers agree on %d requests", policy, c.agreed)
			}
		default:
			return pause(ctx, time.Second)
		}
	case AskGone:
		return pause(ctx, pollEvery)
	}
	return nil
}

// poll calls f until it returns nil. After p.Patience it gives up, and returns f's last error.
func (p *Promoter) poll(ctx context.Context, what string, f func(context.Context) error) error {
	ends := time.Now().Add(p.Patience)
	for {
		err := f(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(ends):
			return fmt.Errorf("%s: not within %v: %w", what, p.Patience, err)
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

var errNotYet = errors.New("not yet")

// everyServer writes a probe, which is a policy and a binding in a group, and waits until every
// API server runs it. Then each also runs what was written before the probe: a server receives
// policies in the order in which they were written, and bindings likewise, and it runs the probe
// only when it has both its policy and its binding.
func (p *Promoter) everyServer(ctx context.Context, group string) (err error) {
	name := fmt.Sprintf("mapd-promotion-%d", time.Now().UnixNano())
	namespace, err := p.probeNamespace(ctx, group)
	if err != nil {
		return err
	}
	probe := gatekeeper.Probe{Name: name, Namespace: namespace, ConfigMap: name}
	policy, binding := probe.Objects()
	label := map[string]string{probeLabel: p.label()}
	policy.Labels, binding.Labels = label, label
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for _, bound := range []bool{true, false} {
			if gone := p.Dynamic.Resource(resource(group, bound)).Delete(ctx, name, metav1.DeleteOptions{}); gone != nil && !apierrors.IsNotFound(gone) && err == nil {
				p.Progress("the probe %s stays: %v", name, gone)
			}
		}
	}()
	for _, u := range []*unstructured.Unstructured{api.Object(policy, group), api.Object(binding, group)} {
		if _, err := p.Dynamic.Resource(resource(group, u.GetKind() == api.BindingKind)).Create(ctx, u, metav1.CreateOptions{FieldManager: Manager}); err != nil {
			return fmt.Errorf("the probe %s cannot be written: %w", name, err)
		}
	}
	for _, s := range p.servers {
		since := time.Time{}
		err := p.poll(ctx, "API server "+s.name, func(ctx context.Context) error {
			client := s.client
			if s.all {
				fresh, done, err := p.fresh()
				if err != nil {
					return err
				}
				defer done()
				client = fresh
			}
			acts, err := probe.Acts(ctx, client)
			switch {
			case err == nil && acts && s.all:
				if since.IsZero() {
					since = time.Now()
				}
				if time.Since(since) < handover {
					return errNotYet
				}
				return nil
			case err == nil && acts:
				return nil
			case err == nil:
				err = fmt.Errorf("it does not run policies of %s", group)
			}
			since = time.Time{}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// probeNamespace returns a namespace in which policies of a group run: policies of mapd do not run
// in the namespaces that its replicas exclude.
func (p *Promoter) probeNamespace(ctx context.Context, group string) (string, error) {
	var exempt []string
	if group == api.OwnGroup {
		err := p.poll(ctx, "the namespaces that mapd leaves out", func(ctx context.Context) (err error) {
			exempt, err = p.Replicas.Exempt(ctx)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	for _, name := range probeNamespaces {
		if !slices.Contains(exempt, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("mapd leaves out all of %s, so no probe shows that API servers call it; take one out of --exempt-namespace", strings.Join(probeNamespaces, ", "))
}

func (p *Promoter) label() string { return strings.ReplaceAll(p.ID, "/", ".") }

// Sweep deletes the probes that earlier promoters left behind. Only the holder of the lease may
// call it, because it would delete the probes of others, too.
func (p *Promoter) Sweep(ctx context.Context) error {
	for _, group := range []string{api.OwnGroup, api.NativeGroup} {
		for _, bound := range []bool{true, false} {
			list, err := p.Dynamic.Resource(resource(group, bound)).List(ctx, metav1.ListOptions{LabelSelector: probeLabel})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			for _, u := range list.Items {
				if err := p.Dynamic.Resource(resource(group, bound)).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
	}
	return nil
}

// everyReplica waits until the Running fingerprint of a policy is want on all replicas of mapd.
func (p *Promoter) everyReplica(ctx context.Context, policy, want string) error {
	return p.poll(ctx, "replicas of mapd", func(ctx context.Context) error {
		all, err := p.Replicas.Running(ctx, policy)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return errors.New("none was found")
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if all[name] != want {
				return fmt.Errorf("replica %s does not run the policy as it is stored", name)
			}
		}
		return nil
	})
}

// canary checks that mapd's policy in shadow would not change objects again after the native
// policy has changed them.
type canary struct {
	about  string
	begun  time.Time
	first  map[string]Counts
	agreed uint64
}

// look reads the counts of the replicas. It returns how the two sides differ, "" if they do not,
// and whether they have agreed on enough requests.
func (c *canary) look(ctx context.Context, p *Promoter, policy, about string) (why string, done bool, err error) {
	var now map[string]Counts
	err = p.poll(ctx, "the counts of mapd's replicas", func(ctx context.Context) (err error) {
		now, err = p.Replicas.Counts(ctx, policy)
		return err
	})
	if err != nil {
		return "", false, err
	}
	if c.about != about {
		*c = canary{about: about, begun: time.Now(), first: now}
		p.Progress("%s: mapd's policy is in shadow; comparing %d requests, for %v at most", policy, p.CanaryRequests, p.CanaryTime)
		return "", false, nil
	}
	why, done = c.compare(p, now, time.Since(c.begun) >= p.CanaryTime)
	return why, done, nil
}

// compare is the part of look that evaluates the counts in now. over says that CanaryTime is over.
func (c *canary) compare(p *Promoter, now map[string]Counts, over bool) (why string, done bool) {
	seen := uint64(0)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		n, before := now[name], c.first[name]
		// Counts that began again belong to a new process of the replica. It started when the
		// policy was already in shadow, so all of its counts are of the comparison.
		if !before.Since.Equal(n.Since) || n.Seen < before.Seen || n.Would < before.Would || n.Failed < before.Failed {
			before = Counts{Since: n.Since}
			c.first[name] = before
		}
		seen += n.Seen - before.Seen
		switch {
		case n.Would > before.Would:
			return fmt.Sprintf("mapd would have changed %d of %d requests after the API server: %s", n.Would-before.Would, n.Seen-before.Seen, n.Example), false
		case n.Failed > before.Failed:
			return fmt.Sprintf("mapd's policy failed on %d of %d requests after the API server", n.Failed-before.Failed, n.Seen-before.Seen), false
		}
	}
	c.agreed = max(c.agreed, seen) // the counts of a replica that ended are missing in now
	switch {
	case c.agreed >= p.CanaryRequests:
		return "", true
	case over && c.agreed < p.CanaryLeast:
		return fmt.Sprintf("the two sides were compared on %d requests within %v, and at least %d have to agree; wait longer with --canary-time, or demand less with --canary-least",
			c.agreed, p.CanaryTime, p.CanaryLeast), false
	}
	return "", over
}

// CheckServers checks that the servers would store the native form of a policy and its bindings,
// and, unless dryRun is set, that every API server runs native policies.
func (p *Promoter) CheckServers(ctx context.Context, w *World, dryRun bool) []CheckResult {
	if err := p.accepts(ctx, w); err != nil {
		return []CheckResult{{"cluster", Refuse, fmt.Sprintf("the server does not accept the native objects: %v", err), ""}}
	}
	if dryRun {
		return []CheckResult{{"cluster", Note, "whether API servers run native policies is asked by a probe, which a dry run does not write", ""}}
	}
	if err := p.everyServer(ctx, api.NativeGroup); err != nil {
		return []CheckResult{{"cluster", Refuse, fmt.Sprintf("not every API server runs native policies: %v", err), ""}}
	}
	return []CheckResult{{"cluster", OK, "every API server runs native policies", ""}}
}

// accepts returns nil if the server would store the native objects that do not exist yet.
func (p *Promoter) accepts(ctx context.Context, w *World) error {
	s := &sides{Options: Options{Exempt: p.Exempt}, excepted: w.Excepted}
	for _, k := range slices.SortedFunc(maps.Keys(w.Objects), func(a, b nativepolicies.Key) int {
		return strings.Compare(strconv.FormatBool(a.Binding)+a.Name, strconv.FormatBool(b.Binding)+b.Name)
	}) {
		if k.Group != api.OwnGroup || k.Binding && Of(w.Objects[k].Unstructured) != w.Policy ||
			w.Objects[nativepolicies.Key{Group: api.NativeGroup, Binding: k.Binding, Name: k.Name}] != nil {
			continue
		}
		part := s.nativePart(w.Objects[k], p.ID)
		if _, err := p.Dynamic.Resource(resource(api.NativeGroup, k.Binding)).Create(ctx, part.Object.DeepCopy(), metav1.CreateOptions{FieldManager: Manager, DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err
		}
	}
	return nil
}
