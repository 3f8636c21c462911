package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/bundle"
	"github.com/mapd-project/mapd/internal/doctor"
	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/replicas"
	"github.com/mapd-project/mapd/internal/report"
)

type bundleFlags struct {
	replicas   replicaFlags
	output     string
	namespace  string
	noPolicies bool
}

const bundleLong = `Collect what is needed to find out what is wrong with mapd in a cluster, in one
archive: the report of mapd doctor; metrics, readiness and logs of the replicas, what
they have counted of each policy, and which fields policies in shadow would change;
policies and bindings with their status; mapd's webhook configurations, Deployment,
Pods, Service, Lease and events. manifest.json lists the files, what could not be
had and why.

A bundle holds no Secrets, parameters, values of objects, values of environment
variables, messages of events or annotations of others. The texts of policies are in
it, unless --no-policies is given; mapd's own messages may quote a line of one. bundle
changes nothing.

Exit codes:
  0  all of it
  2  wrong usage, or no cluster
  5  some of it could not be had`

func newDebug(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Collect what is needed to find out what is wrong with mapd",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBundle(s))
	return cmd
}

func newBundle(s streams) *cobra.Command {
	var f bundleFlags
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write an archive with mapd's state in a cluster, without secrets",
		Long:  bundleLong,
		Example: `  mapd debug bundle
  mapd debug bundle -o - | tar tz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBundle(cmd.Context(), s, &f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.replicas.timeout = 3 * time.Minute
	f.replicas.add(fl)
	fl.StringVarP(&f.output, "output", "o", "mapd-bundle.tar.gz", "file to write; - is standard output")
	fl.StringVar(&f.namespace, "namespace", defaultNamespace, "the namespace that mapd runs in")
	fl.BoolVar(&f.noPolicies, "no-policies", false, "leave the texts of policies and bindings out")
	return cmd
}

func runBundle(ctx context.Context, s streams, f *bundleFlags) error {
	if err := f.replicas.check("debug bundle"); err != nil {
		return err
	}
	config, err := f.replicas.cluster.config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	out, done := s.out, func() error { return nil }
	if f.output != manifest.Stdin {
		file, err := os.OpenFile(f.output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		out, done = file, file.Close
	}
	ctx, stop := interruptible(ctx, f.replicas.timeout)
	defer stop()
	made, err := bundle.Write(ctx, out, bundle.Options{
		Kubernetes: kube, Namespace: f.namespace, Name: "mapd", NoPolicies: f.noPolicies, Now: time.Now(),
		Version: versionText() + runtime.GOOS + "/" + runtime.GOARCH + "\n",
		Doctor: func(ctx context.Context, w io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, f.replicas.timeout/3)
			defer cancel()
			return doctor.Run(ctx, doctor.Options{Kubernetes: kube, Dynamic: d}).Write(w, false)
		},
		Replicas: func(ctx context.Context) (bundle.Replicas, error) {
			set, err := replicas.Find(ctx, replicas.Options{Config: config, URLs: f.replicas.urls})
			return bundle.Found{Set: set}, err
		},
	})
	if closed := done(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("debug bundle: %w", err)
	}
	for _, m := range made.Missing {
		fmt.Fprintf(s.err, "missing: %s: %s\n", report.Line(m.What), report.Line(m.Why))
	}
	if f.output != manifest.Stdin {
		fmt.Fprintf(s.err, "%s: %d files\n", f.output, len(made.Files))
	}
	if len(made.Missing) > 0 {
		return &codedError{code: exitPartial}
	}
	return nil
}
