//go:build e2e

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KyvernoNamespace is the namespace of Kyverno.
const KyvernoNamespace = "kyverno"

// kyvernoPart returns the directory of Kyverno's module, or the path of a program of it, which it
// builds if it is not in the cache.
func kyvernoPart(t testing.TB, program ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(Root(t), "test", "e2e", "kyverno", "build.sh"), program...)
	cmd.Stderr = os.Stderr // shows the progress of the build
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/e2e/kyverno/build.sh %s: %v", strings.Join(program, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// KyvernoDefinitions returns the CustomResourceDefinitions of Kyverno's own kinds of one
// group, kyverno.io or policies.kyverno.io, as its module has them.
func KyvernoDefinitions(t testing.TB, group string) []byte {
	t.Helper()
	dir := map[string]string{"kyverno.io": "kyverno", "policies.kyverno.io": "policies.kyverno.io"}[group]
	files, err := filepath.Glob(filepath.Join(kyvernoPart(t), "config", "crds", dir, "*.yaml"))
	if err != nil || dir == "" || len(files) == 0 {
		t.Fatalf("Kyverno's module has no definitions of %s: %v", group, err)
	}
	var all bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "---\n%s\n", data)
	}
	return all.Bytes()
}

// Kyverno is Kyverno's admission controller.
type Kyverno struct {
	*Process
	cluster *Cluster
	addr    string
}

// StartKyverno applies Kyverno's own manifest and starts its admission controller, as Install does
// for mapd: as a process with the flags of its Deployment and the rights of its ServiceAccount,
// which its Service then leads to. Kyverno's other controllers, for reports, existing objects and
// clean-up, do not run.
func StartKyverno(t testing.TB, c *Cluster) *Kyverno {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(kyvernoPart(t), "config", "install-latest-testing.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The definitions are too large for the annotation last-applied-configuration.
	if _, err := c.Kubectl(t, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	c.WaitKinds(t)
	c.AggregateRoles(t)
	const name = "kyverno-admission-controller"
	deployment, err := c.Kubernetes.AppsV1().Deployments(KyvernoNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := FreePort(t)
	patch := fmt.Sprintf(`{"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null, "selector": null,
		"ports": [{"$patch": "replace"}, {"name": "https", "port": %d}]}}`, port)
	if _, err := c.Kubernetes.CoreV1().Services(KyvernoNamespace).Patch(t.Context(), "kyverno-svc", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("Kyverno's Service cannot become one of type ExternalName: %v", err)
	}
	token, err := c.Kubernetes.CoreV1().ServiceAccounts(KyvernoNamespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600 * 4))}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	var env []string
	for _, v := range container.Env {
		env = append(env, v.Name+"="+value(v))
	}
	args := append(container.Args, "--kubeconfig="+c.Kubeconfig(t, c.WithToken(token.Status.Token), KyvernoNamespace),
		"--webhookServerHost=127.0.0.1", "--webhookServerPort="+strconv.Itoa(port), "--servicePort="+strconv.Itoa(port),
		"--disableMetrics=true", "--controllerRuntimeMetricsAddress=0")
	k := &Kyverno{
		Process: newProcess(t, c.Dir, "kyverno", kyvernoPart(t, "kyverno"), args, env),
		cluster: c, addr: fmt.Sprintf("127.0.0.1:%d", port),
	}
	k.Start(t)
	k.WaitReady(t)
	return k
}

// value returns the value that an environment variable would have in a Pod of the process.
func value(v corev1.EnvVar) string {
	switch {
	case v.ValueFrom == nil || v.ValueFrom.FieldRef == nil:
		return v.Value
	case v.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
		return KyvernoNamespace
	default:
		return "kyverno-e2e"
	}
}

// WaitReady waits until Kyverno says that it is ready.
func (k *Kyverno) WaitReady(t testing.TB) {
	t.Helper()
	client := probing()
	Eventually(t, startTimeout, "Kyverno", func(ctx context.Context) error {
		if err := k.ended(); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+k.addr+"/health/readiness", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", req.URL, resp.Status)
		}
		return nil
	})
}
