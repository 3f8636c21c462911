//go:build e2e

package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/load"
)

// allowing is a webhook that decodes and allows. It stands behind a Service, as mapd
// does, because an API server speaks HTTP/2 to a loopback URL and HTTP/1.1 else.
type allowing struct {
	*cluster.Cluster
	calls  atomic.Int64
	config *admissionregistrationv1.MutatingWebhookConfiguration
}

const allowName = "allow"

func newAllowing(b *testing.B, c *cluster.Cluster) *allowing {
	b.Helper()
	cert, ca, err := webhook.SelfSigned([]string{allowName + ".default.svc"})
	if err != nil {
		b.Fatal(err)
	}
	a := &allowing{Cluster: c}
	port := int32(cluster.FreePort(b))
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.calls.Add(1)
			load.Floors["allow"].ServeHTTP(w, r)
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // until it is closed
	b.Cleanup(func() { server.Close() })

	_, err = c.Kubernetes.CoreV1().Services("default").Create(b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: allowName},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Name: "https", Port: port}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	a.config = &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: allowName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "allow.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service:  &admissionregistrationv1.ServiceReference{Namespace: "default", Name: allowName, Port: &port},
				CABundle: ca,
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	return a
}

func (a *allowing) put(b *testing.B) {
	b.Helper()
	if _, err := a.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(b.Context(), a.config, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// take ends the calls, and asks whether they have ended.
func (a *allowing) take(b *testing.B) {
	b.Helper()
	if err := a.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(b.Context(), allowName, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	cluster.Eventually(b, time.Minute, "the webhook that allows to be forgotten", func(ctx context.Context) error {
		before := a.calls.Load()
		_, err := a.Kubernetes.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "asked"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && a.calls.Load() != before {
			err = fmt.Errorf("it is called")
		}
		return err
	})
}
