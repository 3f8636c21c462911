//go:build !server

package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const expandLong = `Print the objects that workloads create, after policies have run on them.

mapd knows the Pods of Deployments, ReplicaSets, StatefulSets, DaemonSets,
ReplicationControllers and Jobs, and the Jobs of CronJobs. Gatekeeper's
ExpansionTemplates (-p) say what other kinds create; for the kinds of their applyTo
they replace what mapd knows.

First the policies and mutators run on the workload, then on each object that it
creates, and that object is expanded in turn. Mutators with match.source Generated
run on created objects only, those with Original on the objects of -f only.

Then ValidatingAdmissionPolicies (-p) and the levels of Pod Security of the Namespace
(-p) judge each created object. What they say goes to standard error, as deny, warn or
dryrun; an ExpansionTemplate's enforcementAction takes the place of their own. An
object that is denied is not printed.

Only created objects are printed, sorted by name, version and kind as one text,
descending, as gator expand sorts them. They are not what a cluster will have: a controller
generates names, adds labels and sends its own user, and other webhooks run.

With --rewrite, it prints the policies that do to Deployments, StatefulSets,
DaemonSets, Jobs and CronJobs what the policies of a file do to Pods. Both are
compared on generated workloads. A policy that cannot be rewritten is not printed:
standard error says why, and where.

Exit codes are those of mapd eval; 3 if a policy cannot be rewritten.`

func newExpand(s streams) *cobra.Command {
	f := evalFlags{command: "expand", expand: true}
	var outputFile, policies string
	cmd := &cobra.Command{
		Use:   "expand [-p PATH...] -f PATH...",
		Short: "Print the objects that workloads create, after policies have run on them",
		Long:  expandLong,
		Example: `  mapd expand -p policies/ -f deployment.yaml
  mapd expand -f cronjob.yaml -o json --output-file created.json
  mapd expand --rewrite policy.yaml | kubectl apply -f -`,
		Args: noArguments("-p and -f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if policies != "" {
				return runRewrite(ctx, s, &f, policies, outputFile)
			}
			return runExpand(ctx, s, &f, outputFile)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.addFiles(cmd)
	choiceVarP(fl, &f.output, "output", "o", "yaml", "", "yaml", "json")
	fl.StringVar(&policies, "rewrite", "", "print policies for workloads that do what the policies for Pods in this file do, instead of objects")
	fl.StringVar(&outputFile, "output-file", "", "write to this file instead of standard output")
	f.addUser(cmd)
	f.addReading(cmd)
	f.external.add(fl)
	return cmd
}

func runExpand(ctx context.Context, s streams, f *evalFlags, outputFile string) error {
	if err := f.check(); err != nil {
		return err
	}
	e, err := newEvaluation(ctx, s, f, false)
	if err != nil {
		return err
	}
	defer e.notes.done()
	defer e.close()
	var created []*mapd.Result
	for d, err := range readDocuments(e.inputs) {
		if err == nil && d.Object() == nil {
			continue
		}
		req := e.take(d, err)
		if req == nil {
			continue
		}
		created = append(created, e.creates(ctx, req)...)
	}
	slices.SortStableFunc(created, func(a, b *mapd.Result) int { return cmp.Compare(gatorKey(b), gatorKey(a)) })
	var text bytes.Buffer
	if outputFile != "" {
		e.out.w = &text
	}
	for _, r := range created {
		if err := e.show(r); err != nil {
			return err
		}
	}
	if outputFile != "" {
		if err := os.WriteFile(outputFile, text.Bytes(), 0o644); err != nil {
			return &codedError{exitUsage, err}
		}
	}
	e.noteAssumed()
	return e.outcome()
}

// creates returns the results for the objects that a workload creates.
func (e *evaluation) creates(ctx context.Context, req *mapd.Request) []*mapd.Result {
	ctx, cancel := context.WithTimeout(ctx, e.flags.timeout)
	defer cancel()
	r := e.policies.Admit(ctx, req)
	if e.late(ctx, r) {
		return nil
	}
	e.tell(r)
	return e.expand(ctx, r)
}

// gatorKey returns the key by which gator sorts objects.
func gatorKey(r *mapd.Result) string {
	u := unstructured.Unstructured{Object: r.Object()}
	return u.GetName() + u.GetAPIVersion() + u.GetKind()
}

// makeExpander returns an Expander for workloads, nil without --expand. texts are the files
// with policies.
func (e *evaluation) makeExpander(s streams, texts []mapd.File) (*expansion.Expander, error) {
	f, policies := e.flags, e.policies
	if !f.expand {
		return nil, nil
	}
	set, err := e.readValidation(s, texts)
	if err != nil {
		return nil, err
	}
	return &expansion.Expander{
		Templates: expand.New(policies.Templates()), Types: policies.Types(), Admit: policies.Engine().Admit,
		Validators: []expansion.Validator{expansion.Server(set)},
		Raw:        f.raw, Lenient: len(policies.Policies())+policies.Kyverno()+len(policies.Kubewarden()) == 0,
	}, nil
}

// readValidation returns the validation of a server with the ValidatingAdmissionPolicies
// among texts.
func (e *evaluation) readValidation(s streams, texts []mapd.File) (*validating.Set, error) {
	var inputs []manifest.Input
	for _, f := range texts {
		if bytes.Contains(f.Data, []byte(validating.PolicyKind)) { // the bindings' kind begins with it
			inputs = append(inputs, manifest.Input{Name: f.Name, Open: func() (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(f.Data)), nil
			}})
		}
	}
	docs, errs := manifest.ReadAll(inputs, func(*manifest.Document) {})
	if len(errs) > 0 {
		printErrors(s.err, errs)
		return nil, &codedError{code: exitUsage}
	}
	read, errs := validating.Read(context.Background(), docs)
	if len(errs) > 0 {
		printErrors(s.err, errs)
		return nil, &codedError{code: exitPolicy}
	}
	if unbound, dangling := read.Idle(); e.flags.unbound {
		if len(unbound) > 0 {
			e.notes.say("note: %s\n", report.Line(noteText(mapd.Note{Kind: mapd.BoundToAll, About: unbound})))
		}
		read.BindAll(unbound)
	} else {
		if len(unbound) > 0 {
			e.notes.say("note: %s\n", report.Line(noteText(mapd.Note{Kind: mapd.Unbound, About: unbound})))
		}
		if len(dangling) > 0 {
			e.notes.say("note: no such policy, so no effect: binding %s\n", report.Line(strings.Join(dangling, ", ")))
		}
	}
	return validating.NewSet(read.Policies, read.Bindings, validating.Sources{
		Sources: e.policies.Sources(), Types: e.policies.Types(), Convert: policyset.Convert(e.policies.Types()), Authorizer: e.policies.Authorizer(),
	})
}

// noteCycles prints which templates have no effect because they form a cycle.
func (e *evaluation) noteCycles() {
	if e.expander == nil {
		return
	}
	for _, circle := range e.expander.Templates.Circles() {
		e.notes.say("warning: ExpansionTemplates do nothing: %s\n", report.Line(expand.CycleError(circle).Error()))
	}
}

// expand returns the results for the objects that an admitted workload creates, and prints
// them.
func (e *evaluation) expand(ctx context.Context, r *mapd.Result) []*mapd.Result {
	workload := r.Object()
	if e.expander == nil || r.Denied() || workload == nil {
		return nil
	}
	d, req := r.Request.Document(), r.Request
	objects, err := e.expander.Evaluate(ctx, req.Admission, &unstructured.Unstructured{Object: workload})
	if err != nil {
		e.fallBack(r)
		e.failInput(d.Errorf("%s: unable to expand object: %w", req.Name(), err))
		return nil
	}
	var results []*mapd.Result
	for _, o := range objects {
		from := "Generated from " + req.Name()
		if o.Depth > 1 {
			from = "Generated from " + manifest.Name(o.Parent)
		}
		if !o.Template.BuiltIn {
			from += " by " + o.Template.Name
		}
		if o.Err != nil {
			e.generated.all++
			e.generated.failed++
			e.failInput(d.Errorf("%s (%s): %w", manifest.Name(o.Made), from, o.Err))
			continue
		}
		created := e.policies.Result(req.Generated(o.Made, o.Request, from, o.Kind), o.Decision)
		if e.late(ctx, created) {
			continue
		}
		e.tell(created)
		e.whyNot(ctx, created)
		for _, v := range o.Violations {
			e.notes.say("%s: %s: %s\n", report.Line(created.Request.Name()), o.Outcome(v), report.Line(v.String()))
		}
		if o.Denied() {
			e.denied = true
			if !created.Denied() { // by validation, after the policies
				if created.Changed() {
					e.generated.changed--
				}
				e.generated.denied++
			}
			continue
		}
		results = append(results, created)
	}
	if len(objects) > 0 {
		e.notes.once("note: %s\n", strings.Join(unfaithful, "; "))
	}
	return results
}

// unfaithful lists where expanded objects differ from those of a cluster.
var unfaithful = []string{
	"generated objects are approximations: their names are made up (a controller sends generateName, so policies see no name)",
	"the user is the workload's and not the controller's",
	"labels and fields that controllers add are missing",
	"other webhooks and admission plugins did not run",
}
