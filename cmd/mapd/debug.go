//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/atomicfile"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/doctor"
	"github.com/mapd-project/mapd/internal/operate/supportbundle"
	"github.com/mapd-project/mapd/internal/output/report"
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
policies, bindings and exceptions with their status; mapd's webhook configurations, Deployment,
Pods, Service, Lease and events. manifest.json lists the files, what could not be
collected and why.

A bundle holds no Secrets, parameters, values of objects, values of environment
variables, messages of events or annotations of others. The texts of policies are in
it, unless --no-policies is given; mapd's own messages may quote a line of one. bundle
changes nothing.

Exit codes:
  0  everything was collected
  2  wrong usage, or no cluster is configured` + unreachableExit + `
  5  something could not be collected` + interruptedExit

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
  mapd debug bundle --output-file - | tar tz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBundle(cmd.Context(), s, &f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.replicas.timeout = 3 * time.Minute
	f.replicas.add(fl)
	fl.StringVar(&f.output, "output-file", "mapd-bundle.tar.gz", "file to write; - is standard output")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "the namespace that mapd runs in (default the one that its webhook configuration names)")
	fl.BoolVar(&f.noPolicies, "no-policies", false, "leave the texts of policies, bindings and exceptions out")
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
	ctx, stop := interruptible(ctx, f.replicas.timeout)
	defer stop()
	config.WarningHandler = rest.NoWarnings{}
	kube, d, err := clients(config)
	if err != nil {
		return err
	}
	reached := true
	out, done := s.out, func(bool) error { return nil }
	if f.output != manifest.Stdin {
		if out, done, err = replacing(f.output, 0o600); err != nil {
			return fmt.Errorf("debug bundle: %w", err)
		}
	}
	finder := f.replicas.of(config, s)
	if f.namespace == "" {
		f.namespace = defaultNamespace
		if set, err := finder.find(ctx); err == nil {
			f.namespace = set.Namespace()
		}
	}
	made, err := supportbundle.Write(ctx, out, supportbundle.Options{
		Kubernetes: kube, Namespace: f.namespace, Name: "mapd", NoPolicies: f.noPolicies, Now: time.Now(),
		Version: versionText() + runtime.GOOS + "/" + runtime.GOARCH + "\n",
		Doctor: func(ctx context.Context, w io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, f.replicas.timeout/3)
			defer cancel()
			found := doctor.Run(ctx, doctor.Options{Kubernetes: kube, Dynamic: d})
			reached = found.Reached
			return found.Write(w, false)
		},
		Replicas: func(ctx context.Context) (supportbundle.Replicas, error) {
			set, err := finder.find(ctx)
			return supportbundle.Found{Set: set}, err
		},
	})
	if err = errors.Join(err, done(err == nil)); err != nil {
		return fmt.Errorf("debug bundle: %w", err)
	}
	for _, m := range made.Missing {
		fmt.Fprintf(s.err, "missing: %s: %s\n", report.Line(m.What), report.Line(m.Why))
	}
	if f.output != manifest.Stdin {
		fmt.Fprintf(s.err, "%s: %d files\n", f.output, len(made.Files))
	}
	switch {
	case interrupted(ctx):
		return &codedError{code: exitInterrupted}
	case !reached:
		return &codedError{code: exitUnreachable}
	case len(made.Missing) > 0:
		return &codedError{code: exitPartial}
	}
	return nil
}

// replacing returns a writer whose text replaces a file when done is called with true. If done
// is called with false, the file stays as it is. A file that is not regular, such as a pipe, is
// written to directly.
func replacing(name string, mode os.FileMode) (w io.Writer, done func(keep bool) error, err error) {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to
	}
	if info, err := os.Stat(name); err == nil {
		switch {
		case info.IsDir():
			return nil, nil, fmt.Errorf("%s is a directory", name)
		case !info.Mode().IsRegular():
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				return nil, nil, err
			}
			return f, func(bool) error { return f.Close() }, nil
		case info.Mode().Perm()&0o222 == 0:
			return nil, nil, fmt.Errorf("%s is read-only", name)
		}
	}
	f, err := atomicfile.Create(name, mode)
	if err != nil {
		return nil, nil, err
	}
	return f, func(keep bool) error {
		if keep {
			return f.Commit()
		}
		return f.Discard()
	}, nil
}
