//go:build !server

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/author/export"
	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/legacy"
)

type exportFlags struct {
	cluster                                        clusterFlags
	static, recursive, fromCluster, native, verify bool
	everywhere                                     bool
	policies, objects, exempt                      []string
	output, kubernetes, namespace                  string
	installation                                   string // the namespace of the cluster's mapd
}

const exportLong = `Write policies in the form in which API servers take them from files.

--static writes manifest files for the directory staticManifestsDir of API servers from
Kubernetes 1.37 on. Manifest policies are in force before the server answers its first
request, and nobody can change them through the API. They have no parameters, so a
policy is written once for each parameter that its bindings find, with the values in
it. When a parameter changes, export again.

Standard error says of each policy what was written for it, or why nothing was: a binding
is in mode shadow or takes a share, a parameter is missing, and other reasons.

Before anything is written, the policies and what was made of them run on the same
requests: generated ones, and the objects of -f. --verify=false leaves that out.

Policies of mapd's group leave out the namespaces that mapd serve leaves out, unless
you pass --everywhere. Gatekeeper's mutators become policies first:

  mapd migrate gatekeeper -p mutators/ | mapd export --static -p -

Exit codes:
  0  all policies that have a binding were written
  1  a policy cannot be exported; the others were written
  2  wrong usage, input that cannot be read, or output that cannot be written
  3  a policy does not compile or validate` + clusterExits

func newExport(s streams) *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export --static [POLICY...] -p PATH... | --from-cluster",
		Short: "Write policies as manifest files of API servers",
		Long:  exportLong,
		Example: `  mapd export --static -p policies/ --output-dir /etc/kubernetes/policies
  mapd export --static --from-cluster team-labels`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVar(&f.static, "static", false, "write manifest policies, without parameters")
	fl.StringArrayVarP(&f.policies, "policies", "p", nil, "policies, bindings, parameters, Namespaces and CRDs, mixed: file, directory or - ; repeatable")
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.fromCluster, "from-cluster", false, "read them from a cluster")
	fl.BoolVar(&f.native, "native", false, "with --from-cluster: the policies of admissionregistration.k8s.io instead of mapd's")
	f.cluster.add(fl)
	fl.StringVar(&f.output, "output-dir", "-", "directory for the files; - is one stream on standard output")
	fl.StringSliceVar(&f.exempt, "exempt-namespace", append(api.ExemptNamespaces(), defaultNamespace), "namespaces that policies of mapd's group leave out; replaces the default")
	fl.BoolVar(&f.everywhere, "everywhere", false, "leave out no namespace")
	fl.BoolVar(&f.verify, "verify", true, "compare the policies with what was made of them")
	fl.StringArrayVarP(&f.objects, "filename", "f", nil, "objects to compare on, besides generated ones; repeatable")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "namespace of parameters that name none (default default)")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor version of Kubernetes whose CEL libraries the API servers have (default the newest)")
	cmd.AddCommand(newExportIgnore(s))
	return cmd
}

func (f *exportFlags) run(ctx context.Context, s streams, names []string) error {
	switch {
	case !f.static:
		return usagef("export: pass --static; there is no other form")
	case (len(f.policies) > 0) == f.fromCluster:
		return usagef("export: either -p, or --from-cluster")
	case f.native && !f.fromCluster:
		return usagef("export: --native is for --from-cluster; all policies of -p are exported")
	case f.output == "":
		return usagef("export: --output-dir: must be a directory, or - for standard output")
	case len(f.objects) > 0 && !f.verify:
		return usagef("export: -f: objects are for the comparison, which --verify=false leaves out")
	}
	ctx, stop := interruptible(ctx, 1<<62)
	defer stop()
	docs, err := f.documents(ctx, s)
	if err != nil {
		return err
	}
	given, err := (&promoteFlags{files: f.objects}).given(s)
	if err != nil {
		return err
	}
	e := &exporting{streams: s, flags: f, given: given}
	if err := e.build(ctx, docs, names); err != nil {
		return err
	}
	if f.verify {
		if err := e.compare(ctx); err != nil {
			return err
		}
	}
	return e.write()
}

// documents reads the policies and what they need.
func (f *exportFlags) documents(ctx context.Context, s streams) ([]*manifest.Document, error) {
	if !f.fromCluster {
		r := rewriting{streams: s, flags: &evalFlags{recursive: f.recursive}}
		files, err := paths(f.policies)
		if err != nil {
			return nil, usagef("export: %w", err)
		}
		return r.read(files, s.in)
	}
	config, err := f.cluster.config()
	if err != nil {
		return nil, usagef("export: %w", err)
	}
	c, err := audit.Connect(ctx, config)
	if err != nil {
		return nil, &codedError{exitUnreachable, fmt.Errorf("export: %w", err)}
	}
	f.installation = c.Installation(ctx)
	docs, problems, err := c.Documents(ctx, audit.Loading{Native: f.native})
	if err != nil {
		return nil, &codedError{exitUnreachable, fmt.Errorf("export: %w", err)}
	}
	for _, p := range problems {
		fmt.Fprintf(s.err, "note: %s\n", report.Line(p))
	}
	return docs, nil
}

// exporting is one run of mapd export.
type exporting struct {
	streams
	flags    *exportFlags
	given    []*unstructured.Unstructured
	world    export.World
	policies []*export.Policy
	others   []string // objects of other kinds
	notes    []string
}

// build makes the manifests.
func (e *exporting) build(ctx context.Context, docs []*manifest.Document, names []string) error {
	env, err := environment(e.flags.kubernetes)
	if err != nil {
		return err
	}
	s, errs := policyset.Build(docs, policyset.Options{Env: env, Namespace: e.flags.namespace, Mutators: api.Off, Kyverno: api.Off, Installation: e.flags.installation})
	if len(errs) > 0 {
		printErrors(e.err, errs)
		return &codedError{code: exitPolicy}
	}
	own := map[string]bool{}
	e.world = export.World{Given: e.given, Version: e.flags.kubernetes, Namespace: e.flags.namespace}
	for _, d := range docs {
		gvk := d.Object.GroupVersionKind()
		switch {
		case api.IsAdmission(gvk.Group) && (gvk.Kind == api.PolicyKind || gvk.Kind == api.BindingKind):
			e.world.Policies = append(e.world.Policies, d.Object)
			if gvk.Kind == api.PolicyKind {
				own[d.Object.GetName()] = gvk.Group == api.OwnGroup
			}
		case legacy.IsMutator(gvk):
			e.others = append(e.others, d.Name()+": is a mutator; mapd migrate gatekeeper makes a policy of it, which can be exported")
		case kubewarden.IsPolicy(gvk):
			e.others = append(e.others, d.Name()+": is a module of WebAssembly, which no API server runs")
		default:
			e.world.Context = append(e.world.Context, d.Object)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(e.world.Policies, func(u *unstructured.Unstructured) bool { return u.GetKind() == api.PolicyKind && u.GetName() == name }) {
			return usagef("export: there is no MutatingAdmissionPolicy %s", name)
		}
	}
	if len(names) == 0 && len(s.Policies)+len(e.others) == 0 {
		return usagef("export: there is no MutatingAdmissionPolicy")
	}
	o := export.Options{Env: env, Own: func(name string) bool { return own[name] }}
	if len(names) > 0 {
		o.Only, e.others = names, nil
	}
	if !e.flags.everywhere {
		o.Exempt = e.flags.exempt
		e.world.Exempt = e.flags.exempt
	}
	if e.policies, err = export.Export(ctx, s, o); err != nil {
		return &codedError{exitInterrupted, fmt.Errorf("export: %w", err)}
	}
	for _, name := range s.Dangling {
		if len(names) == 0 {
			e.notes = append(e.notes, fmt.Sprintf("binding %s: its policy was not given, so nothing is written for it", name))
		}
	}
	return nil
}

// compare compares every policy with its manifests, and then all of them together.
func (e *exporting) compare(ctx context.Context) error {
	var all []*export.Policy
	for _, p := range e.policies {
		if len(p.Manifests) == 0 {
			continue
		}
		c, err := e.world.Compare(ctx, p)
		switch {
		case ctx.Err() != nil:
			return &codedError{exitInterrupted, errors.New("export: interrupted; nothing was written")}
		case err != nil:
			p.Refuse(err.Error())
		case c.First != "":
			p.Refuse(c.First)
		default:
			all = append(all, p)
			p.Notes = append(p.Notes, fmt.Sprintf("the same on %s: %d changed, %d refused", counted(c.Requests, "request", "requests"), c.Changed, c.Refused))
			if c.Changed == 0 {
				p.Notes = append(p.Notes, "none of these requests was changed, so the comparison says little; pass objects with -f")
			}
		}
	}
	if len(all) < 2 {
		return nil
	}
	c, err := e.world.Compare(ctx, all...)
	switch {
	case ctx.Err() != nil:
		return &codedError{exitInterrupted, errors.New("export: interrupted; nothing was written")}
	case err == nil && c.First != "":
		err = errors.New(c.First)
	}
	if err != nil {
		return &codedError{exitDiffers, fmt.Errorf("export: all policies together: %w; nothing was written", err)}
	}
	return nil
}

// write writes the manifests and prints the outcome for each policy.
func (e *exporting) write() error {
	var files []migrate.File
	failed := len(e.others) > 0
	for _, p := range e.policies {
		failed = failed || len(p.Problems) > 0
		for _, m := range p.Manifests {
			files = append(files, migrate.File{Name: strings.TrimSuffix(m.Policy.Name, export.Suffix) + ".yaml", Data: migrate.Encode(migrate.Marker(exporter)+"\n", m.Objects())})
		}
	}
	if e.flags.output == manifest.Stdin {
		var texts [][]byte
		for _, f := range files {
			texts = append(texts, f.Data)
		}
		if _, err := e.out.Write(bytes.Join(texts, []byte("---\n"))); err != nil {
			return &codedError{exitUsage, err}
		}
	} else {
		stale, err := migrate.Write(e.flags.output, exporter, files)
		if err != nil {
			return &codedError{exitUsage, fmt.Errorf("export: %w", err)}
		}
		for _, path := range stale {
			e.notes = append(e.notes, path+" is of an earlier run, and servers go on to load it; remove it")
		}
	}
	for _, p := range e.policies {
		switch {
		case len(p.Problems) > 0:
			for _, text := range p.Problems {
				fmt.Fprintf(e.err, "%s: not exported: %s\n", report.Line(p.Name), report.Line(text))
			}
			continue
		case len(p.Manifests) > 0:
			fmt.Fprintf(e.err, "%s: %s\n", report.Line(p.Name), counted(len(p.Manifests), "manifest policy", "manifest policies"))
		}
		for _, text := range p.Notes {
			fmt.Fprintf(e.err, "note: %s: %s\n", report.Line(p.Name), report.Line(text))
		}
	}
	for _, text := range e.others {
		fmt.Fprintf(e.err, "not exported: %s\n", report.Line(text))
	}
	for _, text := range e.notes {
		fmt.Fprintf(e.err, "note: %s\n", report.Line(text))
	}
	if failed {
		return &codedError{code: exitDiffers}
	}
	return nil
}

// exporter is the command that generated files name.
const exporter = "mapd export --static"
