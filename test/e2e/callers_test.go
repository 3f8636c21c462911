//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestCallerTokens has an API server that sends mapd tokens which it has issued for that
// (KEP-6060), and a mapd that requires them. No server of 1.37 requests them by itself, so
// the test does it as a component beside the API server would.
func TestCallerTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	kubeconfig := func(name string) string {
		return write(name+".kubeconfig", fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {tokenFile: %s}\n", write(name+".token", "none")))
	}
	configuration := write("admission.yaml", fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %s}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %s}
`, kubeconfig("mutating"), kubeconfig("validating")))
	c := cluster.Start(t, cluster.Options{Flags: []string{
		"--admission-control-config-file=" + configuration, "--feature-gates=APIServerWebhookAuthenticationToken=true",
	}})
	a := &admin{cluster.Install(t, c, cluster.InstallOptions{Flags: []string{"--caller-tokens=require"}})}
	a.namespace(t, "e2e-security", nil)

	// What an API server is to have: a ServiceAccount that may attest all API groups.
	a.mustKubectl(t, `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ServiceAccount
  metadata: {name: webhook-auth, namespace: kube-system}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: e2e-attest}
  rules:
  - {apiGroups: [authentication.k8s.io], resources: [admissionReviewAPIGroups], verbs: [attest]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: e2e-attest}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-attest}
  subjects: [{kind: ServiceAccount, name: webhook-auth, namespace: kube-system}]
`, "apply", "-f", "-")
	written, err := a.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "mapd.dev", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service := written.Webhooks[0].ClientConfig.Service
	address := fmt.Sprintf("https://%s.%s.svc:%d", service.Name, service.Namespace, *service.Port) // without a path
	request := func(kind, name, path, group string) string {
		t.Helper()
		var token string
		cluster.Eventually(t, cluster.Patience, "a token for "+path, func(ctx context.Context) error {
			r, err := a.Kubernetes.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, "webhook-auth", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences:      []string{address + path},
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: kind, APIVersion: "admissionregistration.k8s.io/v1", Name: name},
				Attestations:   map[string]authenticationv1.AttestationValue{authenticationv1.AttestationAdmissionReviewAPIGroups: {group}},
			}}, metav1.CreateOptions{})
			if err == nil {
				token = r.Status.Token
			}
			return err
		})
		return token
	}
	write("validating.token", request("ValidatingWebhookConfiguration", "mapd.dev", "/validate", "*"))
	d := drawing{name: "e2e-guard", resources: "configmaps", namespaces: "e2e: guarded", mutations: []string{label("everything", "'yes'")}}
	a.mustKubectl(t, d.yaml(), "apply", "-f", "-")
	wrong := d
	wrong.mutations = []string{"nobody"}
	if out := a.kubectl(t, wrong.policyYAML(), "apply", "-f", "-"); out.code == 0 || !strings.Contains(out.stderr, "undeclared reference to 'nobody'") {
		t.Errorf("want a refusal by mapd: %s", out)
	}
	const path = "/mutate/fail/never"
	valid := request("MutatingWebhookConfiguration", "000.mapd.dev", path, "*")
	write("mutating.token", valid)
	a.mustKubectl(t, "", "label", "namespace", "e2e-security", "e2e=guarded")
	a.guarded(t) // the API server is heard

	// Everybody else is not.
	other := `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "e2e-other"}, "webhooks": []}`
	a.mustKubectl(t, other, "apply", "-f", "-")
	private, err := os.ReadFile(filepath.Join(c.Dir, "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	signing, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(valid, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	claimsOf := func() map[string]any {
		t.Helper()
		claims := map[string]any{}
		if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
			t.Fatal(err)
		}
		return claims
	}
	// resign signs the valid token anew, with other claims.
	resign := func(key *ecdsa.PrivateKey, id string, change map[string]any) string {
		t.Helper()
		claims := claimsOf()
		maps.Copy(claims, change)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, err := jwt.Signed(signer).Claims(claims).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	id := parsed.Headers[0].KeyID
	apps, _ := claimsOf()["kubernetes.io"].(map[string]any)
	apps["attestations"] = map[string][]string{authenticationv1.AttestationAdmissionReviewAPIGroups: {"apps"}}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: cluster.Patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for name, tt := range map[string]struct {
		token, path string
		code        int
		want        string
	}{
		"valid":              {valid, path, http.StatusOK, `"allowed":true`},
		"signed again":       {resign(signing, id, nil), path, http.StatusOK, `"allowed":true`}, // so the others fail for one reason each
		"none":               {"", path, http.StatusUnauthorized, "a token of the API server is required"},
		"forged":             {resign(foreign, id, nil), path, http.StatusUnauthorized, "signature is wrong"},
		"expired":            {resign(signing, id, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), path, http.StatusUnauthorized, "expired"},
		"of another cluster": {resign(foreign, "other", map[string]any{"iss": "https://other"}), path, http.StatusUnauthorized, "a key that the API server does not have"},
		"replayed":           {valid, "/mutate/ignore/never", http.StatusUnauthorized, "for the audience"},
		"of another webhook": {request("MutatingWebhookConfiguration", "e2e-other", path, "*"), path, http.StatusUnauthorized, "not bound to the MutatingWebhookConfiguration 000.mapd.dev"},
		"another group":      {resign(signing, id, map[string]any{"kubernetes.io": apps}), path, http.StatusForbidden, `API groups "apps", and this one is about ""`},
		"of the admin":       {a.Config.BearerToken, path, http.StatusUnauthorized, "not a JSON Web Token"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+a.Replicas()[0].Addr+tt.path, bytes.NewReader(forgedReview(t)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if tt.token != "" {
			r.Header.Set("Authorization", "Bearer "+tt.token)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		message := string(text)
		var status metav1.Status
		if tt.code != http.StatusOK && json.Unmarshal(text, &status) == nil {
			message = status.Message
		}
		if resp.StatusCode != tt.code || !strings.Contains(message, tt.want) {
			t.Errorf("%s: %d %s, want %d and %q", name, resp.StatusCode, text, tt.code, tt.want)
		}
		if tt.code != http.StatusOK && (strings.Contains(string(text), "patch") || tt.token != "" && strings.Contains(string(text), tt.token)) {
			t.Errorf("%s: the answer says too much: %s", name, text)
		}
	}
	if _, text, err := a.Replicas()[0].Get(t.Context(), "/metrics"); err != nil ||
		!strings.Contains(text, `mapd_caller_tokens_total{mode="require",result="missing",server="127.0.0.1"} 1`) ||
		!strings.Contains(text, `mapd_caller_tokens_total{mode="require",result="valid",server="127.0.0.1"}`) {
		t.Errorf("%v\n%s", err, text)
	}
	if out := a.mapd(t, "doctor"); out.code != 0 {
		t.Error(out)
	}
}
