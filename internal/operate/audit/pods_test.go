package audit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/fakeapi"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func read(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		o, err = tree.Decode(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Which writes replace Pods, and how many.
func TestReplacement(t *testing.T) {
	const a, b = "template: {spec: {containers: [{name: c, image: a}]}}", "template: {spec: {containers: [{name: c, image: b}]}}"
	for name, tt := range map[string]struct{ kind, before, after, want string }{
		"Deployment":             {"apps/v1 Deployment", "spec: {" + a + "}", "spec: {" + b + "}", "replaces its Pod"},
		"its annotation":         {"apps/v1 Deployment", "spec: {replicas: 3, template: {}}", "spec: {replicas: 3, template: {metadata: {annotations: {a: b}}}}", "replaces its 3 Pods"},
		"not its template":       {"apps/v1 Deployment", "spec: {replicas: 3, " + a + "}", "spec: {replicas: 3, revisionHistoryLimit: 2, " + a + "}", ""},
		"Recreate":               {"apps/v1 Deployment", "spec: {" + a + "}", "spec: {replicas: 2, strategy: {type: Recreate}, " + b + "}", "replaces its 2 Pods all at once"},
		"paused":                 {"apps/v1 Deployment", "spec: {" + a + "}", "spec: {replicas: 2, paused: true, " + b + "}", "replaces its 2 Pods when it is resumed"},
		"no Pods":                {"apps/v1 Deployment", "spec: {" + a + "}", "spec: {replicas: 0, " + b + "}", ""},
		"StatefulSet":            {"apps/v1 StatefulSet", "spec: {" + a + "}", "spec: {replicas: 2, " + b + "}", "replaces its 2 Pods"},
		"a partition":            {"apps/v1 StatefulSet", "spec: {" + a + "}", "spec: {replicas: 5, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 4}}, " + b + "}", "replaces its Pod"},
		"OnDelete":               {"apps/v1 StatefulSet", "spec: {" + a + "}", "spec: {replicas: 2, updateStrategy: {type: OnDelete}, " + b + "}", ""},
		"DaemonSet":              {"apps/v1 DaemonSet", "spec: {" + a + "}\nstatus: {currentNumberScheduled: 3}", "spec: {" + b + "}", "replaces its 3 Pods"},
		"DaemonSet, OnDelete":    {"apps/v1 DaemonSet", "spec: {" + a + "}\nstatus: {currentNumberScheduled: 3}", "spec: {updateStrategy: {type: OnDelete}, " + b + "}", ""},
		"ReplicaSet":             {"apps/v1 ReplicaSet", "spec: {" + a + "}", "spec: {replicas: 2, " + b + "}", ""},
		"ReplicationController":  {"v1 ReplicationController", "spec: {" + a + "}", "spec: {replicas: 2, " + b + "}", ""},
		"Job":                    {"batch/v1 Job", "spec: {" + a + "}", "spec: {" + b + "}", ""},
		"CronJob":                {"batch/v1 CronJob", "spec: {jobTemplate: {spec: {" + a + "}}}", "spec: {jobTemplate: {spec: {" + b + "}}}", ""},
		"Pod":                    {"v1 Pod", "spec: {containers: [{name: c, image: a}]}", "spec: {containers: [{name: c, image: b}]}", "restarts containers of the Pod"},
		"a Pod's label":          {"v1 Pod", "spec: {containers: [{name: c, image: a}]}", "metadata: {labels: {a: b}}\nspec: {containers: [{name: c, image: a}]}", ""},
		"somebody's kind":        {"argoproj.io/v1alpha1 Rollout", "spec: {" + a + "}", "spec: {" + b + "}", "may replace its Pods"},
		"no template of Pods":    {"cert-manager.io/v1 Issuer", "spec: {template: a}", "spec: {template: b}", ""},
		"a kind named as ours":   {"example.com/v1 Deployment", "spec: {replicas: 2, " + a + "}", "spec: {replicas: 2, " + b + "}", "may replace its Pods"},
		"a number that is wrong": {"apps/v1 Deployment", "spec: {replicas: x, " + a + "}", "spec: {replicas: x, " + b + "}", "replaces its Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			version, kind, _ := strings.Cut(tt.kind, " ")
			head := "apiVersion: " + version + "\nkind: " + kind + "\n"
			got := ""
			if p := replacement(read(t, head+tt.before), read(t, head+tt.after)); p != nil {
				got = p.String()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestRolledOut(t *testing.T) {
	for name, tt := range map[string]struct {
		object, progress string
		over, failed     bool
	}{
		"not seen":           {"kind: Deployment\nmetadata: {generation: 2}\nstatus: {observedGeneration: 1}", "its controller has not seen the write yet", false, false},
		"no new Pod":         {"kind: Deployment\nspec: {replicas: 2}\nstatus: {replicas: 2, availableReplicas: 2}", "0 of 2 Pods updated, 2 available", false, false},
		"an old one is left": {"kind: Deployment\nspec: {replicas: 2}\nstatus: {replicas: 3, updatedReplicas: 2, availableReplicas: 3}", "2 of 2 Pods updated, 3 available", false, false},
		"one is not ready":   {"kind: Deployment\nspec: {replicas: 2}\nstatus: {replicas: 2, updatedReplicas: 2, availableReplicas: 1}", "2 of 2 Pods updated, 1 available", false, false},
		"over":               {"kind: Deployment\nspec: {replicas: 2}\nstatus: {replicas: 2, updatedReplicas: 2, availableReplicas: 2}", "2 of 2 Pods updated, 2 available", true, false},
		"paused":             {"kind: Deployment\nspec: {paused: true}", "", true, false},
		"given up": {"kind: Deployment\nspec: {replicas: 2}\nstatus: {replicas: 2, updatedReplicas: 1, conditions: [{type: Progressing, reason: ProgressDeadlineExceeded}]}",
			"1 of 2 Pods updated, 0 available, progress deadline exceeded", false, true},
		"StatefulSet":       {"kind: StatefulSet\nspec: {replicas: 2}\nstatus: {updatedReplicas: 1, availableReplicas: 2, currentRevision: a, updateRevision: b}", "1 of 2 Pods updated, 2 available", false, false},
		"StatefulSet, over": {"kind: StatefulSet\nspec: {replicas: 2}\nstatus: {updatedReplicas: 2, availableReplicas: 2, currentRevision: b, updateRevision: b}", "2 of 2 Pods updated, 2 available", true, false},
		"a partition": {"kind: StatefulSet\nspec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}\nstatus: {updatedReplicas: 1, availableReplicas: 3, currentRevision: a, updateRevision: b}",
			"1 of 1 Pods updated, 3 available", true, false},
		"DaemonSet":        {"kind: DaemonSet\nstatus: {desiredNumberScheduled: 3, updatedNumberScheduled: 2, numberAvailable: 2}", "2 of 3 Pods updated, 2 available", false, false},
		"DaemonSet, over":  {"kind: DaemonSet\nstatus: {desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}", "3 of 3 Pods updated, 3 available", true, false},
		"no kind of these": {"kind: ReplicaSet\nmetadata: {generation: 2}", "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			progress, over, failed := rolledOut(read(t, "apiVersion: apps/v1\n"+tt.object))
			if progress != tt.progress || over != tt.over || failed != tt.failed {
				t.Errorf("%q, over %t, failed %t", progress, over, failed)
			}
		})
	}
}

// rolling is a server with Deployments whose rollouts take a minute, or do not end.
func rolling(t *testing.T, s *fakeapi.Server, stuck map[string]bool, names ...string) {
	t.Helper()
	s.Discovery["/apis"]["groups"] = append(s.Discovery["/apis"]["groups"].([]any), map[string]any{
		"name": "apps", "versions": []any{map[string]any{"groupVersion": "apps/v1", "version": "v1"}}, "preferredVersion": map[string]any{"groupVersion": "apps/v1", "version": "v1"},
	})
	s.Discovery["/apis/apps/v1"] = map[string]any{"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []any{
		map[string]any{"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": []any{"list", "get", "update"}},
	}}
	policy := strings.Replace(labels("team", "deployments", `"x"`), `apiGroups: [""]`, `apiGroups: [apps]`, 1)
	const label = `Object{metadata: Object.metadata{labels: {"team": "x"}}}`
	if !strings.Contains(policy, label) {
		t.Fatal(policy)
	}
	put(t, s, strings.Replace(policy, label, `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {"team": "x"}}}}}`, 1))
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {generation: 1}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}
status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, availableReplicas: 2}`
	for _, name := range names {
		s.Put(deployments, "a", name, read(t, deployment))
	}
	began := map[string]time.Time{}
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Resource != deployments || r.Verb != "get" {
			return nil, nil
		}
		u := s.Get(deployments, "a", r.Name)
		seen, _ := u.Object["status"].(map[string]any)["observedGeneration"].(int64)
		key := fmt.Sprint(r.Name, u.GetGeneration())
		if began[key].IsZero() {
			began[key] = time.Now()
		}
		if u.GetGeneration() > seen && time.Since(began[key]) > time.Minute && !stuck[r.Name] {
			u.Object["status"].(map[string]any)["observedGeneration"] = u.GetGeneration()
			s.Put(deployments, "a", r.Name, u.Object)
		}
		return nil, nil
	}
}

// Pods are replaced only if that is allowed, and by one workload after the other.
func TestFixReplacesPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve()
		fill(t, s, 1)
		stuck := map[string]bool{}
		rolling(t, s, stuck, "one", "two", "three", "four")
		var undo []*Undo
		f := fixer(t, s, &undo)
		f.Patience = 5 * time.Minute
		of := func(name string) Reference {
			return Reference{Resource: Resource{GVR: deployments, GVK: deployments.GroupVersion().WithKind("Deployment"), Namespaced: true}, Namespace: "a", Name: name}
		}
		check := func(outcome Outcome, why string, err error, want Outcome, because string) {
			t.Helper()
			if outcome != want || why != because || err != nil {
				t.Fatalf("%q, %q, %v; want %q, %q", outcome, why, err, want, because)
			}
		}
		label := func(name string) any {
			return field(s.Get(deployments, "a", name).Object, "spec", "template", "metadata", "labels", "team")
		}
		const not = "the write replaces its 2 Pods; --replace-pods allows it"
		for _, f.DryRun = range []bool{true, false} {
			outcome, why, err := f.Fix(t.Context(), of("one"))
			check(outcome, why, err, LeftOut, not)
		}
		if len(undo) != 0 || label("one") != nil {
			t.Fatal("it was written")
		}
		f.ReplacePods, f.DryRun = true, true
		outcome, why, err := f.Fix(t.Context(), of("one"))
		check(outcome, why, err, Checked, "replaces its 2 Pods")
		f.DryRun = false
		began := time.Now()
		outcome, why, err = f.Fix(t.Context(), of("one"))
		check(outcome, why, err, Written, "replaces its 2 Pods")
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute || label("one") != "x" {
			t.Errorf("waited %s, label %v", took, label("one"))
		}
		stuck["two"] = true
		outcome, why, err = f.Fix(t.Context(), of("two"))
		check(outcome, why, err, Written, "its rollout is not over: its controller has not seen the write yet")
		outcome, why, err = f.Fix(t.Context(), of("three"))
		check(outcome, why, err, LeftOut, "the write replaces its 2 Pods, and the rollout of Deployment a/two is not over (its controller has not seen the write yet)")
		if label("three") != nil {
			t.Error("another was begun")
		}

		w := Writer{Cluster: f.Cluster, Patience: time.Minute}
		outcome, why, err = w.Restore(t.Context(), undo[0])
		check(outcome, why, err, LeftOut, not)
		w.ReplacePods, w.DryRun = true, true
		outcome, why, err = w.Restore(t.Context(), undo[0])
		check(outcome, why, err, Checked, "replaces its 2 Pods")
		w.DryRun, w.Patience = false, 5*time.Minute
		outcome, why, err = w.Restore(t.Context(), undo[0])
		check(outcome, why, err, Restored, "replaces its 2 Pods")
		if label("one") != nil {
			t.Error("it is not put back")
		}
	})
}

// A policy in force can change a template in a write that is about something else. The answer
// to the dry run shows it.
func TestFixReplacesPodsByAnother(t *testing.T) {
	s := serve()
	fill(t, s, 1)
	rolling(t, s, nil, "web")
	put(t, s, strings.Replace(labels("team", "deployments", `"x"`), `apiGroups: [""]`, `apiGroups: [apps]`, 1))
	get := s.Intercept
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Apply {
			r.Object["spec"] = map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"by": "other"}}}}
		}
		return get(r)
	}
	f := fixer(t, s, nil)
	outcome, why, err := f.Fix(t.Context(), Reference{Resource: Resource{GVR: deployments, GVK: deployments.GroupVersion().WithKind("Deployment"), Namespaced: true}, Namespace: "a", Name: "web"})
	if outcome != LeftOut || why != "the write replaces its 2 Pods; --replace-pods allows it" || err != nil {
		t.Errorf("%q, %q, %v", outcome, why, err)
	}
}

// The template of a Deployment's ReplicaSet is the Deployment's.
func TestFixOwnedTemplate(t *testing.T) {
	before := read(t, "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {ownerReferences: [{kind: Deployment, name: web, controller: true}]}\nspec: {template: {spec: {a: b}}}")
	after := read(t, "apiVersion: apps/v1\nkind: ReplicaSet\nspec: {template: {spec: {a: c}}}")
	w := Writer{ReplacePods: true}
	if got, want := w.leftOut(before, after), "its template is that of the Deployment web, which would make another ReplicaSet"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := w.leftOut(before, before); got != "" {
		t.Error(got)
	}
}

func TestPlan(t *testing.T) {
	var p Plan
	for range 376 {
		p.Add(nil)
	}
	for name, tt := range map[string]struct {
		add  []*Replacement
		w    Writer
		undo bool
		want string
	}{
		"none":    {nil, Writer{}, false, "376 objects to write, about 2 minutes at --qps 10\n"},
		"checked": {nil, Writer{DryRun: true}, false, "376 objects to check, about 74 seconds at --qps 10\n"},
		"undone":  {nil, Writer{}, true, "376 objects to put back, about 2 minutes at --qps 10\n"},
		"left out": {[]*Replacement{{Pods: 2}}, Writer{}, false,
			"377 objects to write, about 2 minutes at --qps 10\n1 workload replaces 2 Pods; these are left out without --replace-pods\n"},
		"replaced": {[]*Replacement{{Pods: 2}, {Pods: 1, AtOnce: true}, {Pods: -1}, {Restarts: true}}, Writer{ReplacePods: true}, false,
			"380 objects to write, about 2 minutes at --qps 10 and the time of the rollouts\n3 workloads replace 3 Pods and those of 1 workload whose number is not known (of 1 Deployment all at once, by the strategy Recreate); containers of 1 Pod restart; each waits for the rollout before it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := p
			for _, r := range tt.add {
				p.Add(r)
			}
			if got := p.Text(&tt.w, 10, tt.undo); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
	if got := (&Plan{}).Text(&Writer{}, 10, false); got != "" {
		t.Error(got)
	}
}
