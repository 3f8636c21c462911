//go:build !server

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
)

// migrateLive updates policies after changes of a cluster's mutators until it is interrupted.
// It does the same as serve --legacy=native, without serving, for a cluster in which mapd is
// not installed.
func migrateLive(ctx context.Context, s streams, f *migrateFlags) error {
	config, err := f.cluster.config()
	if err != nil {
		return &codedError{exitUsage, err}
	}
	kube, dyn, err := clients(config)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	// The server may accept connections and never respond.
	asking, answered := context.WithTimeout(ctx, askTimeout)
	info, err := discovery.ToDiscoveryInterfaceWithContext(kube.Discovery()).ServerVersionWithContext(asking)
	answered()
	if err != nil {
		return clusterError(err)
	}
	if err := alone(ctx, kube); err != nil {
		return err
	}
	expressions, err := language(info)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	env, err := environment(expressions)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	klog.SetSlogLogger(log.With("component", "client-go"))
	group := ""
	if f.groupGiven {
		group = map[string]string{"k8s.io": api.NativeGroup, "mapd.dev": api.OwnGroup}[f.group]
	}
	mutators := gatekeeper.New(gatekeeper.Options{Native: &gatekeeper.NativeOptions{Alone: true, Group: group, Namespace: "default"}})
	read := store.New(store.Options{Dynamic: dyn, Kubernetes: kube, Env: env, Log: log, Features: []feature.Feature{mutators}})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	work.Go(func() {
		if err := read.Run(ctx); err != nil && ctx.Err() == nil {
			cancel(err)
		}
	})
	work.Go(func() { printLive(ctx, s, mutators) })
	mutators.Control(ctx, nil)
	cancel(nil)
	work.Wait()
	if err := mutators.Forget(context.WithoutCancel(ctx)); err != nil {
		fmt.Fprintf(s.err, "warning: %v\n", err)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return clusterError(err)
	}
	return nil
}

// alone returns an error if a mapd in the cluster does the same. That mapd excludes other
// namespaces in its policies, and the two would overwrite each other's policies.
func alone(ctx context.Context, kube kubernetes.Interface) error {
	namespace := installedNamespace(ctx, kube)
	said, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, gatekeeper.MutatorsName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return clusterError(err)
	}
	if mode := gatekeeper.ReadMutators(said.Data).Mode; mode != legacyOff && mode != legacyShadow {
		return usagef("migrate gatekeeper: --live: mapd runs in the cluster with --legacy=%s (ConfigMap %s/%s), and with native it does this itself; if none does, delete that",
			mode, namespace, gatekeeper.MutatorsName)
	}
	return nil
}

// printLive prints a line for each mutator whose state has changed.
func printLive(ctx context.Context, s streams, mutators *gatekeeper.Feature) {
	changed, reported := mutators.NativeChanged(), mutators.NativeReported()
	last := map[string]string{}
	for {
		if state, report := mutators.Native(), mutators.NativeReport(); state != nil && report != nil {
			now := liveLines(state, report)
			for _, id := range slices.Sorted(maps.Keys(now)) {
				if last[id] != now[id] {
					fmt.Fprintf(s.out, "%s: %s\n", id, now[id])
				}
			}
			for _, id := range slices.Sorted(maps.Keys(last)) {
				if now[id] == "" {
					fmt.Fprintf(s.out, "%s: gone\n", id)
				}
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-reported:
		}
	}
}

// liveLines returns the state of mutators as text, by ID. A mutator that has no policy is still
// run by Gatekeeper or mapd, as before.
func liveLines(state *gatekeeper.NativeState, report *gatekeeper.NativeReport) map[string]string {
	out := map[string]string{}
	for id := range state.Places {
		m := state.Of(id)
		why := report.Units[m.Policy]
		switch {
		case m.Policy == "" && m.Stays == "":
			out[id] = "cannot be read, so its policies are left as they are"
		case m.Policy == "":
			out[id] = "stays, " + m.Stays
		case why != "":
			out[id] = "stays, there cannot be a policy " + m.Policy + ": " + why
		case m.Out && len(m.Groups) > 0:
			out[id] = "native, by the policy " + m.Policy + " of " + strings.Join(m.Groups, " and ")
		default:
			out[id] = "on its way to the policy " + m.Policy
		}
	}
	return out
}

// installedNamespace returns the namespace of the cluster's mapd, as its webhook configuration
// for validation says; if that cannot be read, the namespace of the manifests.
func installedNamespace(ctx context.Context, kube kubernetes.Interface) string {
	found, err := kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhookconfig.ValidationName, metav1.GetOptions{})
	if err != nil {
		return defaultNamespace
	}
	return cmp.Or(webhookconfig.InstallationOf(found.ObjectMeta).Namespace, defaultNamespace)
}
