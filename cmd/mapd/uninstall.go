//go:build !server

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/operate/install"
	"github.com/mapd-project/mapd/internal/output/report"
)

type uninstallFlags struct {
	cluster       clusterFlags
	purge, dryRun bool
	timeout       time.Duration
}

const uninstallLong = `Remove mapd from a cluster, even a partial or broken installation.

First mapd loses the permission to write webhook configurations, then these are
deleted: from then on no request waits for mapd. The rest follows, the namespace
last.

Policies, bindings and exceptions stay, and with them their
CustomResourceDefinitions, unless you pass --purge; their status says that they
have no effect. So do policies that stand for Gatekeeper's mutators.

Exit codes:
  0  nothing of mapd is left, except what it said it keeps
  1  something could not be removed
  2  wrong usage, or no cluster is configured` + clusterExits

func newUninstall(s streams) *cobra.Command {
	var f uninstallFlags
	cmd := &cobra.Command{
		Use:     "uninstall",
		Short:   "Remove mapd from a cluster",
		Long:    uninstallLong,
		Example: "  mapd uninstall --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runUninstall(cmd.Context(), s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.cluster.add(fl)
	fl.BoolVar(&f.purge, "purge", false, "delete policies, bindings and exceptions too")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only say what would be deleted, in order")
	fl.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to try in all")
	return cmd
}

func runUninstall(ctx context.Context, s streams, f *uninstallFlags) error {
	if f.timeout <= 0 {
		return usagef("uninstall: --timeout %s: must be positive", f.timeout)
	}
	objects, err := install.Objects("")
	if err != nil {
		return err
	}
	d, err := f.cluster.dynamic(s)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx, f.timeout)
	defer stop()
	found, err := install.Uninstall(ctx, install.UninstallOptions{
		Dynamic: d, Objects: objects, Purge: f.purge, DryRun: f.dryRun,
		Report:   func(r install.Result) { fmt.Fprintln(s.out, r) },
		Progress: func(text string) { fmt.Fprintln(s.err, "waiting:", report.Printable(text)) },
	})
	switch {
	case err != nil:
		return undone(s, err)
	case !found:
		fmt.Fprintln(s.out, "mapd is not installed")
	}
	return nil
}
