package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A list that takes longer than the server remembers its beginning goes on with what
// is there then.
func TestEachExpired(t *testing.T) {
	page := func(next string, names ...string) string {
		items := ""
		for i, name := range names {
			if i > 0 {
				items += ","
			}
			items += fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": %q}}`, name)
		}
		return fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": "ThingList", "metadata": {"continue": %q}, "items": [%s]}`, next, items)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch from := r.FormValue("continue"); from {
		case "":
			fmt.Fprint(w, page("old", "a", "b"))
		case "old":
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "metadata": {"continue": "new"}}`)
		case "new":
			fmt.Fprint(w, page("", "c"))
		default:
			t.Errorf("asked to go on from %q", from)
		}
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := &liveCluster{client: client}
	var got []string
	err = c.each(t.Context(), schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, func(u *unstructured.Unstructured) error {
		got = append(got, u.GetName())
		return nil
	})
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" || err != nil {
		t.Errorf("objects (-want), %v:\n%s", err, diff)
	}
}
