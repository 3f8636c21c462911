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

	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/load"
)

// floor is a webhook written by hand, one of load.Floors. It stands behind a Service,
// as mapd does, because an API server speaks HTTP/2 to a loopback URL and HTTP/1.1
// else. It runs in the process of the client, which spares the machine one.
type floor struct {
	*cluster.Cluster
	handler atomic.Pointer[http.Handler]
	calls   atomic.Int64
	config  *admissionregistrationv1.MutatingWebhookConfiguration
}

const floorName = "floor"

func newFloor(b *testing.B, c *cluster.Cluster) *floor {
	b.Helper()
	cert, ca, err := servingcert.SelfSigned([]string{floorName + ".default.svc"})
	if err != nil {
		b.Fatal(err)
	}
	f := &floor{Cluster: c}
	port := int32(cluster.FreePort(b))
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.calls.Add(1)
			(*f.handler.Load()).ServeHTTP(w, r)
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // until it is closed
	b.Cleanup(func() { server.Close() })

	_, err = c.Kubernetes.CoreV1().Services("default").Create(b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: floorName},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Name: "https", Port: port}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	f.config = &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: floorName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "floor.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service:  &admissionregistrationv1.ServiceReference{Namespace: "default", Name: floorName, Port: &port},
				CABundle: ca,
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	return f
}

// put has the server call the floor of that name.
func (f *floor) put(b *testing.B, name string) {
	b.Helper()
	f.handler.Store(new(load.Floors[name]))
	if _, err := f.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(b.Context(), f.config, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// take ends the calls, and asks whether they have ended.
func (f *floor) take(b *testing.B) {
	b.Helper()
	if err := f.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(b.Context(), floorName, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	cluster.Eventually(b, time.Minute, "the floor to be forgotten", func(ctx context.Context) error {
		before := f.calls.Load()
		_, err := f.Kubernetes.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "asked"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && f.calls.Load() != before {
			err = fmt.Errorf("it is called")
		}
		return err
	})
}
