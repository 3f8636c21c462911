package doctor

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

// The lines that count are those of two API servers of 1.37.1, one with the plugin and
// one without. No server with the gate off was asked: gateOff and none are gateOn
// and plugin with other values.
func TestExecutes(t *testing.T) {
	const (
		gateOn  = `kubernetes_feature_enabled{name="MutatingAdmissionPolicy",stage=""} 1`
		gateOff = `kubernetes_feature_enabled{name="MutatingAdmissionPolicy",stage="BETA"} 0`
		count   = `apiserver_admission_controller_admission_duration_seconds_count`
		plugin  = count + `{name="MutatingAdmissionPolicy",operation="CREATE",rejected="false",type="admit"} 195`
		none    = count + `{name="MutatingAdmissionPolicy",operation="CREATE",rejected="false",type="admit"} 0`
		webhook = count + `{name="MutatingAdmissionWebhook",operation="CREATE",rejected="false",type="admit"} 196`
		other   = count + `{name="ValidatingAdmissionWebhook",operation="CREATE",rejected="false",type="validate"} 196`
		bucket  = `apiserver_admission_controller_admission_duration_seconds_bucket{name="MutatingAdmissionPolicy",operation="CREATE",rejected="false",type="admit",le="0.005"} 195`
	)
	for _, tt := range []struct {
		name    string
		metrics []string
		want    answer
	}{
		{"plugin on", []string{"# TYPE x gauge", webhook, plugin, other, gateOn}, yes},
		{"plugin on, gate not told", []string{webhook, plugin}, yes},
		{"plugin off", []string{webhook, other, gateOn}, no},
		{"gate off, plugin in the chain", []string{webhook, plugin, gateOff}, no},
		{"nothing admitted", []string{gateOn}, unknown},
		{"nothing counted", []string{none, gateOn}, unknown},
		{"only what validates", []string{other, gateOn}, unknown},
		{"another series", []string{bucket}, unknown},
		{"nothing", nil, unknown},
	} {
		e, err := readEvidence(strings.NewReader(strings.Join(tt.metrics, "\n") + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got, why := e.answer(); got != tt.want || (why == "") != (got == yes) {
			t.Errorf("%s: %s (%s), want %s", tt.name, got, why, tt.want)
		}
	}
}

func boundPolicy(t *testing.T, name string, change func(spec map[string]any)) *policy.Policy {
	t.Helper()
	spec := map[string]any{
		"failurePolicy": "Fail", "reinvocationPolicy": "Never",
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"},
		}}},
	}
	if change != nil {
		change(spec)
	}
	obj, err := policy.Decode(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.OwnGroup + "/v1", "kind": api.PolicyKind, "metadata": map[string]any{"name": name}, "spec": spec,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return policy.Broken(obj, errors.New("not compiled"))
}

func TestCompare(t *testing.T) {
	policies := []*policy.Policy{
		boundPolicy(t, "a", nil),
		boundPolicy(t, "b", func(spec map[string]any) { spec["failurePolicy"] = "Ignore" }),
	}
	var reaches []*webhookconfig.Reach
	for _, p := range policies {
		reaches = append(reaches, webhookconfig.ReachOf(p.Object(), nil))
	}
	entries, _ := webhookconfig.Divide(reaches)
	want := webhookconfig.Configuration(entries, admissionregistrationv1.MutatingWebhook{}).Webhooks
	have := func(change func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
		var all []admissionregistrationv1.MutatingWebhook
		for _, w := range want {
			all = append(all, *w.DeepCopy())
		}
		return change(all)
	}
	for _, tt := range []struct {
		name string
		have []admissionregistrationv1.MutatingWebhook
		want []string
	}{
		{"as it should be", have(func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			// Defaults of the server, and fields that flags decide, are no differences.
			for i := range all {
				all[i].Rules[0].Scope = nil
				all[i].TimeoutSeconds = new(int32(5))
				all[i].NamespaceSelector = &metav1.LabelSelector{}
			}
			return all
		}), nil},
		{"one is missing", have(func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			return all[1:]
		}),
			[]string{"bad no entry fail.never.mapd.dev, so without effect: a"}},
		{"one too many", have(func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			return append(all, admissionregistrationv1.MutatingWebhook{Name: "fail.ifneeded.mapd.dev"})
		}), []string{"warning entry fail.ifneeded.mapd.dev stands for no bound policy, so requests wait for mapd without need"}},
		{"other rules", have(func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			all[0].Rules[0].Resources = []string{"configmaps"}
			return all
		}), []string{"bad the rules of fail.never.mapd.dev are not those of its policies: a"}},
		{"another failurePolicy", have(func(all []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			all[1].FailurePolicy = new(admissionregistrationv1.Fail)
			return all
		}), []string{"bad ignore.never.mapd.dev has failurePolicy Fail, reinvocationPolicy Never, matchPolicy Equivalent, and should have Ignore, Never, Equivalent"}},
	} {
		var got []string
		for _, l := range compare(entries, [][]string{{"a"}, {"b"}}, tt.have) {
			got = append(got, string(l.Mark)+" "+l.Fact)
			if l.Advice == "" {
				t.Errorf("%s: no advice", tt.name)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestStates(t *testing.T) {
	object := func(name string, generation int64, conditions ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name, "generation": generation},
			"status":   map[string]any{"conditions": conditions},
		}}
	}
	ready := func(status string, generation int64, message string) map[string]any {
		return map[string]any{"type": "Ready", "status": status, "observedGeneration": generation, "reason": "R", "message": message}
	}
	warned := object("kind", 2, ready("True", 2, ""))
	warned.Object["status"].(map[string]any)["typeChecking"] = map[string]any{"expressionWarnings": []any{
		map[string]any{"fieldRef": "spec.a", "warning": "no such resource"}, map[string]any{"fieldRef": "spec.b", "warning": "neither"},
	}}
	states := []state{
		stateOf("policy", object("fine", 2, map[string]any{"type": "Compiled", "status": "False"}, ready("True", 2, "")), nil),
		stateOf("policy", object("broken", 2, ready("False", 2, "does not compile")), nil),
		stateOf("policy", object("changed", 3, ready("True", 2, "")), nil),
		stateOf("policy", warned, nil),
		stateOf("policy", object("new", 1), nil),
		stateOf("policy", object("waiting", 1, ready("Unknown", 1, "")), nil),
		stateOf("binding", object("odd", 1, ready("True", 1, "")), errors.New("unknown field")),
	}
	for i := range 12 {
		states = append(states, stateOf("binding", object(fmt.Sprintf("x%d", i), 1, ready("False", 1, "no")), nil))
	}
	var got []string
	for _, l := range notReady(states) {
		got = append(got, fmt.Sprintf("%s %s: %s", l.Mark, l.Check, l.Fact))
	}
	want := []string{
		"bad policy broken: not ready: does not compile",
		"warning policy kind: spec.a: no such resource (and 1 more warning)",
		"warning policy waiting: not ready: R",
		"bad binding odd: not ready: unknown field",
		"bad binding x0: not ready: no",
		"bad binding x1: not ready: no",
		"bad binding x2: not ready: no",
		"bad binding x3: not ready: no",
		"bad binding x4: not ready: no",
		"bad binding x5: not ready: no",
		"bad policies: not ready either: binding x6, binding x7, binding x8, binding x9, binding x10 and 1 more",
		"warning policies: mapd has not looked at their present form: policy changed, policy new",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHealth(t *testing.T) {
	for _, tt := range []struct {
		replicas, seen, ready int64
		mark                  Mark
		fact                  string
	}{
		{2, 1, 2, OK, "2 of 2 replicas ready"},
		{2, 1, 1, Warning, "1 of 2 replicas ready"},
		{2, 1, 0, Bad, "0 of 2 replicas ready"},
		{0, 1, 0, Bad, "scaled to zero"},
		{2, 0, 0, Warning, "0 of 2 replicas ready, and no controller has looked at it yet"},
	} {
		mark, fact, advice := health(map[string]any{
			"spec":   map[string]any{"replicas": tt.replicas},
			"status": map[string]any{"observedGeneration": tt.seen, "readyReplicas": tt.ready},
		})
		if mark != tt.mark || fact != tt.fact || (advice == "") != (mark == OK) {
			t.Errorf("%d of %d: %s %q %q", tt.ready, tt.replicas, mark, fact, advice)
		}
	}
}

func TestLifetime(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// Backdated, as mapd makes them.
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from.Add(-servingcert.Skew), NotAfter: from.AddDate(0, 0, 90)}
	for _, tt := range []struct {
		now  time.Time
		mark Mark
		fact string
	}{
		{from.Add(2 * time.Minute), OK, "2m old, expires on 2026-04-01, in 89 days"},
		{from.Add(-time.Minute), OK, "less than a minute old, expires on 2026-04-01, in 90 days"}, // another machine's clock
		{from.AddDate(0, 0, 30), OK, "30 days old, expires on 2026-04-01, in 60 days"},
		{from.AddDate(0, 0, 65), OK, "65 days old, expires on 2026-04-01, in 25 days"},
		{from.AddDate(0, 0, 80), Warning, "80 days old, expires on 2026-04-01, in 10 days"},
		{from.AddDate(0, 0, 89), Warning, "89 days old, expires on 2026-04-01, in 24h0m"},
		{from.AddDate(0, 0, 93), Bad, "expired on 2026-04-01, 3 days ago"},
		{from.AddDate(0, 0, -1), Bad, "not valid before " + from.Add(-servingcert.Skew).Format(time.RFC3339)},
	} {
		mark, fact, advice := lifetime(c, from, tt.now)
		if mark != tt.mark || fact != tt.fact || (advice == "") != (mark == OK) {
			t.Errorf("%s: %s %q %q", tt.now, mark, fact, advice)
		}
	}
}

func TestTrusts(t *testing.T) {
	const service = "mapd.mapd-system.svc"
	cert, ca, err := servingcert.SelfSigned([]string{service, "mapd.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	_, otherCA, err := servingcert.SelfSigned([]string{service})
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, der := range cert.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	chain, err := parsePEM(text)
	if err != nil {
		t.Fatal(err)
	}
	at := func(bundle []byte, url, name string) entry {
		e := entry{"x.mapd.dev", admissionregistrationv1.WebhookClientConfig{CABundle: bundle}}
		if url != "" {
			e.client.URL = &url
		} else {
			e.client.Service = &admissionregistrationv1.ServiceReference{Namespace: "mapd-system", Name: name}
		}
		return e
	}
	now := chain[0].NotBefore.Add(time.Hour)
	for _, tt := range []struct {
		name  string
		entry entry
		now   time.Time
		want  bool
	}{
		{"by Service", at(ca, "", "mapd"), now, true},
		{"by URL", at(ca, "https://mapd.example.com:8443/mutate", ""), now, true},
		{"during a rotation", at(append(bytes.Clone(otherCA), ca...), "", "mapd"), now, true},
		{"after it ended, which is told elsewhere", at(ca, "", "mapd"), chain[0].NotAfter.Add(time.Second), true},
		{"another authority", at(otherCA, "", "mapd"), now, false},
		{"another Service", at(ca, "", "other"), now, false},
		{"another host", at(ca, "https://127.0.0.1/", ""), now, false},
		{"no bundle", at([]byte("-"), "", "mapd"), now, false},
	} {
		if err := trusts(tt.entry, chain, tt.now); (err == nil) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := parsePEM([]byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")); err == nil || strings.Contains(err.Error(), "hello") {
		t.Errorf("error %v", err)
	}
}

func TestWrite(t *testing.T) {
	r := Report{Lines: []Line{
		{OK, "API server", "v1.37.1", ""},
		{Warning, "policies", "without a binding:\n× a\x1b[2J", "bind it"},
		{Bad, "probe", "refused", "look"},
	}}
	for _, tt := range []struct {
		colour bool
		want   string
	}{
		{false, "√ API server: v1.37.1\n‼ policies: without a binding: × a\\x1b[2J\n  → bind it\n× probe: refused\n  → look\n"},
		{true, "\x1b[32m√\x1b[0m API server: v1.37.1\n\x1b[33m‼\x1b[0m policies: without a binding: × a\\x1b[2J\n  → bind it\n\x1b[31m×\x1b[0m probe: refused\n  → look\n"},
	} {
		var b strings.Builder
		if err := r.Write(&b, tt.colour); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, b.String()); diff != "" {
			t.Errorf("colour %t (-want +got):\n%s", tt.colour, diff)
		}
	}
}

func TestFew(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 5: "a, a, a, a, a", 7: "a, a, a, a, a and 2 more"} {
		if got := shortList(strings.Split(strings.TrimSuffix(strings.Repeat("a ", n), " "), " ")); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// Defaults that a server sets are no differences; missing and other values are.
func TestDiffers(t *testing.T) {
	role := func(change func(rule map[string]any)) map[string]any {
		rule := map[string]any{"verbs": []any{"get", "list"}, "resources": []any{"pods"}, "apiGroups": []any{""}}
		if change != nil {
			change(rule)
		}
		return map[string]any{"kind": "ClusterRole", "rules": []any{rule}}
	}
	for name, tt := range map[string]struct {
		have map[string]any
		want string
	}{
		"the same":          {role(nil), ""},
		"a field filled in": {role(func(r map[string]any) { r["nonResourceURLs"] = []any{"/x"} }), ""},
		"a verb less":       {role(func(r map[string]any) { r["verbs"] = []any{"get"} }), ".rules[0].verbs"},
		"another verb":      {role(func(r map[string]any) { r["verbs"] = []any{"get", "watch"} }), ".rules[0].verbs[1]"},
		"a field less":      {role(func(r map[string]any) { delete(r, "resources") }), ".rules[0].resources"},
		"no rules":          {map[string]any{"kind": "ClusterRole"}, ".rules"},
		"something else":    {map[string]any{"kind": "ClusterRole", "rules": "x"}, ".rules"},
		"a rule more":       {map[string]any{"kind": "ClusterRole", "rules": append(role(nil)["rules"].([]any), map[string]any{})}, ".rules"},
		"the first of two":  {map[string]any{"rules": []any{}}, ".kind"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := differs(role(nil), tt.have, ""); got != tt.want {
				t.Errorf("differs = %q, want %q", got, tt.want)
			}
		})
	}
	if at := differs(map[string]any{"a": false, "b": "", "c": []any{}, "d": map[string]any{}, "e": nil}, map[string]any{}, ""); at != "" {
		t.Errorf("what is empty may be left out: %s", at)
	}
}

// Bindings with mapd.dev/existing that need the user's attention are reported, and no others.
func TestExisting(t *testing.T) {
	binding := func(name, value, reason string) ownBinding {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		if value != "" {
			u.SetAnnotations(map[string]string{api.ExistingAnnotation: value})
		}
		if reason != "" {
			u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "ExistingInLine", "status": "False", "reason": reason, "message": "why of " + name}}}
		}
		return ownBinding{object: u}
	}
	x := &examination{own: objects{bindings: []ownBinding{
		binding("plain", "", ""), binding("fine", "fix", "InLine"), binding("unseen", "report", ""), binding("stopped", "fix", "ChangedBack"), binding("poor", "fix", "NotAllowed"), binding("idle", "report", "NotAudited"),
	}}}
	x.existing()
	want := []Line{
		{Warning, "binding unseen", `mapd.dev/existing is "report", and no audit has looked at objects that exist`, "mapd serve needs --audit-interval; the first audit takes a while"},
		{Warning, "binding stopped", "objects that exist are not written any more: why of stopped", "see who else sets the field"},
		{Bad, "binding poor", "objects that exist are not written: why of poor", "docs/operate/existing.md has the rights"},
		{Warning, "binding idle", "why of idle", "start mapd serve with --audit-interval, such as 6h"},
	}
	if diff := cmp.Diff(want, x.lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
