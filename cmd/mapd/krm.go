//go:build !server

package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/author/krm"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const krmLong = `Run policies as a KRM function of kustomize or kpt.

It reads a ResourceList on standard input and prints it, with changed items and with
results. Items that no policy changes come out byte by byte, changed ones with their
comments and the order of their keys. Policies do not see the annotations by which
kustomize and kpt find an item again, and those stay as they are. Items with the
annotation config.kubernetes.io/local-config, and files of kustomize and kpt, stay
as they are; policies and what they need among them are used.

functionConfig names files with policies, by paths below the working directory, or holds the
policies themselves:

  apiVersion: krm.mapd.dev/v1alpha1
  kind: Policies
  metadata: {name: policies}
  spec:
    paths: [policies/]      # files and directories; no link may lead out of the working directory
    policies: []            # objects
    namespace: shop         # of items that name none
    external: answers.yaml  # recorded answers of external data, also below
    kubernetes: "1.36"
    unbound: false
    assume: false

or it is a ConfigMap with the same in data: one path per line, policies as YAML. -p adds
policies. A flag has precedence over the field of the same name.

Results of severity info are the fields that changed, of severity warning what policies
warn of, of severity error what was denied or failed: then no item is changed.
` + renderHelp + `

Exit codes:
  0  done
  1  an item was denied
  2  wrong usage, input that cannot be read, or something is missing
  3  a policy does not compile or validate
  5  some items failed`

func newKRM(s streams) *cobra.Command {
	f := renderFlags{evalFlags: evalFlags{command: "krm"}}
	cmd := &cobra.Command{
		Use:   "krm [-p PATH...]",
		Short: "Run policies as a KRM function of kustomize or kpt",
		Long:  krmLong,
		Example: `  kustomize build --enable-alpha-plugins --enable-exec overlays/prod
  kpt fn eval manifests/ --exec "mapd krm -p policies/ -n shop"`,
		Args: noArguments("-p"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.krm(cmd.Context(), s)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *renderFlags) krm(ctx context.Context, s streams) error {
	if slices.Contains(f.policies, manifest.Stdin) {
		return f.usagef("-p -: standard input has the ResourceList")
	}
	const name = "<stdin>"
	hintKeyboard(s, manifest.Stdin)
	text, err := io.ReadAll(manifest.Bounded(s.in, manifest.MaxDocument))
	if err != nil {
		return f.usagef("%s: %w", name, err)
	}
	list, err := krm.Read(name, text)
	if err != nil {
		printErrors(s.err, []error{err})
		return &codedError{code: exitUsage}
	}
	f.inputs = []manifest.Input{{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}}
	fn := &function{flags: f, list: list}
	failed := fn.run(ctx, s)
	out, err := list.Write()
	if err != nil {
		return f.usagef("%s: %w", name, err)
	}
	if _, err := s.out.Write(out); err != nil {
		return &codedError{exitUsage, err}
	}
	return failed
}

// function is one run of mapd krm.
type function struct {
	flags *renderFlags
	list  *krm.List
	item  *mapd.Document // the item that is evaluated
}

// run evaluates the items. Its error is among the results, too.
func (fn *function) run(ctx context.Context, s streams) error {
	fail := func(err error, said string) error {
		fn.list.Say(krm.Result{Severity: krm.Error, Message: report.Printable(cmp.Or(strings.TrimSpace(said), err.Error()))})
		return err
	}
	if err := fn.configure(); err != nil {
		return fail(err, "")
	}
	// A policy that does not compile is said on standard error.
	var said bytes.Buffer
	e, err := newEvaluation(ctx, streams{s.in, io.Discard, io.MultiWriter(s.err, &said)}, &fn.flags.evalFlags, false)
	if err != nil {
		if coded, ok := err.(*codedError); ok && coded.err != nil {
			said.Reset()
		}
		return fail(err, said.String())
	}
	defer e.notes.done()
	defer e.close()
	d := newRendering(ctx, e, func(r *mapd.Result, field, text string) {
		fn.list.Say(krm.Result{Severity: krm.Warning, Message: text, Item: fn.item, Field: field})
	})
	e.sink = fn.take
	e.also = d.look
	e.failing = func(err error) {
		fn.list.Say(krm.Result{Severity: krm.Error, Message: report.Printable(err.Error()), Item: fn.item})
	}
	for item, err := range readDocuments(e.inputs) {
		bare := item
		switch fn.item = item; {
		case err != nil:
		case item.Object() == nil || krm.IsLocal(item):
			continue
		default:
			bare, err = krm.Bare(item)
		}
		if err := e.next(ctx, bare, err); err != nil {
			return fail(err, "")
		}
	}
	e.noteAssumed()
	e.summarize()
	return d.verdict(fn.flags.assume, func(text string) { fn.list.Say(krm.Result{Severity: krm.Error, Message: text}) })
}

// configure applies functionConfig.
func (fn *function) configure() error {
	f, c := fn.flags, fn.list.Config
	files, err := c.Files()
	if err != nil {
		return &codedError{exitUsage, err}
	}
	f.policies = append(f.policies, files...)
	f.documents = c.Policies
	f.namespace, f.kubernetes, f.external.answers = cmp.Or(f.namespace, c.Namespace), cmp.Or(f.kubernetes, c.Kubernetes), cmp.Or(f.external.answers, c.External)
	f.unbound, f.assume = f.unbound || c.Unbound, f.assume || c.Assume
	if len(f.policies)+len(f.documents) == 0 {
		return f.usagef("no policies; functionConfig has them, or -p")
	}
	return f.check()
}

// take converts the outcome of an item into results.
func (fn *function) take(r *mapd.Result) {
	if r.Denied() {
		fn.list.Say(krm.Result{Severity: krm.Error, Message: report.Printable(r.Refusal()), Item: fn.item})
		return
	}
	for _, w := range r.Warnings() {
		fn.list.Say(krm.Result{Severity: krm.Warning, Message: report.Printable(w), Item: fn.item})
	}
	if !r.Changed() {
		return
	}
	by := "by " + strings.Join(changedBy(r), ", ")
	kind := r.Request.Admission.Kind
	for _, c := range r.Diff() {
		hidden := report.Hide(kind.Group, kind.Kind, []report.Change{report.Change(c)})[0]
		what := "changed "
		switch {
		case c.Moved:
			what = "put in another order "
		case c.Before == nil:
			what = "added "
		case c.After == nil:
			what = "removed "
		}
		fn.list.Say(krm.Result{Severity: krm.Info, Message: what + by, Item: fn.item, Field: c.Path, Before: hidden.Before, After: hidden.After})
	}
	fn.list.Change(fn.item, r.Object())
}

// changedBy returns the policies that changed an object, in their order.
func changedBy(r *mapd.Result) (names []string) {
	for i := range r.Decision.Steps {
		if s := &r.Decision.Steps[i]; s.Outcome == engine.Changed && !slices.Contains(names, s.Policy) {
			names = append(names, s.Policy)
		}
	}
	return names
}
