//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// providerKind is the kind Provider as Gatekeeper defines it.
const providerKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: providers.externaldata.gatekeeper.sh}
spec:
  group: externaldata.gatekeeper.sh
  scope: Cluster
  names: {kind: Provider, listKind: ProviderList, plural: providers, singular: provider}
  preserveUnknownFields: false
  versions:
  - name: v1alpha1
    deprecated: true
    served: true
    storage: false
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec: {type: object, properties: {url: {type: string}, timeout: {type: integer}, caBundle: {type: string}}}
  - {name: v1beta1, served: true, storage: true, schema: *schema}
`

// lookedUp is a policy that asks a Provider for a ConfigMap's image.
const lookedUp = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: digest}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: image, expression: has(object.data) && "image" in object.data}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{data: {"digest": externalData("digests", [object.data.image])[?object.data.image].orValue("none")}}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: digest}
spec: {policyName: digest}
`

const (
	taggedImage = "nginx:1.25"
	digestImage = "nginx@sha256:9f6d3a1f4a8e1f36b1f4b3c52a55f9a1f7a3a1c7b60d54e8a0d2f2d9b1d1f9aa"
)

// TestExternalData has the API server store what a Provider says: a process that
// demands mapd's certificate, dies and comes back.
func TestExternalData(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	defineGatekeeper(t, c)
	c.Apply(t, providerKind)
	c.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	overlay := output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, "overlays", "external-data")))
	m := cluster.Install(t, c, cluster.InstallOptions{Manifest: overlay, Flags: []string{"--legacy=on", "--external-data", "--log-level=debug"}})
	p := newSampleProvider(t, m)
	p.Start(t)

	c.Apply(t, p.object("", p.ca))
	c.Apply(t, assignDigest("Fail"))
	c.Apply(t, lookedUp)
	p.stores(t, digestImage)
	cluster.Eventually(t, cluster.Patience, "the policy's answer", func(ctx context.Context) error {
		return expect(digestImage)(p.configMap(ctx, taggedImage))
	})
	if got, err := p.configMap(t.Context(), "unknown:1"); err != nil || got != "none" {
		t.Errorf("a key without a value: %q, %v", got, err)
	}
	if _, err := p.pod(t.Context(), "unknown:1"); err == nil || !strings.Contains(err.Error(), `provider digests: key "unknown:1": no digest is known`) {
		t.Errorf("a key without a value: %v", err)
	}
	p.refusesStrangers(t)

	// A dry run asks only where it has no side effects.
	p.denies(t, "not asked in a dry run", metav1.DryRunAll)
	c.Apply(t, p.object("None", p.ca))
	p.stores(t, digestImage, metav1.DryRunAll)

	// What is not valid does not take the place of what is.
	c.Apply(t, p.object("None", []byte("nobody's")))
	p.metric(t, `mapd_external_providers{state="refused"} 1`)
	p.stores(t, digestImage)
	c.Apply(t, p.object("", p.ca))
	p.metric(t, `mapd_external_providers{state="refused"} 0`)

	// Without the process, what fails is what failurePolicy says.
	p.Kill()
	p.denies(t, "failed to resolve external data placeholders: provider digests: no connection to "+p.address)
	if _, err := p.configMap(t.Context(), taggedImage); err == nil || !strings.Contains(err.Error(), "externalData: provider digests: ") {
		t.Errorf("the policy without the process: %v", err)
	}
	c.Apply(t, assignDigest("Ignore"))
	p.stores(t, taggedImage)
	c.Apply(t, assignDigest("UseDefault"))
	p.stores(t, "pause:1")
	p.Start(t)
	p.stores(t, digestImage)

	// A Provider that is gone is nobody to ask, until it is back.
	c.Apply(t, assignDigest("Fail"))
	providers := schema.GroupVersionResource{Group: "externaldata.gatekeeper.sh", Version: "v1beta1", Resource: "providers"}
	if err := c.Dynamic.Resource(providers).Delete(t.Context(), "digests", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.denies(t, "provider digests: there is no valid Provider of this name")
	c.Apply(t, strings.Replace(p.object("", p.ca), "v1beta1", "v1alpha1", 1))
	p.stores(t, digestImage)

	p.holdsSnapshot(t)
	sample, err := os.ReadFile(filepath.Join(cluster.Root(t), "examples/external-data/manifest.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(sample))

	if log := m.Logs(t); !strings.Contains(log, `mutatorsAsked="[digests: 1 key, 1 call, `) || !strings.Contains(log, `policiesAsked="[digests: 1 key, 1 call, `) {
		t.Error("the log does not say what was asked")
	}
}

// sampleProvider is the provider of examples/external-data. Only mapd may ask it.
type sampleProvider struct {
	*cluster.Process
	mapd    *cluster.Mapd
	address string
	ca      []byte // of its certificate
}

func newSampleProvider(t *testing.T, m *cluster.Mapd) *sampleProvider {
	t.Helper()
	program, certs := filepath.Join(m.Dir, "external-data"), filepath.Join(m.Dir, "provider-certs")
	build := exec.Command("go", "build", "-o", program, "./examples/external-data")
	build.Dir = cluster.Root(t)
	output(t, build)
	output(t, exec.Command(program, "issue", "--dir", certs, "--host", "127.0.0.1"))
	// Who may ask is whoever has a certificate of mapd's authority.
	authority := filepath.Join(m.Dir, "mapd-ca.crt")
	cluster.Eventually(t, cluster.Patience, "mapd's certificate", func(ctx context.Context) error {
		secret, err := m.Kubernetes.CoreV1().Secrets(cluster.Namespace).Get(ctx, "mapd-tls", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(secret.Data["ca.crt"]) == 0 {
			return errors.New("there is no ca.crt")
		}
		return os.WriteFile(authority, secret.Data["ca.crt"], 0o600)
	})
	ca, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", cluster.FreePort(t))
	table := filepath.Join(cluster.Root(t), "examples/external-data/table.txt")
	process := m.Process(t, "provider", program, "serve", "--listen", address, "--certs", certs, "--table", table, "--client-ca", authority)
	return &sampleProvider{process, m, address, ca}
}

// object is the Provider.
func (p *sampleProvider) object(sideEffects string, ca []byte) string {
	return fmt.Sprintf(`{apiVersion: externaldata.gatekeeper.sh/v1beta1, kind: Provider,
		metadata: {name: digests, annotations: {mapd.dev/side-effects: %q}},
		spec: {url: "https://%s/digests", timeout: 5, caBundle: %s}}`, sideEffects, p.address, base64.StdEncoding.EncodeToString(ca))
}

// assignDigest is a mutator that takes the images of Pods from the Provider.
func assignDigest(failurePolicy string) string {
	value := ""
	if failurePolicy == "UseDefault" {
		value = `, default: "pause:1"`
	}
	return fmt.Sprintf(`{apiVersion: mutations.gatekeeper.sh/v1, kind: Assign, metadata: {name: digest}, spec: {
		applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}], location: "spec.containers[name: *].image",
		parameters: {assign: {externalData: {provider: digests, dataSource: ValueAtLocation, failurePolicy: %s%s}}}}}`, failurePolicy, value)
}

// pod creates a Pod with an image, and returns the image that is stored.
func (p *sampleProvider) pod(ctx context.Context, image string, dryRun ...string) (string, error) {
	pods := p.mapd.Kubernetes.CoreV1().Pods("shop")
	created, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}, metav1.CreateOptions{DryRun: dryRun})
	if err != nil || len(dryRun) > 0 {
		return firstImage(created), err
	}
	stored, err := pods.Get(ctx, created.Name, metav1.GetOptions{})
	return firstImage(stored), err
}

func firstImage(pod *corev1.Pod) string {
	if pod == nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Image
}

// configMap creates a ConfigMap with an image, and returns the digest that is stored.
func (p *sampleProvider) configMap(ctx context.Context, image string) (string, error) {
	all := p.mapd.Kubernetes.CoreV1().ConfigMaps("shop")
	created, err := all.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "image-"}, Data: map[string]string{"image": image},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	stored, err := all.Get(ctx, created.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return stored.Data["digest"], nil
}

func expect(want string) func(got string, err error) error {
	return func(got string, err error) error {
		if err == nil && got != want {
			err = fmt.Errorf("%q, want %q", got, want)
		}
		return err
	}
}

// stores waits until a Pod gets an image.
func (p *sampleProvider) stores(t *testing.T, want string, dryRun ...string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "a Pod with the image "+want, func(ctx context.Context) error {
		return expect(want)(p.pod(ctx, taggedImage, dryRun...))
	})
}

// denies waits until Pods are refused with a text.
func (p *sampleProvider) denies(t *testing.T, want string, dryRun ...string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "a refusal", func(ctx context.Context) error {
		got, err := p.pod(ctx, taggedImage, dryRun...)
		var status *apierrors.StatusError
		if !errors.As(err, &status) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("image %q, error %v, want %s", got, err, want)
		}
		return nil
	})
}

// metric waits until mapd's metrics have a line.
func (p *sampleProvider) metric(t *testing.T, want string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, want, func(ctx context.Context) error {
		_, text, err := p.mapd.Replicas()[0].Get(ctx, "/metrics")
		if err == nil && !strings.Contains(text, want+"\n") {
			err = errors.New("it is not there")
		}
		return err
	})
}

// holdsSnapshot: the largest ConfigMap that migrate writes can be stored.
func (p *sampleProvider) holdsSnapshot(t *testing.T) {
	t.Helper()
	files := p.mapd.Dir
	var answers strings.Builder
	answers.WriteString("digests:\n")
	for i := range 5600 { // 2*115+15+20 bytes each
		fmt.Fprintf(&answers, "  %q: %q\n", fmt.Sprintf("%s%05d", strings.Repeat("k", 110), i), fmt.Sprintf("value %09d", i))
	}
	for name, text := range map[string]string{"answers.yaml": answers.String(), "digest.yaml": assignDigest("Fail")} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(files, "migrated")
	output(t, exec.Command(cluster.Binary(t), "migrate", "gatekeeper", "-p", filepath.Join(files, "digest.yaml"), "--values", "params",
		"--external-snapshot", filepath.Join(files, "answers.yaml"), "--output-dir", out))
	policy, err := os.ReadFile(filepath.Join(out, "assign-digest.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The ConfigMap is stored; the rest is of a group that this server does not run.
	_, params, ok := strings.Cut(string(policy), "kind: ConfigMap\n")
	params, _, _ = strings.Cut(params, "\n---")
	if !ok {
		t.Fatal("there is no ConfigMap")
	}
	for range 2 { // the second time is an update
		if _, err := p.mapd.Kubectl(t, []byte("apiVersion: v1\nkind: ConfigMap\n"+params), "apply", "--server-side", "--field-manager", strings.Repeat("m", 100), "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
}

// refusesStrangers: without mapd's certificate there is no answer.
func (p *sampleProvider) refusesStrangers(t *testing.T) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.ca)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Post("https://"+p.address+"/digests", "application/json", strings.NewReader(`{"request":{"keys":["nginx:1.25"]}}`))
	if err == nil {
		resp.Body.Close()
		t.Fatalf("somebody without a certificate got %s", resp.Status)
	}
	if !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("somebody without a certificate: %v", err)
	}
}
