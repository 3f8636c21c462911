//go:build !server

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/doctor"
)

type doctorFlags struct {
	cluster clusterFlags
	output  string
	timeout time.Duration
}

const doctorLong = `Check mapd's health in a cluster, and print what each check found, on one line:

  √  in order
  ‼  may be intended
  ?  not known: the line names the missing permission, or why there was no answer
  ×  broken

Below ‼, ? and × is what to do. doctor changes nothing; it makes one dry run, to see
whether the API server reaches mapd. The ConfigMap mapd-audit, which mapd serve
--audit-interval writes, says which objects that Argo CD or Flux applies would differ from
Git. Without it, doctor evaluates the policies of mapd's group on at most %d objects of
each kind that they match, which needs the rights of mapd audit.

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
		Long:    fmt.Sprintf(doctorLong, doctor.Sampled),
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

// sampleQPS bounds the requests of a sample.
const sampleQPS = 20

// sample audits the first objects of each kind that policies match.
func sample(ctx context.Context, config *rest.Config) (*audit.Report, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = sampleQPS, sampleQPS
	p, err := newPresent(ctx, config)
	if err != nil {
		return nil, err
	}
	p.asking.Operation, p.asking.Timeout = admissionv1.Update, time.Second
	return audit.Run(ctx, audit.Options{Cluster: p.cluster, Set: p.set, First: doctor.Sampled, Asking: p.asking})
}

func runDoctor(ctx context.Context, s streams, f *doctorFlags) error {
	if f.timeout <= 0 {
		return usagef("doctor: --timeout %s: must be positive", f.timeout)
	}
	config, err := f.cluster.config()
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{} // warnings about the probe would not concern the user
	kube, d, err := clients(config)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx, f.timeout)
	defer stop()
	r := doctor.Run(ctx, doctor.Options{Kubernetes: kube, Dynamic: d, Sample: func(ctx context.Context) (*audit.Report, error) { return sample(ctx, config) }})
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
