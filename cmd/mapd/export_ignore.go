//go:build !server

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/author/ignore"
	"github.com/mapd-project/mapd/internal/author/requests"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const exportIgnoreLong = `Write the rules by which Argo CD or Flux leaves alone what policies write.

With -f or -k, the fields are those that the policies change in these objects, and
elements of lists are named by their keys. Without, they are those that the policies
change in objects that mapd makes up from the expressions of the policies: some may be
missing, and a rule may be about every element of a list. Standard error warns of each
rule that ignores more than the policies write.

Rules for Argo CD have JSON pointers, and jq expressions where an element of a list has
a key. With syncOptions: [RespectIgnoreDifferences=true], a sync leaves the fields alone,
too. Rules for Flux have JSON pointers only, so they name an element of a list by its
index; without -f such a field is left out.

A field that a policy writes while an object is admitted belongs to the field manager of
whoever sent the object, so a rule cannot go by the manager. What mapd audit --fix wrote
has the manager mapd-audit; with --fixes, the rules for Argo CD trust that manager.

Where manifests can be rendered with the policies (mapd krm, mapd post-render), no rule
is needed.

Exit codes:
  0  done
  1  an object was denied
  2  wrong usage, or input that cannot be read
  3  a policy does not compile or validate
  5  some objects failed`

type exportIgnoreFlags struct {
	evalFlags
	controller, app string
	fixes           bool
}

func newExportIgnore(s streams) *cobra.Command {
	f := exportIgnoreFlags{evalFlags: evalFlags{command: "export ignore", output: "yaml", quiet: true}}
	cmd := &cobra.Command{
		Use:   "ignore --for argocd|flux [--app NAME] -p PATH... [-f PATH...]",
		Short: "Write rules for Argo CD or Flux to leave alone what policies write",
		Long:  exportIgnoreLong,
		Example: `  mapd export ignore --for argocd --app web -p policies/ -f manifests/
  mapd export ignore --for flux --app HelmRelease/web -p policies/ -f rendered.yaml`,
		Args: noArguments("-p and -f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	choiceVar(fl, &f.controller, "for", "", "", ignore.ArgoCD, ignore.Flux)
	fl.StringVar(&f.app, "app", "", "write the object with the rules: NAME of an Application, or of a Kustomization of Flux, or HelmRelease/NAME")
	f.addFiles(cmd)
	fl.BoolVar(&f.fixes, "fixes", false, "for argocd: also trust the manager of mapd audit --fix")
	f.addUser(cmd)
	f.addReading(cmd)
	f.external.add(fl)
	return cmd
}

func (f *exportIgnoreFlags) run(ctx context.Context, s streams) error {
	switch {
	case f.controller == "":
		return f.usagef("--for %s or %s: whom the rules are for", ignore.ArgoCD, ignore.Flux)
	case len(f.policies) == 0:
		return f.usagef("no policies; give them with -p")
	}
	rules := ignore.Rules{For: f.controller}
	if _, err := rules.Text(f.app, f.fixes); err != nil {
		return f.usagef("--app: %w", err)
	}
	collect := f.fromGenerated
	if len(f.files)+len(f.kustomize) > 0 {
		collect = f.fromGiven
	}
	if err := collect(ctx, s, &rules); err != nil {
		return err
	}
	if rules.Len() == 0 {
		return f.usagef("the policies change nothing in these objects, so there is nothing to ignore")
	}
	text, err := rules.Text(f.app, f.fixes)
	if err != nil {
		return f.usagef("%w", err)
	}
	for _, w := range rules.Warnings() {
		fmt.Fprintf(s.err, "warning: %s\n", report.Line(w))
	}
	if _, err := s.out.Write(text); err != nil {
		return &codedError{exitUsage, err}
	}
	return nil
}

// fromGiven collects what the policies change in the objects of -f.
func (f *exportIgnoreFlags) fromGiven(ctx context.Context, s streams, rules *ignore.Rules) error {
	if err := f.check(); err != nil {
		return err
	}
	e, err := newEvaluation(ctx, s, &f.evalFlags, false)
	if err != nil {
		return err
	}
	defer e.notes.done()
	defer e.close()
	e.sink = func(r *mapd.Result) { add(rules, true, r) }
	if err := e.all(ctx); err != nil {
		return err
	}
	return e.outcome()
}

// fromGenerated collects what the policies change in generated objects.
func (f *exportIgnoreFlags) fromGenerated(ctx context.Context, s streams, rules *ignore.Rules) error {
	texts, _, err := readFiles(f.policies, f.recursive, s.in)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	env, err := cel.NewEnv(cel.Options{Version: f.kubernetes, Observe: true})
	if err != nil {
		return usagef("--kubernetes: %w", err)
	}
	outside, err := f.external.open()
	if err != nil {
		return err
	}
	policies, err := mapd.Load(mapd.Options{
		Namespace: f.namespace, Unbound: f.unbound,
		ToolOptions: mapd.ToolOptions{Env: env, Resolver: outside.resolver},
	}, texts...)
	var refused *mapd.LoadError
	switch {
	case errors.As(err, &refused):
		printErrors(s.err, refused.Errs)
		if refused.Unreadable {
			return &codedError{code: exitUsage}
		}
		return &codedError{code: exitPolicy}
	case err != nil:
		return f.usagef("%w", err)
	}
	if policies.Len() == 0 {
		return f.usagef("no policies in %s", strings.Join(f.policies, ", "))
	}
	var namespaces []string
	for _, t := range texts {
		for d, err := range mapd.Read(t.Name, bytes.NewReader(t.Data)) {
			if err == nil && d.Object() != nil && d.Object().GetKind() == "Namespace" && d.Object().GetAPIVersion() == "v1" && len(namespaces) < maxNamespaces {
				namespaces = append(namespaces, d.Object().GetName())
			}
		}
	}
	requests.Try(ctx, policies, namespaces, func(_ *mapd.Request, r *mapd.Result) { add(rules, false, r) })
	return nil
}

// maxNamespaces bounds the namespaces in which objects are generated.
const maxNamespaces = 3

// add adds what a result changed to rules, unless it is about a subresource.
func add(rules *ignore.Rules, exact bool, r *mapd.Result) {
	if req := r.Request.Admission; r.Changed() && req.SubResource == "" && r.Request.Object() != nil {
		rules.Add(req.Kind, exact, r.Request.Object(), r.Object(), r.Diff())
	}
}
