//go:build !server

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/workloads/rewrite"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
)

// rewritten is the number of workloads for comparing each rewritten policy with the original.
const rewritten = 500

// rewriting is one run of mapd expand --rewrite.
type rewriting struct {
	streams
	env    *cel.Env
	flags  *evalFlags
	common []*manifest.Document // everything but policies and bindings
	failed bool
}

// runRewrite prints the rewritten policies of a file.
func runRewrite(ctx context.Context, s streams, f *evalFlags, file, outputFile string) error {
	if len(f.files) > 0 {
		return f.usagef("--rewrite is about policies, and -f about objects")
	}
	env, err := environment(f.kubernetes)
	if err != nil {
		return err
	}
	r := rewriting{streams: s, env: env, flags: f}
	docs, err := r.read([]string{file}, s.in)
	if err != nil {
		return err
	}
	more, err := r.read(f.policies, s.in)
	if err != nil {
		return err
	}
	var policies, bindings []*manifest.Document
	for i, d := range slices.Concat(docs, more) {
		gvk := d.Object.GroupVersionKind()
		switch {
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.PolicyKind:
			if i < len(docs) {
				policies = append(policies, d)
			}
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.BindingKind:
			bindings = append(bindings, d)
		default:
			r.common = append(r.common, d)
		}
	}
	if len(policies) == 0 {
		return f.usagef("no MutatingAdmissionPolicy in %s", file)
	}
	var objects []*unstructured.Unstructured
	for _, p := range policies {
		own := slices.DeleteFunc(slices.Clone(bindings), func(b *manifest.Document) bool {
			name, _, _ := unstructured.NestedString(b.Object.Object, "spec", "policyName")
			return name != p.Object.GetName()
		})
		out, err := r.policy(ctx, p, own)
		if err != nil {
			return err
		}
		objects = append(objects, out...)
	}
	if len(objects) > 0 {
		fmt.Fprintln(r.err, "note: Pods, ReplicaSets and ReplicationControllers that no workload owns are not covered; keep the policies for Pods for them")
		text := migrate.Encode("", objects)
		if outputFile == "" {
			_, err = s.out.Write(text)
		} else {
			err = os.WriteFile(outputFile, text, 0o644)
		}
		if err != nil {
			return &codedError{exitUsage, err}
		}
	}
	if r.failed {
		return &codedError{exitPolicy, errors.New("expand: not every policy can be rewritten")}
	}
	return nil
}

// read reads documents with an object.
func (r *rewriting) read(paths []string, stdin io.Reader) ([]*manifest.Document, error) {
	files, _, err := manifest.Files(paths, r.flags.recursive)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	docs, errs := manifest.ReadAll(manifest.Inputs(once(files), stdin), func(*manifest.Document) {})
	if len(errs) > 0 {
		printErrors(r.err, errs)
		return nil, &codedError{code: exitUsage}
	}
	return slices.DeleteFunc(docs, func(d *manifest.Document) bool { return d.Object == nil }), nil
}

// build compiles policies. Mutators do not run.
func (r *rewriting) build(docs []*manifest.Document, unbound bool) (*policyset.Snapshot, []error) {
	return policyset.Build(slices.Concat(docs, r.common), policyset.Options{
		Env: r.env, Unbound: unbound, Namespace: r.flags.namespace, Mutators: api.Off, Kyverno: api.Off,
	})
}

// fail prints errors, for which there is no result.
func (r *rewriting) fail(errs ...error) ([]*unstructured.Unstructured, error) {
	r.failed = true
	printErrors(r.err, errs)
	return nil, nil
}

// policy returns the rewritten policy and bindings, or nothing after reporting why there is
// none. An error ends the run.
func (r *rewriting) policy(ctx context.Context, p *manifest.Document, bindings []*manifest.Document) ([]*unstructured.Unstructured, error) {
	var written []*unstructured.Unstructured
	for _, b := range bindings {
		written = append(written, b.Object)
	}
	selected, names, err := r.namespaces(p, written)
	if err != nil {
		return nil, err
	}
	before, errs := r.build(slices.Concat([]*manifest.Document{p}, bindings, selected), len(bindings) == 0)
	if len(errs) > 0 {
		return r.fail(errs...)
	}
	out, notes, err := rewrite.Policy(p.Object)
	if err != nil {
		errs = p.Errors(api.FaultsOf(err))
	}
	for _, b := range bindings {
		own, err := rewrite.Binding(b.Object)
		if err != nil {
			errs = append(errs, b.Errors(api.FaultsOf(err))...)
		}
		out = append(out, own...)
	}
	if len(errs) > 0 {
		return r.fail(errs...)
	}
	// Compare exactly what is printed.
	docs, err := reread(out...)
	if err != nil {
		return nil, err
	}
	after, errs := r.build(slices.Concat(docs, selected), len(bindings) == 0)
	if len(errs) > 0 {
		return r.fail(p.Errorf("%s: cannot be rewritten: the result does not compile: %w", p.Name(), errs[0]))
	}
	c, err := rewrite.Verify(ctx, p.Object, before, after, names, verify.DefaultSeed, rewritten)
	if err != nil {
		return r.fail(p.Errorf("%s: %w", p.Name(), err))
	}
	if c.First != nil {
		_, err := r.fail(p.Errorf("%s: cannot be rewritten: %s", p.Name(), why(c.First)))
		fmt.Fprint(r.err, report.Printable(show(c.First)))
		return nil, err
	}
	for _, n := range notes {
		fmt.Fprintf(r.err, "note: %s\n", report.Line(n))
	}
	fmt.Fprintf(r.err, "%s: the same Pods of %d generated workloads: %d changed, %d refused, nothing changes twice\n",
		report.Line(p.Name()), c.Workloads, c.Changed, c.Refused)
	if kind, ok := paramKind(p.Object); ok {
		given := slices.ContainsFunc(r.common, func(d *manifest.Document) bool { return d.Object.GroupVersionKind() == kind })
		switch {
		case !given:
			fmt.Fprintf(r.err, "note: %s: no %s was given, so what it does with parameters was not compared; pass some with -p\n", report.Line(p.Name()), report.Line(kind.Kind))
		case len(bindings) == 0:
			fmt.Fprintf(r.err, "note: %s: no binding was given, so what it does with parameters was not compared; pass one with -p\n", report.Line(p.Name()))
		}
	}
	if c.Changed == 0 {
		fmt.Fprintf(r.err, "note: %s: none of the generated Pods was changed, so the comparison says little; pass parameters and Namespaces with -p\n", report.Line(p.Name()))
	}
	return out, nil
}

// paramKind returns the kind of a policy's parameters, false if it has none.
func paramKind(p *unstructured.Unstructured) (schema.GroupVersionKind, bool) {
	kind, _, _ := unstructured.NestedStringMap(p.Object, "spec", "paramKind")
	return schema.FromAPIVersionAndKind(kind["apiVersion"], kind["kind"]), len(kind) > 0
}

// namespaces returns the names of the Namespaces in which to compare, and a document with a
// Namespace that the policy and its bindings select, if that was not given.
func (r *rewriting) namespaces(p *manifest.Document, bindings []*unstructured.Unstructured) (selected []*manifest.Document, names []string, err error) {
	ns := rewrite.Namespace(p.Object, bindings...)
	names = []string{ns.GetName()}
	for _, d := range r.common {
		if gvk := d.Object.GroupVersionKind(); gvk.Group == "" && gvk.Kind == "Namespace" {
			names = append(names, d.Object.GetName())
		}
	}
	if slices.Contains(names[1:], ns.GetName()) {
		return nil, names[1:], nil
	}
	selected, err = reread(ns)
	return selected, append(names, cmp.Or(r.flags.namespace, policyset.DefaultNamespace)), err
}

// reread returns objects as documents, as if they had been given.
func reread(objects ...*unstructured.Unstructured) ([]*manifest.Document, error) {
	text := bytes.NewReader(migrate.Encode("", objects))
	docs, errs := manifest.ReadAll(manifest.Inputs([]string{manifest.Stdin}, text), func(*manifest.Document) {})
	return docs, errors.Join(errs...)
}

// why returns one line about a difference.
func why(d *rewrite.Difference) string {
	name := "a generated " + d.Workload.GetKind()
	switch {
	case d.Again && d.RefusedAfter != "":
		return fmt.Sprintf("an update of what it made of %s is refused: %s", name, d.RefusedAfter)
	case d.Again:
		return fmt.Sprintf("it changes what it made of %s again when that is updated, which Pods are not; guard it with a match condition", name)
	case d.Refused != "" && d.RefusedAfter == "":
		return fmt.Sprintf("the Pod of %s is refused (%s), and the workload is not", name, d.Refused)
	case d.RefusedAfter != "":
		return fmt.Sprintf("%s is refused (%s), and its Pod is not", name, d.RefusedAfter)
	}
	return fmt.Sprintf("the Pod of %s would be another one, perhaps because of what a server fills into Pods and not into templates", name)
}

// show prints a workload and how the results for it differ.
func show(d *rewrite.Difference) string {
	var b strings.Builder
	if d.Before != nil && d.After != nil {
		title := "Pod by the policy for Pods → by that for workloads"
		if d.Again {
			title = "workload after the first change → after an update"
		}
		var keys report.Keys
		if d.Kind != nil {
			keys = report.SchemaKeys(d.Kind)
		}
		_ = report.WriteDiff(&b, title, report.Diff(d.Before.Object, d.After.Object, keys), report.Colour(false)) // a Builder takes everything
	}
	fmt.Fprintf(&b, "The workload:\n%s", manifest.Encode(d.Workload.Object))
	return b.String()
}
