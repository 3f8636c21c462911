package main

import (
	"context"
	"log/slog"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/controllers"
	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/reports"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/memory"
)

const (
	// leastAuditInterval is the least interval, so that audits take a small part of a server's
	// time.
	leastAuditInterval = 10 * time.Minute
	// servedAuditQPS bounds the requests for pages, and servedAuditReviews those of
	// expressions with authorizer, per second.
	servedAuditQPS     = 2
	servedAuditReviews = 20
	// servedAuditMemory bounds the memory of the evaluation of one object. Reviews have a
	// budget of their own.
	servedAuditMemory = 32 << 20
	// servedAuditTimeout bounds the evaluation of one object.
	servedAuditTimeout = 5 * time.Second
)

// repeater returns a function that audits every f.auditInterval while it runs, nil without the
// flag, and what the statuses of bindings report about existing objects.
func (f *serveFlags) repeater(c *connection, policies *store.Store, metrics *metrics.Metrics, log *slog.Logger) (func(context.Context, func(context.Context, map[string]string) error), *controllers.Existing, error) {
	if f.auditInterval == 0 {
		return nil, f.noExisting(log), nil
	}
	config := rest.CopyConfig(c.config)
	config.UserAgent += " audit"
	config.QPS, config.Burst = servedAuditReviews, servedAuditReviews
	reviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = servedAuditQPS, servedAuditQPS
	authorizer := store.NewAuthorizer(reviews)
	r := &audit.Repeater{
		Every: f.auditInterval, Config: config, Log: log,
		Set: func() *audit.Set {
			if e := policies.Whole(authorizer); e != nil {
				return audit.Served(e, policies.Types())
			}
			return nil
		},
		Asking: audit.Asking{
			Operation: admissionv1.Update, User: mapd.Requester(authenticationv1.UserInfo{}), Exempt: append([]string{c.namespace}, f.exempt...),
			Timeout: servedAuditTimeout, Memory: memory.New(servedAuditMemory),
		},
		Publish: func(done *audit.Finished) { metrics.AuditEnded(audited(done)) },
	}
	if api := reports.Named(f.reports); api != nil {
		r.Reports = func() audit.Reports { return reports.NewCollector(api) }
	}
	keeper, statuses := f.existing.keeper(c, r.Asking, authorizer, policies, metrics, log)
	r.Existing = keeper
	return r.Run, statuses, nil
}

// audited converts the totals of an audit to those of the metrics; nil for nil.
func audited(f *audit.Finished) *metrics.Audited {
	if f == nil {
		return nil
	}
	a := &metrics.Audited{Objects: f.Objects, Unread: f.Unread, UnreadableKinds: f.Unreadable(), Ended: f.Ended, Took: f.Took}
	for _, p := range f.Policies {
		mode := p.Mode
		if mode == "" {
			mode = api.Enforce.String()
		}
		a.Policies = append(a.Policies, metrics.AuditedPolicy{Policy: p.Policy, Binding: p.Binding, Mode: mode, Changed: p.Changed, Failed: p.Failed})
	}
	return a
}
