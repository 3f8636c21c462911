//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// kyvernoPolicies are policies of each kind and version that Kyverno's definitions serve,
// with a rule that validates and one that mutates what exists.
const kyvernoPolicies = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): shop}}}}
  - name: check
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: no host network, pattern: {spec: {=(hostNetwork): false}}}
  - name: existing
    match: {any: [{resources: {kinds: [Secret]}}]}
    mutate:
      targets: [{apiVersion: v1, kind: Pod}]
      patchStrategicMerge: {metadata: {labels: {a: b}}}
---
apiVersion: kyverno.io/v2beta1
kind: ClusterPolicy
metadata: {name: pull}
spec:
  rules:
  - name: always
    match: {any: [{resources: {kinds: [Pod], names: [web-*]}}]}
    mutate: {patchStrategicMerge: {spec: {containers: [{(image): "*:latest", imagePullPolicy: Always}]}}}
---
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: own, namespace: shop}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {own: "yes"}}}}
`

// mutatingPolicies are the policies of Kyverno's other group, one in each version.
const mutatingPolicies = `
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: grace}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  variables: [{name: wanted, expression: "10"}]
  matchConditions: [{name: longer, expression: 'object.spec.?terminationGracePeriodSeconds.orValue(30) > variables.wanted'}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{terminationGracePeriodSeconds: variables.wanted}}"}
---
apiVersion: policies.kyverno.io/v1beta1
kind: MutatingPolicy
metadata: {name: settings}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data", value: has(object.data) ? object.data : {}}]'}
---
apiVersion: policies.kyverno.io/v1alpha1
kind: MutatingPolicy
metadata: {name: asks}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{annotations: {"a": resource.Get("v1", "configmaps", "default", "a").data.a}}}'
---
apiVersion: policies.kyverno.io/v1beta1
kind: NamespacedMutatingPolicy
metadata: {name: here, namespace: shop}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"here": "yes"}}}'}
`

// kyvernoRights are those that docs/move/kyverno.md says are enough, of two users: to read
// all, and to read the policies of kyverno.io alone.
const kyvernoRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [kyverno.io], resources: [clusterpolicies, policies], verbs: [list]}
- {apiGroups: [policies.kyverno.io], resources: [mutatingpolicies, namespacedmutatingpolicies], verbs: [list]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: poor}
rules:
- {apiGroups: [kyverno.io], resources: [clusterpolicies], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: poor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: poor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: poor}]
`

// kyvernoReader is a cluster with Kyverno's kinds and without Kyverno.
type kyvernoReader struct{ *cluster.Cluster }

// TestKyvernoKinds reads Kyverno's policies from an API server that has Kyverno's own
// definitions, from the day on which it has none.
func TestKyvernoKinds(t *testing.T) {
	t.Parallel()
	k := &kyvernoReader{cluster.Start(t, cluster.Options{
		Native: true, Users: map[string][]string{"reader": nil, "poor": nil, "nobody": nil},
	})}
	k.Apply(t, kyvernoRights)
	t.Run("no kinds", k.none)
	k.define(t, cluster.KyvernoDefinitions(t, "kyverno.io"))
	t.Run("no policies", k.none)
	k.Apply(t, kyvernoPolicies)
	t.Run("one group", k.oneGroup)
	k.define(t, newest.ReplaceAll(cluster.KyvernoDefinitions(t, "policies.kyverno.io"), []byte("${1}false")))
	cluster.Eventually(t, cluster.Patience, "version v1 not to be served", func(context.Context) error {
		served, err := k.Kubernetes.Discovery().ServerResourcesForGroupVersion("policies.kyverno.io/v1")
		if err == nil {
			return fmt.Errorf("%d resources", len(served.APIResources))
		}
		return nil
	})
	k.Apply(t, strings.ReplaceAll(mutatingPolicies, "policies.kyverno.io/v1\n", "policies.kyverno.io/v1beta1\n"))
	t.Run("without version v1", k.both)
	k.define(t, cluster.KyvernoDefinitions(t, "policies.kyverno.io"))
	k.Apply(t, mutatingPolicies)
	t.Run("assess", k.both)
	t.Run("without rights", k.rights)
	t.Run("converted", k.converted)
	t.Run("eval", k.eval)
	t.Run("audit", k.audit)
}

// newest matches what has definitions serve the version v1.
var newest = regexp.MustCompile(`(?ms)(^  (?:  |- )name: v1\n.*?^    served: )true`)

// define makes kinds and waits until the server has them.
func (k *kyvernoReader) define(t *testing.T, definitions []byte) {
	t.Helper()
	if _, err := k.Kubectl(t, definitions, "apply", "--server-side", "--force-conflicts", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	k.WaitKinds(t)
}

// mapd runs a command of mapd as somebody, in the namespace shop.
func (k *kyvernoReader) mapd(t *testing.T, who *rest.Config, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cluster.Binary(t), append(args, "--kubeconfig="+k.Kubeconfig(t, who, "shop"))...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// says fails the test if a text lacks one of the lines.
func says(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains("\n"+text, "\n"+want) {
			t.Errorf("nothing says %q:\n%s", want, text)
		}
	}
}

func (k *kyvernoReader) none(t *testing.T) {
	code, stdout, stderr := k.mapd(t, k.User(t, "reader"), "migrate", "kyverno", "--from-cluster", "--assess")
	if code != 2 || stdout != "" || stderr != "mapd: migrate kyverno: no policies of Kyverno in the cluster\n" {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

func (k *kyvernoReader) oneGroup(t *testing.T) {
	code, stdout, stderr := k.mapd(t, k.User(t, "reader"), "migrate", "kyverno", "--from-cluster", "--assess")
	if code != 1 || stderr != "" {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	says(t, stdout, "2 of 3 policies that mutate can be native today\n", "left alone, because they do not mutate: 1 validate\n",
		"exact    ClusterPolicy/team/label ", "refused  ClusterPolicy/team/existing ", "exact    Policy/shop/own/label ")
}

func (k *kyvernoReader) both(t *testing.T) {
	code, stdout, stderr := k.mapd(t, k.User(t, "reader"), "migrate", "kyverno", "--from-cluster", "--assess")
	if code != 1 || stderr != "" {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	says(t, stdout, "5 of 7 policies that mutate can be native today\n", "order    ClusterPolicy/pull/always ", "exact    MutatingPolicy/settings/settings ",
		"needs    MutatingPolicy/asks/asks ", "exact    NamespacedMutatingPolicy/shop/here/here ", "exact    MutatingPolicy/grace/grace ")
}

// What may not be listed is named, and nothing is an error as long as one kind may be.
func (k *kyvernoReader) rights(t *testing.T) {
	code, stdout, stderr := k.mapd(t, k.User(t, "poor"), "migrate", "kyverno", "--from-cluster", "--assess")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	says(t, stdout, "1 of 2 policies that mutate can be native today\n")
	for _, resource := range []string{"policies.kyverno.io", "mutatingpolicies.policies.kyverno.io", "namespacedmutatingpolicies.policies.kyverno.io", "customresourcedefinitions.apiextensions.k8s.io"} {
		says(t, stderr, "note: not read: list "+resource+": "+resource+` is forbidden: User "poor" cannot list resource `)
	}
	code, stdout, stderr = k.mapd(t, k.User(t, "nobody"), "migrate", "kyverno", "--from-cluster", "--assess")
	if code != 4 || stdout != "" {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	says(t, stderr, `mapd: migrate kyverno: list clusterpolicies.kyverno.io: clusterpolicies.kyverno.io is forbidden: User "nobody" cannot list`)

	// A result without some of the policies would be another, so eval ends.
	for user, resource := range map[string]string{"nobody": "clusterpolicies.kyverno.io", "poor": "policies.kyverno.io"} {
		code, stdout, stderr = k.mapd(t, k.User(t, user), "eval", "--from-cluster", "--filename="+write(t, kyvernoPod))
		if code != 4 || stdout != "" {
			t.Errorf("eval by %s: exit code %d\n%s", user, code, stdout)
		}
		says(t, stderr, "mapd: eval: list "+resource+": "+resource+" is forbidden: ")
	}
}

const kyvernoPod = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {containers: [{name: main, image: "nginx:latest", imagePullPolicy: IfNotPresent}]}
`

// The server takes what is written, and does with it what the policies say.
func (k *kyvernoReader) converted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "native")
	code, _, stderr := k.mapd(t, k.User(t, "reader"), "migrate", "kyverno", "--from-cluster", "--output-dir="+dir)
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) != 6 {
		t.Errorf("written are %q, %v", files, err)
	}
	if _, err := k.Kubectl(t, nil, "apply", "--filename="+dir); err != nil {
		t.Fatal(err)
	}
	k.becomes(t, kyvernoPod, "metadata.labels", map[string]any{"team": "shop"})
	k.becomes(t, kyvernoPod, "spec.terminationGracePeriodSeconds", int64(10))
	k.becomes(t, kyvernoPod, "spec.containers.0.imagePullPolicy", "Always")
	k.becomes(t, kyvernoConfig, "metadata.labels", map[string]any{"own": "yes", "here": "yes"})
	remove(t, k.Cluster, "--filename="+dir)
	k.becomes(t, kyvernoPod, "metadata.labels", nil)
	k.becomes(t, kyvernoConfig, "metadata.labels", nil)
}

const kyvernoConfig = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}"

// becomes waits until a dry run of an object has a value at a path, nil for none.
func (k *kyvernoReader) becomes(t *testing.T, text, path string, want any) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, path, func(ctx context.Context) error {
		got, err := createdFrom(ctx, k.Cluster, oneObject(t, text), "shop")
		if err != nil {
			return err
		}
		var at any = got.Object
		for step := range strings.SplitSeq(path, ".") {
			switch v := at.(type) {
			case map[string]any:
				at = v[step]
			case []any:
				i, err := strconv.Atoi(step)
				if err != nil || i >= len(v) {
					return fmt.Errorf("%d elements: %v", len(v), err)
				}
				at = v[i]
			}
		}
		if d := cmp.Diff(want, at); d != "" {
			return fmt.Errorf("(-want +got):\n%s", d)
		}
		return nil
	})
}

func (k *kyvernoReader) eval(t *testing.T) {
	code, stdout, stderr := k.mapd(t, k.Config, "eval", "--from-cluster", "--filename="+write(t, kyvernoPod), "-o=diff")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	says(t, stdout, "Pod shop/web-1\n", "+ metadata.labels.team: shop\n", "~ spec.containers[name=main].imagePullPolicy: IfNotPresent → Always\n", "+ spec.terminationGracePeriodSeconds: 10\n")
	says(t, stderr, "warning: ClusterPolicy/team/existing is not converted and changes nothing: it mutates objects that exist already",
		"warning: MutatingPolicy/asks is not converted and changes nothing: the library resource of Kyverno")
}

// An object that was there before the policies.
func (k *kyvernoReader) audit(t *testing.T) {
	k.Apply(t, kyvernoPod)
	if _, err := k.Kubernetes.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "done", Labels: map[string]string{"own": "yes", "here": "yes"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := k.mapd(t, k.Config, "audit", "--kyverno", "--kinds=Pod,ConfigMap", "--namespace=shop")
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	says(t, stdout, "Pod shop/web-1\n", "+ metadata.labels.team: shop\n", "~ spec.containers[name=main].imagePullPolicy: IfNotPresent → Always\n")
	if !strings.Contains(stdout, "left out: ClusterPolicy/team/existing is not converted") {
		t.Errorf("the report names no rule that is left out:\n%s", stdout)
	}
	if strings.Contains(stdout, "ConfigMap shop/done") {
		t.Errorf("an object would change that has all:\n%s", stdout)
	}
}
