//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// A streamKind is a resource that a stream writes, and what policies promise
// about it.
type streamKind string

const (
	guarded   streamKind = "guarded"   // Fail policies
	decorated streamKind = "decorated" // Ignore policies
	free      streamKind = "free"      // no policy at all
)

var streamKinds = []streamKind{guarded, decorated, free}

// path is the collection of a kind. Each has a resource of its own, because it
// is by resources that a server chooses webhooks.
func (k streamKind) path(namespace string) string {
	switch k {
	case guarded:
		return "/api/v1/namespaces/" + namespace + "/configmaps"
	case decorated:
		return "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	}
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

func (k streamKind) object(name string) map[string]any {
	head := map[streamKind][2]string{guarded: {"v1", "ConfigMap"}, decorated: {"v1", "ServiceAccount"}, free: {"coordination.k8s.io/v1", "Lease"}}[k]
	return map[string]any{
		"apiVersion": head[0], "kind": head[1],
		"metadata": map[string]any{"name": name, "labels": map[string]any{"stream": "yes"}},
	}
}

// A madePolicy is a policy with a binding to everything, in few words.
type madePolicy struct {
	name, failure, reinvocation string // "" is Fail, Never
	resource                    string // of the core group, or resource.group; "" is configmaps
	mutation                    string // an ApplyConfiguration, or a JSONPatch if it begins with "["
	times                       int    // how often it is there; 0 is 1
	match, spec, binding        string // more of matchConstraints and of the specs, as YAML in flow style
}

func (p madePolicy) String() string {
	resource, group, _ := strings.Cut(cmp.Or(p.resource, "configmaps"), ".")
	mutation := fmt.Sprintf(`{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": %q}}`, p.mutation)
	if strings.HasPrefix(p.mutation, "[") {
		mutation = fmt.Sprintf(`{"patchType": "JSONPatch", "jsonPatch": {"expression": %q}}`, p.mutation)
	}
	more := func(fields string) string {
		if fields == "" {
			return ""
		}
		return ", " + fields
	}
	return fmt.Sprintf(`---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec: {failurePolicy: %[2]s, reinvocationPolicy: %[3]s, mutations: [%[6]s],
  matchConstraints: {resourceRules: [{apiGroups: [%[5]q], apiVersions: [v1], operations: [CREATE], resources: [%[4]s]}]%[9]s}%[7]s}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s%[8]s}
`, p.name, cmp.Or(p.failure, "Fail"), cmp.Or(p.reinvocation, "Never"), resource, group,
		strings.Repeat(mutation+", ", max(1, p.times)), more(p.spec), more(p.binding), more(p.match))
}

// policiesYAML is what kubectl applies.
func policiesYAML(policies ...madePolicy) string {
	var b strings.Builder
	for _, p := range policies {
		b.WriteString(p.String())
	}
	return b.String()
}

// streamPolicies promise something about each kind of a stream, two policies in
// two entries each, so that a write may end up with half of what was promised.
var streamPolicies = policiesYAML(
	madePolicy{name: "guard-never", mutation: `Object{metadata: Object.metadata{labels: {"first": "yes"}}}`},
	madePolicy{name: "guard-if-needed", reinvocation: "IfNeeded",
		mutation: `[JSONPatch{op: "add", path: "/metadata/labels/second", value: "yes"}]`},
	madePolicy{name: "decorate-never", failure: "Ignore", resource: "serviceaccounts",
		mutation: `[JSONPatch{op: "add", path: "/metadata/labels/first", value: "yes"}]`},
	madePolicy{name: "decorate-if-needed", failure: "Ignore", reinvocation: "IfNeeded", resource: "serviceaccounts",
		mutation: `Object{metadata: Object.metadata{labels: {"second": "yes"}}}`},
)

// A sent is one write and what became of it.
type sent struct {
	kind    streamKind
	name    string
	at      time.Time
	took    time.Duration
	code    int    // 0: there was no answer
	message string // of the server's error, or why there was no answer
	labels  string // those that policies add, as answered
}

// clean says that a write went as if nothing had happened.
func (w sent) clean() bool {
	return w.code == http.StatusCreated && (w.kind == free || w.labels == mutated)
}

// refused says that a webhook or the lack of one has ended the write, so that
// nothing may be stored.
func (w sent) refused() bool {
	return w.code >= 400 && strings.Contains(w.message, "webhook")
}

func (w sent) String() string {
	return fmt.Sprintf("%s %s sent %s took %s: %d labels %q %s", w.kind, w.name, w.at.Format("15:04:05.000"), w.took.Round(time.Millisecond), w.code, w.labels, w.message)
}

// mutated are the labels of an object that its policies have mutated.
const mutated = "first second"

// A stream sends writes at a steady rate, each on its own, whatever becomes of
// those before it.
type stream struct {
	sender    sender
	namespace string
	cancel    context.CancelFunc
	done      chan struct{}

	mu   sync.Mutex
	all  []sent
	open int // requests without an answer
}

// streamEvery is the time between two writes of each kind.
const streamEvery = 100 * time.Millisecond

// streamBound limits how many writes may be without an answer: a server that is
// stopped must not be run over when it goes on.
const streamBound = 300

// startStream makes the policies and a namespace, waits until the policies act,
// and begins to write.
func startStream(t *testing.T, m *cluster.Mapd) *stream {
	t.Helper()
	s := &stream{sender: newSender(t, m.Cluster), namespace: "stream", done: make(chan struct{})}
	m.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: stream}}\n"+streamPolicies)
	cluster.Eventually(t, cluster.Patience, "the policies of the stream to act", func(ctx context.Context) error {
		for _, kind := range streamKinds {
			if w := s.write(ctx, kind, "probe", "?dryRun=All"); !w.clean() {
				return errors.New(w.String())
			}
		}
		return nil
	})
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() {
		s.cancel()
		<-s.done
	})
	go s.run(ctx)
	s.await(t, "the stream to run", time.Now(), 5, sent.clean)
	return s
}

func (s *stream) run(ctx context.Context) {
	defer close(s.done)
	var requests sync.WaitGroup
	defer requests.Wait()
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, kind := range streamKinds {
			s.mu.Lock()
			full := s.open >= streamBound
			if !full {
				s.open++
			}
			s.mu.Unlock()
			if full {
				continue
			}
			requests.Go(func() {
				// What was begun is waited for, so that its outcome is known.
				w := s.write(context.WithoutCancel(ctx), kind, fmt.Sprintf("%s-%05d", kind, i), "")
				s.mu.Lock()
				defer s.mu.Unlock()
				s.open--
				s.all = append(s.all, w)
			})
		}
	}
}

func (s *stream) write(ctx context.Context, kind streamKind, name, query string) sent {
	return sent{kind: kind, name: name, at: time.Now()}.send(ctx, s.sender, kind.path(s.namespace)+query, kind.object(name))
}

// send sends the write and fills in what became of it.
func (w sent) send(ctx context.Context, s sender, path string, object any) sent {
	code, body, err := s.send(ctx, http.MethodPost, path, object)
	w.took = time.Since(w.at)
	switch {
	case err != nil:
		w.message = err.Error()
	case code == http.StatusCreated:
		w.code, w.labels = code, body.mutations()
	default:
		w.code, w.message = code, body.Message
	}
	return w
}

// post creates one more object in the namespace of the stream, of a resource of
// the core group and with a label. Without a name it is a dry run.
func (s *stream) post(ctx context.Context, resource, name string, label ...string) sent {
	labels := map[string]any{"extra": "true"}
	if len(label) == 2 {
		labels[label[0]] = label[1]
	}
	w := sent{kind: streamKind(resource), name: name, at: time.Now()}
	path := "/api/v1/namespaces/" + s.namespace + "/" + resource
	if name == "" {
		name, path = "dry-run", path+"?dryRun=All"
	}
	object := map[string]any{
		"apiVersion": "v1", "kind": map[string]string{"configmaps": "ConfigMap", "limitranges": "LimitRange", "resourcequotas": "ResourceQuota"}[resource],
		"metadata": map[string]any{"name": name, "labels": labels},
	}
	if resource == "limitranges" {
		object["spec"] = map[string]any{"limits": []any{}}
	}
	return w.send(ctx, s.sender, path, object)
}

// crowd creates objects of a resource from several clients, over and over, until
// the returned function is called. That waits for the last answers and returns
// all of them.
func (s *stream) crowd(resource string, clients int) (stop func() []sent) {
	ctx, cancel := context.WithCancel(context.Background())
	all := make([][]sent, clients)
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				all[i] = append(all[i], s.post(context.WithoutCancel(ctx), resource, fmt.Sprintf("crowd-%d-%d", i, j)))
			}
		})
	}
	return func() []sent {
		cancel()
		running.Wait()
		return slices.Concat(all...)
	}
}

// exists says whether an object that post was to create is there.
func (s *stream) exists(t *testing.T, resource, name string) bool {
	t.Helper()
	code, body, err := s.sender.send(t.Context(), http.MethodGet, "/api/v1/namespaces/"+s.namespace+"/"+resource+"/"+name, nil)
	if err != nil || code != http.StatusOK && code != http.StatusNotFound {
		t.Fatalf("%s %s: %d %s %v", resource, name, code, body.Message, err)
	}
	return code == http.StatusOK
}

// snapshot returns the writes that have an answer and were sent after a moment.
func (s *stream) snapshot(after time.Time) []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sent
	for _, w := range s.all {
		if !w.at.Before(after) {
			out = append(out, w)
		}
	}
	return out
}

// await waits until n writes of every kind that were sent after a moment are as
// f says.
func (s *stream) await(t *testing.T, what string, after time.Time, n int, f func(sent) bool) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, what, func(context.Context) error {
		count, last := map[streamKind]int{}, map[streamKind]sent{}
		for _, w := range s.snapshot(after) {
			if f(w) {
				count[w.kind]++
			}
			if w.at.After(last[w.kind].at) {
				last[w.kind] = w
			}
		}
		for _, kind := range streamKinds {
			if count[kind] < n {
				return fmt.Errorf("%d of %d writes of kind %s; the last one: %s", count[kind], n, kind, last[kind])
			}
		}
		return nil
	})
}

// recovered waits until n writes in a row of every kind were clean and returns
// how long after a moment the last one was sent that was not.
func (s *stream) recovered(t *testing.T, after time.Time, n int) time.Duration {
	t.Helper()
	var last time.Time
	cluster.Eventually(t, cluster.Patience, "writes to be as before", func(context.Context) error {
		s.mu.Lock()
		open := s.open
		s.mu.Unlock()
		last = after
		writes := s.snapshot(after)
		var bad sent
		for _, w := range writes {
			if !w.clean() && w.at.After(last) {
				last, bad = w.at, w
			}
		}
		count := map[streamKind]int{}
		for _, w := range writes {
			if w.at.After(last) && w.clean() {
				count[w.kind]++
			}
		}
		for _, kind := range streamKinds {
			if count[kind] < n {
				return fmt.Errorf("%d clean writes of kind %s since; %d without an answer; the last that was not clean: %s", count[kind], kind, open, bad)
			}
		}
		return nil
	})
	return last.Sub(after)
}

// slack is what the machine may add to a time that is promised: no webhook is called for
// free writes, so what one of them took is the servers' own.
func (s *stream) slack() time.Duration {
	writes := slices.DeleteFunc(s.snapshot(time.Time{}), func(w sent) bool { return w.kind != free })
	return slack + slowest(writes).took
}

// finish stops the stream and waits for the answers to all writes. It fails the
// test if a promise was broken that holds whatever happens to the servers:
//
//   - what was accepted is stored, as it was answered;
//   - what a webhook has refused is not stored;
//   - of guarded objects only mutated ones are stored.
//
// It returns all writes, by time.
func (s *stream) finish(t *testing.T) []sent {
	t.Helper()
	s.cancel()
	<-s.done
	all := s.snapshot(time.Time{})
	slices.SortFunc(all, func(a, b sent) int { return a.at.Compare(b.at) })
	stored := map[streamKind]map[string]string{}
	for _, kind := range streamKinds {
		stored[kind] = s.stored(t, kind)
	}
	counts := map[string]int{}
	for _, w := range all {
		labels, there := stored[w.kind][w.name]
		switch {
		case w.code == http.StatusCreated && !there:
			t.Errorf("accepted and not stored: %s", w)
		case w.code == http.StatusCreated && labels != w.labels:
			t.Errorf("stored with %q: %s", labels, w)
		case w.refused() && there:
			t.Errorf("refused and stored: %s", w)
		}
		outcome := fmt.Sprintf("%s %d", w.kind, w.code)
		if w.code == http.StatusCreated && w.kind != free && w.labels != mutated {
			outcome += " not mutated"
		}
		counts[outcome]++
	}
	for name, labels := range stored[guarded] {
		if labels != mutated {
			t.Errorf("%s is stored with the labels %q and was not mutated by all policies", name, labels)
		}
	}
	t.Logf("%d writes: %v", len(all), counts)
	return all
}

// stored reads what is stored of a kind: names and the labels of policies.
func (s *stream) stored(t *testing.T, kind streamKind) map[string]string {
	t.Helper()
	out := map[string]string{}
	cluster.Eventually(t, cluster.Patience, "the list of what is stored", func(ctx context.Context) error {
		code, body, err := s.sender.send(ctx, http.MethodGet, kind.path(s.namespace)+"?labelSelector=stream", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body.Message)
		}
		for _, item := range body.Items {
			out[item.Metadata.Name] = item.mutations()
		}
		return err
	})
	return out
}

// sender sends single requests and retries nothing.
type sender struct {
	host   string
	client *http.Client
}

func newSender(t *testing.T, c *cluster.Cluster) sender {
	t.Helper()
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return sender{c.Config.Host, client}
}

// A reply is what tests read of an object, a list, or a Status.
type reply struct {
	Message  string
	Metadata struct {
		Name            string
		ResourceVersion string
		Generation      int64
		Labels          map[string]string
	}
	Items []reply
}

// mutations are the labels that policies have added, whose value is always yes.
func (r reply) mutations() string {
	var out []string
	for label, value := range r.Metadata.Labels {
		if value == "yes" && label != "stream" {
			out = append(out, label)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// sendTimeout is longer than anything that a server bounds by itself.
const sendTimeout = 2 * time.Minute

func (s sender) send(ctx context.Context, method, path string, body any) (int, reply, error) {
	var r reply
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return 0, r, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.host+path, bytes.NewReader(data))
	if err != nil {
		return 0, r, err
	}
	req.GetBody = nil // so that the client cannot send it twice
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, r, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		r.Message = string(data)
	}
	return resp.StatusCode, r, nil
}

// unclean returns the writes that were not clean and do not belong to where
// faults were expected.
func unclean(all []sent, expected func(sent) bool) (out []sent) {
	for _, w := range all {
		if !w.clean() && !expected(w) && !machineStood(all, w) {
			out = append(out, w)
		}
	}
	return out
}

// machineStood says whether the machine stood still during a write: then a write of
// the same time that calls no webhook took about as long, and nothing is known of
// what mapd would have done in time.
func machineStood(all []sent, w sent) bool {
	return w.took > time.Second && slices.ContainsFunc(all, func(f sent) bool {
		return f.kind == free && f.took > w.took/2 && f.at.Before(w.at.Add(w.took)) && w.at.Before(f.at.Add(f.took))
	})
}

// checkClean fails the test if a write was not clean where it had to be.
func checkClean(t *testing.T, all []sent, expected func(sent) bool) {
	t.Helper()
	bad := unclean(all, expected)
	for i, w := range bad {
		if i == 10 {
			t.Errorf("and %d more", len(bad)-i)
			break
		}
		t.Errorf("not as without faults: %s", w)
	}
}

// never expects no fault.
func never(sent) bool { return false }

// slowest is the longest that a write took.
func slowest(all []sent) (longest sent) {
	for _, w := range all {
		if w.took > longest.took {
			longest = w
		}
	}
	return longest
}
