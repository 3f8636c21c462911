//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// Each of these tests breaks something under a stream of writes and says for each
// write what may have become of it. What holds whatever breaks is checked by
// stream.finish.

// slack is what a machine may add to a time that is promised. On one that is busy, what a
// stream's free writes took is added to that: see stream.slack.
const slack = 20 * time.Second

// A replica is killed in the middle of requests, then the one that holds the lease,
// then both; each is started again.
func TestKilled(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2})
	m.NeedProcesses(t)
	s := startStream(t, m)
	m.Apply(t, policiesYAML(madePolicy{name: "slow", resource: "limitranges", mutation: busy}))
	acts(t, m, "limitranges", "busy")

	// One of two, mid-request.
	victim := m.Replicas()[0]
	if victim == holder(t, m) {
		victim = m.Replicas()[1]
	}
	slow := s.crowd("limitranges", 8)
	cluster.Eventually(t, cluster.Patience, "slow requests in the replica that is killed", func(ctx context.Context) error {
		n, err := gauge(ctx, victim, "mapd_requests_in_flight")
		if err == nil && n < 3 { // two may be those of the stream
			err = fmt.Errorf("%v are in flight", n)
		}
		return err
	})
	killed := time.Now()
	victim.Kill()
	crowd := slow()
	lost := 0
	for _, w := range crowd {
		stored := s.exists(t, "limitranges", w.name)
		switch {
		case w.code == http.StatusCreated && stored && w.labels == "busy":
		case w.refused() && !stored:
			lost++
		default:
			t.Errorf("stored: %v; %s", stored, w)
		}
	}
	if lost == 0 {
		t.Error("the replica was not killed in the middle of a request")
	}
	oneLost := s.recovered(t, killed, 10)
	victim.Start(t)
	m.WaitReady(t)
	t.Logf("one of two killed: %d of %d slow requests were in its hands and refused", lost, len(crowd))

	// The one that writes.
	victim = holder(t, m)
	holderKilled := time.Now()
	victim.Kill()
	m.Apply(t, policiesYAML(madePolicy{name: "after-holder", resource: "resourcequotas", mutation: labelled("after-holder")}))
	acts(t, m, "resourcequotas", "after-holder")
	t.Logf("lease holder killed: a new policy acted %s later", since(holderKilled))
	holderLost := s.recovered(t, holderKilled, 10)
	t.Logf("connections to killed processes failed for %s and %s", oneLost, holderLost)
	victim.Start(t)
	m.WaitReady(t)
	s.await(t, "writes with two replicas", time.Now(), 5, sent.clean)

	// Both.
	bothKilled := time.Now()
	for _, r := range m.Replicas() {
		r.Kill()
	}
	s.await(t, "Fail to refuse and Ignore to pass while no replica is there", bothKilled, 10, func(w sent) bool {
		switch w.kind {
		case guarded:
			return w.refused()
		case decorated:
			return w.code == http.StatusCreated && w.labels == ""
		}
		return w.clean()
	})
	// A policy without parameters can be written meanwhile; it acts afterwards.
	m.Apply(t, policiesYAML(madePolicy{name: "while-away", resource: "resourcequotas", mutation: labelled("while-away")}))
	back := time.Now()
	for _, r := range m.Replicas() {
		r.Start(t)
	}
	recovery := s.recovered(t, back, 10)
	t.Logf("both killed: writes were as before %s after the start of the processes", recovery)
	m.WaitReady(t)
	acts(t, m, "resourcequotas", "while-away")
	t.Logf("both killed: a policy that was made meanwhile acted %s after the start of the processes", since(back))

	all := s.finish(t)
	checkClean(t, all, func(w sent) bool {
		if w.kind == free {
			return false
		}
		within := func(from, to time.Time) bool { return w.at.Add(w.took).After(from) && w.at.Before(to) }
		return within(killed, killed.Add(oneLost+time.Millisecond)) || within(holderKilled, holderKilled.Add(holderLost+time.Millisecond)) ||
			within(bothKilled, back.Add(recovery+time.Millisecond))
	})
	t.Logf("slowest write: %s", slowest(all))
}

// Both replicas are replaced, then certificate and authority, several times:
// nobody notices.
func TestRolled(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2, Flags: []string{"--cert-validity=60s", "--ca-validity=10m"}})
	m.NeedProcesses(t)
	s := startStream(t, m)

	m.Roll(t)
	t.Log("rolled")
	s.await(t, "writes to the new replicas", time.Now(), 5, sent.clean)

	first := serving(t, m)
	if _, err := m.Kubernetes.CoreV1().Secrets(cluster.Namespace).Patch(t.Context(), "mapd-tls", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"mapd.dev/rotate": "now"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	bundle := ""
	cluster.Eventually(t, cluster.Patience, "another authority to sign what all replicas serve", func(ctx context.Context) error {
		c, err := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookconfig.ConfigurationName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		bundle = string(c.Webhooks[0].ClientConfig.CABundle)
		for _, r := range m.Replicas() {
			switch now, err := servedBy(ctx, r); {
			case err != nil:
				return err
			case now.authority == first.authority:
				return fmt.Errorf("%s serves a certificate of the old one", r.Name)
			}
		}
		return nil
	})
	if n := strings.Count(bundle, "BEGIN CERTIFICATE"); n < 2 {
		t.Errorf("the bundle had %d authorities while the new one took over, want the old one too", n)
	}
	t.Logf("authority rotated in %s", since(asked))
	second := serving(t, m)
	// The next certificate comes by itself, after two thirds of 60 s.
	cluster.Eventually(t, cluster.Patience, "the certificate to be renewed before it ends", func(ctx context.Context) error {
		for _, r := range m.Replicas() {
			switch now, err := servedBy(ctx, r); {
			case err != nil:
				return err
			case now.certificate == second.certificate:
				return fmt.Errorf("%s serves the old one", r.Name)
			}
		}
		return nil
	})
	// Connections that exist would go on with any certificate.
	m.Proxy.Cut()
	cut := time.Now()
	reconnected := s.recovered(t, cut, 10)

	all := s.finish(t)
	checkClean(t, all, func(w sent) bool { return w.at.Add(w.took).After(cut) && !w.at.After(cut.Add(reconnected)) })
	t.Logf("slowest write: %s", slowest(all))
}

// A replica hangs: its connections are open, and it does nothing. It is the one
// that writes. Later both hang.
func TestHung(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2, Flags: []string{"--webhook-timeout=4s"}})
	m.NeedProcesses(t)
	s := startStream(t, m)

	hung := holder(t, m)
	before := lease(t, m)
	paused := time.Now()
	hung.Pause()
	m.Apply(t, policiesYAML(madePolicy{name: "meanwhile", resource: "resourcequotas", mutation: labelled("meanwhile")}))
	acts(t, m, "resourcequotas", "meanwhile")
	t.Logf("lease holder hangs: a new policy acted %s later", since(paused))
	drained := s.recovered(t, paused, 20)
	t.Logf("lease holder hangs: the last write that met it was sent %s later", drained)

	// It wakes up and believes that it holds the lease.
	written := configuration(t, m)
	woken := time.Now()
	hung.Continue()
	cluster.Eventually(t, cluster.Patience, "the replica that hung to find out", func(ctx context.Context) error {
		if err := hung.Probe(ctx); err != nil {
			return err
		}
		if strings.Count(hung.Log(t), "the lease is lost") == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	cluster.Always(t, 3*time.Second, "one writer", func(ctx context.Context) error {
		if now := configuration(t, m); now.Generation != written.Generation {
			return fmt.Errorf("the configuration was written %d times since", now.Generation-written.Generation)
		}
		return nil
	})
	after := lease(t, m)
	if *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions+1 || *after.Spec.HolderIdentity == *before.Spec.HolderIdentity {
		t.Errorf("the lease went from %s (%d) to %s (%d), want one transition", *before.Spec.HolderIdentity, *before.Spec.LeaseTransitions,
			*after.Spec.HolderIdentity, *after.Spec.LeaseTransitions)
	}
	awake := s.recovered(t, woken, 5)

	// Now both hang: Fail refuses, Ignore passes, and nobody waits for longer than
	// the timeout.
	bothPaused := time.Now()
	for _, r := range m.Replicas() {
		r.Pause()
	}
	s.await(t, "Fail to refuse and Ignore to pass while both replicas hang", bothPaused, 10, func(w sent) bool {
		switch w.kind {
		case guarded:
			return w.refused()
		case decorated:
			return w.code == http.StatusCreated && w.labels == ""
		}
		return w.clean()
	})
	back := time.Now()
	for _, r := range m.Replicas() {
		r.Continue()
	}
	recovery := s.recovered(t, back, 10)
	t.Logf("both hung: writes were as before %s after they went on", recovery)

	all := s.finish(t)
	// Each entry has its time; those of a write come one after the other.
	const entries = 2
	checkClean(t, all, func(w sent) bool {
		within := func(from, to time.Time) bool { return w.at.Add(w.took).After(from) && w.at.Before(to) }
		return w.kind != free && (within(paused, paused.Add(drained+time.Millisecond)) || within(woken, woken.Add(awake+time.Millisecond)) ||
			within(bothPaused, back.Add(recovery+time.Millisecond)))
	})
	limit := entries*timeout + s.slack()
	for _, w := range all {
		if w.kind != free && w.took > limit {
			t.Errorf("longer than timeoutSeconds: %s", w)
		}
	}
	t.Logf("slowest write: %s", slowest(all))
}

// The API server restarts, etcd stops for 5 s, and watches break.
func TestServers(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2, CutAPI: true, Cluster: cluster.Options{
		// Otherwise it waits a minute for watches to end by themselves.
		Flags: []string{"--shutdown-watch-termination-grace-period=1s"},
	}})
	m.NeedProcesses(t)
	s := startStream(t, m)
	newPolicy := func(name string) {
		t.Helper()
		start := time.Now()
		m.Apply(t, policiesYAML(madePolicy{name: name, resource: "resourcequotas", mutation: labelled(name)}))
		acts(t, m, "resourcequotas", name)
		t.Logf("%s: a new policy acted after %s, kubectl included", name, since(start))
	}

	// Watches break, and then mapd does not reach the API server for a while, in
	// which it goes on answering. A policy of that time acts afterwards.
	m.API.Cut()
	newPolicy("watches-cut")
	m.API.Targets()
	m.API.Cut()
	m.Apply(t, policiesYAML(madePolicy{name: "no-server", resource: "resourcequotas", mutation: labelled("no-server")}))
	s.await(t, "writes while mapd does not reach the API server", time.Now(), 30, sent.clean)
	const policies = "mutatingadmissionpolicies.admissionregistration.mapd.dev"
	contact(t, m, "[!] API server: ", policies+": not read since ", `mapd_watch_connected{resource="`+policies+`"} 0`)
	target := strings.TrimPrefix(m.Config.Host, "https://")
	m.API.Targets(target)
	start := time.Now()
	acts(t, m, "resourcequotas", "no-server")
	t.Logf("API server out of reach: the policy made meanwhile acted %s after the way was open", since(start))
	contact(t, m, "[+] API server: ok", "", `mapd_watch_connected{resource="`+policies+`"} 1`)

	// etcd.
	etcdPaused := time.Now()
	m.Etcd.Pause()
	cluster.Always(t, 5*time.Second, "replicas stay ready while etcd is paused", m.Replicas()[0].Probe)
	// One that hangs is not ready either: a probe that is not answered ends with the time.
	if err := m.Replicas()[0].Probe(t.Context()); err != nil {
		t.Errorf("while etcd is paused: %v", err)
	}
	m.Etcd.Continue()
	etcdBack := time.Now()
	newPolicy("etcd-paused")
	etcdRecovery := s.recovered(t, etcdBack, 10)
	t.Logf("etcd paused: writes were as before %s later", etcdRecovery)

	// The API server.
	serverDown := time.Now()
	m.RestartAPIServer(t)
	serverBack := time.Now()
	serverRecovery := s.recovered(t, serverBack, 10)
	newPolicy("server-restarted")
	t.Logf("API server restarted in %s: writes were as before %s later", serverBack.Sub(serverDown).Round(time.Millisecond), serverRecovery)

	all := s.finish(t)
	checkClean(t, all, func(w sent) bool {
		within := func(from, to time.Time) bool { return w.at.Add(w.took).After(from) && w.at.Before(to) }
		// A server that is starting answers before it is ready. If it does not know the
		// Service yet that is as if nobody had answered.
		if within(serverDown, serverBack.Add(serverRecovery+time.Millisecond)) {
			return true
		}
		// What the servers themselves could not do is not mapd's doing.
		return !w.refused() && w.code != http.StatusCreated && within(etcdPaused, etcdBack.Add(etcdRecovery+time.Millisecond))
	})
	t.Logf("slowest write: %s", slowest(all))
}

// contact waits until every replica is ready and says these things of its contact to the
// API server. If unread is empty there must be nothing that is not read.
func contact(t *testing.T, m *cluster.Mapd, line, unread, metric string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "replicas to say "+line, func(ctx context.Context) error {
		for _, r := range m.Replicas() {
			code, ready, err := r.Get(ctx, "/readyz?verbose")
			if err != nil {
				return err
			}
			if code != http.StatusOK || !strings.Contains(ready, line) || !strings.Contains(ready, unread) ||
				unread == "" && strings.Contains(ready, "not read since") {
				return fmt.Errorf("%s: /readyz: %d\n%s", r.Name, code, ready)
			}
			if _, metrics, err := r.Get(ctx, "/metrics"); err != nil || !strings.Contains(metrics, metric+"\n") {
				return fmt.Errorf("%s: /metrics lacks %s (%v)", r.Name, metric, err)
			}
		}
		return nil
	})
}

// A bad policy fails by its own failurePolicy. All others go on, also those that
// are in the same entry and act on the same object.
func TestBadPolicies(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	m := cluster.Installed(t, cluster.InstallOptions{Flags: []string{"--webhook-timeout=5s"}})
	m.NeedProcesses(t)
	s := startStream(t, m)
	m.Apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: secretives.example.com}
spec:
  group: example.com
  names: {plural: secretives, singular: secretive, kind: Secretive, listKind: SecretiveList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	const (
		byName     = `paramRef: {name: nothing, parameterNotFoundAction: Deny}`
		bySelector = `paramRef: {selector: {}, parameterNotFoundAction: Deny}`
	)
	ten := `[1,2,3,4,5,6,7,8,9,10]`
	endless := ten + ".all(a, " + ten + ".all(b, " + ten + ".all(c, " + ten + ".all(d, " + ten + ".all(e, " + ten + ".all(f, a+b+c+d+e+f > 0))))))"
	tests := []struct {
		name    string
		policy  madePolicy
		message string // of the denial, if it is Fail
	}{
		{"panics", madePolicy{mutation: `[JSONPatch{op: "add", path: "/metadata/annotations", value: null}, JSONPatch{op: "add", path: "/metadata/annotations/x", value: "1"}]`},
			"add operation below a null"},
		{"out-of-budget", madePolicy{mutation: `Object{metadata: Object.metadata{labels: {"x": string(` + endless + `)}}}`},
			"cost limit exceeded"},
		{"missing-param", madePolicy{mutation: labelled("x"), spec: `paramKind: {apiVersion: v1, kind: ConfigMap}`, binding: byName},
			"no params found"},
		{"missing-params", madePolicy{mutation: labelled("x"), spec: `paramKind: {apiVersion: v1, kind: ConfigMap}`,
			binding: `paramRef: {selector: {matchLabels: {there: none}}, parameterNotFoundAction: Deny}`},
			"no params found"},
		{"unreadable-param", madePolicy{mutation: labelled("x"), spec: `paramKind: {apiVersion: example.com/v1, kind: Secretive}`, binding: byName},
			"forbidden"},
		{"unreadable-params", madePolicy{mutation: labelled("x"), spec: `paramKind: {apiVersion: example.com/v1, kind: Secretive}`, binding: bySelector},
			"not yet synced to use for admission"},
	}
	begun := time.Now()
	for _, failure := range []string{"Fail", "Ignore"} {
		for _, tt := range tests {
			name := strings.ToLower(failure) + "-" + tt.name
			p := tt.policy
			p.name, p.failure = name, failure
			p.match = fmt.Sprintf("objectSelector: {matchLabels: {bad: %s}}", name)
			m.Apply(t, policiesYAML(p))
			var w sent
			cluster.Eventually(t, cluster.Patience, "the policy "+name+" to fail", func(ctx context.Context) error {
				w = s.post(ctx, "configmaps", "", "bad", name)
				if failure == "Fail" {
					if w.code == http.StatusCreated || !strings.Contains(w.message, name) {
						return errors.New(w.String())
					}
					return nil
				}
				if n, err := decisions(ctx, m.Replicas()[0], name, "ignored"); err != nil || n == 0 {
					return cmp.Or(err, errors.New("its error was not counted"))
				}
				return nil
			})
			switch {
			case failure == "Fail" && (!w.refused() || !strings.Contains(w.message, tt.message)):
				t.Errorf("%s: %s", name, w)
			case failure == "Ignore" && !(w.code == http.StatusCreated && w.labels == mutated):
				t.Errorf("%s: want an object with what the other policies do: %s", name, w)
			}
			if w.took > timeout+s.slack() {
				t.Errorf("%s: longer than timeoutSeconds: %s", name, w)
			}
		}
	}
	t.Logf("%d bad policies in %s", 2*len(tests), since(begun))

	// A policy that takes longer than the server waits: its whole entry fails, by the
	// failurePolicy that its policies share. Other entries go on.
	for _, failure := range []string{"Fail", "Ignore"} {
		name := strings.ToLower(failure) + "-endless"
		other := name + "-other"
		m.Apply(t, policiesYAML(madePolicy{name: other, failure: map[string]string{"Fail": "Ignore", "Ignore": "Fail"}[failure], resource: "limitranges", mutation: labelled(other)}))
		acts(t, m, "limitranges", other)
		m.Apply(t, policiesYAML(madePolicy{name: name, failure: failure, resource: "limitranges", mutation: busy, times: 250}))
		var w sent
		cluster.Eventually(t, cluster.Patience, "a policy to take too long", func(ctx context.Context) error {
			w = s.post(ctx, "limitranges", "", "bad", name)
			if failure == "Fail" && w.refused() || failure == "Ignore" && w.code == http.StatusCreated && w.took > timeout/2 && !strings.Contains(w.labels, "busy") {
				return nil
			}
			return fmt.Errorf("it did not: %s", w)
		})
		stored := w.code == http.StatusCreated
		if stored == (failure == "Fail") || failure == "Fail" && !w.refused() {
			t.Errorf("%s: %s", name, w)
		}
		if stored && !strings.Contains(w.labels, other) {
			t.Errorf("%s: the policy of another entry did not act: %s", name, w)
		}
		if w.took > timeout+s.slack() {
			t.Errorf("%s: longer than timeoutSeconds: %s", name, w)
		}
		t.Logf("%s: ended after %s", name, w.took.Round(time.Millisecond))
		if _, err := m.Kubectl(t, nil, "delete", "mapb", name); err != nil {
			t.Fatal(err)
		}
	}
	all := s.finish(t)
	checkClean(t, all, never)
	t.Logf("slowest write: %s", slowest(all))
	if n, err := gauge(t.Context(), m.Replicas()[0], "mapd_panics_total"); err != nil || n != 0 {
		t.Errorf("mapd_panics_total = %v, %v", n, err)
	}
}

// labelled is an ApplyConfiguration that sets a label.
func labelled(name string) string {
	return fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: "yes"}}}`, name)
}

// busy is one that takes about 50 ms, at more than half of what one expression may
// cost. It reads the object, because what reads nothing is evaluated only once, and
// it asks for find, which leaves it to cel-go: what pkg/cel evaluates on plain data
// is too soon done. It sets the label busy.
var busy = func() string {
	const ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
	e := "[1, 2, 3, 4].all(e, a + b + c + d + e + n > 0)"
	for _, v := range []string{"d", "c", "b", "a"} {
		e = fmt.Sprintf("%s.all(%s, %s)", ten, v, e)
	}
	return fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"busy": object.metadata.name.find(".") != "" && [size(object.metadata.labels)].all(n, %s) ? "yes" : "no"}}}`, e)
}()

// acts waits until a policy sets its label on a resource.
func acts(t *testing.T, m *cluster.Mapd, resource, label string) {
	t.Helper()
	s := &stream{sender: newSender(t, m.Cluster), namespace: "stream"}
	cluster.Eventually(t, cluster.Patience, "the policy "+label+" to act", func(ctx context.Context) error {
		if w := s.post(ctx, resource, ""); !slices.Contains(strings.Fields(w.labels), label) {
			return errors.New(w.String())
		}
		return nil
	})
}

// holder waits until one running replica holds the lease, and returns it.
func holder(t *testing.T, m *cluster.Mapd) *cluster.Replica {
	t.Helper()
	var found *cluster.Replica
	cluster.Eventually(t, cluster.Patience, "a replica to hold the lease", func(context.Context) error {
		for _, r := range m.Replicas() {
			log := r.Log(t)
			log = log[max(0, strings.LastIndex(log, "mapd serve: listening")):] // of its last life
			if r.Running() && strings.LastIndex(log, "holds the lease") > strings.LastIndex(log, "lease is lost") {
				found = r
				return nil
			}
		}
		return errors.New("none says that it does")
	})
	return found
}

func lease(t *testing.T, m *cluster.Mapd) *coordinationv1.Lease {
	t.Helper()
	l, err := m.Kubernetes.CoordinationV1().Leases(cluster.Namespace).Get(t.Context(), cluster.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func configuration(t *testing.T, m *cluster.Mapd) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	c, err := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), webhookconfig.ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A shown is what a replica shows in a handshake.
type shown struct{ certificate, authority string }

func servedBy(ctx context.Context, r *cluster.Replica) (shown, error) {
	// Whether it is trusted is what the API server's requests tell.
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return shown{}, err
	}
	defer conn.Close()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return shown{leaf.SerialNumber.String(), string(leaf.AuthorityKeyId)}, nil
}

// serving is what the first replica shows.
func serving(t *testing.T, m *cluster.Mapd) shown {
	t.Helper()
	s, err := servedBy(t.Context(), m.Replicas()[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// gauge reads a metric without labels, which must be there.
func gauge(ctx context.Context, r *cluster.Replica, name string) (float64, error) {
	_, text, err := r.Get(ctx, "/metrics")
	if err == nil && !strings.Contains(text, "\n"+name+" ") {
		err = fmt.Errorf("%s: /metrics has no %s", r.Name, name)
	}
	if err != nil {
		return 0, err
	}
	return sumMetric(text, name, "")
}

// decisions reads how often a policy ended in an outcome.
func decisions(ctx context.Context, r *cluster.Replica, policy, outcome string) (float64, error) {
	return metric(ctx, r, "mapd_decisions_total", fmt.Sprintf(`outcome=%q,policy=%q`, outcome, policy))
}

// metric sums up the series of a metric whose labels contain a text.
func metric(ctx context.Context, r *cluster.Replica, name, labels string) (float64, error) {
	_, text, err := r.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return sumMetric(text, name, labels)
}

func sumMetric(text, name, labels string) (float64, error) {
	sum := 0.0
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if base, _, _ := strings.Cut(series, "{"); base != name || !strings.Contains(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", series, err)
		}
		sum += v
	}
	return sum, nil
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }
