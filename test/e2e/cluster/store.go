//go:build e2e

package cluster

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storedAtOnce is how many objects one transaction has, and storedBytes about how much
// text: etcd takes 128 operations and 1.5 MiB.
const (
	storedAtOnce = 100
	storedBytes  = 1 << 20
)

// Store writes objects to etcd, as an API server that keeps JSON would, with no request for
// each. resource is where a server keeps them, which for Nodes is minions. They need a kind, and a creationTimestamp and an uid are the
// caller's. It needs a cluster that the test started.
func (c *Cluster) Store(t testing.TB, resource string, objects ...metav1.Object) {
	t.Helper()
	if c.etcd == "" {
		t.Fatal("Store needs a cluster that the test started")
	}
	type put struct {
		Request struct {
			Key   []byte `json:"key"`
			Value []byte `json:"value"`
		} `json:"requestPut"`
	}
	var puts []put
	size := 0
	flush := func() {
		if len(puts) == 0 {
			return
		}
		body, err := json.Marshal(map[string]any{"success": puts})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(c.etcd+"/v3/kv/txn", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("etcd: %s, %v: %.1000s", resp.Status, err, text)
		}
		puts, size = nil, 0
	}
	for _, o := range objects {
		value, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if len(puts) == storedAtOnce || size+len(value) > storedBytes {
			flush()
		}
		var p put
		p.Request.Key, p.Request.Value = []byte(path.Join("/registry", resource, o.GetNamespace(), o.GetName())), value
		puts, size = append(puts, p), size+len(value)
	}
	flush()
}
