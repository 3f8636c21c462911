//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// liveCluster reads from a cluster and never writes to it.
type liveCluster struct{ *audit.Cluster }

// newLiveCluster discovers what a cluster serves.
func newLiveCluster(ctx context.Context, config *rest.Config) (*liveCluster, error) {
	c, err := audit.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	return &liveCluster{c}, nil
}

// readMutators reads the mutators and the Config. Every version of a mutator
// has the same content (Gatekeeper spec §1.1), so any served one will do.
func (c *liveCluster) readMutators(ctx context.Context, in *migrate.Input) error {
	add := func(u *unstructured.Unstructured) error { return in.Add(u, nil) }
	for _, kind := range legacy.Kinds() {
		r, ok := c.Serves(legacy.Group, string(kind), "v1", "v1beta1", "v1alpha1")
		if !ok {
			continue
		}
		if err := c.Each(ctx, r, add); err != nil {
			return err
		}
	}
	if r, ok := c.Serves(legacy.ConfigGroup, "Config", "v1alpha1"); ok {
		return c.Each(ctx, r, add)
	}
	return nil
}

// readExceptions reads the exceptions from mutators. A user who may list mutators need not have
// the permission for this.
func (c *liveCluster) readExceptions(ctx context.Context, in *migrate.Input, exceptions *migrate.Exceptions) error {
	r, ok := c.Serves(api.ExceptionGroup, api.ExceptionKind, api.ExceptionVersion)
	if !ok {
		return nil
	}
	exceptions.Installation = c.Installation(ctx)
	err := c.Each(ctx, r, func(u *unstructured.Unstructured) error {
		exceptions.Add(u, nil)
		return nil
	})
	if apierrors.IsForbidden(err) {
		in.Notes = append(in.Notes, fmt.Sprintf("PolicyExceptions were not read, and one that names a mutator is not from its policy: %v", err))
		return nil
	}
	return err
}

// definitions reads the CustomResourceDefinitions, for the kinds of the cluster.
func (c *liveCluster) definitions(ctx context.Context) (sources []openapi.Source, err error) {
	r, ok := c.Serves(api.DefinitionGroup, api.DefinitionKind, "v1")
	if !ok {
		return nil, nil
	}
	err = c.Each(ctx, r, func(u *unstructured.Unstructured) error {
		source, err := openapi.Served(u, func(error) {}) // without a schema the kind counts as unknown
		if err == nil {
			sources = append(sources, source)
		} else {
			c.Notes = append(c.Notes, fmt.Sprintf("CustomResourceDefinition %s: %v", u.GetName(), err))
		}
		return nil
	})
	return sources, err
}

// readKinds reads the CustomResourceDefinitions and the Namespaces.
func (c *liveCluster) readKinds(ctx context.Context, in *migrate.Input) error {
	var err error
	if in.Sources, err = c.definitions(ctx); err != nil {
		return err
	}
	namespaces, ok := c.Serves("", "Namespace", "v1")
	if !ok {
		return errors.New("the cluster serves no Namespaces")
	}
	return c.Each(ctx, namespaces, func(u *unstructured.Unstructured) error {
		in.Namespaces[u.GetName()] = u.Object
		return nil
	})
}

// eachObject calls check with the cluster's objects of the kinds that mutators apply to. It
// returns notes about kinds that it left out or has no permission to read.
func (c *liveCluster) eachObject(ctx context.Context, in *migrate.Input, check func(verify.Object)) (n int, notes []string, err error) {
	for _, r := range c.about(in.Mutators) {
		err := c.Each(ctx, r, func(u *unstructured.Unstructured) error {
			check(in.Object(u, u.GetNamespace(), "live "+manifest.Name(u)))
			n++
			return ctx.Err()
		})
		switch {
		case err == nil:
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			c.Notes = append(c.Notes, "not compared: "+err.Error())
		default:
			return n, nil, err
		}
	}
	return n, c.Notes, nil
}

// about returns the resources whose kinds mutators apply to. Mutators that name
// kinds also name their versions; for the others, every kind is read in one
// version, except Events, of which there are too many.
func (c *liveCluster) about(ms []*legacy.Mutator) []audit.Resource {
	var out []audit.Resource
	events := false
	for _, r := range c.Resources {
		if strings.HasSuffix(r.GVK.Group, ".gatekeeper.sh") {
			continue
		}
		wanted := slices.ContainsFunc(ms, func(m *legacy.Mutator) bool {
			if len(m.ApplyTo) == 0 && (!r.Preferred || r.GVK.Kind == "Event") {
				events = events || r.GVK.Kind == "Event"
				return false
			}
			return m.AppliesTo(r.GVK, "CREATE") || m.AppliesTo(r.GVK, "UPDATE")
		})
		if wanted {
			out = append(out, r)
		}
	}
	if events {
		c.Notes = append(c.Notes, "Events were not compared")
	}
	return out
}

// clusterError returns an error of reading a cluster with its exit code: exitUnreachable,
// unless the cluster was read and its content is invalid.
func clusterError(err error) error {
	code := exitUnreachable
	var invalid *legacy.Error
	if errors.As(err, &invalid) {
		code = exitUsage
	}
	return &codedError{code, fmt.Errorf("migrate gatekeeper: %w", err)}
}
