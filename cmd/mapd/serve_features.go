package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/exceptions"
	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/internal/cluster/modulepolicies"
	"github.com/mapd-project/mapd/internal/cluster/providers"
	"github.com/mapd-project/mapd/internal/cluster/workloads"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/api"
)

// features returns the features that the flags enable, in the order in which they handle a
// request. outside is the client for providers of external data, and may be nil. expander
// returns nil while workloads are not expanded.
func (f *serveFlags) features(ctx context.Context, c *connection, metrics *metrics.Metrics, outside *externaldata.Client, log *slog.Logger) (list []feature.Feature, expander func() *expansion.Expander, err error) {
	expander = func() *expansion.Expander { return nil }
	if f.legacy != legacyOff {
		native, err := f.native(ctx, c)
		if err != nil {
			return nil, nil, &codedError{exitUnreachable, err}
		}
		list = append(list, gatekeeper.New(gatekeeper.Options{Mode: f.mutators(), Metrics: metrics, Native: native}))
	}
	if mode := f.moduleMode(api.Off); mode != api.Off {
		loader, err := f.modules.loader(log, limitToContainer)
		if err != nil {
			return nil, nil, usagef("serve: %w", err)
		}
		list = append(list, modulepolicies.New(modulepolicies.Options{Mode: mode, Loader: loader}))
	}
	excepting := exceptions.Options{Rules: api.ExceptionRules{Own: c.namespace, Endless: f.endless}, Metrics: metrics, Own: c.user}
	for _, of := range list {
		if named, ok := of.(feature.Named); ok {
			excepting.Others = append(excepting.Others, named)
		}
	}
	list = append(list, exceptions.New(excepting)) // after the features whose policies' names it asks for
	if outside != nil {
		list = append(list, providers.New(outside.Set))
	}
	if f.expansion {
		w := workloads.New()
		list, expander = append(list, w), w.Expander
	}
	return list, expander, nil
}

// native returns the options for replacing mutators by native policies, or for undoing what an
// earlier --legacy=native did, if mapd still has the permissions. The policies exclude the
// namespaces that mapd excludes.
func (f *serveFlags) native(ctx context.Context, c *connection) (*gatekeeper.NativeOptions, error) {
	switch f.legacy {
	case legacyOn:
		may, err := mayDeleteNative(ctx, c.kube)
		if err != nil || !may {
			return nil, err
		}
		return &gatekeeper.NativeOptions{Back: true, Namespace: c.namespace}, nil
	case legacyNative:
		exempt := append([]string{c.namespace}, f.exempt...)
		slices.Sort(exempt)
		return &gatekeeper.NativeOptions{Exempt: slices.Compact(exempt), Namespace: c.namespace}, nil
	}
	return nil, nil
}

// mayDeleteNative reports whether mapd may delete native policies.
func mayDeleteNative(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "delete", Group: api.NativeGroup, Resource: api.OwnPolicies.Resource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("whether policies of an earlier --legacy=native can be deleted: %w", err)
	}
	return review.Status.Allowed, nil
}
