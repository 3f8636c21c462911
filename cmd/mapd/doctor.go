//go:build !server

package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/operate/doctor"
)

type doctorFlags struct {
	cluster clusterFlags
	output  string
	timeout time.Duration
}

const doctorLong = `Check mapd's health in a cluster, and print one line for each finding:

  √  in order
  ‼  may be intended
  ?  not known: the line names the missing permission, or why there was no answer
  ×  broken

Below ‼, ? and × is what to do. doctor changes nothing; it makes one dry run, to see
whether the API server reaches mapd.

Exit codes:
  0    no × and no ?
  1    an ×
  2    wrong usage, or no cluster is configured
  4    the API server does not answer
  5    no ×, but some of it is not known (?)
  130  interrupted`

func newDoctor(s streams) *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check mapd's health in a cluster",
		Long:    doctorLong,
		Example: "  mapd doctor --context kind-test",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDoctor(cmd.Context(), s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.cluster.add(fl)
	choiceVarP(fl, &f.output, "output", "o", "text", "", "text", "json")
	fl.DurationVar(&f.timeout, "timeout", time.Minute, "how long it may take in all; one check takes at most 10s")
	return cmd
}

func runDoctor(ctx context.Context, s streams, f *doctorFlags) error {
	if f.timeout <= 0 {
		return usagef("doctor: --timeout %s: must be positive", f.timeout)
	}
	config, err := f.cluster.config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{} // of the probe, which nobody wrote
	kube, d, err := clients(config)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx, f.timeout)
	defer stop()
	r := doctor.Run(ctx, doctor.Options{Kubernetes: kube, Dynamic: d})
	if f.output == "json" {
		text, err := marshal(r, "  ")
		if err != nil {
			return err
		}
		if _, err := s.out.Write(text); err != nil {
			return err
		}
	} else if err := r.Write(s.out, isTerminal(s.out) && os.Getenv("NO_COLOR") == ""); err != nil {
		return err
	}
	switch {
	case interrupted(ctx):
		return &codedError{code: exitInterrupted}
	case !r.Reached:
		return &codedError{code: exitUnreachable}
	case r.Has(doctor.Bad):
		return &codedError{code: exitUndone}
	case r.Has(doctor.Unknown):
		return &codedError{code: exitPartial}
	}
	return nil
}
