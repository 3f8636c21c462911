//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/atomicfile"
	"github.com/mapd-project/mapd/internal/author/lock"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
)

type snapshotFlags struct {
	cluster           clusterFlags
	policies          []string
	recursive, native bool
	output            string
}

const snapshotLong = `Write what policies read from a cluster to a file, for mapd krm, post-render and eval.

These are the parameters that the bindings name, the Namespaces with their labels and
annotations, and the CustomResourceDefinitions of the groups that policies are about.
The file begins with the date, the Kubernetes version, and a digest of each object.
mapd krm, post-render, eval and expand compare the objects with the digests, and refuse a
file that somebody has edited. mapd krm and post-render also refuse one that is older
than --max-age says.

Secrets are left out and named, also if they are parameters. RBAC objects and answers
of external data are not in the file: give them with -p and --external.

Exit codes:
  0  done
  1  a Secret was left out
  2  wrong usage, input that cannot be read, or output that cannot be written` + clusterExits

func newSnapshot(s streams) *cobra.Command {
	var f snapshotFlags
	cmd := &cobra.Command{
		Use:   "snapshot [-p PATH...]",
		Short: "Write what policies read from a cluster to a file",
		Long:  snapshotLong,
		Example: `  mapd snapshot -p policies/ --output-file cluster.yaml
  mapd post-render -p policies/ -p cluster.yaml -k overlays/prod -n shop`,
		Args: noArguments("-p"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.policies, "policies", "p", nil, "the policies and bindings: file, directory or - ; repeatable (default those of the cluster)")
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.native, "native", false, "without -p: the policies of admissionregistration.k8s.io instead of mapd's")
	f.cluster.add(fl)
	fl.StringVar(&f.output, "output-file", "", "write to this file instead of standard output")
	return cmd
}

func (f *snapshotFlags) run(ctx context.Context, s streams) error {
	if f.native && len(f.policies) > 0 {
		return usagef("snapshot: --native is for the policies of the cluster; with -p those of the files count")
	}
	ctx, stop := interruptible(ctx, 1<<62)
	defer stop()
	config, err := f.cluster.config()
	if err != nil {
		return usagef("snapshot: %w", err)
	}
	fail := func(err error) error { return &codedError{exitUnreachable, fmt.Errorf("snapshot: %w", err)} }
	version, err := languageOf(ctx, config)
	if err != nil {
		return fail(err)
	}
	c, err := audit.Connect(ctx, config)
	if err != nil {
		return fail(err)
	}
	docs, err := f.read(ctx, s, c)
	if err != nil {
		return err
	}
	var policies []*unstructured.Unstructured
	for _, d := range docs {
		if api.IsAdmission(d.Object.GroupVersionKind().Group) {
			policies = append(policies, d.Object)
		}
	}
	if len(policies) == 0 {
		return usagef("snapshot: there is no MutatingAdmissionPolicy")
	}
	needs, problems, err := c.Needs(ctx, docs)
	switch {
	case err != nil:
		return fail(err)
	case len(problems) > 0:
		return fail(errors.New(strings.Join(problems, "; ")))
	}
	var objects []*unstructured.Unstructured
	for _, d := range needs {
		if lock.Needed(d.Object, policies) {
			objects = append(objects, d.Object)
		}
	}
	text, secrets := lock.Write(version, time.Now(), objects)
	if f.output != "" {
		err = atomicfile.Write(f.output, text, 0o644)
	} else {
		_, err = s.out.Write(text)
	}
	if err != nil {
		return &codedError{exitUsage, err}
	}
	fmt.Fprintf(s.err, "%s of Kubernetes %s\n", counted(len(objects)-len(secrets), "object", "objects"), version)
	for _, name := range secrets {
		fmt.Fprintf(s.err, "left out: %s; give it with -p where policies run\n", report.Line(name))
	}
	if len(secrets) > 0 {
		return &codedError{code: exitDiffers}
	}
	return nil
}

// read returns the policies and bindings.
func (f *snapshotFlags) read(ctx context.Context, s streams, c *audit.Cluster) ([]*manifest.Document, error) {
	if len(f.policies) == 0 {
		docs, _, err := c.Documents(ctx, audit.Loading{Native: f.native})
		if err != nil {
			return nil, &codedError{exitUnreachable, fmt.Errorf("snapshot: %w", err)}
		}
		return docs, nil
	}
	files, err := paths(f.policies)
	if err != nil {
		return nil, usagef("snapshot: %w", err)
	}
	r := rewriting{streams: s, flags: &evalFlags{recursive: f.recursive}}
	return r.read(files, s.in)
}

// checkSnapshots verifies the digests of the snapshots among files, and rejects snapshots that
// are older than maxAge, unless that is 0.
func checkSnapshots(files []mapd.File, maxAge time.Duration) error {
	for _, f := range files {
		at, ok, err := lock.Check(f.Name, f.Data)
		switch {
		case err != nil:
			return &codedError{exitUsage, err}
		case ok && maxAge > 0 && time.Since(at) > maxAge:
			return usagef("%s: is of %s, which is longer ago than --max-age %s; mapd snapshot makes it anew", f.Name, at.Format(time.RFC3339), maxAge)
		}
	}
	return nil
}
