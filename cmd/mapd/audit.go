//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/reports"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/memory"
)

// auditFlags are the flags of audit as they were given.
type auditFlags struct {
	exceptions          bool
	cluster             clusterFlags
	policies, base      []string
	recursive, unbound  bool
	native, legacy      bool
	kyverno, kubewarden bool
	operation           string
	namespace, selector string
	everywhere          bool
	kinds, exempt       []string
	userFlags
	output                 string
	diffs                  int
	state                  string
	qps                    float32
	timeout                time.Duration
	kubernetes             string
	exitCode, quiet, whole bool
	modules                moduleFlags
	fix                    fixFlags
}

// fromCluster is the value of --base that means the policies of the cluster.
const fromCluster = "@cluster"

const auditLong = `Show what policies would change in the objects of a cluster.

Lists the objects of every kind that a policy can match, page by page, and runs the
policies on each as if somebody updated it without a change, or with --operation create as if it
were created now. Nothing is written to the cluster.

The policies are those of mapd's group in the cluster; with --native, --legacy, --kyverno
and --kubewarden also those that the API server runs itself, Gatekeeper's mutators,
Kyverno's mutate rules and Kubewarden's policies. With -p they are those of files
instead, which need not be in the cluster; parameters, Namespaces and
CustomResourceDefinitions that the files lack are read from the cluster. With --base,
which takes files or "` + fromCluster + `", only what
the policies make different from those of --base is shown.

A policy whose mode is shadow or warn is run as if it were enforced, and its mode is
shown. Bindings that take a share of all objects do so here, too, unless --whole is
given.

Memory does not grow with the number of objects: totals are counted, the first results
are kept for the report (--diffs), and -o json prints each result when it is known. With
--state, an audit that was interrupted continues where it stopped. Objects are read with at
most --qps requests a second.

Output formats:
  table     differences, and totals by kind, policy and field (default)
  json      one line for each object that changes or fails, and a last one with totals
  markdown  the same as table, for a comment or an issue
  html      the same, as one page that loads nothing else
  sarif     for code scanning
  openreports, policyreport
            Reports and ClusterReports of openreports.io, or PolicyReports and
            ClusterPolicyReports of wgpolicyk8s.io, as mapd serve --reports writes them

With --fix, results that --select chooses are written by server-side apply as the field
manager ` + audit.Manager + `, one object at a time: each is read again, evaluated, checked by the
API server (--dry-run=server stops there), noted in --undo-file, and written if it has
not changed since. A field that another manager has set otherwise is a conflict, which is
reported and not forced. --undo FILE puts back what was.

Before the first write, --fix and --undo say how many objects they write, how long that takes
at --qps, and how many workloads replace how many Pods: a Deployment, a DaemonSet and a
StatefulSet do if their template changes. These are left out without --replace-pods. With
it, mapd waits for the rollout of one workload before it writes the next one.

Exit codes:
  0  done
  1  with --exit-code: an object would change or be denied, or a policy fails
  2  wrong usage, or input that cannot be read
  3  a policy of -p does not compile or validate` + unreachableExit + `
  5  something could not be read or an object not be written, the others were done` + interruptedExit

func newAudit(s streams) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit [-p PATH...]",
		Short: "Show what policies would change in the objects of a cluster",
		Long:  auditLong,
		Example: `  mapd audit
  mapd audit -p policies/ -n shop --kinds deployments,pods
  mapd audit -p new/ --base @cluster -o markdown
  mapd audit --fix --select policy=team,namespace=shop`,
		Args: noArguments("-p"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return runAudit(ctx, s, &f)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.cluster.add(fl)
	fl.StringArrayVarP(&f.policies, "policies", "p", nil, "policies, bindings, params, Namespaces and CRDs, instead of the cluster's policies: file, directory or - ; repeatable")
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.unbound, "unbound", false, "with -p: run policies that have no binding as if bound to everything")
	fl.StringArrayVar(&f.base, "base", nil, "other policies, or "+fromCluster+": show only what the policies make different from these; repeatable")
	fl.BoolVar(&f.native, "native", false, "cluster: also run the policies of admissionregistration.k8s.io, before the others")
	fl.BoolVar(&f.legacy, "legacy", false, "cluster: also run Gatekeeper's mutators")
	fl.BoolVar(&f.kyverno, "kyverno", false, "cluster: also run the mutate rules of Kyverno's policies, as the policies that they become")
	fl.BoolVar(&f.kubewarden, "kubewarden", false, "cluster: also run Kubewarden's policies")
	choiceVar(fl, &f.operation, "operation", "update", ": evaluate objects as an update without a change, or as a creation", "update", "create")
	fl.BoolVar(&f.exceptions, "exceptions", false, "show for which objects exceptions hold, and what changes when each ends, instead; -o table or json")
	fl.BoolVar(&f.whole, "whole", false, "bindings that take a share (mapd.dev/percent) apply to all objects")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "only objects of this namespace")
	fl.BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects of all namespaces, which is the default")
	fl.StringVarP(&f.selector, "selector", "l", "", "only objects with these labels, as kubectl takes them")
	fl.StringSliceVar(&f.kinds, "kinds", nil, "only these kinds or resources, such as Pod or deployments.apps")
	fl.StringSliceVar(&f.exempt, "exempt-namespace", append(api.ExemptNamespaces(), defaultNamespace), "namespaces that mapd does not reach: only policies of --native apply there; replaces the default")
	f.addUser(cmd)
	choiceVarP(fl, &f.output, "output", "o", "table", "", auditFormats()...)
	fl.IntVar(&f.diffs, "diffs", 100, "how many results a report shows, unless it is -o json, which has all")
	fl.StringVar(&f.state, "state", "", "file that keeps how far the audit is; if the file exists, the audit continues from there")
	fl.Float32Var(&f.qps, "qps", 10, "requests to the API server a second")
	fl.DurationVar(&f.timeout, "object-timeout", 5*time.Second, "how long the policies may take for one object")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor version of Kubernetes whose CEL libraries are used, from 1.32 on (default the cluster's)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress on a terminal")
	fl.BoolVar(&f.exitCode, "exit-code", false, "exit with 1 if an object would change or be denied, or a policy fails")
	f.fix.add(fl)
	f.modules.add(cmd)
	return cmd
}

func (f *auditFlags) check() error {
	if err := f.fix.check(f); err != nil {
		return err
	}
	switch as := f.cluster.overrides.AuthInfo.Impersonate; {
	case as == "update" || as == "create":
		return usagef("audit: --as is the user to impersonate, as with kubectl; the operation is --operation %s now", as)
	case f.everywhere && f.namespace != "":
		return usagef("audit: either -n, or -A")
	case f.diffs < 0:
		return usagef("audit: --diffs %d: must not be negative", f.diffs)
	case f.qps <= 0:
		return usagef("audit: --qps %g: must be positive", f.qps)
	case f.timeout <= 0:
		return usagef("audit: --object-timeout %s: must be positive", f.timeout)
	case len(f.policies) > 0 && (f.native || f.legacy || f.kyverno || f.kubewarden) && !f.baseIsCluster():
		return usagef("audit: --native, --legacy, --kyverno and --kubewarden are for the policies of the cluster; all policies of -p run")
	case f.exceptions && (len(f.base) > 0 || f.fix.on || f.fix.undo != "" || f.state != "" || f.output != "table" && f.output != "json"):
		return usagef("audit: --exceptions does not go with --base, --fix, --undo, --state, and other formats than table and json")
	case f.unbound && len(f.policies) == 0:
		return usagef("audit: --unbound is for policies of -p")
	case len(f.base) > 1 && f.baseIsCluster():
		return usagef("audit: --base is either %s or files", fromCluster)
	case f.baseIsCluster() && len(f.policies) == 0:
		return usagef("audit: --base %s needs other policies to compare: -p", fromCluster)
	}
	if api := reports.Named(f.output); api != nil {
		switch {
		case len(f.base) > 0:
			return usagef("audit: -o %s says what policies make of objects; --base is for the other formats", f.output)
		case f.state != "":
			return usagef("audit: -o %s needs all results, and --state has only some", f.output)
		}
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return usagef("audit: -l %s: %w", f.selector, err)
	}
	return nil
}

func (f *auditFlags) baseIsCluster() bool { return len(f.base) > 0 && f.base[0] == fromCluster }

// auditFormats are the formats of an audit.
func auditFormats() []string { return append(slices.Clone(audit.Formats), reports.Names()...) }

// auditCluster is what an audit needs to reach a cluster.
type auditCluster struct {
	*audit.Cluster
	kube    kubernetes.Interface
	loading audit.Loading
}

// connect returns an auditCluster after reading which kinds the cluster serves.
func (f *auditFlags) connect(ctx context.Context, s streams) (*auditCluster, error) {
	config, err := f.cluster.config()
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	config.QPS, config.Burst = f.qps, int(max(1, f.qps))
	config.UserAgent += " audit"
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	info, err := discovery.ToDiscoveryInterfaceWithContext(kube.Discovery()).ServerVersionWithContext(asking)
	cancel()
	if err != nil {
		return nil, &codedError{exitUnreachable, fmt.Errorf("audit: %w", err)}
	}
	expressions := f.kubernetes
	if expressions == "" {
		if expressions, err = language(info); err != nil {
			return nil, &codedError{exitUsage, fmt.Errorf("audit: %w", err)}
		}
	}
	env, err := environment(expressions)
	if err != nil {
		return nil, err
	}
	loader, err := f.modules.loader(moduleLog(s.err), limitCommand)
	if err != nil {
		return nil, usagef("audit: %w", err)
	}
	return connectAudit(ctx, config, kube, audit.Loading{
		Env: env, Unbound: f.unbound, Native: f.native, Mutators: f.legacy, Kyverno: f.kyverno, Modules: f.kubewarden, Loader: loader, Whole: f.whole, Only: f.fix.policies(),
		Authorizer: store.NewAuthorizer(kube),
	})
}

func connectAudit(ctx context.Context, config *rest.Config, kube kubernetes.Interface, loading audit.Loading) (*auditCluster, error) {
	c, err := audit.Connect(ctx, config)
	if err != nil {
		return nil, &codedError{exitUnreachable, fmt.Errorf("audit: %w", err)}
	}
	return &auditCluster{c, kube, loading}, nil
}

// load reads the policies of files or, without files, those of the cluster.
func (f *auditFlags) load(ctx context.Context, s streams, c *auditCluster, files []string) (*audit.Set, error) {
	loading := c.loading
	if len(files) > 0 {
		var err error
		if files, err = paths(files); err != nil {
			return nil, usagef("audit: %w", err)
		}
		if files, _, err = manifest.Files(files, f.recursive); err != nil {
			return nil, &codedError{exitUsage, err}
		}
		loading.Files = manifest.Inputs(files, s.in)
	}
	set, err := c.Load(ctx, loading)
	var at *manifest.PositionError
	switch {
	case err == nil:
		return set, nil
	case errors.As(err, &at):
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			printErrors(s.err, all.Unwrap())
		} else {
			printErrors(s.err, []error{err})
		}
		return nil, &codedError{code: exitPolicy}
	}
	return nil, &codedError{exitUnreachable, fmt.Errorf("audit: %w", err)}
}

// asking returns how the audit makes requests for objects.
func (f *auditFlags) asking() audit.Asking {
	return audit.Asking{
		Operation: admissionv1.Operation(strings.ToUpper(f.operation)), User: mapd.Requester(authenticationv1.UserInfo{Username: f.user, Groups: f.groups}), Exceptions: f.exceptions, Exempt: f.exempt, Timeout: f.timeout,
		Memory: memory.New(auditMemory),
	}
}

// saveEvery is the least time between two writes of the state, which has all results that are
// kept for the report.
const saveEvery = 2 * time.Second

// auditMemory bounds the memory of all concurrent evaluations together.
const auditMemory = 128 << 20

func runAudit(ctx context.Context, s streams, f *auditFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.fix.on && !f.fix.yes && f.fix.dryRun != "server" && !isTerminal(s.in) {
		return usagef("audit: --fix asks before each write, and standard input is no terminal; --yes writes without asking")
	}
	var undo []*audit.Undo
	if f.fix.undo != "" && f.fix.undo != fromCluster {
		var err error
		if undo, err = f.fix.records(ctx, nil); err != nil {
			return err
		}
	}
	c, err := f.connect(ctx, s)
	if err != nil {
		return err
	}
	if f.fix.undo == fromCluster {
		if undo, err = f.fix.records(ctx, c); err != nil {
			return err
		}
	}
	if f.fix.undo != "" {
		return f.fix.restore(ctx, s, c.Cluster, undo, f.qps)
	}
	files := f.policies
	set, err := f.load(ctx, s, c, files)
	if err != nil {
		return err
	}
	notes := newNotes(s.err)
	if set.Policies == 0 {
		notes.warn("no policy is bound, so nothing changes\n")
	}
	o := audit.Options{
		Cluster: c.Cluster, Set: set, Asking: f.asking(), Namespace: f.namespace, Labels: f.selector, Kinds: f.kinds, Keep: f.diffs,
	}
	if err := o.Unknown(); err != nil {
		return usagef("audit: --kinds: %w", err)
	}
	if len(f.base) > 0 {
		base := f.base
		if f.baseIsCluster() {
			base = nil
		}
		if o.Base, err = f.load(ctx, s, c, base); err != nil {
			return err
		}
	}
	if f.fix.on {
		return f.fix.run(ctx, s, notes, o, f.qps)
	}
	var excepted exceptedTable
	if f.exceptions {
		o.Each = excepted.add
		excepted.most = f.diffs
	}
	var collector *reports.Collector
	if api := reports.Named(f.output); api != nil {
		collector = reports.NewCollector(api)
		o.Each = func(r *audit.Result) error {
			collector.Add(r)
			return nil
		}
	}
	if f.output == "json" {
		o.Each = func(r *audit.Result) error { return report.WriteJSON(s.out, r, "") }
	}
	if f.state != "" {
		if o.State, err = audit.ReadState(f.state); err != nil {
			return &codedError{exitUsage, err}
		}
		o.SaveEvery = saveEvery
		o.Save = func(state *audit.State) error { return audit.WriteState(f.state, state) }
	}
	if notes.terminal && !f.quiet {
		o.Progress = notes.audited
	}
	r, err := audit.Run(ctx, o)
	notes.done()
	switch {
	case errors.Is(err, audit.ErrStateOther):
		return usagef("audit: %s: %w; delete the file to begin again", f.state, err)
	case err != nil && ctx.Err() != nil && f.state != "":
		return &codedError{exitInterrupted, fmt.Errorf("audit: interrupted; the same command continues where it stopped, from %s", f.state)}
	case err != nil:
		return &codedError{exitUnreachable, fmt.Errorf("audit: %w", err)}
	}
	if f.exceptions && f.output == "table" {
		if err := excepted.write(s.out, &r.Totals); err != nil {
			return &codedError{exitPartial, err}
		}
		printProblems(s.err, r.Notes)
		if r.Incomplete() {
			return &codedError{code: exitPartial}
		}
		return nil
	}
	if collector != nil {
		for _, gap := range r.Gaps() {
			notes.warn("%s\n", gap)
		}
		err = collector.WriteYAML(s.out, r, time.Now())
	} else {
		err = r.Write(s.out, f.output, version(), report.Colour(coloured(s.out)))
	}
	if err != nil {
		return &codedError{exitPartial, err}
	}
	if f.state != "" {
		if err := os.Remove(f.state); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &codedError{exitPartial, err}
		}
	}
	switch {
	case r.Incomplete():
		return &codedError{code: exitPartial}
	case f.exitCode && r.Changed+r.Denied+r.Failed+r.Unread > 0:
		return &codedError{code: exitDenied}
	}
	return nil
}
