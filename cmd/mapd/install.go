//go:build !server

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/operate/install"
	"github.com/mapd-project/mapd/internal/output/report"
)

type installFlags struct {
	cluster clusterFlags
	image   string
	dryRun  bool
	force   bool
	adopt   bool
	timeout time.Duration
}

const installLong = `Install mapd into a cluster, or update an installation.

The objects are those of manifests/install.yaml. They are applied by server-side
apply, after a dry run of all of them: if the server would refuse one, for fields
that others have set or for a right that you lack, nothing is applied. Then mapd
install waits until the API server reaches mapd: it asks for a broken policy to be
created, in a dry run, which only mapd refuses.

Only one mapd of a cluster can have the webhook configurations. If they belong to
one in another namespace nothing is applied, unless you pass --adopt.

With --dry-run the objects are printed and no cluster is contacted; apply them with
"mapd install --dry-run | kubectl apply --server-side -f -".

Exit codes:
  0  installed, and the API server reaches mapd
  1  not everything was applied, or mapd was not reached in time
  2  wrong usage, or no cluster is configured` + clusterExits

func newInstall(s streams) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:     "install",
		Short:   "Install mapd into a cluster",
		Long:    installLong,
		Example: "  mapd install --context kind-test\n  mapd install --dry-run | less",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runInstall(cmd.Context(), s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.cluster.add(fl)
	fl.StringVar(&f.image, "image", "", "the image to run (default the one of this release)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the objects instead of applying them")
	fl.BoolVar(&f.force, "force-conflicts", false, "take over fields that others have set")
	fl.BoolVar(&f.adopt, "adopt", false, "take the webhook configurations from another installation of mapd that has them")
	fl.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait in all")
	return cmd
}

func runInstall(ctx context.Context, s streams, f *installFlags) error {
	if f.timeout <= 0 {
		return usagef("install: --timeout %s: must be positive", f.timeout)
	}
	var args []string
	if f.adopt {
		args = []string{"--adopt"}
	}
	if f.dryRun {
		text, err := install.Manifest(f.image, args...)
		if err != nil {
			return err
		}
		_, err = s.out.Write(text)
		return err
	}
	objects, err := install.Objects(f.image, args...)
	if err != nil {
		return err
	}
	d, err := f.cluster.dynamic(s)
	if err != nil {
		return err
	}
	if release == "" && f.image == "" {
		fmt.Fprintln(s.err, "note: this build is no release, so nobody has published its image; if the Pods do not start, build one (make image), push it, and name it with --image")
	}
	ctx, stop := interruptible(ctx, f.timeout)
	defer stop()
	progress := func(text string) { fmt.Fprintln(s.err, "waiting:", report.Printable(text)) }

	err = install.Apply(ctx, install.ApplyOptions{
		Dynamic: d, Objects: objects, Force: f.force, Adopt: f.adopt, Progress: progress,
		Report: func(r install.Result) { fmt.Fprintln(s.out, r) },
	})
	if err == nil {
		err = install.Wait(ctx, install.WaitOptions{Dynamic: d, Objects: objects, Progress: progress})
	}
	if err != nil {
		return undone(s, err)
	}
	fmt.Fprintln(s.out, "mapd is installed, and the API server reaches it")
	return nil
}

// dynamic returns a client for the cluster of the flags. It prints the name of the cluster to
// standard error.
func (f *clusterFlags) dynamic(s streams) (dynamic.Interface, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NewWarningWriter(s.err, rest.WarningWriterOptions{Deduplicate: true})
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.err, "cluster: %s\n", report.Printable(config.Host))
	return d, nil
}

// undone prints the errors that are joined in err, each with advice if there is any that was
// not just printed.
func undone(s streams, err error) error {
	said := ""
	for _, err := range flatten(err) {
		fmt.Fprintln(s.err, "mapd:", report.Printable(err.Error()))
		if advice := install.Advice(err); advice != "" && advice != said {
			fmt.Fprintln(s.err, "  "+advice)
			said = advice
		}
	}
	return &codedError{code: clusterCode(err, exitUndone)}
}

// flatten returns the errors that are joined in err.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}
