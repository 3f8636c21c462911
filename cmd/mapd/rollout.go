//go:build !server

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/list"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/replicas"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/tree"
)

// replicaFlags select the replicas that a command asks.
type replicaFlags struct {
	cluster clusterFlags
	urls    []string
	timeout time.Duration // set it before add if the default is not a minute
	finder  *replicaFinder
}

func (f *replicaFlags) add(fl *pflag.FlagSet) {
	fl.SortFlags = false
	f.cluster.add(fl)
	fl.StringArrayVar(&f.urls, "replica", nil, "URL of a replica, such as https://10.0.0.7:8443; repeatable (default those that mapd's webhook configuration leads to)")
	fl.DurationVar(&f.timeout, "timeout", cmp.Or(f.timeout, time.Minute), "how long it may take in all")
}

// find returns the replicas, and a client for the cluster.
func (f *replicaFlags) find(ctx context.Context, s streams) (*replicas.Set, dynamic.Interface, error) {
	config, err := f.cluster.config()
	if err != nil {
		return nil, nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	set, err := f.of(config, s).find(ctx)
	return set, client, err
}

// of returns a replicaFinder for a cluster, the same one for each call.
func (f *replicaFlags) of(config *rest.Config, s streams) *replicaFinder {
	if f.finder == nil {
		f.finder = &replicaFinder{Finder: replicas.Finder{Config: config, URLs: f.urls}, s: s}
	}
	return f.finder
}

// replicaFinder finds replicas. It prints once which hosts it asks that the user has not named.
type replicaFinder struct {
	replicas.Finder
	s    streams
	said sync.Once
}

func (f *replicaFinder) find(ctx context.Context) (*replicas.Set, error) {
	set, err := f.Find(ctx)
	if err != nil {
		return nil, err
	}
	if hosts := set.Outside(); len(hosts) > 0 && len(f.URLs) == 0 {
		f.said.Do(func() {
			fmt.Fprintf(f.s.err, "asking %s, the address at which API servers reach mapd\n", report.Line(strings.Join(hosts, ", ")))
		})
	}
	return set, nil
}

func (f *replicaFlags) check(command string) error {
	if f.timeout <= 0 {
		return usagef("%s: --timeout %s: must be positive", command, f.timeout)
	}
	return nil
}

// completePolicies completes the names of the cluster's policies.
func completePolicies(cluster *clusterFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := cluster.config()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, stop := interruptible(cmd.Context(), askTimeout)
		defer stop()
		found, err := listed(ctx, client, api.OwnPolicies)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return namesOf(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// The exit codes in the help of commands that ask all replicas.
const (
	topExits     = answeredExit + "no cluster is configured, or no replica has answered" + unansweredExit
	rolloutExits = answeredExit + "no cluster is configured, no such policy, or no replica has answered" + unansweredExit
	answeredExit = `
Exit codes:
  0  all replicas have answered
  2  wrong usage, `
	unansweredExit = unreachableExit + `
  5  some replicas have not answered; standard error names them` + interruptedExit
)

func newRollout(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show what policies do, or would do, in a cluster",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRolloutStatus(s), newRolloutDiff(s))
	return cmd
}

func newRolloutStatus(s streams) *cobra.Command {
	var f replicaFlags
	var output string
	cmd := &cobra.Command{
		Use:   "status [POLICY]",
		Short: "Count what became of requests, for each policy and binding",
		Long: `Count what became of requests, for each policy and binding: as all replicas have
counted since they began, with the last object that was changed or would have been.
A row counts requests in one mode. If a binding had other modes before, each has a row
of its own, marked as earlier.

  MODE      enforce, warn or shadow
  PERCENT   the share of all objects that the binding takes
  LEFT-OUT  requests that the binding matched and its share left out; the policy's
            conditions were not asked, and SEEN does not count them
  SEEN      requests that the policy and its conditions matched
  WOULD     those that it would have changed in the mode shadow or warn
  CHANGED   those that it changed
  FAILED    those on which it failed
` + rolloutExits,
		Example: `  mapd rollout status
  mapd rollout status team-labels -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("rollout status: name one policy, or none for all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check("rollout status"); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context(), f.timeout)
			defer stop()
			return rolloutStatus(ctx, s, &f, output, strings.Join(args, ""))
		},
		ValidArgsFunction: completePolicies(&f.cluster),
	}
	f.add(cmd.Flags())
	choiceVarP(cmd.Flags(), &output, "output", "o", "table", "", "table", "json", "yaml")
	return cmd
}

func newRolloutDiff(s streams) *cobra.Command {
	var f replicaFlags
	var output string
	cmd := &cobra.Command{
		Use:   "diff POLICY",
		Short: "Print samples of what a policy in the mode shadow or warn would have changed",
		Long: `Print samples of what a policy in the mode shadow or warn would have changed, newest
first. Each replica keeps the last 8 of each binding in memory, and at most one per
second. Values of Secrets are masked, and long values left out.
` + rolloutExits,
		Example: "  mapd rollout diff team-labels",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("rollout diff: want the name of one policy")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check("rollout diff"); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context(), f.timeout)
			defer stop()
			return rolloutDiff(ctx, s, &f, output, args[0])
		},
		ValidArgsFunction: completePolicies(&f.cluster),
	}
	f.add(cmd.Flags())
	choiceVarP(cmd.Flags(), &output, "output", "o", "text", "", "text", "json", "yaml")
	return cmd
}

// rolloutStatusOutput is what rollout status prints as JSON and YAML.
type rolloutStatusOutput struct {
	Bindings []rolloutBinding `json:"bindings"`
	Replicas []replicaOutput  `json:"replicas"`
}

// rolloutBinding is a binding with its mode and the counts in that mode.
type rolloutBinding struct {
	history.Pair
	Mode    string `json:"mode"`
	Percent string `json:"percent"`
	history.Counts
	Last *history.Example `json:"last,omitempty"`
	// Earlier has the counts of the modes that the binding had before.
	Earlier []rolloutEarlier `json:"earlier,omitempty"`
}

type rolloutEarlier struct {
	Mode string `json:"mode"`
	history.Counts
	Last *history.Example `json:"last,omitempty"`
}

// replicaOutput is a replica with the start of its counts, or why it has not answered.
type replicaOutput struct {
	Name  string     `json:"name"`
	Since *time.Time `json:"since,omitempty"`
	Error string     `json:"error,omitempty"`
}

func rolloutStatus(ctx context.Context, s streams, f *replicaFlags, output, policyName string) error {
	set, client, err := f.find(ctx, s)
	if err != nil {
		return err
	}
	bindings, err := bindingsOf(ctx, client, policyName)
	if err != nil {
		return err
	}
	answers, err := replicas.Ask[history.CountsAnswer](ctx, set, history.CountsName, nil)
	if err != nil {
		return err
	}
	out := rolloutStatusOutput{
		Bindings: withCounts(bindings, answers, policyName),
		Replicas: replicasOf(answers, func(a *history.CountsAnswer) history.Header { return a.Header }),
	}
	if output != "table" {
		err = writeOutput(s.out, output, out)
	} else {
		err = out.table(s.out)
	}
	return cmp.Or(err, unanswered(s, out.Replicas))
}

// withCounts returns bindings with the counts of replicas, and entries for what has no binding,
// such as a mutator of Gatekeeper. It returns those of one policy, or of all if policyName is
// empty.
func withCounts(bindings []rolloutBinding, answers []replicas.Answer[history.CountsAnswer], policyName string) []rolloutBinding {
	total := sumModes(answers)
	out := []rolloutBinding{}
	for _, b := range bindings {
		for _, c := range total[b.Pair] {
			if c.Mode == b.Mode {
				b.Counts, b.Last = c.Counts, c.Last
			} else {
				b.Earlier = append(b.Earlier, rolloutEarlier{c.Mode, c.Counts, c.Last})
			}
		}
		delete(total, b.Pair)
		out = append(out, b)
	}
	for p, counts := range total {
		for _, c := range counts {
			if policyName == "" || p.Policy == policyName {
				out = append(out, rolloutBinding{Pair: p, Mode: c.Mode, Counts: c.Counts, Last: c.Last})
			}
		}
	}
	slices.SortFunc(out, func(a, b rolloutBinding) int { return cmp.Or(a.Compare(b.Pair), cmp.Compare(a.Mode, b.Mode)) })
	return out
}

// excepted reports whether exceptions have excluded requests.
func (b rolloutBinding) excepted() bool {
	return b.Counts.Excepted > 0 || slices.ContainsFunc(b.Earlier, func(e rolloutEarlier) bool { return e.Counts.Excepted > 0 })
}

func (o *rolloutStatusOutput) table(w io.Writer) error {
	excepted := slices.ContainsFunc(o.Bindings, rolloutBinding.excepted)
	heads := []string{"POLICY", "BINDING", "MODE", "PERCENT", "LEFT-OUT", "SEEN", "WOULD", "CHANGED", "FAILED", "LAST"}
	const at = 5 // of the column EXCEPTED, which is left out if there are no exceptions
	if excepted {
		heads = slices.Insert(heads, at, "EXCEPTED")
	}
	t := page.Table{Heads: heads}
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, b := range o.Bindings {
		row := func(mode, percent string, c history.Counts, last *history.Example) {
			cells := []string{
				b.Policy, dash(b.Binding), mode, dash(percent),
				count(c.LeftOut), count(c.Seen), count(c.Would), count(c.Changed), count(c.Failed), exampleText(last),
			}
			if excepted {
				cells = slices.Insert(cells, at, count(c.Excepted))
			}
			t.Row(cells...)
		}
		row(dash(b.Mode), b.Percent, b.Counts, b.Last)
		for _, e := range b.Earlier {
			row(dash(e.Mode)+" (earlier)", "", e.Counts, e.Last)
		}
	}
	return t.WriteText(w)
}

func dash(s string) string { return cmp.Or(s, "-") }

// exampleText returns a text such as "Pod shop/web: metadata.labels.team and 2 more".
func exampleText(e *history.Example) string {
	if e == nil {
		return "-"
	}
	text := e.Kind + " " + objectName(e.Namespace, e.Name)
	if len(e.Fields) > 0 {
		text += ": " + tree.Field(e.Fields[0])
	}
	if more := len(e.Fields) - 1 + e.More; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return report.Line(text)
}

func objectName(namespace, name string) string {
	if namespace != "" {
		return namespace + "/" + name
	}
	return name
}

// sum adds the counts of replicas, in all modes. The last example is the newest.
func sum(answers []replicas.Answer[history.CountsAnswer]) map[history.Pair]*history.Counted {
	total := map[history.Pair]*history.Counted{}
	for i := range answers {
		for _, c := range answers[i].Value.Counts {
			t := total[c.Pair]
			if t == nil {
				t = &history.Counted{Pair: c.Pair}
				total[c.Pair] = t
			}
			t.Add(&c)
		}
	}
	return total
}

// sumModes adds the counts of replicas, separately for each mode, sorted.
func sumModes(answers []replicas.Answer[history.CountsAnswer]) map[history.Pair][]*history.Counted {
	total := map[history.Pair][]*history.Counted{}
	for i := range answers {
		for _, c := range answers[i].Value.Counts {
			modes := total[c.Pair]
			at := slices.IndexFunc(modes, func(t *history.Counted) bool { return t.Mode == c.Mode })
			if at < 0 {
				at = len(modes)
				modes = append(modes, &history.Counted{Pair: c.Pair, Mode: c.Mode})
				total[c.Pair] = modes
			}
			modes[at].Add(&c)
		}
	}
	for _, modes := range total {
		slices.SortFunc(modes, func(a, b *history.Counted) int { return cmp.Compare(a.Mode, b.Mode) })
	}
	return total
}

// bindingsOf reads the bindings of a policy, or all if its name is empty, with the mode
// that each has.
func bindingsOf(ctx context.Context, client dynamic.Interface, policyName string) ([]rolloutBinding, error) {
	policies, err := listed(ctx, client, api.OwnPolicies)
	if err != nil {
		return nil, err
	}
	known := map[string]*unstructured.Unstructured{}
	for i := range policies {
		known[policies[i].GetName()] = policies[i]
	}
	if policyName != "" && known[policyName] == nil {
		names := namesOf(policies)
		if near := lookup.Nearest(policyName, names); near != "" {
			return nil, usagef("there is no policy %q; did you mean %s?", policyName, near)
		}
		return nil, usagef("there is no policy %q", policyName)
	}
	bindings, err := listed(ctx, client, api.OwnBindings)
	if err != nil {
		return nil, err
	}
	var out []rolloutBinding
	for i := range bindings {
		name, _, _ := unstructured.NestedString(bindings[i].Object, "spec", "policyName")
		p := known[name]
		if p == nil || policyName != "" && name != policyName {
			continue
		}
		of, _ := api.RolloutFor(api.PolicyKind, p.GetAnnotations())
		of.Tripped = breaker.Current(p) != nil
		own, _ := api.RolloutFor(api.BindingKind, bindings[i].GetAnnotations())
		out = append(out, rolloutBinding{Pair: history.Pair{Policy: name, Binding: bindings[i].GetName()}, Mode: of.With(own).String(), Percent: own.Share.String()})
	}
	return out, nil
}

// listed returns all objects of a resource.
func listed(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource) ([]*unstructured.Unstructured, error) {
	out, err := list.All[*unstructured.Unstructured](ctx, client.Resource(resource).List, metav1.ListOptions{Limit: 500})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resource.Resource, err)
	}
	return out, nil
}

func namesOf(objects []*unstructured.Unstructured) []string {
	names := make([]string, len(objects))
	for i := range objects {
		names[i] = objects[i].GetName()
	}
	return names
}

// replicasOf returns the replicas that have answered, and why others have not.
func replicasOf[T any](answers []replicas.Answer[T], header func(*T) history.Header) []replicaOutput {
	out := []replicaOutput{}
	for i := range answers {
		a := &answers[i]
		r := replicaOutput{Name: a.Replica}
		if a.Err != nil {
			r.Error = a.Err.Error()
		} else if since := header(&a.Value).Since; !since.IsZero() {
			r.Since = &since
		}
		out = append(out, r)
	}
	return out
}

// unanswered prints the replicas that have not answered, and returns an error with the exit
// code for that.
func unanswered(s streams, all []replicaOutput) error {
	var code error
	for _, r := range all {
		if r.Error != "" {
			fmt.Fprintln(s.err, "mapd:", report.Printable(fmt.Sprintf("replica %s has not answered, and what it knows is missing: %s", r.Name, r.Error)))
			code = &codedError{code: exitPartial}
		}
	}
	return code
}

// rolloutDiffOutput is what rollout diff prints as JSON and YAML.
type rolloutDiffOutput struct {
	Samples  []rolloutSample `json:"samples"`
	Replicas []replicaOutput `json:"replicas"`
}

type rolloutSample struct {
	history.Sample
	Replica string `json:"replica"`
}

func rolloutDiff(ctx context.Context, s streams, f *replicaFlags, output, policyName string) error {
	set, client, err := f.find(ctx, s)
	if err != nil {
		return err
	}
	if _, err := bindingsOf(ctx, client, policyName); err != nil {
		return err
	}
	answers, err := replicas.Ask[history.SamplesAnswer](ctx, set, history.SamplesName, url.Values{"policy": {policyName}})
	if err != nil {
		return err
	}
	out := rolloutDiffOutput{Samples: []rolloutSample{}, Replicas: replicasOf(answers, func(a *history.SamplesAnswer) history.Header { return a.Header })}
	for i := range answers {
		for _, sample := range answers[i].Value.Samples {
			if sample != nil {
				out.Samples = append(out.Samples, rolloutSample{*sample, answers[i].Replica})
			}
		}
	}
	slices.SortStableFunc(out.Samples, func(a, b rolloutSample) int { return b.Time.Compare(a.Time) })
	if output != "text" {
		err = writeOutput(s.out, output, out)
	} else {
		err = out.text(s.out)
		if err == nil && len(out.Samples) == 0 {
			fmt.Fprintf(s.err, "mapd: no replica has a sample of %s: since they began, it has changed nothing in the mode shadow or warn\n", report.Printable(policyName))
		}
	}
	return cmp.Or(err, unanswered(s, out.Replicas))
}

func (o *rolloutDiffOutput) text(w io.Writer) error {
	for i := range o.Samples {
		sample := &o.Samples[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		var all []history.Change
		if err := json.Unmarshal(sample.Changes, &all); err != nil {
			return fmt.Errorf("replica %s: a sample that is none: %w", sample.Replica, err)
		}
		changes := make([]report.Change, len(all))
		for k, c := range all {
			changes[k] = report.Change(c)
		}
		title := fmt.Sprintf("%s %s: %s of %s, binding %s, mode %s, replica %s", sample.Kind, objectName(sample.Namespace, sample.Name), sample.Operation,
			sample.Time.Format(time.RFC3339), sample.Binding, sample.Mode, sample.Replica)
		if err := report.WriteDiff(w, title, changes, report.Colour(coloured(w))); err != nil {
			return err
		}
		if sample.More > 0 {
			fmt.Fprintf(w, "and %d more\n", sample.More)
		}
	}
	return nil
}

// writeOutput writes v as JSON or YAML.
func writeOutput(w io.Writer, format string, v any) error {
	text, err := marshal(v, "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		var tree any
		if err := kjson.Unmarshal(text, &tree); err != nil { // with integers
			return err
		}
		text = manifest.Encode(tree)
	}
	_, err = w.Write(text)
	return err
}
