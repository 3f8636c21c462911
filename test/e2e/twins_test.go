//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

var (
	laneCount = flag.Int("lanes", 4, "pairs of servers that TestTwins runs cases on at the same time")
	onlyCases = flag.String("cases", "", "regular expression: the cases that TestTwins runs")
	selfCheck = flag.Bool("selfcheck", false, "TestTwins compares two native servers: what differs then, differs by chance")
)

// TestTwins runs every case of the corpus twice: its policies as
// admissionregistration.k8s.io on a server that runs the in-tree plugin, and as
// admissionregistration.mapd.dev on a server that does not and has mapd
// installed. What the two answer and store must be equal.
//
// Policies are cluster-wide, so a pair of servers, a lane, runs one case at a
// time. Everything else that a case needs is made before any policy is: its
// namespaces and API groups have names of their own, see rewrite. That is also
// what makes it fast: the in-tree plugin takes up new policies once a second, and
// new kinds every five.
func TestTwins(t *testing.T) {
	only, err := regexp.Compile(*onlyCases)
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	cluster.NotGiven(t, "it needs servers of its own")
	plans, skipped := planAll(t, only)
	known := len(plans)
	if os.Getenv("MAPD_E2E_CASES") == "some" {
		plans = someOf(t, plans)
	}
	differences := newDifferences(t)
	var asExpected, refused atomic.Int32
	t.Run("lanes", func(t *testing.T) {
		lanes := max(1, min(*laneCount, len(plans)))
		var all []part
		for i := range lanes {
			var mine []*plan
			for j := i; j < len(plans); j += lanes {
				mine = append(mine, plans[j])
			}
			all = append(all, part{fmt.Sprint(i), func(t *testing.T) { runLane(t, mine, differences, &asExpected, &refused) }})
		}
		together(t, all)
	})
	if len(plans) == known && *onlyCases == "" {
		differences.checkStale(t)
	}
	if *onlyCases == "" {
		// Of some of the cases, nine tenths of what is their share.
		least := leastAsWanted
		if len(plans) < known {
			least = leastAsWanted * len(plans) / known * 9 / 10
		}
		if n := int(asExpected.Load()); n < least {
			t.Errorf("natively %d cases end as their files want; %d did", n, least)
		}
	}
	t.Logf("%d cases ran, %d of them natively as the case wants; the policies of %d are refused; %d differ as docs/reference/compat.md says; %d were left out",
		len(plans), asExpected.Load(), refused.Load(), differences.count(), len(skipped))
}

func runLane(t *testing.T, plans []*plan, differences *differences, asExpected, refused *atomic.Int32) {
	twins := [2]*twin{}
	for i, native := range []bool{true, false} {
		twins[i] = newTwin(t, native || *selfCheck)
	}
	both := func(what string, f func(w *twin) error) {
		t.Helper()
		var errs [2]error
		var wait sync.WaitGroup
		for i, w := range twins {
			wait.Go(func() { errs[i] = f(w) })
		}
		wait.Wait()
		for i, err := range errs {
			if err != nil {
				t.Fatalf("%s: %s: %v", twins[i].name, what, err)
			}
		}
	}
	both("prepare", func(w *twin) error { return w.prepare(t.Context(), plans) })
	for _, p := range plans {
		t.Run(p.c.Name, func(t *testing.T) {
			var got [2]*outcome
			var errs [2]error
			var wait sync.WaitGroup
			for i, w := range twins {
				wait.Go(func() { got[i], errs[i] = w.run(t.Context(), p) })
			}
			wait.Wait()
			for i, err := range errs {
				if err != nil {
					t.Fatalf("%s: %v", twins[i].name, err)
				}
			}
			if asWanted(p, got[0]) {
				asExpected.Add(1)
			} else {
				t.Logf("natively the case does not end as its file says: %d %s", got[0].Answer.Code, message(got[0].Answer.Body))
			}
			if len(got[0].Refused) > 0 {
				refused.Add(1)
			}
			diff := cmp.Diff(got[0], got[1])
			if diff != "" && p.c.Compat == "" && differences.row(p.c) == "" && unordered(p.c) && findOrder(t, twins[0], p, got[1]) {
				differences.explain(p.c, "stable-order")
				t.Log("native chooses an order anew each time; mapd's answer is one of its answers")
				return
			}
			differences.check(t, p.c, diff)
		})
	}
}

// unordered says whether the in-tree plugin may run the policies of a case in
// several orders.
func unordered(c *cases.Case) bool {
	selects := func(o *unstructured.Unstructured) bool {
		return lookup(o.Object, "spec", "paramRef", "selector") != nil
	}
	return len(c.Policies) > 1 || len(c.Bindings) > 1 || slices.ContainsFunc(c.Bindings, selects)
}

// findOrder runs a case natively again until it gives the same outcome. Two
// policies have two orders, and the next refresh takes either.
func findOrder(t *testing.T, native *twin, p *plan, want *outcome) bool {
	t.Helper()
	if p.update != "" || p.c.Request.SubResource != "" {
		return false // what was there before is gone
	}
	for range 20 {
		native.forget(t.Context(), p)
		got, err := native.run(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if cmp.Diff(got, want) == "" {
			return true
		}
	}
	return false
}

// twin is one server of a lane.
type twin struct {
	name    string
	native  bool
	group   string // of the policies
	version string // of the group, in which they are written
	cluster *cluster.Cluster
	http    *http.Client
	// turn counts what was run, so that every canary has a name of its own.
	turn int
}

func newTwin(t *testing.T, native bool) *twin {
	t.Helper()
	w := &twin{name: "mapd", group: "admissionregistration.mapd.dev", version: "v1", native: native}
	if native {
		w.name, w.group = "native", "admissionregistration.k8s.io"
		w.cluster = cluster.Start(t, cluster.Options{Native: true})
	} else {
		// The in-tree plugin has the whole time of a request. So has mapd here: on a
		// busy machine, a case about the cost limit must not run out of time first.
		m := cluster.Installed(t, cluster.InstallOptions{Flags: []string{"--webhook-timeout=30s"}})
		// Every custom kind of the corpus is in a group of its own, and a cluster's
		// administrator may as well say "*".
		m.GrantParams(t, "*", "*")
		w.cluster = m.Cluster
	}
	w.connect(t)
	return w
}

func (w *twin) connect(t *testing.T) {
	t.Helper()
	client, err := rest.HTTPClientFor(w.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	w.http = client
}

// outcome is what a server did with a case, less what no two servers share.
type outcome struct {
	// Refused are the answers to the policies and bindings that were not accepted.
	Refused []answer
	// Answer is that to the request.
	Answer answer
	// Stored is the object afterwards, Parent the one that the subresource is of.
	Stored, Parent any
}

type answer struct {
	About    string
	Code     int
	Warnings []string
	Body     any
}

// prepare makes everything that the cases need but their policies, and waits
// until the server knows all their kinds.
func (w *twin) prepare(ctx context.Context, plans []*plan) error {
	var first, second []object
	first = append(first, canaryNamespace)
	for _, p := range plans {
		first = append(first, p.first...)
		second = append(second, p.second...)
	}
	if err := w.createAll(ctx, first); err != nil {
		return err
	}
	var kinds []object
	for _, p := range plans {
		kinds = append(kinds, p.customKinds...)
	}
	for _, k := range kinds {
		if err := w.until(ctx, "served", func() error {
			_, err := w.expect(ctx, http.MethodGet, k.path, nil, http.StatusOK)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", k.path, err)
		}
	}
	if err := w.createAll(ctx, second); err != nil {
		return err
	}
	return w.awaitSchemas(ctx, kinds)
}

// createAll creates objects, several at a time.
func (w *twin) createAll(ctx context.Context, objects []object) error {
	var (
		mu   sync.Mutex
		errs []error
		wait sync.WaitGroup
		free = make(chan struct{}, 8)
	)
	for _, o := range objects {
		free <- struct{}{}
		wait.Go(func() {
			defer func() { <-free }()
			if err := w.create(ctx, o); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %s: %w", o.owner, o.path, err))
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return fmt.Errorf("%d objects cannot be made, such as: %w", len(errs), errs[0])
	}
	return nil
}

func (w *twin) create(ctx context.Context, o object) error {
	a, err := w.send(ctx, request{method: http.MethodPost, path: o.path, body: o.tree})
	if err != nil {
		return err
	}
	if a.Code == http.StatusConflict && o.shared {
		return nil
	}
	if a.Code != http.StatusCreated && a.Code != http.StatusOK {
		return fmt.Errorf("%d %v", a.Code, message(a.Body))
	}
	return nil
}

// awaitSchemas waits until both ways of typing are known for custom kinds: a
// dry-run of each through an ApplyConfiguration answers no 503 any more.
func (w *twin) awaitSchemas(ctx context.Context, kinds []object) error {
	if len(kinds) == 0 {
		return nil
	}
	if err := w.post(ctx, probePolicy, probeBinding); err != nil {
		return err
	}
	for _, k := range kinds {
		if err := w.until(ctx, "the schema of "+k.path, func() error {
			a, err := w.send(ctx, request{method: http.MethodPost, path: k.path + "?dryRun=All", body: k.tree})
			if err != nil {
				return err
			}
			if probed, ok := lookup(a.Body, "metadata", "labels", "probed").(string); ok && probed == "yes" {
				return nil
			}
			return fmt.Errorf("%d %s", a.Code, message(a.Body))
		}); err != nil {
			return err
		}
	}
	return w.delete(ctx, probePolicy, probeBinding)
}

// run runs one case.
func (w *twin) run(ctx context.Context, p *plan) (*outcome, error) {
	out := &outcome{}
	known := w.remember(ctx, p)
	w.turn++
	name := fmt.Sprintf("canary-%d", w.turn)
	policies := append(slices.Clone(p.policies), canary(name)...)
	defer func() {
		_ = w.delete(context.WithoutCancel(ctx), policies...) // those that were refused are not there
	}()
	// A server knows of a role sooner than of a policy, so none waits for these.
	if err := w.createAll(ctx, p.during); err != nil {
		return nil, err
	}
	defer func() {
		for _, o := range p.during {
			_, _ = w.send(context.WithoutCancel(ctx), request{method: http.MethodDelete, path: o.path + "/" + o.tree["metadata"].(map[string]any)["name"].(string)})
		}
	}()
	for _, o := range p.policies {
		a, err := w.send(ctx, request{method: http.MethodPost, path: w.policyPath(o), body: w.policy(o)})
		if err != nil {
			return nil, err
		}
		if a.Code != http.StatusCreated {
			a.About = o.path
			out.Refused = append(out.Refused, w.normal(a, known))
		}
	}
	// A case whose policies are not accepted says nothing about requests.
	if len(out.Refused) > 0 {
		return out, nil
	}
	if err := w.post(ctx, canary(name)...); err != nil {
		return nil, err
	}
	if err := w.until(ctx, "the policies to act", func() error { return w.chirps(ctx, name) }); err != nil {
		return nil, err
	}

	r, err := w.request(ctx, p)
	if err != nil {
		return nil, err
	}
	a, noAnswer := w.settled(ctx, r)
	if noAnswer != nil {
		a = answer{Body: map[string]any{"message": "the connection was closed without an answer"}}
	}
	if a.Code == http.StatusCreated && p.c.Request.SubResource == "" && !p.c.Request.DryRun {
		collection, _, _ := strings.Cut(r.path, "?")
		name, _ := lookup(a.Body, "metadata", "name").(string)
		stored, err := w.send(ctx, request{method: http.MethodGet, path: collection + "/" + name})
		if err != nil {
			return nil, err
		}
		out.Stored = w.normal(stored, append(known, uid(stored.Body))).Body
	} else if p.parent != "" {
		stored, err := w.send(ctx, request{method: http.MethodGet, path: p.parent})
		if err != nil {
			return nil, err
		}
		out.Parent = w.normal(stored, known).Body
	}
	out.Answer = w.normal(a, append(known, uid(a.Body)))
	if p.cluster && a.Code == http.StatusCreated {
		w.forget(ctx, p) // the next case may use the same name
	}
	return out, nil
}

// settled sends a request. While the answer says that the server does not see rights or
// parameters that exist already, it sends the request again: a refused request changes
// nothing. After 30 seconds the last answer counts.
func (w *twin) settled(ctx context.Context, r request) (a answer, noAnswer error) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_ = w.until(limited, "the server to know all", func() error {
		a, noAnswer = w.send(ctx, r)
		text := message(a.Body)
		if noAnswer == nil && (strings.Contains(text, "not yet synced to use for admission") || strings.Contains(text, "is forbidden: User ") && strings.Contains(text, " cannot ")) {
			return errors.New(text)
		}
		return nil
	})
	return a, noAnswer
}

// forget deletes what the request of a case has created.
func (w *twin) forget(ctx context.Context, p *plan) {
	path, _, _ := strings.Cut(p.request.path, "?")
	_, _ = w.send(ctx, request{method: http.MethodDelete, path: path + "/" + p.c.Request.Name}) // there may be none
}

// chirps returns nil if a canary denies.
func (w *twin) chirps(ctx context.Context, name string) error {
	a, err := w.send(ctx, request{method: http.MethodPost, path: canaryPath + "?dryRun=All", body: canaryObject})
	if err != nil {
		return err
	}
	if !strings.Contains(message(a.Body), "'"+name+"'") {
		return fmt.Errorf("the canary is silent: %d %s", a.Code, message(a.Body))
	}
	return nil
}

// request is the case's request, with the version that is stored now if it is an
// update.
func (w *twin) request(ctx context.Context, p *plan) (request, error) {
	r := p.request
	if p.update == "" {
		return r, nil
	}
	a, err := w.expect(ctx, http.MethodGet, p.update, nil, http.StatusOK)
	if err != nil {
		return r, err
	}
	r.body = setVersion(r.body, lookup(a.Body, "metadata", "resourceVersion"))
	return r, nil
}

// remember collects what the server has made up about the objects of a case and
// an expression could show.
func (w *twin) remember(ctx context.Context, p *plan) []madeUp {
	var known []madeUp
	for _, path := range p.watched {
		if a, err := w.send(ctx, request{method: http.MethodGet, path: path}); err == nil {
			known = append(known, uid(a.Body))
			if at, ok := lookup(a.Body, "metadata", "creationTimestamp").(string); ok {
				known = append(known, madeUp{at, "TIME"})
			}
		}
	}
	return known
}

type request struct {
	method, path string
	user         *cases.RequestSpec // nil: the administrator
	body         any
}

// send sends one request. An error means that there was no answer.
func (w *twin) send(ctx context.Context, r request) (answer, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return answer{}, err
		}
		body = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, w.cluster.Config.Host+r.path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "twins")
	if r.user != nil {
		impersonate(req.Header, r.user.User)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{Code: resp.StatusCode, Warnings: resp.Header.Values("Warning")}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // large integers stay what they are
	if d.Decode(&a.Body) != nil {
		a.Body = string(data)
	}
	return a, nil
}

func (w *twin) expect(ctx context.Context, method, path string, body any, code int) (answer, error) {
	a, err := w.send(ctx, request{method: method, path: path, body: body})
	if err == nil && a.Code != code {
		err = fmt.Errorf("%s %s: %d %s", method, path, a.Code, message(a.Body))
	}
	return a, err
}

func (w *twin) post(ctx context.Context, policies ...object) error {
	for _, o := range policies {
		if _, err := w.expect(ctx, http.MethodPost, w.policyPath(o), w.policy(o), http.StatusCreated); err != nil {
			return err
		}
	}
	return nil
}

func (w *twin) delete(ctx context.Context, policies ...object) error {
	var first error
	for _, o := range policies {
		name, _ := lookup(o.tree, "metadata", "name").(string)
		if _, err := w.expect(ctx, http.MethodDelete, w.policyPath(o)+"/"+name, nil, http.StatusOK); first == nil {
			first = err
		}
	}
	return first
}

func (w *twin) policyPath(o object) string {
	return "/apis/" + w.group + "/" + w.version + "/" + o.path
}

// policy gives a policy or binding the group that this server executes.
func (w *twin) policy(o object) any {
	tree := clone(o.tree)
	tree["apiVersion"] = w.group + "/" + w.version
	return tree
}

// until polls. It is not cluster.Eventually because both twins wait at the same
// time, on goroutines that must not end the test.
func (w *twin) until(ctx context.Context, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, err)
		case <-tick.C:
		}
	}
}
