//go:build e2e

package cluster

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storedAtOnce is how many objects one transaction has, and storedBytes roughly their size: etcd
// accepts up to 128 operations and 1.5 MiB.
const (
	storedAtOnce = 100
	storedBytes  = 1 << 20
	// storedPage is how many keys are read at once.
	storedPage = 5000
)

// Store writes objects directly to etcd, as an API server that stores JSON would; that is faster
// than a request for each. resource is the part of the etcd key for the kind, which for Nodes is
// minions. The objects must have a kind; the caller also sets creationTimestamp and uid if they
// are needed. Store needs a cluster that the test started.
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
		c.askEtcd(t, "txn", map[string]any{"success": puts}, nil)
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

// askEtcd sends a request to etcd and decodes the answer into answer, unless answer is nil.
func (c *Cluster) askEtcd(t testing.TB, what string, request, answer any) {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(c.etcd+"/v3/kv/"+what, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("etcd: %s, %v: %.1000s", resp.Status, err, text)
	}
	if answer == nil {
		return
	}
	if err := json.Unmarshal(text, answer); err != nil {
		t.Fatal(err)
	}
}

// Writes returns, by name, how often the objects of a resource in a namespace were written, with
// their creation. It asks etcd, so it also counts writes during restarts of API servers and
// interruptions of watches.
func (c *Cluster) Writes(t testing.TB, resource, namespace string) map[string]int {
	t.Helper()
	if c.etcd == "" {
		t.Fatal("Writes needs a cluster that the test started")
	}
	prefix := path.Join("/registry", resource, namespace) + "/"
	end := []byte(strings.TrimSuffix(prefix, "/") + "0") // the first key after those that begin with the prefix
	out := map[string]int{}
	for from := []byte(prefix); ; {
		var page struct {
			Kvs []struct {
				Key     []byte `json:"key"`
				Version int    `json:"version,string"`
			} `json:"kvs"`
			More bool `json:"more"`
		}
		c.askEtcd(t, "range", map[string]any{"key": from, "range_end": end, "limit": storedPage, "keys_only": true}, &page)
		for _, kv := range page.Kvs {
			out[strings.TrimPrefix(string(kv.Key), prefix)] = kv.Version
		}
		if !page.More || len(page.Kvs) == 0 {
			return out
		}
		from = append(page.Kvs[len(page.Kvs)-1].Key, 0)
	}
}
