//go:build !server

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/policy"
)

// renderFlags are the flags of commands that generate manifests for a cluster without access to
// it.
type renderFlags struct {
	evalFlags
	assume bool
}

func (f *renderFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	f.addPolicies(cmd)
	recursiveVar(fl, &f.recursive)
	f.addUser(cmd)
	f.addReading(cmd)
	f.external.add(fl)
	f.external.watch = true
	fl.DurationVar(&f.maxAge, "max-age", 0, "refuse a file of mapd snapshot that is older, such as 720h (default any age)")
	fl.BoolVar(&f.assume, "assume", false, "go on without what only a cluster has and was not given, as mapd eval does")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no messages but errors and denials")
	f.output = "yaml"
}

// renderHelp is the part of their help about the contents of a cluster.
const renderHelp = `
Pass what the policies need of a cluster with -p: parameters, Namespaces with their labels,
CustomResourceDefinitions, RBAC objects; and answers of external data with --external. mapd
snapshot writes a file with most of it. If something is missing, mapd names it and changes
nothing; with --assume it goes on, as mapd eval does. -n is the namespace of objects that
name none.

A warning says if the policies would change their own result again: then a cluster
stores something else than was rendered.`

// rendering is an evaluation that fails if a result depends on an object that was not given.
type rendering struct {
	*evaluation
	ctx     context.Context
	warn    func(r *mapd.Result, field, text string)
	missing map[string]bool
	params  bool     // a policy has parameters
	nowhere []string // objects that name no namespace
}

// newRendering returns a rendering, whose warnings about results go to warn.
func newRendering(ctx context.Context, e *evaluation, warn func(r *mapd.Result, field, text string)) *rendering {
	params := slices.ContainsFunc(e.policies.Policies(), func(p *policy.Policy) bool { return p.Object().Spec.ParamKind != nil })
	return &rendering{evaluation: e, ctx: ctx, warn: warn, missing: map[string]bool{}, params: params}
}

func (d *rendering) lacks(format string, args ...any) { d.missing[fmt.Sprintf(format, args...)] = true }

// look records what the result of an object depends on, and whether evaluating the result again
// would change it.
func (d *rendering) look(r *mapd.Result) {
	req := r.Request.Admission
	res, known := d.policies.Types().ResourceFor(req.Kind)
	object := r.Request.Object()
	if meta, _ := object["metadata"].(map[string]any); object != nil && d.flags.only == "" && (res.Namespaced || !known) && meta["namespace"] == nil {
		d.nowhere = append(d.nowhere, r.Request.Document().Name())
	}
	if !known && r.Changed() {
		d.lacks("the CustomResourceDefinition of %s, Kind=%s, which policies change: -p FILE", req.Kind.GroupVersion(), req.Kind.Kind)
	}
	if d.params {
		for reason := range r.WhyNot(d.ctx) {
			if reason.Field == "spec.paramRef" {
				d.lacks("a parameter: %s: -p FILE", reason)
			}
		}
	}
	if r.Changed() {
		d.again(r)
	}
}

// again warns of fields that the policies change in their own result.
func (d *rendering) again(r *mapd.Result) {
	ctx, cancel := context.WithTimeout(d.ctx, d.flags.timeout)
	defer cancel()
	part, err := r.Request.Document().Part("", r.Object())
	if err != nil {
		return // such as an object without a kind, which a server rejects
	}
	req, err := d.request(part)
	if err != nil {
		d.warn(r, "", "the policies cannot run on their own result: "+err.Error())
		return
	}
	switch next := d.policies.Admit(ctx, req); {
	case next.Denied():
		d.warn(r, "", "the policies deny their own result: "+next.Refusal())
	default:
		for _, c := range next.Diff() {
			d.warn(r, c.Path, "the policies change their own result again, so a cluster stores something else than this")
		}
	}
}

// lacking returns descriptions of missing objects, sorted.
func (d *rendering) lacking() []string {
	if len(d.nowhere) > 0 {
		d.lacks("the namespace of %s: -n NAMESPACE", words.Some(d.nowhere, 10))
	}
	for _, n := range d.policies.Assumed() {
		switch n.Kind {
		case mapd.NoNamespace:
			for _, name := range n.About {
				d.lacks("the labels of Namespace %s: -p FILE", name)
			}
		case mapd.NoRBAC:
			d.lacks("RBAC objects for a policy that asks its authorizer: -p FILE")
		}
	}
	for _, n := range d.policies.Notes() {
		if n.Kind == mapd.UnknownParams {
			d.lacks("the CustomResourceDefinition of a paramKind: %s: -p FILE", strings.Join(n.About, "; "))
		}
	}
	if u := d.outside.unanswered; u != nil {
		for text := range u.texts {
			d.lacks("an answer of external data: %s: --external FILE", text)
		}
	}
	return slices.Sorted(maps.Keys(d.missing))
}

// verdict prints which objects are missing, unless assume is set, and returns the error with
// the exit code for all objects together. Having no objects is no error.
func (d *rendering) verdict(assume bool, tell func(text string)) error {
	var missing []string
	if !assume {
		missing = d.lacking()
	}
	for _, text := range missing {
		d.notes.fail("missing: %s\n", report.Line(text))
		tell("missing: " + text)
	}
	if d.objects > 0 || d.failed || d.unreadable {
		if err := d.evaluation.outcome(); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return d.flags.usagef("%s missing of what only a cluster has, so nothing is changed; --assume goes on without", counted(len(missing), "thing is", "things are"))
	}
	return nil
}
