package install

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// Objects are the objects of manifests/install.yaml, in its order. An image that
// is not empty replaces the Deployment's.
func Objects(image string) ([]*unstructured.Unstructured, error) { return nil, nil }

// YAML is objects as a stream of documents.
func YAML(objects []*unstructured.Unstructured) ([]byte, error) { return nil, nil }

// Result is what became of one object.
type Result struct {
	Object  string // as kubectl writes it: deployment.apps/mapd
	Outcome string // created, configured, unchanged, deleted, not found, kept: …
}

// ApplyOptions say how to apply.
type ApplyOptions struct {
	Dynamic dynamic.Interface
	Objects []*unstructured.Unstructured
	Force   bool         // take over fields that other field managers own
	Report  func(Result) // called for every object, in order
}

// Apply writes the objects by server-side apply.
func Apply(ctx context.Context, o ApplyOptions) error { return nil }

// WaitOptions say what to wait for.
type WaitOptions struct {
	Dynamic  dynamic.Interface
	Every    time.Duration // 0: one second
	Progress func(string)  // called when what is waited for changes
}

// Wait returns when Probe succeeds and the Deployment is rolled out.
func Wait(ctx context.Context, o WaitOptions) error { return nil }

// UninstallOptions say what to remove.
type UninstallOptions struct {
	Dynamic dynamic.Interface
	Objects []*unstructured.Unstructured
	Purge   bool // policies and bindings too
	Report  func(Result)
}

// Uninstall removes mapd.
func Uninstall(ctx context.Context, o UninstallOptions) error { return nil }

// Probe asks the API server to create, in a dry run, a policy that only mapd
// refuses. Its error is a *ProbeError.
func Probe(ctx context.Context, d dynamic.Interface) error { return nil }

// ProbeError says why mapd was not reached.
type ProbeError struct {
	Reason  string
	Message string // the server's words
	Advice  string // what to do
}

func (e *ProbeError) Error() string { return e.Message }
