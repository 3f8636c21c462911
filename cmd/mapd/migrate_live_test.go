package main

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// A mapd of the cluster is found in whatever namespace it runs.
func TestAlone(t *testing.T) {
	for _, namespace := range []string{defaultNamespace, "infra"} {
		s := &fakeapi.Server{}
		kube, err := kubernetes.NewForConfig(s.Config())
		if err != nil {
			t.Fatal(err)
		}
		if err := alone(t.Context(), kube); err != nil {
			t.Errorf("without any: %v", err)
		}
		s.Put(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), "", webhookconfig.ValidationName, map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
			"metadata": map[string]any{"annotations": map[string]any{webhookconfig.InstallationAnnotation: namespace + "/mapd"}},
		})
		s.Put(corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, gatekeeper.MutatorsName, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"data": map[string]any{"mode": "native"},
		})
		if err := alone(t.Context(), kube); err == nil || !strings.Contains(err.Error(), "ConfigMap "+namespace+"/") {
			t.Errorf("with one in %s: %v", namespace, err)
		}
	}
}
