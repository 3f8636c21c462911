package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/load"
)

// A size is one of the cluster sizes in docs/operate/scale.md.
type size struct {
	nodes, tenants int
	// shared is the number of policies for all Pods, and each the number of policies for the Pods
	// of each tenant. The measured Pods are those of one tenant.
	shared, each int
	writes       int // the most in a second
}

// sizes are assumptions; docs/operate/scale.md has their sources.
var sizes = []size{
	{nodes: 50, tenants: 10, shared: 10, each: 2, writes: 20},
	{nodes: 500, tenants: 100, shared: 20, each: 2, writes: 50},
	{nodes: 5000, tenants: 1000, shared: 30, each: 2, writes: 200},
}

// tenantLabel is the label of a tenant's namespaces.
const tenantLabel = "tenant"

func tenant(i int) string { return fmt.Sprintf("t%04d", i) }

// objects returns the Namespaces, policies and bindings of a size. The namespace default belongs
// to the first tenant.
func (z *size) objects() []*unstructured.Unstructured {
	namespace := func(name, tenant string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name, tenantLabel: tenant},
		}}}
	}
	all := []*unstructured.Unstructured{namespace("default", tenant(0))}
	n := 0
	add := func(namespaceLabels map[string]any) {
		made := load.Policy(api.OwnGroup, load.Label, n)
		n++
		if namespaceLabels != nil {
			// The binding limits the policy to the tenant's namespaces.
			made[1].Object["spec"].(map[string]any)["matchResources"] = map[string]any{"namespaceSelector": map[string]any{"matchLabels": namespaceLabels}}
		}
		all = append(all, made...)
	}
	for range z.shared {
		add(nil)
	}
	for i := range z.tenants {
		if i > 0 {
			all = append(all, namespace(tenant(i)+"-apps", tenant(i)))
		}
		for range z.each {
			add(map[string]any{tenantLabel: tenant(i)})
		}
	}
	return all
}

// policies returns the number of policies of a size, which is also the number of bindings.
func (z *size) policies() int { return z.shared + z.tenants*z.each }

// entries returns the number of entries of the webhook configuration for these policies.
func (z *size) entries() (int, error) {
	all := z.objects()
	var reaches []*webhookconfig.Reach
	for i, o := range all {
		if o.GetKind() != api.PolicyKind {
			continue
		}
		p, err := policy.Decode(o)
		if err != nil {
			return 0, err
		}
		b, err := binding.Decode(all[i+1])
		if err != nil {
			return 0, err
		}
		reaches = append(reaches, webhookconfig.ReachOf(p, b.Spec.MatchResources))
	}
	entries, _ := webhookconfig.Divide(reaches)
	return len(entries), nil
}

// scale measures one replica with the policies of each size, and prints what a cluster of that
// size needs. It measures the CPU time of the replica's process, so other load on the machine
// changes it little.
func scale(ctx context.Context, f *flags) error {
	dir, err := os.MkdirTemp("", "mapd-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cert, err := newCertificate(dir)
	if err != nil {
		return err
	}
	all, err := newPods(f.out)
	if err != nil {
		return err
	}
	run := sizes
	if f.quick {
		run = sizes[:1]
	}
	fmt.Fprintln(f.out, "| nodes | tenants | policies, bindings | entries | start: CPU | CPU for a review | RSS, at the most | writes a second | cores for them |")
	fmt.Fprintln(f.out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, z := range run {
		if err := scaleOne(ctx, f, z, dir, cert, all[0]); err != nil {
			return fmt.Errorf("%d nodes: %w", z.nodes, err)
		}
	}
	return nil
}

func scaleOne(ctx context.Context, f *flags, z size, dir string, cert *certificate, small pod) error {
	entries, err := z.entries()
	if err != nil {
		return err
	}
	v, err := start(ctx, f, subject{name: fmt.Sprintf("%d nodes", z.nodes), kind: load.Label, matching: z.shared + z.each, scale: &z}, dir, cert)
	if err != nil {
		return err
	}
	defer v.stop()
	began, err := load.ReadUsage(v.pid)
	if err != nil {
		return err
	}
	// The answer changes the Pod as the shared policies and those of one tenant do.
	if err := v.check(ctx, small); err != nil {
		return err
	}
	limits := load.Limits{Requests: load.MaxRequests, Time: time.Duration(f.turns) * f.each}
	m, err := measure(ctx, v.client[16], small.review, limits, v.pid)
	if err != nil {
		return err
	}
	if m.Errors > 0 {
		return errors.Join(fmt.Errorf("%d errors", m.Errors), m.Err)
	}
	fmt.Fprintf(f.out, "| %d | %d | %d | %d | %s | %s | %s | %d | %.3f |\n", z.nodes, z.tenants, z.policies(), entries,
		began.CPU, m.cpu.Round(time.Microsecond), mib(m.used.Peak), z.writes, float64(z.writes)*m.cpu.Seconds())
	return nil
}
