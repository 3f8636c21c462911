package supportbundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/operate/replicas"
	"github.com/mapd-project/mapd/internal/operate/supportbundle"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/fakeapi"
)

const (
	secret = "hunter2-very-s3cret"
	part   = "hunter2-very" // that secret begins with
	token  = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtYXBkIn0.c2lnbmF0dXJlLWhlcmU"
)

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

type object = map[string]any

// texts answers what is not an object: logs, and what replicas say by the API server's
// proxy.
type texts struct {
	of   map[string]string // by path and query
	next http.RoundTripper
}

func (x texts) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	if !strings.Contains(path, "/proxy/") && !strings.HasSuffix(path, "/log") && path != "/version" {
		return x.next.RoundTrip(r)
	}
	if r.URL.Query().Get("previous") == "true" {
		path += "?previous"
	}
	answer := &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no " + token)), Request: r}
	if text, ok := x.of[path]; ok {
		answer.StatusCode, answer.Body = http.StatusOK, io.NopCloser(strings.NewReader(text))
	}
	return answer, nil
}

const pods = "/api/v1/namespaces/mapd-system/pods/"

// hostile is a cluster that has a secret in every place that holds one.
func hostile(t *testing.T) (*fakeapi.Server, texts) {
	t.Helper()
	s := new(fakeapi.Server)
	metadata := func(name string) object {
		return object{
			"name": name, "namespace": "mapd-system", "labels": object{"app.kubernetes.io/name": "mapd"},
			"annotations":   object{"kubectl.kubernetes.io/last-applied-configuration": secret, "example.com/token": secret, "mapd.dev/mode": "shadow"},
			"managedFields": []any{object{"manager": secret}},
		}
	}
	container := func(name string) object {
		return object{
			"name": name, "image": "mapd:1", "args": []any{"serve", "--of=" + name}, "command": []any{secret},
			"env":       []any{object{"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": secret}, object{"name": "PART", "value": part}, object{"name": "SHORT", "value": "true"}},
			"lifecycle": object{"preStop": object{"exec": object{"command": []any{secret}}}},
		}
	}
	sidecar := container("sidecar")
	sidecar["args"] = []any{"--password", secret}
	spec := object{"containers": []any{container("mapd"), sidecar}, "initContainers": []any{sidecar}, "hostname": secret}
	conditions := []any{object{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": secret}}
	terminated := object{"terminated": object{"exitCode": int64(2), "reason": "Error", "message": secret}}
	s.Put(resource("", "v1", "pods"), "mapd-system", "mapd-1", object{
		"metadata": metadata("mapd-1"), "spec": spec,
		"status": object{"phase": "Running", "message": secret, "conditions": conditions, "containerStatuses": []any{object{"name": "mapd", "state": terminated, "lastState": terminated}}},
	})
	s.Put(resource("apps", "v1", "deployments"), "mapd-system", "mapd", object{
		"metadata": metadata("mapd"), "spec": object{"replicas": int64(2), "template": object{"metadata": metadata(""), "spec": spec}}, "status": object{"conditions": conditions},
	})
	s.Put(resource("", "v1", "secrets"), "mapd-system", "mapd-tls", object{"metadata": metadata("mapd-tls"), "data": object{"tls.key": secret}})
	s.Put(resource("", "v1", "configmaps"), "mapd-system", "param", object{"metadata": metadata("param"), "data": object{"key": secret}})
	s.Put(resource("", "v1", "events"), "mapd-system", "mapd.1", object{
		"metadata": metadata("mapd.1"), "reason": "BackOff", "message": secret, "involvedObject": object{"kind": "Pod", "name": "mapd-1", "fieldPath": secret},
	})
	s.Put(resource("", "v1", "services"), "mapd-system", "mapd", object{"metadata": metadata("mapd"), "spec": object{"clusterIP": "10.0.0.1"}})
	s.Put(resource("coordination.k8s.io", "v1", "leases"), "mapd-system", "mapd", object{"metadata": metadata("mapd"), "spec": object{"holderIdentity": "mapd-1"}})
	for kind, name := range map[string]string{"mutatingwebhookconfigurations": "000.mapd.dev", "validatingwebhookconfigurations": "mapd.dev"} {
		s.Put(resource("admissionregistration.k8s.io", "v1", kind), "", name, object{"metadata": metadata(name), "webhooks": []any{object{
			"name": "fail.never.mapd.dev", "matchConditions": []any{object{"name": "policy-conditions", "expression": "[the text]"}}, "unknown": secret,
		}}})
	}
	s.Put(resource(api.OwnGroup, "v1", api.PolicyResource), "", "team", object{
		"metadata": metadata("team"), "spec": object{"mutations": []any{object{"jsonPatch": object{"expression": "[the text]"}}}},
		"status": object{"conditions": []any{object{"type": "Ready", "status": "True", "message": "about [the text]"}}},
	})
	s.Put(api.Exceptions, "shop", "legacy", object{"metadata": metadata("legacy"), "spec": object{"policies": []any{"team"}, "reason": "token=" + token}})
	s.Put(resource(api.OwnGroup, "v1", api.BindingResource), "", "team", object{"metadata": metadata("team"), "spec": object{"policyName": "team"}})
	return s, texts{next: s.Config().Transport, of: map[string]string{
		"/version": `{"gitVersion": "v1.37.1"}`,
		"/api/v1/namespaces/mapd-system/pods/https:mapd-1:8443/proxy/metrics": "mapd_panics_total 0\n",
		"/api/v1/namespaces/mapd-system/pods/https:mapd-1:8443/proxy/readyz":  "[+] policies: ok\n",
		pods + "mapd-1/log?previous": "time=2026-11-23T08:00:00Z level=INFO msg=earlier\n" +
			`time=2026-11-23T08:00:00Z level=INFO msg=x error="-----BEGIN RSA PRIVATE KEY-----\nMIIEcutoff`,
		pods + "mapd-1/log": "time=2026-11-23T08:00:00Z level=INFO msg=serving address=:8443\n" +
			"panic: " + secret + "\n" +
			"time=2026-11-23T08:00:01Z level=ERROR msg=\"panic while answering a review\" panic=\"no key \\\"" + token + "x\\\" in map\" stack=frames\n" +
			"time=2026-11-23T08:00:02Z level=WARN msg=x error=\"Authorization: Bearer abcdefghijklmnop https://me:" + "pa55word@host\"\n" +
			"time=2026-11-23T08:00:02Z level=INFO msg=\"guests would refuse the request\" name=web guests=x reason=\"image a value is \\\"bad\\\"\" more=1\n" +
			"time=2026-11-23T08:00:02Z level=WARN msg=\"the breaker of a policy has tripped\" reason=\"3 of 20\"\n" +
			`{"time":"2026-11-23T08:00:02Z","level":"INFO","msg":"mutators would refuse the request","reason":"a value"}` + "\n" +
			`{"time":"2026-11-23T08:00:03Z","level":"ERROR","msg":"y","panic":"a value","error":"` + secret + "\"}\n",
	}}
}

// said has the answers of two replicas, one of which is not a Pod, and of one that does not answer.
type said struct{ t *testing.T }

func (s said) Ask(_ context.Context, name string, query url.Values) ([]replicas.Answer[json.RawMessage], error) {
	var text string
	switch name + "?" + query.Encode() {
	case "counts?":
		text = `{"replica": "here", "counts": [
			{"policy": "team", "binding": "team", "seen": 5, "would": 3, "last": {"kind": "Pod", "fields": ["/spec"], "value": "` + secret + `"}},
			{"policy": "enforced", "binding": "all", "seen": 9, "changed": 9}], "value": "` + secret + `"}`
	case "samples?policy=team":
		text = `{"replica": "here", "samples": [null, {"policy": "team", "binding": "team", "kind": "ConfigMap", "name": "web", "more": 2, "changes": [
			{"path": "data.a", "before": "` + secret + `", "after": "` + secret + `"}, {"path": "data.b", "after": {"x": "` + secret + `"}},
			{"path": "data.c", "before": ["` + secret + `"]}, {"path": "list[2]", "moved": true}]}]}`
	default:
		s.t.Errorf("asked for %s %v", name, query)
	}
	return []replicas.Answer[json.RawMessage]{
		{Replica: "mapd-1", Value: json.RawMessage(text)}, {Replica: "https://10.0.0.7:8443", Value: json.RawMessage(text)},
		{Replica: "mapd-2", Err: errors.New("no answer for " + token)},
	}, nil
}

func (s said) Read(_ context.Context, page string, keep func(string) bool) (all []replicas.Answer[[]byte]) {
	for _, name := range []string{"mapd-1", "https://10.0.0.7:8443"} {
		if keep(name) {
			all = append(all, replicas.Answer[[]byte]{Replica: name, Value: []byte("page " + page)})
		}
	}
	return all
}

// made makes a bundle and returns its files.
func made(t *testing.T, s *fakeapi.Server, x texts, change func(*supportbundle.Options)) (supportbundle.Manifest, map[string]string) {
	t.Helper()
	config := s.Config()
	config.Transport = x
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	o := supportbundle.Options{
		Kubernetes: kube, Namespace: "mapd-system", Name: "mapd", Version: "mapd v1", Now: time.Unix(1e9, 0),
		Doctor: func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "all is well\n"); return err },
	}
	if change != nil {
		change(&o)
	}
	var out bytes.Buffer
	m, err := supportbundle.Write(t.Context(), &out, o)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return m, files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "mapd-bundle/")] = string(text)
	}
}

// A secret is in a Secret, a parameter, annotations, managed fields, variables,
// arguments, commands, messages, events and logs, and not in the bundle.
func TestNoSecrets(t *testing.T) {
	s, x := hostile(t)
	m, files := made(t, s, x, func(o *supportbundle.Options) {
		o.Doctor = func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, "the API server said "+secret+"\n")
			return err
		}
		o.Replicas = func(context.Context) (supportbundle.Replicas, error) { return said{t}, nil }
	})
	for name, text := range files {
		for _, bad := range []string{secret, "s3cret", token, "abcdefghijklmnop", "pa55word", "MIIEcutoff", "last-applied", "a value"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %s:\n%s", name, bad, text)
			}
		}
	}
	for name, want := range map[string][]string{
		"version.txt":                         {"mapd v1"},
		"server-version.json":                 {"v1.37.1"},
		"doctor.txt":                          {"the API server said [removed]"},
		"pods.yaml":                           {"phase: Running", "ContainersNotReady", "exitCode: 2", "- OTEL_EXPORTER_OTLP_HEADERS", "--of=mapd"},
		"deployment.yaml":                     {"replicas: 2", "image: mapd:1"},
		"lease.yaml":                          {"holderIdentity: mapd-1"},
		"service.yaml":                        {"clusterIP: 10.0.0.1"},
		"mutatingwebhookconfiguration.yaml":   {"fail.never.mapd.dev"},
		"validatingwebhookconfiguration.yaml": {"fail.never.mapd.dev"},
		"policies.yaml":                       {"[the text]", "mapd.dev/mode: shadow", "about"},
		"bindings.yaml":                       {"policyName: team"},
		"exceptions.yaml":                     {"- team"},
		"events.yaml":                         {"reason: BackOff", "name: mapd-1"},
		"mapd-1/metrics.txt":                  {"mapd_panics_total 0"},
		"mapd-1/readyz.txt":                   {"[+] policies: ok"},
		"mapd-1/log.txt":                      {"msg=serving", `panic=[removed] stack=frames`, `"panic":[removed]`, "reason=[removed] more=1", `"reason":[removed]`, `reason="3 of 20"`, "1 lines left out"},
		"mapd-1/log-previous.txt":             {"msg=earlier"},
		"mapd-1/counts.json":                  {`"would": 3`, `"/spec"`, `"policy": "enforced"`},
		"https-10.0.0.7-8443/counts.json":     {`"would": 3`},
		"https-10.0.0.7-8443/metrics.txt":     {"page /metrics"},
		"https-10.0.0.7-8443/readyz.txt":      {"page /readyz?verbose"},
		"mapd-1/samples-1.json": {`"name": "web"`, `"more": 2`, `"data.a",
          "how": "changed"`, `"data.b",
          "how": "added"`, `"data.c",
          "how": "removed"`, `"list[2]",
          "how": "moved"`},
	} {
		for _, w := range want {
			if !strings.Contains(files[name], w) {
				t.Errorf("%s lacks %q:\n%s", name, w, files[name])
			}
		}
	}
	var missing []string
	for _, x := range m.Missing {
		missing = append(missing, x.What)
	}
	if want := []string{"mapd-2/counts.json", "mapd-2/samples-1.json"}; !slices.Equal(missing, want) {
		t.Errorf("missing %+v", m.Missing)
	}
	var written supportbundle.Manifest
	if err := json.Unmarshal([]byte(files["manifest.json"]), &written); err != nil || len(written.Files) != len(files)-1 {
		t.Errorf("manifest.json has %d files, the archive %d: %v", len(written.Files), len(files), err)
	}
	if _, secrets := files["secrets.yaml"]; secrets || slices.ContainsFunc(s.Writes(), func(fakeapi.Request) bool { return true }) {
		t.Error("a bundle reads, and no Secrets")
	}
}

// With NoPolicies, the bundle has no texts of policies, but still their states.
func TestNoPolicies(t *testing.T) {
	s, x := hostile(t)
	_, files := made(t, s, x, func(o *supportbundle.Options) { o.NoPolicies = true })
	for name, text := range files {
		if strings.Contains(text, "[the text]") {
			t.Errorf("%s holds a policy's text:\n%s", name, text)
		}
	}
	if !strings.Contains(files["policies.yaml"], "type: Ready") {
		t.Errorf("policies.yaml:\n%s", files["policies.yaml"])
	}
}

// Of many policies in shadow, a bundle has samples of those that would change the most.
func TestManySampled(t *testing.T) {
	s, x := hostile(t)
	m, files := made(t, s, x, func(o *supportbundle.Options) {
		o.Replicas = func(context.Context) (supportbundle.Replicas, error) { return many{}, nil }
	})
	if len(m.Missing) != 1 || m.Missing[0].What != "samples of 5 more policies" {
		t.Errorf("missing %+v", m.Missing)
	}
	if files["mapd-1/samples-1.json"] == "" || !strings.Contains(files["mapd-1/samples-1.json"], `"p24"`) || files["mapd-1/samples-20.json"] == "" || files["mapd-1/samples-21.json"] != "" {
		t.Errorf("samples %q", slices.Sorted(maps.Keys(files)))
	}
}

// many is a replica with 25 policies in shadow.
type many struct{ said }

func (many) Ask(_ context.Context, name string, query url.Values) ([]replicas.Answer[json.RawMessage], error) {
	var v any
	if name == "samples" {
		v = object{"samples": []any{object{"policy": query.Get("policy"), "changes": "no list"}}}
	} else {
		var counts []any
		for i := range 25 {
			counts = append(counts, object{"policy": fmt.Sprintf("p%02d", i), "would": i + 1})
		}
		v = object{"counts": counts}
	}
	text, err := json.Marshal(v)
	return []replicas.Answer[json.RawMessage]{{Replica: "mapd-1", Value: text}}, err
}

// What cannot be read is listed as missing with the reason, and the rest is in the bundle.
func TestPartial(t *testing.T) {
	s, x := hostile(t)
	delete(x.of, pods+"mapd-1/log")
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Resource.Resource == "leases" {
			return nil, apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, errors.New("no right, "+token))
		}
		return nil, nil
	}
	m, files := made(t, s, x, func(o *supportbundle.Options) {
		o.Doctor = func(context.Context, io.Writer) error { return errors.New("doctor is ill") }
		o.Replicas = func(context.Context) (supportbundle.Replicas, error) {
			return nil, errors.New("not installed, " + token)
		}
	})
	var got []string
	for _, missing := range m.Missing {
		got = append(got, missing.What)
		if missing.Why == "" || strings.Contains(missing.Why, token) {
			t.Errorf("%s: %s", missing.What, missing.Why)
		}
	}
	if want := []string{"doctor.txt", "lease.yaml", "mapd-1/log.txt", "records of replicas"}; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
	if files["policies.yaml"] == "" || files["lease.yaml"] != "" {
		t.Error("the rest is not there")
	}
}

// The size of a bundle is bounded, even if there is much of everything.
func TestBounds(t *testing.T) {
	s, x := hostile(t)
	line := "time=2026-11-23T08:00:00Z level=INFO msg=x\n"
	x.of[pods+"mapd-1/log"] = strings.Repeat(line, 3<<20/len(line)) + "time=2026-11-23T08:00:01Z level=INFO msg=last\n"
	x.of[pods+"https:mapd-1:8443/proxy/metrics"] = strings.Repeat("m", 9<<20)
	m, files := made(t, s, x, nil)
	if log := files["mapd-1/log.txt"]; !strings.Contains(log, "msg=last") || len(log) < 2<<20-2*len(line) {
		t.Errorf("%d bytes of the log, not its last 2 MiB", len(log))
	}
	for _, f := range m.Files {
		if f.Cut != slices.Contains([]string{"mapd-1/log.txt", "mapd-1/metrics.txt"}, f.Name) || f.Bytes != len(files[f.Name]) || f.Bytes > 8<<20 {
			t.Errorf("%+v, %d bytes in the archive", f, len(files[f.Name]))
		}
	}
}
