package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/workloads/expansion"

	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/internal/gatekeeper/mutators"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/policy"
)

// source serves the policies of its files, as of the last time when all were valid. A request
// finishes with the snapshot with which it began.
type source struct {
	flags   *serveFlags
	options policyset.Options
	log     *slog.Logger
	metrics *metrics.Metrics
	// providers is the client for the Providers of the files.
	providers *externaldata.Client

	files *manifest.Steady
	// inUse is the content of the files that is served, and tried the content that was last
	// read. enforced is how many policies of inUse have an effect. Only one load at a time uses
	// them.
	inUse, tried *manifest.Reading
	enforced     int

	engine   atomic.Pointer[engine.Engine]
	expander atomic.Pointer[expansion.Expander] // nil without --expansion
	failed   atomic.Pointer[error]              // of the last load; nil: none
}

// Admit implements webhook.Admitter.
func (s *source) Admit(ctx context.Context, req *policy.Request) *engine.Decision {
	return s.engine.Load().Admit(ctx, req)
}

// lastError returns why the present files are not served.
func (s *source) lastError() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// load reads the files once they are no longer being written, and publishes them if they are
// valid. If again is set, it does so even if their contents did not change. It must not be
// called concurrently.
func (s *source) load(ctx context.Context, again bool) (errs []error, code int) {
	reading, err := s.files.Read(ctx, s.inUse)
	switch {
	case ctx.Err() != nil:
		return nil, exitOK
	case err != nil && reading == nil:
		s.tried = nil
		return s.fail(exitUsage, err)
	case s.tried != nil && !again && reading.Same(s.tried):
		return nil, exitOK
	}
	s.tried = reading
	if err != nil {
		return s.fail(exitUsage, err)
	}
	if s.inUse != nil {
		if errs := reading.Torn(s.inUse); len(errs) > 0 {
			return s.fail(exitUsage, errs...)
		}
	}
	return s.publish(reading)
}

// fail records why the present files are not served.
func (s *source) fail(code int, errs ...error) ([]error, int) {
	err := errorList(errs)
	s.failed.Store(&err)
	s.metrics.SnapshotFailed(len(errs))
	return errs, code
}

// publish makes the policies of the files those that are served.
func (s *source) publish(reading *manifest.Reading) (errs []error, code int) {
	defer loadFrugally()()
	var judges validating.Documents
	options := s.options
	var providers []*legacy.Provider
	options.Provider = func(u *unstructured.Unstructured) error {
		p, err := externaldata.DecodeProvider(u)
		if err == nil {
			providers = append(providers, p)
		}
		return err
	}
	if s.flags.expansion {
		options.Also = func(docs []*manifest.Document) (errs []error) {
			judges, errs = validating.Read(context.Background(), docs)
			return errs
		}
	}
	inputs, skipped := reading.Inputs()
	l, errs, unread := policyset.Load(inputs, options)
	switch {
	case unread:
		return s.fail(exitUsage, errs...)
	case len(errs) > 0:
		return s.fail(exitPolicy, errs...)
	}
	enforced := s.effective(l)
	if s.enforced > 0 && enforced == 0 && !reading.Removed(s.inUse) {
		return s.fail(exitPolicy, fmt.Errorf("no policy would have an effect any more, of %s before, though no file was removed; to have none, remove a file or start mapd again", counted(s.enforced, "policy", "policies")))
	}
	e := l.Engine()
	if s.flags.expansion {
		x, err := newExpander(l, e, judges)
		if err != nil { // only if two objects have the same name, which Read has rejected
			return s.fail(exitPolicy, err)
		}
		x.Limits = expansion.ReviewLimits
		for _, circle := range x.Templates.Circles() {
			s.log.Warn("expansion templates do nothing", "error", expand.CycleError(circle))
		}
		s.expander.Store(x)
		s.log.Info("expansion loaded", "templates", len(l.Templates()), "validatingPolicies", len(judges.Policies), "validatingBindings", len(judges.Bindings))
	}
	s.providers.Set(providers, 0)
	if len(providers) > 0 {
		s.log.Info("providers of external data loaded", "providers", len(providers))
	}
	s.engine.Store(e)
	s.failed.Store(nil)
	before := s.enforced
	s.inUse, s.enforced = reading, enforced
	bindings := l.Index.Bindings()
	s.metrics.SnapshotPublished(len(l.Policies), len(bindings), 0, true)
	s.log.Info("policies loaded", "documents", l.Documents, "policies", len(l.Policies), "bindings", len(bindings))
	if text := ignoredText(l.Ignored, skipped, s.flags.expansion); text != "" {
		s.log.Info("documents and files that policies have no use for", "ignored", text)
	}
	s.loadedMutators(l)
	if len(l.Modules()) > 0 {
		s.log.Info("Kubewarden's policies loaded", "policies", len(l.Modules()))
	}
	switch none := "there are no policies, so nothing is changed"; {
	case enforced == 0 && before > 0:
		s.log.Warn("no policy has an effect any more, so nothing is changed", "before", before)
	case len(l.Policies)+len(l.Mutators())+len(l.Modules()) == 0:
		s.log.Warn(none)
	}
	for _, text := range l.Tripped {
		s.log.Warn("policy is not enforced", "reason", text)
	}
	for _, p := range l.Policies {
		if p.Rollout().Breaker != nil {
			s.log.Warn("breakers work in a cluster only: the breaker of this policy never trips", "policy", p.Name())
		}
		for _, w := range policy.Warnings(p, l.Types) {
			s.log.Warn("policy will fail", "policy", p.Name(), "field", w.Field, "line", w.Line, "column", w.Column, "warning", w.Message)
		}
	}
	if len(l.Unbound) > 0 && !s.flags.unbound {
		s.log.Info("policies without a binding have no effect", "policies", strings.Join(l.Unbound, ","))
	}
	if len(l.Dangling) > 0 {
		s.log.Info("bindings without their policy have no effect", "bindings", strings.Join(l.Dangling, ","))
	}
	return nil, exitOK
}

// newExpander returns an Expander with the loaded templates.
func newExpander(l *policyset.Loaded, e *engine.Engine, judges validating.Documents) (*expansion.Expander, error) {
	set, err := validating.NewSet(judges.Policies, judges.Bindings, validating.Sources{
		Sources: l.Sources(), Types: l.Types, Convert: policyset.Convert(l.Types), Authorizer: l.Authorizer(),
	})
	if err != nil {
		return nil, err
	}
	return &expansion.Expander{
		Templates: expand.New(l.Templates()), Types: l.Types, Admit: e.Admit, Validators: []expansion.Validator{expansion.Server(set)},
		Lenient: len(l.Policies) == 0,
	}, nil
}

// loadedMutators logs which mutators run.
func (s *source) loadedMutators(l *policyset.Loaded) {
	states := map[string]int{}
	for _, m := range l.Mutators() {
		states[m.Kind()]++
		if !m.Running {
			s.log.Info("mutator does not run", "mutator", m.Mutator.ID(), "reason", m.Reason)
		}
		for _, n := range m.Notes {
			s.log.Info("mutator may do something else than expected", "mutator", m.Mutator.ID(), "field", n.Field, "note", n.Message)
		}
	}
	s.metrics.MutatorsPublished(states, l.Shapes())
	if len(l.Mutators()) > 0 {
		s.log.Info("mutators loaded", "mutators", len(l.Mutators()), "running", states[mutators.Running], "shapes", l.Shapes(),
			"shadow", s.options.Mutators == api.Shadow)
	}
}

// effective returns how many policies, mutators and modules run.
func (s *source) effective(l *policyset.Loaded) int {
	n := len(l.Policies) + len(l.Modules())
	if !s.flags.unbound {
		n -= len(l.Unbound)
	}
	for _, m := range l.Mutators() {
		if m.Running {
			n++
		}
	}
	return n
}

// reload calls load after a change of the files. It logs each error as one record.
func (s *source) reload(ctx context.Context, again bool) {
	errs, _ := s.load(ctx, again)
	for _, err := range errs {
		attrs := []any{"error", err}
		var pe *manifest.PositionError
		if errors.As(err, &pe) {
			attrs = []any{"file", pe.File, "document", pe.Document, "line", pe.Line, "column", pe.Column, "error", pe.Err}
		}
		if expression := expressionOf(err); expression != "" {
			attrs = append(attrs, "expression", expression)
		}
		s.log.Error("policies not loaded, the ones before stay", attrs...)
	}
}
