package main

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/controllers"
	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/existing"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
)

// existingFlags say how objects are written for bindings with mapd.dev/existing: fix.
type existingFlags struct {
	rate         float64 // a minute
	windows      []string
	parsed       []existing.Window
	gitOps, pods bool
}

const (
	leastExistingRate = 0.01
	mostExistingRate  = 6000
	// existingPatience is how long a rollout may make no progress before no further one is
	// started.
	existingPatience = 10 * time.Minute
)

func (f *existingFlags) add(fl *pflag.FlagSet) {
	fl.Float64Var(&f.rate, "existing-rate", 10, "cluster: how many objects that exist are written in a minute at most, for bindings with "+api.ExistingAnnotation+": fix; they are found by the audits of --audit-interval")
	fl.StringArrayVar(&f.windows, "existing-window", nil, `cluster: write these only at such a time in UTC, such as "22:00-06:00" or "Mon-Fri 22:00-06:00"; repeatable`)
	fl.BoolVar(&f.gitOps, "existing-gitops", false, "cluster: also write those that Argo CD or Flux applies")
	fl.BoolVar(&f.pods, "existing-replace-pods", false, "cluster: also write those that have Pods replaced, such as the template of a Deployment, one workload after the other")
}

func (f *existingFlags) parse() error {
	f.parsed = nil
	for _, text := range f.windows {
		w, err := existing.ParseWindow(text)
		if err != nil {
			return usagef("serve: --existing-window %w", err)
		}
		f.parsed = append(f.parsed, w)
	}
	return nil
}

// existingFlagNames are the flags that need the audits.
var existingFlagNames = []string{"existing-rate", "existing-window", "existing-gitops", "existing-replace-pods"}

// noExisting returns what the statuses of bindings report about existing objects if there are
// no audits. That is no error: a chart may set the flags before the audits are switched on.
func (f *serveFlags) noExisting(log *slog.Logger) *controllers.Existing {
	var given []string
	for _, name := range existingFlagNames {
		if f.set(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 0 {
		log.Warn("flags have no effect without --audit-interval, whose audits find the objects that exist", "flags", given)
	}
	return controllers.AlwaysExisting(controllers.ExistingState{
		Reason: existing.NotAudited, Message: api.ExistingAnnotation + " is not acted on: mapd serve runs without --audit-interval",
	}, existing.Fight)
}

// keeper returns a function that writes existing objects after each audit, and what the
// statuses of bindings report about that.
func (f *existingFlags) keeper(c *connection, asking audit.Asking, reviews authorizer.Authorizer, policies *store.Store, m *metrics.Metrics, log *slog.Logger) (*existing.Keeper, *controllers.Existing) {
	config := rest.CopyConfig(c.config)
	config.UserAgent += " existing"
	statuses := controllers.NewExisting()
	return existing.New(existing.Options{
		Kubernetes: c.kube, Config: config, Namespace: c.namespace, Asking: asking,
		Rate: f.rate, Windows: f.parsed, GitOps: f.gitOps, ReplacePods: f.pods, Patience: existingPatience,
		Bindings: func() []existing.Binding { return existingBindings(policies.Snapshot()) },
		Set: func(keep func(string) bool) *audit.Set {
			if e := policies.Some(reviews, func(b *binding.Binding) bool { return keep(b.Name()) }); e != nil {
				return audit.Served(e, policies.Types())
			}
			return nil
		},
		Publish: func(all []existing.State) {
			if all == nil {
				statuses.Publish(nil)
				m.ExistingPublished(nil)
				return
			}
			states := make(map[types.UID]controllers.ExistingState, len(all))
			counts := make([]metrics.ExistingObjects, 0, len(all))
			for _, s := range all {
				states[s.UID] = controllers.ExistingState{InLine: s.Reason == existing.InLine, Reason: s.Reason, Message: s.Message, Wrong: s.Wrong()}
				counts = append(counts, metrics.ExistingObjects{Policy: s.Policy, Binding: s.Binding, Found: s.Found, Written: s.Written, Alone: s.Alone, Waiting: s.Waiting, Stopped: s.Wrong()})
			}
			statuses.Publish(states)
			m.ExistingPublished(counts)
		},
		Log: log,
	}), statuses
}

// existingBindings returns the bindings with the annotation.
func existingBindings(s *store.Snapshot) (out []existing.Binding) {
	if s == nil {
		return nil
	}
	var rollouts map[string]api.Rollout // of policies; made when it is needed
	for _, b := range s.Bindings {
		own, _ := api.RolloutFor(api.BindingKind, b.Object.GetAnnotations())
		if own.Existing == api.Ignored || b.Binding == nil {
			continue
		}
		if rollouts == nil {
			rollouts = make(map[string]api.Rollout, len(s.Policies))
			for _, p := range s.Policies {
				of, _ := api.RolloutFor(api.PolicyKind, p.Object.GetAnnotations())
				of.Tripped = p.Breaker.Trip != nil
				rollouts[p.Object.GetName()] = of
			}
		}
		of, found := rollouts[b.PolicyName]
		out = append(out, existing.Binding{
			Name: b.Object.GetName(), Policy: b.PolicyName, UID: b.Object.GetUID(), Existing: own.Existing,
			Enforced: found && of.With(own) == api.Enforce, Stopped: controllers.ExistingStopped(b, existing.Fight),
		})
	}
	return out
}
