//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestSecurity asks what those can do who should not be able to do anything, and
// in the end whether anything leaked.
func TestSecurity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	auditPolicy, auditLog := filepath.Join(dir, "audit.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(auditPolicy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &admin{cluster.Installed(t, cluster.InstallOptions{
		Cluster:  cluster.Options{Flags: []string{"--audit-policy-file=" + auditPolicy, "--audit-log-path=" + auditLog, "--audit-log-mode=blocking-strict"}},
		Replicas: 2, Flags: []string{"--log-level", "debug", "--warn-on-mutation"},
	})}
	a.NeedProcesses(t)
	a.namespace(t, "e2e-security", map[string]string{"e2e": "security"})
	a.namespace(t, "e2e-params", nil)
	a.mustKubectl(t, "", "-n", "e2e-params", "create", "configmap", "param", "--from-literal=a=yes")
	a.mustKubectl(t, drawing{
		name: "e2e-guard", resources: "configmaps", namespaces: "e2e: security", paramKind: "{apiVersion: v1, kind: ConfigMap}",
		paramRef: "{name: param, namespace: e2e-params, parameterNotFoundAction: Deny}", mutations: []string{label("everything", "params.data.a")},
	}.yaml(), "apply", "-f", "-")
	a.guarded(t)

	t.Run("own rights", a.ownRights)
	t.Run("stranger", a.stranger)
	t.Run("writer of policies", a.writerOfPolicies)
	t.Run("port", a.port)
	t.Run("secrets", func(t *testing.T) { a.secrets(t, auditLog) })
}

// guarded waits until configMaps in the namespace are mutated.
func (a *admin) guarded(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "the policy to act", func(ctx context.Context) error {
		o, err := a.configMap(ctx, "e2e-security")
		if err != nil {
			return err
		}
		return has(o, "everything", "yes")
	})
}

// stranger tries to change what is mutated. She may edit everything in a
// namespace of her own, and view the whole cluster.
func (a *admin) stranger(t *testing.T) {
	a.namespace(t, "e2e-mallory", nil)
	for _, args := range [][]string{
		{"create", "clusterrolebinding", "e2e-view", "--clusterrole=view", "--user=mallory"},
		{"-n", "e2e-mallory", "create", "rolebinding", "e2e-admin", "--clusterrole=admin", "--user=mallory"},
	} {
		a.mustKubectl(t, "", args...)
	}
	mallory := a.DynamicClient(t, a.As("mallory", "system:authenticated"))
	may := a.Client(t, a.As("mallory", "system:authenticated"))
	cluster.Eventually(t, cluster.Patience, "mallory's own rights", func(ctx context.Context) error {
		_, err := may.CoreV1().ConfigMaps("e2e-mallory").List(ctx, metav1.ListOptions{})
		_, err2 := mallory.Resource(policiesGVR).List(ctx, metav1.ListOptions{})
		return errors.Join(err, err2)
	})

	group := func(g, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: g, Version: "v1", Resource: resource}
	}
	const system = cluster.Namespace
	for _, x := range []struct {
		gvr             schema.GroupVersionResource
		namespace, name string
		sub             []string
		create          string // YAML
		read            bool   // may be read
	}{
		{gvr: policiesGVR, name: "e2e-guard", create: drawing{name: "mallory", resources: "secrets"}.policyYAML(), read: true},
		{gvr: bindingsGVR, name: "e2e-guard", create: drawing{name: "mallory"}.bindingYAML(), read: true},
		{gvr: policiesGVR, name: "e2e-guard", sub: []string{"status"}, read: true},
		{gvr: bindingsGVR, name: "e2e-guard", sub: []string{"status"}, read: true},
		{gvr: group("admissionregistration.k8s.io", "mutatingwebhookconfigurations"), name: "000.mapd.dev", create: neighbour},
		{gvr: group("admissionregistration.k8s.io", "validatingwebhookconfigurations"), name: "mapd.dev"},
		{gvr: group("apiextensions.k8s.io", "customresourcedefinitions"), name: "mutatingadmissionpolicies.admissionregistration.mapd.dev"},
		{gvr: group("", "secrets"), namespace: system, name: "mapd-tls"},
		{gvr: group("coordination.k8s.io", "leases"), namespace: system, name: "mapd",
			create: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: mapd2, namespace: mapd-system}}"},
		{gvr: group("", "services"), namespace: system, name: "mapd", read: true},
		{gvr: group("discovery.k8s.io", "endpointslices"), namespace: system, name: "mapd-e2e", read: true,
			create: "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: mallory, namespace: mapd-system, labels: {kubernetes.io/service-name: mapd}}, addressType: IPv4, endpoints: []}"},
		{gvr: group("apps", "deployments"), namespace: system, name: "mapd", read: true},
		{gvr: group("apps", "deployments"), namespace: system, name: "mapd", sub: []string{"scale"}, read: true},
		{gvr: group("", "serviceaccounts"), namespace: system, name: "mapd", read: true},
		{gvr: group("networking.k8s.io", "networkpolicies"), namespace: system, name: "mapd", read: true},
		{gvr: group("rbac.authorization.k8s.io", "clusterroles"), name: "mapd-params",
			create: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: mallory, labels: {mapd.dev/aggregate-to-params: "true"}}}`},
		{gvr: group("rbac.authorization.k8s.io", "clusterrolebindings"), name: "mapd"},
		{gvr: group("", "configmaps"), namespace: "e2e-params", name: "param", read: true},
		{gvr: group("", "namespaces"), name: "e2e-security", read: true},
		{gvr: group("", "events"), namespace: "default", name: "x", read: true,
			create: "{apiVersion: v1, kind: Event, metadata: {name: x, namespace: default}, involvedObject: {namespace: default}}"},
	} {
		var client dynamic.ResourceInterface = mallory.Resource(x.gvr)
		if x.namespace != "" {
			client = mallory.Resource(x.gvr).Namespace(x.namespace)
		}
		what := fmt.Sprint(x.gvr.GroupResource(), " ", x.namespace, "/", x.name, x.sub)
		forbidden := func(verb string, err error) {
			t.Helper()
			if !apierrors.IsForbidden(err) {
				t.Errorf("mallory may %s %s: %v", verb, what, err)
			}
		}
		if len(x.sub) == 0 {
			_, err := client.Get(t.Context(), x.name, metav1.GetOptions{})
			if !x.read {
				forbidden("get", err)
			} else if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("the test is wrong about %s: %v", what, err)
			}
			forbidden("delete", client.Delete(t.Context(), x.name, metav1.DeleteOptions{}))
		}
		patch := `{"metadata": {"labels": {"mallory": "x"}}, "spec": {"replicas": 0}, "status": {"conditions": []}}`
		_, err := client.Patch(t.Context(), x.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, x.sub...)
		forbidden("patch", err)
		if x.create != "" {
			_, err := client.Create(t.Context(), parse(t, strings.TrimSpace(x.create)), metav1.CreateOptions{})
			forbidden("create", err)
		}
	}
	_, err := may.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), "mapd", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("mallory got a token of mapd: %v", err)
	}
	if err := may.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/" + system + "/services/https:mapd:443/proxy/metrics").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("mallory reaches mapd through the API server: %v", err)
	}
	a.guarded(t)
}

// writerOfPolicies may write policies and bindings, and nothing else: not what she
// may not read into other objects.
func (a *admin) writerOfPolicies(t *testing.T) {
	a.mustKubectl(t, "", "create", "clusterrole", "e2e-author", "--verb=*", "--resource=mutatingadmissionpolicies.admissionregistration.mapd.dev,mutatingadmissionpolicybindings.admissionregistration.mapd.dev")
	a.mustKubectl(t, "", "create", "clusterrolebinding", "e2e-author", "--clusterrole=e2e-author", "--user=author")
	author := a.DynamicClient(t, a.As("author", "system:authenticated"))
	a.GrantParams(t, "", "secrets")

	d := drawing{
		name: "e2e-author", resources: "configmaps", namespaces: "e2e: none", paramKind: "{apiVersion: v1, kind: Secret}",
		paramRef: "{name: credentials, namespace: e2e-params, parameterNotFoundAction: Deny}", mutations: []string{label("a", "string(params.data.a)")},
	}
	t.Cleanup(func() { a.erase(t, d.name) })
	create := func(gvr schema.GroupVersionResource, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := author.Resource(gvr).Create(ctx, parse(t, text), metav1.CreateOptions{})
			return err
		}
	}
	refused := func(do func(context.Context) error, field, text string) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, "an answer that is not about the right to write", func(ctx context.Context) error {
			err := do(ctx)
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code == http.StatusForbidden || apierrors.IsConflict(err) {
				return fmt.Errorf("got %v", err)
			}
			s := status.Status()
			if s.Code != http.StatusUnprocessableEntity || s.Reason != metav1.StatusReasonInvalid || s.Details == nil || len(s.Details.Causes) != 1 ||
				s.Details.Causes[0].Type != metav1.CauseType("FieldValueForbidden") || s.Details.Causes[0].Field != field || !strings.Contains(s.Message, text) {
				t.Errorf("got %d %s %v, want 422 with one Forbidden cause for %s: %s", s.Code, s.Reason, s.Details, field, text)
			}
			return nil
		})
	}
	refused(create(policiesGVR, d.policyYAML()), "spec.paramKind", `must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`)
	// The policy of somebody else does not help.
	a.mustKubectl(t, d.policyYAML(), "apply", "-f", "-")
	refused(create(bindingsGVR, d.bindingYAML()), "spec.paramRef", `permission on the object referenced by paramRef`)
	// Nor does one that names a ConfigMap and is changed afterwards.
	other := d
	other.name, other.paramKind = "e2e-author-2", "{apiVersion: v1, kind: ConfigMap}"
	refused(create(policiesGVR, other.policyYAML()), "spec.paramKind", `must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)`)
	plain := other
	plain.paramKind, plain.paramRef, plain.mutations = "", "", []string{label("a", `"b"`)}
	t.Cleanup(func() { a.erase(t, plain.name) })
	if err := create(policiesGVR, plain.policyYAML())(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(func(ctx context.Context) error {
		old, err := author.Resource(policiesGVR).Get(ctx, plain.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		next := d
		next.name = plain.name
		o := parse(t, next.policyYAML())
		o.SetResourceVersion(old.GetResourceVersion())
		_, err = author.Resource(policiesGVR).Update(ctx, o, metav1.UpdateOptions{})
		return err
	}, "spec.paramKind", "kind=Secret")

	// With the right to read, she may. The right to read one Secret is enough for
	// the binding.
	a.mustKubectl(t, "", "-n", "e2e-params", "create", "role", "e2e-author", "--verb=get", "--resource=secrets", "--resource-name=credentials")
	a.mustKubectl(t, "", "-n", "e2e-params", "create", "rolebinding", "e2e-author", "--role=e2e-author", "--user=author")
	cluster.Eventually(t, cluster.Patience, "the binding to be accepted", create(bindingsGVR, d.bindingYAML()))
	a.erase(t, d.name)
	refused(create(policiesGVR, d.policyYAML()), "spec.paramKind", "kind=Secret")
	a.mustKubectl(t, "", "create", "clusterrole", "e2e-author-secrets", "--verb=get", "--resource=secrets")
	a.mustKubectl(t, "", "create", "clusterrolebinding", "e2e-author-secrets", "--clusterrole=e2e-author-secrets", "--user=author")
	cluster.Eventually(t, cluster.Patience, "the policy to be accepted", create(policiesGVR, d.policyYAML()))
}

// ownRights asks what mapd's ServiceAccount may do.
func (a *admin) ownRights(t *testing.T) {
	own := a.Client(t, a.As("system:serviceaccount:mapd-system:mapd", "system:serviceaccounts", "system:serviceaccounts:mapd-system", "system:authenticated"))
	may := func(verb, group, resource, namespace, name string) bool {
		t.Helper()
		resource, sub, _ := strings.Cut(resource, "/")
		r, err := own.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Allowed
	}
	const system, hooks, rbac = cluster.Namespace, "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
	writes := []string{"create", "update", "patch", "delete", "deletecollection"}
	all := append([]string{"get", "list", "watch"}, writes...)
	for _, x := range []struct {
		verbs                            []string
		group, resource, namespace, name string
	}{
		{[]string{"get", "list", "watch"}, "", "secrets", system, "mapd-tls"}, // the question is asked rightly
		{all, "", "pods", "", ""}, {all, "", "pods", system, ""}, {all, "", "pods/exec", system, ""}, {all, "", "pods/ephemeralcontainers", system, ""},
		{writes, "", "configmaps", "", ""}, {writes, "", "configmaps", "kube-system", ""}, {[]string{"patch", "deletecollection"}, "", "configmaps", system, ""}, {writes, "", "namespaces", "", ""},
		{all, "", "secrets", "default", ""}, {all, "", "secrets", "kube-system", "x"},
		{[]string{"get", "list", "watch", "update", "patch", "delete"}, "", "secrets", system, "other"}, {[]string{"list"}, "", "secrets", system, ""},
		{[]string{"delete", "patch"}, "", "secrets", system, "mapd-tls"},
		{all, "", "serviceaccounts", system, ""}, {[]string{"create"}, "", "serviceaccounts/token", system, "mapd"}, {[]string{"create"}, "", "serviceaccounts/token", "kube-system", "x"},
		{writes, "", "services", system, ""}, {writes, "", "nodes", "", ""}, {writes, "", "endpoints", system, ""}, {writes, "discovery.k8s.io", "endpointslices", system, ""},
		{all, "apps", "deployments", system, ""}, {writes, "apps", "daemonsets", "", ""},
		{all, rbac, "roles", system, ""}, {all, rbac, "rolebindings", system, ""}, {all, rbac, "clusterroles", "", ""}, {all, rbac, "clusterrolebindings", "", ""},
		{[]string{"escalate", "bind"}, rbac, "clusterroles", "", ""}, {[]string{"escalate", "bind"}, rbac, "roles", system, ""},
		{[]string{"impersonate"}, "", "users", "", ""}, {[]string{"impersonate"}, "", "groups", "", ""}, {[]string{"impersonate"}, "", "serviceaccounts", "", ""},
		{writes, hooks, "mutatingwebhookconfigurations", "", "other"}, {writes, hooks, "validatingwebhookconfigurations", "", "other"},
		{[]string{"deletecollection"}, hooks, "mutatingwebhookconfigurations", "", ""},
		{writes, hooks, "mutatingwebhookconfigurations", "", "mapd.dev"}, {writes, hooks, "validatingwebhookconfigurations", "", "000.mapd.dev"},
		{writes, hooks, "mutatingadmissionpolicies", "", ""}, {writes, hooks, "validatingadmissionpolicies", "", ""},
		{writes, "admissionregistration.mapd.dev", "mutatingadmissionpolicies", "", ""}, {writes, "admissionregistration.mapd.dev", "mutatingadmissionpolicybindings", "", ""},
		{writes, "apiextensions.k8s.io", "customresourcedefinitions", "", ""}, {writes, "apiregistration.k8s.io", "apiservices", "", ""},
		{[]string{"get", "update", "patch", "delete"}, "coordination.k8s.io", "leases", system, "other"}, {[]string{"list", "watch", "patch", "delete"}, "coordination.k8s.io", "leases", system, "mapd"}, {all, "coordination.k8s.io", "leases", "kube-system", ""},
		{all, "certificates.k8s.io", "certificatesigningrequests", "", ""},
		{[]string{"get", "list", "watch", "delete"}, "", "events", "default", ""},
	} {
		for _, verb := range x.verbs {
			want := x.name == "mapd-tls" && x.verbs[0] == "get"
			if may(verb, x.group, x.resource, x.namespace, x.name) != want {
				t.Errorf("may %s %s.%s %s/%s: %t", verb, x.resource, x.group, x.namespace, x.name, !want)
			}
		}
	}
	for _, path := range []string{"/metrics", "/logs", "/debug/pprof/heap"} {
		r, err := own.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path}},
		}, metav1.CreateOptions{})
		if err != nil || r.Status.Allowed {
			t.Errorf("may get %s: %v", path, err)
		}
	}
}

// port speaks to mapd directly, as a Pod in the cluster could.
func (a *admin) port(t *testing.T) {
	replica := a.Replicas()[0]
	client := &http.Client{Timeout: cluster.Patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	post := func(path, contentType string, body io.Reader) (int, string) {
		t.Helper()
		resp, err := client.Post("https://"+replica.Addr+path, contentType, body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}

	// A review that no API server has made changes nothing.
	before := allObjects(t, a.Cluster)
	forged := forgedReview(t)
	code, answer := post("/mutate/fail/never", "application/json", bytes.NewReader(forged))
	if code != http.StatusOK || !strings.Contains(answer, `"allowed":true`) {
		t.Errorf("a forged review: %d %s", code, answer)
	}
	if code, answer = post("/validate", "application/json", bytes.NewReader(forged)); code != http.StatusOK {
		t.Errorf("a forged review: %d %s", code, answer)
	}
	var news []string
	for name := range allObjects(t, a.Cluster) {
		// A replica stores what it has counted, also of reviews of others; see docs/operate/observe.md.
		if _, was := before[name]; !was && !strings.HasPrefix(name, "events") && !strings.HasPrefix(name, "configmaps "+cluster.Namespace+"/mapd-counts-") {
			news = append(news, name)
		}
	}
	if len(news) > 0 {
		t.Errorf("a forged review made %v", news)
	}

	// What is not a review.
	for _, tt := range []struct {
		what, path, contentType, body string
		code                          int
		want                          string
	}{
		{"nothing", "/mutate/fail/never", "application/json", "", 400, "malformed AdmissionReview"},
		{"no JSON", "/mutate/fail/never", "application/json", "{", 400, "malformed AdmissionReview"},
		{"a list", "/mutate/fail/never", "application/json", "[]", 400, "malformed AdmissionReview"},
		{"an object of another kind", "/mutate/fail/never", "application/json", `{"kind": "Pod", "apiVersion": "v1"}`, 400, "want kind AdmissionReview"},
		{"a review of another version", "/validate", "application/json", `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}`, 400, "want kind AdmissionReview of apiVersion admission.k8s.io/v1"},
		{"no request", "/validate", "application/json", `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}`, 400, "the review has no request"},
		{"no uid", "/mutate/ignore/ifneeded", "application/json", `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {}}`, 400, "request.uid is missing"},
		{"deep nesting", "/mutate/fail/never", "application/json", strings.Repeat("[", 1<<20), 400, "malformed AdmissionReview"},
		{"another content type", "/mutate/fail/never", "text/plain", "{}", 415, "want application/json"},
		{"another path", "/mutate", "application/json", "{}", 404, "no path"},
		{"another method", "/healthz", "application/json", "{}", 405, "method POST is not allowed"},
		{"a wrong timeout", "/mutate/fail/never?timeout=-1s", "application/json", "{}", 400, "timeout"},
		{"a body that is too large", "/mutate/fail/never", "application/json", strings.Repeat(" ", webhook.MaxBody+1), 413, "larger than 7340032 bytes"},
	} {
		code, answer := post(tt.path, tt.contentType, strings.NewReader(tt.body))
		var status metav1.Status
		if err := json.Unmarshal([]byte(answer), &status); code != tt.code || err != nil || !strings.Contains(status.Message, tt.want) {
			t.Errorf("%s: %d %.300s, want %d and …%s…", tt.what, code, answer, tt.code, tt.want)
		}
	}
	// A length that is not announced.
	if code, _ := post("/mutate/fail/never", "application/json", io.MultiReader(strings.NewReader(strings.Repeat(" ", webhook.MaxBody+1)))); code != 413 {
		t.Errorf("a body that is too large, in pieces: %d", code)
	}

	// Who does not speak TLS 1.3.
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: false, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", replica.Addr, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			conn.Close()
		}
	}
	if resp, err := http.Post("http://"+replica.Addr+"/mutate/fail/never", "application/json", bytes.NewReader(forged)); err == nil {
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || strings.Contains(string(text), "AdmissionReview") {
			t.Errorf("plain HTTP: %d %s", resp.StatusCode, text)
		}
	}
	conn, err := net.Dial("tcp", replica.Addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "SSH-2.0-mallory\r\n")
	conn.Close()

	if err := replica.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if _, metrics, err := replica.Get(t.Context(), "/metrics"); err != nil || !strings.Contains(metrics, "\nmapd_panics_total 0\n") {
		t.Errorf("there were panics, or no metrics: %v", err)
	}
	a.guarded(t)
}

// forgedReview asks, in the name of somebody powerful, for what e2e-guard mutates.
func forgedReview(t *testing.T) []byte {
	t.Helper()
	data, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "forged", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Namespace: "e2e-security", Name: "forged", Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}},
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forged", "namespace": "e2e-security"}}`)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// secrets runs policies that fail in many ways on objects that hold a secret, with
// a secret for a parameter. Clients get the same answers as from a native server; nothing else may hold a value.
func (a *admin) secrets(t *testing.T, auditLog string) {
	native := &admin{&cluster.Mapd{Cluster: cluster.Start(t, cluster.Options{Native: true})}}
	const canary = "canary-5d1b7a!"
	tries := failures(canary)

	var texts [2][]string
	for i, on := range []*admin{native, a} {
		on.namespace(t, "e2e-canary", map[string]string{"e2e": "canary"})
		if _, err := on.Kubernetes.CoreV1().Secrets("e2e-canary").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, StringData: map[string]string{"token": canary},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range tries {
			if i == 0 {
				f.apiVersion = "admissionregistration.k8s.io/v1"
			}
			all.WriteString(f.yaml())
		}
		on.mustKubectl(t, all.String(), "apply", "-f", "-")
		// One policy for each, so each says when it is there.
		for _, f := range tries {
			var text string
			cluster.Eventually(t, cluster.Patience, f.name+" to fail", func(ctx context.Context) error {
				err := on.try(ctx, f, canary)
				if err == nil && f.failure != "Ignore" {
					return errors.New("it does not fail")
				}
				if err != nil {
					text = err.Error()
				}
				return nil
			})
			texts[i] = append(texts[i], f.name+": "+withoutPrefix(text))
		}
	}
	quoting := 0
	for _, text := range texts[0] {
		if strings.Contains(text, canary) {
			quoting++
		}
	}
	t.Logf("%d policies fail; of the native texts %d quote a value of the object or parameter", len(tries), quoting)
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("clients are told something else than natively:\n-native +mapd\n%s", diff)
	}
	// A malformed review with a value in it, which nobody but its sender may see.
	for _, body := range []string{`{"kind": "AdmissionReview", "request": {"uid": {"` + canary + `": 1}}}`, `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "x", "object": "` + canary + `"}}`, canary} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		resp, err := client.Post("https://"+a.Replicas()[0].Addr+"/mutate/fail/never", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || strings.Contains(string(text), canary) {
			t.Errorf("a malformed review: %d %s %v", resp.StatusCode, text, err)
		}
	}

	// Now for what was written down meanwhile.
	cluster.Eventually(t, cluster.Patience, "a failure that is ignored to be noted", func(ctx context.Context) error {
		ignored := tries[slices.IndexFunc(tries, func(f drawing) bool { return f.failure == "Ignore" })]
		if err := a.try(ctx, ignored, canary); err != nil {
			return err
		}
		if !strings.Contains(annotations(t, auditLog), ignored.name) {
			return errors.New("the audit log says nothing of it")
		}
		return nil
	})
	secret, err := a.Kubernetes.CoreV1().Secrets(cluster.Namespace).Get(t.Context(), "mapd-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hidden := map[string]string{
		"the canary": canary, "the canary, encoded": strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(canary)), "="),
	}
	for name, data := range secret.Data {
		for rest := data; ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if strings.Contains(block.Type, "PRIVATE KEY") {
				// A line of it, from the middle, as it is in PEM.
				text := base64.StdEncoding.EncodeToString(block.Bytes)
				hidden["the key in "+name] = text[len(text)/2 : len(text)/2+24]
			}
		}
	}
	if len(hidden) < 3 {
		t.Fatal("the Secret mapd-tls holds no key that could be looked for")
	}
	places := map[string]string{"logs": a.Logs(t), "annotations of the audit log": annotations(t, auditLog)}
	for _, r := range a.Replicas() {
		for _, page := range []string{"/metrics", "/readyz?verbose", "/healthz"} {
			_, text, err := r.Get(t.Context(), page)
			if err != nil {
				t.Fatal(err)
			}
			places[r.Name+page] = text
		}
	}
	for _, what := range []string{"events", "mutatingadmissionpolicies.admissionregistration.mapd.dev", "mutatingadmissionpolicybindings.admissionregistration.mapd.dev",
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "leases"} {
		places[what] = a.mustKubectl(t, "", "get", what, "--all-namespaces", "--output", "json")
	}
	for place, text := range places {
		if len(text) < 3 {
			t.Errorf("%s: nothing to look at", place)
		}
		for what, value := range hidden {
			if i := strings.Index(text, value); i >= 0 {
				t.Errorf("%s: there is %s: …%.200s…", place, what, text[max(0, i-100):])
			}
		}
	}
	// They were looked for in the right places.
	if logs := places["logs"]; !strings.Contains(logs, "level=DEBUG") || !strings.Contains(logs, "denied=true") || !strings.Contains(logs, "malformed AdmissionReview") {
		t.Error("the logs tell nothing of what was done")
	}
	for _, f := range tries {
		if !strings.Contains(places["annotations of the audit log"], f.name) {
			t.Errorf("the audit log has no annotation about %s", f.name)
		}
	}
}

// failures are policies that fail, each on objects of its own name, whose data
// hold a secret.
func failures(canary string) []drawing {
	const secret = "object.data.secret"
	const param = "string(params.data.token)"
	var all []drawing
	add := func(name string, d drawing) {
		d.name, d.namespaces = "e2e-canary-"+name, "e2e: canary"
		if d.resources == "" {
			d.resources = "configmaps"
		}
		d.objects = "try: " + d.name
		all = append(all, d)
	}
	apply := func(name, value string) { add(name, drawing{mutations: []string{label("a", value)}}) }
	patch := func(name, expression string) {
		add(name, drawing{patches: true, mutations: []string{expression}})
	}
	apply("key", `{"x": "y"}[`+secret+`]`)
	apply("int", `string(int(`+secret+`))`)
	apply("duration", `string(duration(`+secret+`))`)
	apply("timestamp", `string(timestamp(`+secret+`))`)
	apply("quantity", `string(quantity(`+secret+`).asInteger())`)
	apply("url", `url("https://" + `+secret+` + "%zz").getHost()`)
	apply("ip", `string(ip(`+secret+`))`)
	apply("cidr", `string(cidr(`+secret+`))`)
	apply("regex", `string("x".matches(`+secret+` + "["))`)
	apply("index", `[`+secret+`][size(`+secret+`)]`)
	apply("division", `string(1 / (size(`+secret+`) - `+fmt.Sprint(len(canary))+`))`)
	apply("dyn", `string(dyn(`+secret+`) + 1)`)
	apply("budget", `string([1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, `+secret+` == `+secret+`)))))))`)
	add("ignored", drawing{failure: "Ignore", mutations: []string{label("a", `{"x": "y"}[`+secret+`]`)}})
	add("condition", drawing{condition: `{"x": true}[` + secret + `]`, mutations: []string{label("a", `"b"`)}})
	add("variable", drawing{variable: `{"x": "y"}[` + secret + `]`, mutations: []string{label("a", "variables.v")}})
	add("param", drawing{
		paramKind: "{apiVersion: v1, kind: Secret}", paramRef: "{name: credentials, namespace: e2e-canary, parameterNotFoundAction: Deny}",
		mutations: []string{label("a", `{"x": "y"}[`+param+`]`)},
	})
	add("param-none", drawing{
		paramKind: "{apiVersion: v1, kind: Secret}", paramRef: "{name: none, namespace: e2e-canary, parameterNotFoundAction: Deny}",
		mutations: []string{label("a", param)},
	})
	patch("path", `[JSONPatch{op: "replace", path: "/none/" + jsonpatch.escapeKey(`+secret+`), value: "x"}]`)
	patch("type", `[JSONPatch{op: "replace", path: "/data", value: `+secret+`}]`)
	patch("unknown", `[JSONPatch{op: "add", path: "/" + jsonpatch.escapeKey(`+secret+`), value: "x"}]`)
	patch("kind", `[JSONPatch{op: "replace", path: "/kind", value: `+secret+`}]`)
	patch("op", `[JSONPatch{op: `+secret+`, path: "/data/x", value: "x"}]`)
	add("environment", drawing{resources: "pods", mutations: []string{label("a", `{"x": "y"}[object.spec.containers[0].env[0].value]`)}})
	add("secret", drawing{resources: "secrets", mutations: []string{label("a", `{"x": "y"}[string(object.data.secret)]`)}})
	// This one does not fail; what it makes is refused by the server.
	apply("invalid", secret)
	return all
}

// try makes an object that a policy fails on.
func (a *admin) try(ctx context.Context, d drawing, canary string) error {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	meta := metav1.ObjectMeta{Name: d.name, Namespace: "e2e-canary", Labels: map[string]string{"try": d.name}}
	var err error
	switch d.resources {
	case "pods":
		_, err = a.Kubernetes.CoreV1().Pods(meta.Namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "SECRET", Value: canary}}}},
		}}, dry)
	case "secrets":
		_, err = a.Kubernetes.CoreV1().Secrets(meta.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"secret": []byte(canary)}}, dry)
	default:
		_, err = a.Kubernetes.CoreV1().ConfigMaps(meta.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"secret": canary}}, dry)
	}
	return err
}

var ofPlaces = regexp.MustCompile(`admission webhook "[0-9a-z.]+" denied the request: |policy '[-a-z0-9]+' with binding '[-a-z0-9]+' denied request: |^Internal error occurred: | in scheme "[^"]*"`)

// withoutPrefix is what a server says, less what it writes before it: the
// webhook, the policy, and for some errors of decoding neither (rows g15-prefix,
// decode-errors and scheme-name of docs/reference/compat.md).
func withoutPrefix(text string) string { return ofPlaces.ReplaceAllString(text, "") }

// annotations are those in an audit log that come from mapd.
func annotations(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all strings.Builder
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct{ Annotations map[string]string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be half written
		}
		for key, value := range event.Annotations {
			if strings.Contains(key, "mapd.dev/") {
				fmt.Fprintf(&all, "%s=%s\n", key, value)
			}
		}
	}
	return all.String()
}

// TestClientCertificate has an API server that shows a certificate to mapd, and a
// mapd that asks for it.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	authority, sign := newAuthority(t)
	certificate, key := sign("kube-apiserver")
	// As docs/operate/secure.md says: the user of the kubeconfig is named for the webhook's
	// host. Behind the harness's Service that has a port, so it is the one for all.
	write("kubeconfig", fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {client-certificate: %s, client-key: %s}\n",
		write("client.crt", certificate), write("client.key", key)))
	configuration := write("admission.yaml", []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: `+filepath.Join(dir, "kubeconfig")+`}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: `+filepath.Join(dir, "kubeconfig")+`}
`))
	a := &admin{cluster.Install(t, cluster.Start(t, cluster.Options{Flags: []string{"--admission-control-config-file=" + configuration}}),
		cluster.InstallOptions{Flags: []string{"--client-ca", write("ca.crt", authority)}})}
	a.namespace(t, "e2e-security", nil)
	a.mustKubectl(t, "", "-n", "default", "create", "configmap", "param", "--from-literal=a=yes")
	d := drawing{
		name: "e2e-guard", resources: "configmaps", paramKind: "{apiVersion: v1, kind: ConfigMap}",
		paramRef: "{name: param, namespace: default, parameterNotFoundAction: Deny}", mutations: []string{label("everything", "params.data.a")},
	}
	a.mustKubectl(t, d.yaml(), "apply", "-f", "-")
	a.guarded(t) // the API server is heard
	d.mutations = []string{"nobody"}
	if out := a.kubectl(t, d.policyYAML(), "apply", "-f", "-"); out.code == 0 || !strings.Contains(out.stderr, "undeclared reference to 'nobody'") {
		t.Errorf("want a refusal by mapd: %s", out)
	}

	_, foreign := newAuthority(t)
	for who, tt := range map[string]struct {
		certificates func() []tls.Certificate
		code         int // 0: no connection
	}{
		"nobody": {func() []tls.Certificate { return nil }, http.StatusForbidden},
		"a stranger": {func() []tls.Certificate {
			c, err := tls.X509KeyPair(foreign("kube-apiserver"))
			if err != nil {
				t.Fatal(err)
			}
			return []tls.Certificate{c}
		}, 0},
		"the API server": {func() []tls.Certificate {
			c, err := tls.X509KeyPair(certificate, key)
			if err != nil {
				t.Fatal(err)
			}
			return []tls.Certificate{c}
		}, http.StatusOK},
	} {
		// A client keeps a certificate to itself that the server's list of authorities
		// does not cover, unless it insists.
		config := &tls.Config{InsecureSkipVerify: true}
		if all := tt.certificates(); len(all) > 0 {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &all[0], nil }
		}
		client := &http.Client{Timeout: cluster.Patience, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		for _, path := range []string{"/mutate/fail/never", "/mutate/ignore/never", "/mutate/fail/ifneeded", "/mutate/ignore/ifneeded", "/validate"} {
			resp, err := client.Post("https://"+a.Replicas()[0].Addr+path, "application/json", bytes.NewReader(forgedReview(t)))
			if err != nil {
				if tt.code != 0 {
					t.Errorf("%s on %s: %v", who, path, err)
				}
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			switch {
			case resp.StatusCode != tt.code:
				t.Errorf("%s on %s: %d %s, want %d", who, path, resp.StatusCode, text, tt.code)
			case tt.code == http.StatusForbidden && (!strings.Contains(string(text), "a client certificate is required") || strings.Contains(string(text), "patch")):
				t.Errorf("%s on %s: %s", who, path, text)
			}
		}
	}
	// Probes and metrics are for anybody.
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if code, _, err := a.Replicas()[0].Get(t.Context(), path); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d %v", path, code, err)
		}
	}
	if out := a.mapd(t, "doctor"); out.code != 0 {
		t.Error(out)
	}
}
