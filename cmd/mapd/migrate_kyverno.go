//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/kyverno"
	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
)

// kyvernoFlags are the flags of migrate kyverno as they were given.
type kyvernoFlags struct {
	recursive   bool
	fromCluster bool
	cluster     clusterFlags
	assess      bool
	output      string
	directory   string
	group       string

	verify    bool
	objects   []string
	generated int
	seed      uint64
}

const migrateKyvernoLong = `Write native policies for Kyverno's mutate rules.

Reads ClusterPolicy and Policy (kyverno.io), and MutatingPolicy and
NamespacedMutatingPolicy (policies.kyverno.io). Rules that validate, generate or
verify images are counted and left alone. Each mutate rule has a verdict:

  exact    the policy does what Kyverno did
  order    it does, but for the order of a list with a key
  better   it does what is meant where Kyverno fails or errs: the note says where
  differs  it does, except for what the note says
  needs    no policy can: it needs what the note says
  refused  it is not converted: the note says why, and what to do

--assess prints the verdicts and writes no policies. Without it, the policies go
into --output-dir, a file for each policy of Kyverno, and the verdicts to standard
error. Pass CustomResourceDefinitions, too: a rule for a kind whose fields are not
known is refused where its type matters.

With --from-cluster, the policies are those of a cluster, and so are the
CustomResourceDefinitions if you may read them. Only the right to list the policies
is needed, and nothing is written to the cluster.

--verify compares each converted rule with its policy on the same objects: those of
-f, and generated ones that have what the rule mentions. Kyverno's side is an
interpreter of its rules; what it does not know is not verified, and the outcome says
so. A MutatingPolicy is compared with itself as it was written, and for controllers
with what it does to the Pod of their template. --verify counts the objects without a
difference; that is evidence, not a proof. The policies are written only if there is an
--output-dir.

Exit codes:
  0  all exact; with --verify, no difference that a verdict does not name
  1  a rule is not exact; with --verify, there is such a difference
  2  wrong usage, input that cannot be read, or output that cannot be written
  4  the cluster cannot be read
  5  with --verify, a rule was compared on no object, or none is converted; the outcome
     says why
  130  a comparison was interrupted`

func newMigrateKyverno(s streams) *cobra.Command {
	var f kyvernoFlags
	cmd := &cobra.Command{
		Use:   "kyverno PATH... | --from-cluster --assess | --verify | --output-dir DIR",
		Short: "Write native policies for Kyverno's mutate rules",
		Long:  migrateKyvernoLong,
		Example: `  mapd migrate kyverno policies/ -R --assess
  mapd migrate kyverno policies/ -R --assess -o html > assessment.html
  mapd migrate kyverno policies/ --output-dir native/
  mapd migrate kyverno policies/ --verify -f objects/
  mapd migrate kyverno --from-cluster --assess`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return runMigrateKyverno(cmd.Context(), s, &f, paths)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVar(&f.assess, "assess", false, "print what each rule becomes, and write nothing")
	choiceVarP(fl, &f.output, "output", "o", "table", " of --assess and --verify", "table", "json", "markdown", "html")
	fl.StringVar(&f.directory, "output-dir", "-", "directory for the files; - is one stream on standard output")
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.fromCluster, "from-cluster", false, "read the policies of a cluster")
	f.cluster.add(fl)
	choiceVar(fl, &f.group, "api-group", "k8s.io", ": policies for Kubernetes, or for mapd alone", "k8s.io", "mapd.dev")
	fl.BoolVar(&f.verify, "verify", false, "compare both sides on objects")
	addComparison(fl, &f.objects, &f.generated, &f.seed)
	return cmd
}

var assessments = map[string]func(*kyverno.Assessment, io.Writer) error{
	"table":    (*kyverno.Assessment).WriteTable,
	"json":     (*kyverno.Assessment).WriteJSON,
	"markdown": (*kyverno.Assessment).WriteMarkdown,
	"html":     (*kyverno.Assessment).WriteHTML,
}

func runMigrateKyverno(ctx context.Context, s streams, f *kyvernoFlags, paths []string) error {
	const name = "migrate kyverno: "
	switch {
	case len(paths) == 0 && !f.fromCluster:
		return usagef(name + "no policies; name files or directories with them, - for standard input, or --from-cluster")
	case len(paths) > 0 && f.fromCluster:
		return usagef(name + "paths and --from-cluster: one of them")
	case f.assess && f.directory != "-":
		return usagef(name + "--assess writes no policies; leave out --output-dir")
	case !f.assess && !f.verify && f.output != "table":
		return usagef(name + "-o is the form of --assess and --verify")
	}
	if err := f.checkVerify(); err != nil {
		return err
	}
	source := strings.Join(paths, ", ")
	read := func() (*kyverno.Input, error) { return f.read(s, paths) }
	if f.fromCluster {
		source = "the cluster"
		read = func() (*kyverno.Input, error) { return f.readCluster(ctx, s) }
	}
	in, err := read()
	if err != nil {
		return err
	}
	if len(in.Policies) == 0 && len(in.Unreadable) == 0 {
		return usagef(name+"no policies of Kyverno in %s", source)
	}
	a, err := kyverno.Assess(in)
	if err != nil {
		return usagef(name+"%w", err)
	}
	a.Version, a.Source = version(), source
	if names := a.Collisions(); len(names) > 0 && !f.assess && (!f.verify || f.directory != manifest.Stdin) {
		return usagef(name+"two policies would have the name %s; convert them apart", names[0])
	}
	if f.verify {
		return verifyKyverno(ctx, s, f, in, a)
	}
	if f.assess {
		err = assessments[f.output](a, s.out)
	} else {
		err = writeKyverno(s, f, a)
	}
	if err != nil {
		return &codedError{exitUsage, err}
	}
	for _, u := range in.Unreadable {
		printErrors(s.err, u.Errors)
	}
	if !a.OK() {
		return &codedError{code: exitDiffers}
	}
	return nil
}

// read reads the policies of files.
func (f *kyvernoFlags) read(s streams, paths []string) (*kyverno.Input, error) {
	files, _, err := manifest.Files(paths, f.recursive)
	if err != nil {
		return nil, usagef("migrate kyverno: %w", err)
	}
	in, errs := kyverno.Read(manifest.Inputs(once(files), s.in))
	if len(errs) > 0 {
		printErrors(s.err, errs)
		return nil, &codedError{code: exitUsage}
	}
	return in, nil
}

// readCluster reads the policies of a cluster, and the definitions of kinds. It skips kinds
// that the cluster does not serve, and prints a note for those that it has no permission to
// read.
func (f *kyvernoFlags) readCluster(ctx context.Context, s streams) (*kyverno.Input, error) {
	config, err := f.cluster.config()
	if err != nil {
		return nil, usagef("migrate kyverno: %w", err)
	}
	fail := func(err error) error { return &codedError{exitUnreachable, fmt.Errorf("migrate kyverno: %w", err)} }
	c, err := newLiveCluster(ctx, config)
	if err != nil {
		return nil, fail(err)
	}
	in := &kyverno.Input{}
	var refused []error
	for _, gvks := range policy.Served() {
		var versions []string
		for _, gvk := range gvks {
			versions = append(versions, gvk.Version)
		}
		r, ok := c.Serves(gvks[0].Group, gvks[0].Kind, versions...)
		if !ok {
			continue
		}
		err := c.Each(ctx, r, func(u *unstructured.Unstructured) error {
			in.Add(&manifest.Document{Object: u, File: manifest.Name(u), Index: 1})
			return nil
		})
		switch {
		case apierrors.IsForbidden(err):
			refused = append(refused, err)
		case err != nil:
			return nil, fail(err)
		}
	}
	if len(refused) > 0 && len(in.Policies)+len(in.Unreadable) == 0 {
		return nil, fail(errors.Join(refused...))
	}
	if in.Sources, err = c.definitions(ctx); apierrors.IsForbidden(err) {
		refused = append(refused, err)
	} else if err != nil {
		return nil, fail(err)
	}
	for _, err := range refused {
		c.Notes = append(c.Notes, "not read: "+err.Error())
	}
	for _, n := range c.Notes {
		fmt.Fprintf(s.err, "note: %s\n", report.Line(n))
	}
	return in, nil
}

// writeKyverno writes the policies, and the verdicts to standard error.
func writeKyverno(s streams, f *kyvernoFlags, a *kyverno.Assessment) error {
	group := api.NativeGroup
	if f.group == "mapd.dev" {
		group = api.OwnGroup
	}
	written := a.Files(group)
	if f.directory == manifest.Stdin {
		for i, file := range written {
			if i > 0 {
				if _, err := io.WriteString(s.out, "---\n"); err != nil {
					return err
				}
			}
			if _, err := s.out.Write(file.Data); err != nil {
				return err
			}
		}
		return a.WriteTable(s.err)
	}
	if _, err := migrate.Write(f.directory, kyverno.Command, written); err != nil {
		return err
	}
	return a.WriteTable(s.err)
}
