package webhook_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/webhook"
)

func Example() {
	// An engine without policies admits every request as it is.
	handler := webhook.NewHandler(webhook.Options{Admitter: engine.New(engine.Options{})})

	review := `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
	  "uid": "u1", "operation": "CREATE", "name": "web", "namespace": "shop",
	  "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
	  "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}}}`
	req := httptest.NewRequest(http.MethodPost, "/mutate", strings.NewReader(review))
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	fmt.Println(answer.Code, answer.Body)
	// Output:
	// 200 {"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u1","allowed":true}}
}
