package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mapd-project/mapd/internal/externaldata"
)

// pageCommand returns the one command of a page that begins so.
func pageCommand(t *testing.T, page, begin string) string {
	t.Helper()
	found := regexp.MustCompile("(?m)^    ("+regexp.QuoteMeta(begin)+".*)$").FindAllStringSubmatch(page, -1)
	if len(found) != 1 {
		t.Fatalf("%d commands begin with %q, want one", len(found), begin)
	}
	return found[0][1]
}

// The commands of docs/move/external-data.md that need no cluster: the sample provider is
// built, gets a certificate, serves, and is asked.
func TestExternalDataPage(t *testing.T) {
	page := readFile(t, "../../docs/move/external-data.md")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	shell := func(in, command string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir = in
		return cmd
	}
	done := func(cmd *exec.Cmd) {
		t.Helper()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	build := pageCommand(t, page, "go build -o external-data ")
	done(shell(root, strings.Replace(build, "-o ", "-o "+dir+"/", 1)))
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	done(shell(dir, pageCommand(t, page, "./external-data issue --dir certs --host 127.0.0.1")))

	serve := shell(dir, "exec "+pageCommand(t, page, "./external-data serve "))
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("it prints %q", line)
	}
	_, object, _ := strings.Cut(page, "```yaml\napiVersion: externaldata.gatekeeper.sh/")
	object, _, _ = strings.Cut("apiVersion: externaldata.gatekeeper.sh/"+object, "```")
	ca := base64.StdEncoding.EncodeToString([]byte(readFile(t, dir, "certs/ca.crt")))
	filled := strings.NewReplacer("https://127.0.0.1:PORT/digests", url, "LS0t…", ca).Replace(object)
	if strings.Count(filled, url) != 1 || strings.Count(filled, ca) != 1 {
		t.Fatalf("the Provider of the page cannot be filled in:\n%s", object)
	}
	if err := os.WriteFile(filepath.Join(dir, "local.yaml"), []byte(filled), 0o644); err != nil {
		t.Fatal(err)
	}

	t.Chdir(dir)
	eval := pageCommand(t, page, "bin/mapd eval ")
	var printed bytes.Buffer
	if code := run(strings.Fields(eval)[1:], nil, &printed, &printed); code != 0 || !strings.Contains(printed.String(), "image: nginx:1.25 → nginx@sha256:9f6d") || !strings.Contains(printed.String(), "provider digests: 1 key, 1 call\n") {
		t.Errorf("%s: exit code %d\n%s", eval, code, &printed)
	}
	if want, got := readFile(t, "examples/external-data/answers.yaml"), readFile(t, "answers.yaml"); !strings.Contains(want, strings.TrimPrefix(got, "digests:\n")) {
		t.Errorf("recorded\n%s\nwhich the answers of the example do not have:\n%s", got, want)
	}
}

// The manifest of the sample provider has no field that Kubernetes does not know, its
// parts fit to each other and to docs/move/external-data.md, and its Pods are what the
// namespace demands.
func TestExternalDataManifest(t *testing.T) {
	const file = "../../examples/external-data/manifest.yaml"
	page := readFile(t, "../../docs/move/external-data.md")
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var deployment *appsv1.Deployment
	var service *corev1.Service
	var network *networkingv1.NetworkPolicy
	for _, doc := range splitStream(readFile(t, file)) {
		object, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		switch o := runtime.Object(object).(type) {
		case *appsv1.Deployment:
			deployment = o
		case *corev1.Service:
			service = o
		case *networkingv1.NetworkPolicy:
			network = o
		}
	}
	if deployment == nil || service == nil || network == nil {
		t.Fatal("a Deployment, a Service or a NetworkPolicy is missing")
	}
	pod := deployment.Spec.Template
	for what, selector := range map[string]map[string]string{
		"the Deployment": deployment.Spec.Selector.MatchLabels, "the Service": service.Spec.Selector, "the NetworkPolicy": network.Spec.PodSelector.MatchLabels,
		"mapd's NetworkPolicy": {"mapd.dev/external-data-provider": "true"},
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %v, and the Pods have %v", what, selector, pod.Labels)
		}
	}
	container := pod.Spec.Containers[0]
	if port := service.Spec.Ports[0]; port.TargetPort.StrVal != container.Ports[0].Name || port.Port != 443 {
		t.Errorf("the Service sends port %d to %s", port.Port, port.TargetPort.String())
	}
	for _, v := range pod.Spec.Volumes {
		name, kind := "", "configmap"
		if v.Secret != nil {
			name, kind = v.Secret.SecretName, "secret generic"
		} else {
			name = v.ConfigMap.Name
		}
		if !strings.Contains(page, "kubectl -n "+deployment.Namespace+" create "+kind+" "+name+" ") {
			t.Errorf("docs/move/external-data.md makes no %s %s", kind, name)
		}
	}
	pageCommand(t, page, "docker build -t "+container.Image+" ")

	host := service.Name + "." + service.Namespace + ".svc"
	pageCommand(t, page, "./external-data issue --dir certs --host "+host)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./examples/external-data", "issue", "--dir", dir, "--host", host)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ca := base64.StdEncoding.EncodeToString([]byte(readFile(t, dir, "ca.crt")))
	provider := parseObject(t, strings.Replace(readFile(t, "../../examples/external-data/provider.yaml"), ": CA_BUNDLE", ": "+ca, 1))
	p, err := externaldata.DecodeProvider(provider)
	if err != nil || p.Name != "digests" || p.URL != "https://"+host+"/digests" || !p.NoSideEffects {
		t.Errorf("the Provider: %+v, %v", p, err)
	}

	for name, tt := range map[string]struct {
		from, to string
		code     int
	}{"as it is": {"", "", 0}, "as root": {"runAsNonRoot: true", "runAsNonRoot: false", 1}} {
		text := readFile(t, file)
		if tt.from != "" {
			text = strings.Replace(text, tt.from, tt.to, 1)
		}
		given := filepath.Join(dir, "manifest.yaml")
		if err := os.WriteFile(given, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code := run([]string{"expand", "-p", given, "-f", given}, nil, &out, &out); code != tt.code || strings.Contains(out.String(), "violates PodSecurity") != (tt.code > 0) {
			t.Errorf("%s: exit code %d\n%s", name, code, &out)
		}
	}
}
