package supportbundle

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
)

// collect adds all files. Pods come first: the values of their variables must not be in
// any other file.
func (b *builder) collect(ctx context.Context) {
	pods, err := b.read(ctx, "/api/v1/namespaces/"+b.Namespace+"/pods", "labelSelector", "app.kubernetes.io/name="+b.Name, "limit", "100")
	if err != nil {
		b.missing("pods.yaml", err)
	}
	deployment, errDeployment := b.read(ctx, "/apis/apps/v1/namespaces/"+b.Namespace+"/deployments/"+b.Name)
	for _, o := range append(pods, deployment...) {
		b.hide(o)
	}
	b.add("version.txt", []byte(b.Version), false)
	if text, cut, err := b.raw(ctx, maxFile, b.Kubernetes.Discovery().RESTClient().Get().AbsPath("/version")); err != nil {
		b.missing("server-version.json", err)
	} else {
		b.add("server-version.json", text, cut)
	}
	if b.Doctor != nil {
		var report bytes.Buffer
		if err := b.Doctor(ctx, &report); err != nil {
			b.missing("doctor.txt", err)
		} else {
			b.add("doctor.txt", report.Bytes(), false)
		}
	}
	if err == nil {
		b.addObjects("pods.yaml", views(pods, podFields), false)
	}
	if errDeployment != nil {
		b.missing("deployment.yaml", errDeployment)
	} else {
		b.addObjects("deployment.yaml", views(deployment, deploymentFields), false)
	}
	for _, f := range []struct {
		name, path string
		fields     []string
		params     []string
	}{
		{"service.yaml", "/api/v1/namespaces/" + b.Namespace + "/services/" + b.Name, []string{"spec"}, nil},
		{"endpointslices.yaml", "/apis/discovery.k8s.io/v1/namespaces/" + b.Namespace + "/endpointslices", []string{"endpoints", "ports"},
			[]string{"labelSelector", "kubernetes.io/service-name=" + b.Name, "limit", "100"}},
		{"lease.yaml", "/apis/coordination.k8s.io/v1/namespaces/" + b.Namespace + "/leases/" + b.Name, []string{"spec"}, nil},
		{"mutatingwebhookconfiguration.yaml", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + webhookconfig.ConfigurationName, []string{"webhooks"}, nil},
		{"validatingwebhookconfiguration.yaml", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/" + webhookconfig.ValidationName, []string{"webhooks"}, nil},
		{"policies.yaml", "/apis/" + api.OwnGroup + "/v1/" + api.PolicyResource, b.policyFields(), nil},
		{"bindings.yaml", "/apis/" + api.OwnGroup + "/v1/" + api.BindingResource, b.policyFields(), nil},
		{"exceptions.yaml", "/apis/" + api.ExceptionGroup + "/" + api.ExceptionVersion + "/" + api.ExceptionResource, b.policyFields(), nil},
		{"events.yaml", "/api/v1/namespaces/" + b.Namespace + "/events", eventFields, []string{"limit", "500"}},
		{"events-of-policies.yaml", "/api/v1/namespaces/default/events", eventFields, []string{"fieldSelector", "source=mapd.dev/mapd", "limit", "500"}},
	} {
		objects, err := b.read(ctx, f.path, f.params...)
		if err != nil {
			b.missing(f.name, err)
			continue
		}
		shown := views(objects, f.fields)
		if b.NoPolicies {
			withoutConditions(shown)
		}
		b.addObjects(f.name, shown, false)
	}
	if len(pods) == 0 && err == nil {
		b.missing("pods", fmt.Errorf("no Pod in %s has the label app.kubernetes.io/name=%s", b.Namespace, b.Name))
	}
	for i, pod := range pods {
		if i == maxPods {
			b.missing(fmt.Sprintf("%d more Pods", len(pods)-maxPods), fmt.Errorf("a bundle has at most %d", maxPods))
			break
		}
		b.pod(ctx, nameOf(pod))
	}
	b.replicas(ctx, pods)
}

// withoutConditions takes the matchConditions, which are texts of policies, out of what is
// shown of webhook configurations.
func withoutConditions(shown []map[string]any) {
	for _, o := range shown {
		webhooks, _ := o["webhooks"].([]any)
		for _, w := range webhooks {
			delete(asMap(w), "matchConditions")
		}
	}
}

// pod adds metrics, readiness and logs of one replica.
func (b *builder) pod(ctx context.Context, name string) {
	client := b.Kubernetes.CoreV1().RESTClient()
	for _, f := range []struct{ file, path string }{{"metrics.txt", "metrics"}, {"readyz.txt", "readyz"}} {
		req := client.Get().Namespace(b.Namespace).Resource("pods").Name("https:" + name + ":8443").SubResource("proxy").Suffix(f.path)
		if f.path == "readyz" {
			req.Param("verbose", "")
		}
		text, cut, err := b.raw(ctx, maxFile, req)
		if err != nil {
			b.missing(name+"/"+f.file, err)
			continue
		}
		b.add(name+"/"+f.file, text, cut)
	}
	for _, previous := range []bool{false, true} {
		file := name + "/log.txt"
		if previous {
			file = name + "/log-previous.txt"
		}
		req := client.Get().Namespace(b.Namespace).Resource("pods").Name(name).SubResource("log").
			Param("container", b.Name).Param("tailLines", "10000").Param("previous", strconv.FormatBool(previous))
		text, cut, err := b.end(ctx, maxLog, req)
		switch {
		case err == nil:
			b.add(file, ownLines(text), cut)
		case !previous: // most containers have no previous one
			b.missing(file, err)
		}
	}
}

// ownLine matches the beginning of a line that mapd's logger formatted.
var ownLine = regexp.MustCompile(`^(?:time=\S+ level=[A-Z]+|\{"time":"[^"]*","level":")`)

// ownLines returns the lines that mapd's logger formatted. Other lines, such as the Go runtime's
// dump after a crash, may contain any value.
func ownLines(text []byte) []byte {
	var out bytes.Buffer
	left := 0
	for line := range bytes.Lines(text) {
		if ownLine.Match(line) {
			line = panicValue.ReplaceAll(line, []byte("${1}"+hiddenText))
			if refusal.Match(line) {
				line = reasonValue.ReplaceAll(line, []byte("${1}"+hiddenText))
			}
			out.Write(line)
		} else {
			left++
		}
	}
	if left > 0 {
		fmt.Fprintf(&out, "(%d lines left out: mapd did not format them)\n", left)
	}
	return out.Bytes()
}

// panicValue matches the field of a line that has the value of a panic, which may contain values
// of objects.
var panicValue = regexp.MustCompile(`("panic":|\bpanic=)("(?:[^"\\]|\\.)*"|\S+)`)

// refusal matches the beginning of a line about a request that a stage in shadow would have
// refused. The reason in that line, which reasonValue matches, is the message that the client
// would have received, and may contain values of the object.
var (
	refusal     = regexp.MustCompile(`^time=\S+ level=[A-Z]+ msg="[^"]* would refuse the request" |^\{"time":"[^"]*","level":"[A-Z]+","msg":"[^"]* would refuse the request",`)
	reasonValue = regexp.MustCompile(`("reason":|\breason=)("(?:[^"\\]|\\.)*"|\S+)`)
)

var (
	webhookFields = []string{"name", "clientConfig", "rules", "failurePolicy", "matchPolicy", "namespaceSelector", "objectSelector", "sideEffects",
		"timeoutSeconds", "admissionReviewVersions", "reinvocationPolicy", "matchConditions"}
	eventFields = []string{"type", "reason", "count", "firstTimestamp", "lastTimestamp", "eventTime", "series", "source", "reportingComponent",
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name"}
	containerFields = []string{"name", "image", "imagePullPolicy", "resources", "ports", "securityContext"}
	conditionFields = []string{"type", "status", "reason", "lastTransitionTime", "observedGeneration"}
	statusFields    = []string{"name", "image", "imageID", "ready", "started", "restartCount",
		"state.running", "state.waiting.reason", "state.terminated.reason", "state.terminated.exitCode", "state.terminated.finishedAt",
		"lastState.terminated.reason", "lastState.terminated.exitCode", "lastState.terminated.finishedAt"}
	podFields = []string{"spec.nodeName", "spec.priorityClassName", "spec.serviceAccountName", "spec.tolerations", "spec.containers", "spec.initContainers",
		"status.phase", "status.reason", "status.podIP", "status.hostIP", "status.startTime", "status.qosClass",
		"status.conditions", "status.containerStatuses", "status.initContainerStatuses"}
	deploymentFields = []string{"spec.replicas", "spec.strategy", "spec.selector", "spec.template.spec.containers", "spec.template.spec.initContainers",
		"spec.template.spec.serviceAccountName", "spec.template.spec.topologySpreadConstraints", "spec.template.spec.affinity",
		"status.replicas", "status.readyReplicas", "status.updatedReplicas", "status.unavailableReplicas", "status.observedGeneration", "status.conditions"}
)

// policyFields returns the fields to show of policies, bindings and exceptions. With NoPolicies,
// elements of status.conditions have no message, because messages may quote the policy.
func (b *builder) policyFields() []string {
	if b.NoPolicies {
		return []string{"status.conditions", "status.observedGeneration"}
	}
	return []string{"spec", "status"}
}

// views returns the parts of objects that a bundle shows: these fields, some of their metadata,
// and mapd's own annotations.
func views(objects []map[string]any, fields []string) []map[string]any {
	var out []map[string]any
	for _, o := range objects {
		v := pick(o, append([]string{"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.generation", "metadata.creationTimestamp",
			"metadata.deletionTimestamp", "metadata.labels", "metadata.ownerReferences"}, fields...))
		if own := ownAnnotations(o); own != nil {
			_ = unstructured.SetNestedMap(v, own, "metadata", "annotations") // metadata is an object
		}
		out = append(out, v)
	}
	return out
}

// ownAnnotations returns the annotations whose keys begin with mapd.dev/; nil if there are none.
func ownAnnotations(o map[string]any) map[string]any {
	all, _, _ := unstructured.NestedMap(o, "metadata", "annotations")
	var own map[string]any
	for k, v := range all {
		if strings.HasPrefix(k, "mapd.dev/") {
			if own == nil {
				own = map[string]any{}
			}
			own[k] = v
		}
	}
	return own
}

// lists has the fields to show of the elements of lists, by the name of the list.
var lists = map[string][]string{
	"containers": containerFields, "initContainers": containerFields,
	"containerStatuses": statusFields, "initContainerStatuses": statusFields,
	"conditions": conditionFields, "webhooks": webhookFields,
}

// pick copies the fields at these paths.
func pick(o map[string]any, paths []string) map[string]any {
	out := map[string]any{}
	for _, path := range paths {
		keys := strings.Split(path, ".")
		v, ok, err := unstructured.NestedFieldNoCopy(o, keys...)
		if !ok || err != nil {
			continue
		}
		last := keys[len(keys)-1]
		if of := lists[last]; of != nil {
			v = elements(v, of)
		}
		into := out
		for _, key := range keys[:len(keys)-1] {
			next, _ := into[key].(map[string]any)
			if next == nil {
				next = map[string]any{}
				into[key] = next
			}
			into = next
		}
		into[last] = v
	}
	return out
}

// elements returns these fields of each element of a list. It adds the arguments of the container
// mapd, and the names of the environment variables of every container.
func elements(v any, fields []string) any {
	list, _ := v.([]any)
	out := make([]any, 0, len(list))
	for _, e := range list {
		o, ok := e.(map[string]any)
		if !ok {
			continue
		}
		shown := pick(o, fields)
		if o["name"] == "mapd" && o["args"] != nil {
			shown["args"] = o["args"]
		}
		if env, ok := o["env"].([]any); ok {
			var names []any
			for _, v := range env {
				if v, ok := v.(map[string]any); ok {
					names = append(names, v["name"])
				}
			}
			shown["envNames"] = names
		}
		out = append(out, shown)
	}
	return out
}
