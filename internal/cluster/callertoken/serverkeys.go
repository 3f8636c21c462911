package callertoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// ServerKeys returns the keys that an API server publishes for ServiceAccount tokens
// (--service-account-issuer). Kubernetes lets all ServiceAccounts read them, by the
// ClusterRole system:service-account-issuer-discovery.
func ServerKeys(kube kubernetes.Interface) func(context.Context) (*Keys, error) {
	return func(ctx context.Context) (*Keys, error) {
		get := func(path string) ([]byte, error) {
			text, err := kube.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
			if err != nil {
				return nil, fmt.Errorf("get %s: %w", path, err)
			}
			return text, nil
		}
		text, err := get("/.well-known/openid-configuration")
		if err != nil {
			return nil, err
		}
		var discovery struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(text, &discovery); err != nil || discovery.Issuer == "" {
			return nil, errors.New("get /.well-known/openid-configuration: the answer names no issuer")
		}
		if text, err = get("/openid/v1/jwks"); err != nil {
			return nil, err
		}
		keys, err := ParseKeys(discovery.Issuer, text)
		if err != nil {
			return nil, fmt.Errorf("get /openid/v1/jwks: %w", err)
		}
		return keys, nil
	}
}

// ParseKeys reads a JSON Web Key Set. It leaves out keys that are not for signatures.
func ParseKeys(issuer string, text []byte) (*Keys, error) {
	k := &Keys{Issuer: issuer}
	if err := json.Unmarshal(text, &k.Set); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set: %s", strings.TrimPrefix(err.Error(), "go-jose/go-jose: "))
	}
	k.Set.Keys = slices.DeleteFunc(k.Set.Keys, func(key jose.JSONWebKey) bool {
		return !key.IsPublic() || !key.Valid() || key.Use != "" && key.Use != "sig"
	})
	if len(k.Set.Keys) == 0 {
		return nil, errors.New("no public key to verify signatures with")
	}
	return k, nil
}

// ServerUID returns a function that reads the UID of a webhook configuration from the cluster.
func ServerUID(kube kubernetes.Interface) func(ctx context.Context, kind, name string) (types.UID, error) {
	client := kube.AdmissionregistrationV1()
	return func(ctx context.Context, kind, name string) (types.UID, error) {
		var obj metav1.Object
		var err error
		if kind == Mutating {
			obj, err = client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		} else {
			obj, err = client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			return "", err
		}
		return obj.GetUID(), nil
	}
}
