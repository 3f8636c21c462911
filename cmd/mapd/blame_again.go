//go:build !server

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/blame"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/memory"
)

// present has the present policies of the cluster.
type present struct {
	cluster *audit.Cluster
	set     *audit.Set
	asking  audit.Asking
}

// newPresent reads the policies of mapd's group, and the objects that they need.
func newPresent(ctx context.Context, config *rest.Config) (*present, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	expressions, err := languageOf(ctx, config)
	if err != nil {
		return nil, err
	}
	env, err := environment(expressions)
	if err != nil {
		return nil, err
	}
	c, err := audit.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	set, err := c.Load(ctx, audit.Loading{Env: env, Enforced: true, Authorizer: store.NewAuthorizer(kube)})
	if err != nil {
		return nil, err
	}
	return &present{c, set, audit.Asking{
		Operation: admissionv1.Create, Timeout: 5 * time.Second, Memory: memory.New(auditMemory),
		Exempt: append(api.ExemptNamespaces(), installedNamespace(ctx, kube)),
		User:   mapd.Requester(authenticationv1.UserInfo{}),
	}}, nil
}

// again returns the fields without a manager to which the policies would write the value that
// they have. A field in which the object differs from the template of its owner, which may be
// nil, counts too. again also returns the exceptions that exclude the object from policies.
func (p *present) again(ctx context.Context, s, owner *subject) ([]blame.Line, error) {
	made := blame.AsManaged(s.object)
	at := slices.IndexFunc(p.cluster.Resources, func(r audit.Resource) bool { return r.GVK == s.object.GroupVersionKind() })
	if made == nil || at < 0 {
		return nil, nil
	}
	if owner != nil {
		made = blame.AsTemplate(made, s.object, owner.object)
	}
	d, err := p.set.Trace(ctx, &p.asking, &p.cluster.Resources[at], made)
	switch {
	case err != nil:
		return nil, err
	case d.Status != nil:
		return nil, fmt.Errorf("the present policies deny it: %s", d.Status.Message)
	}
	return append(blame.Again(s.String(), s.object, d), blame.Excepted(s.String(), d)...), nil
}
