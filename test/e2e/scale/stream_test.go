//go:build e2e

package scale

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/e2e/scale/result"
	"github.com/mapd-project/mapd/test/load"
)

// A sender sends single requests to the API servers and retries nothing.
type sender struct {
	hosts   []string
	clients []*http.Client
}

func newSender(t *testing.T, configs []*rest.Config) sender {
	t.Helper()
	var s sender
	for _, c := range configs {
		client, err := rest.HTTPClientFor(c)
		if err != nil {
			t.Fatal(err)
		}
		s.hosts, s.clients = append(s.hosts, c.Host), append(s.clients, client)
	}
	return s
}

// sendTimeout is longer than anything that a server bounds by itself.
const sendTimeout = 90 * time.Second

// send sends a request to one of the servers and returns the object of the answer.
func (s sender) send(ctx context.Context, host int, method, path string, body any) (code int, answer map[string]any, err error) {
	var data []byte
	if body != nil {
		data = encode(body)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	host %= len(s.hosts)
	req, err := http.NewRequestWithContext(ctx, method, s.hosts[host]+path, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	req.GetBody = nil // so that the client cannot send it twice
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.clients[host].Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if data, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		answer = map[string]any{"message": string(data)}
	}
	return resp.StatusCode, answer, nil
}

// get reads something from the first server that answers.
func (s sender) get(ctx context.Context, path string, into any) (err error) {
	for host := range s.hosts {
		var code int
		var answer map[string]any
		if code, answer, err = s.send(ctx, host, http.MethodGet, path, nil); err != nil {
			continue
		}
		if code == http.StatusOK {
			return json.Unmarshal(encode(answer), into)
		}
		err = fmt.Errorf("%s: %d %v", path, code, answer["message"])
	}
	return err
}

// A stream sends writes at a steady rate, each on its own, whatever becomes of those before
// it. It waits for a while, reads each object again, and deletes it.
type stream struct {
	*world
	free chan struct{} // bounds the writes that are under way
	all  sync.WaitGroup
	// dropped are writes that were not sent, because too many were under way.
	dropped int
}

const (
	streamBound = 64
	// keep is how long an object is there before it is read again and deleted.
	keep = 8 * time.Second
)

func newStream(w *world) *stream { return &stream{world: w, free: make(chan struct{}, streamBound)} }

// kinds are what is written, in turns.
var kinds = []string{"Pod", "ConfigMap", "Pod", "update", "Lease"}

func pathOf(what, namespace string) string {
	switch what {
	case "Pod":
		return "/api/v1/namespaces/" + namespace + "/pods"
	case "Lease":
		return "/apis/coordination.k8s.io/v1/namespaces/" + load.MixSettings + "/leases"
	}
	return "/api/v1/namespaces/" + namespace + "/configmaps"
}

// streamPod is the Pod of test/bench/pods without what a server writes.
var streamPod = pods.New(2, 2)["spec"]

func streamObject(what, namespace, name string) map[string]any {
	object := map[string]any{
		"apiVersion": "v1", "kind": what, "metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{streamLabel: "yes"}},
	}
	switch what {
	case "Pod":
		object["spec"] = streamPod
	case "ConfigMap":
		object["data"] = map[string]any{"a": "1", "b": "2"}
	case "Lease":
		object["apiVersion"] = "coordination.k8s.io/v1"
		object["metadata"].(map[string]any)["namespace"] = load.MixSettings
	}
	return object
}

func (s *stream) run(ctx context.Context) {
	begin := time.Now()
	every := time.Second / time.Duration(*writes)
	for i := 0; ; i++ {
		due := begin.Add(time.Duration(i) * every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		select {
		case s.free <- struct{}{}:
		default:
			s.dropped++
			continue
		}
		// What was begun is ended, so that it is known what became of it.
		s.all.Go(func() { s.one(context.WithoutCancel(ctx), i, due) })
	}
}

func (s *stream) one(ctx context.Context, i int, due time.Time) {
	what, tenant := kinds[i%len(kinds)], i/len(kinds)%tenants
	namespace, name := load.Tenant(tenant), fmt.Sprintf("stream-%06d", i)
	method, path, want := http.MethodPost, pathOf(what, namespace), http.StatusCreated
	object := streamObject(what, namespace, name)
	if what == "update" {
		method, path, want = http.MethodPatch, path+"/counter", http.StatusOK
		object = map[string]any{"data": map[string]any{"n": fmt.Sprint(i)}}
	}
	sent := time.Now()
	acts := s.actsAt(sent)
	code, answer, err := s.sender.send(ctx, i, method, path, object)
	s.data.Add(result.Line{T: s.data.At(due), Write: &result.Write{What: what, MS: float64(time.Since(due).Microseconds()/100) / 10, Code: code}})
	<-s.free
	if err != nil {
		return // it may be there or not: finish looks
	}
	if code != want {
		if code < 500 || !acts {
			s.note("%s: %d %v", what, code, answer["message"])
		}
		return
	}
	// Between phases policies come and go.
	acts = acts && s.actsAt(sent)
	if what == "update" {
		if acts {
			s.expect.count("own writes: update", s.expect.settled(answer), false)
		}
		return
	}
	if acts && what != "Lease" {
		if err := s.expect.same(object, answer); err != nil {
			s.expect.count("own writes: "+what+", as answered", err, false)
		}
	}
	pause(ctx, keep)
	item := path + "/" + name
	var stored map[string]any
	for tries := 0; ; tries++ {
		code, stored, err = s.sender.send(ctx, i+tries, http.MethodGet, item, nil)
		if err == nil && (code == http.StatusOK || code == http.StatusNotFound) || tries == 30 {
			break
		}
		pause(ctx, time.Second)
	}
	switch {
	case err != nil || code != http.StatusOK && code != http.StatusNotFound:
		s.note("%s %s could not be read again: %d %v", what, name, code, err)
	case code == http.StatusNotFound:
		s.expect.count("own writes: "+what, fmt.Errorf("%s is gone", name), true)
	case acts && what != "Lease":
		s.expect.count("own writes: "+what, s.expect.same(object, stored), false)
	case what == "Lease":
		s.expect.count("own writes: Lease", nil, false)
	}
	for tries := range 30 {
		if code, _, err = s.sender.send(ctx, i+tries, http.MethodDelete, item+"?gracePeriodSeconds=0", nil); err == nil && code < 500 {
			return
		}
		pause(ctx, time.Second)
	}
	s.note("%s %s could not be deleted: %d %v", what, name, code, err)
}

// finish waits for the last writes, and checks what is there although no answer said so.
func (s *stream) finish(t *testing.T) {
	t.Helper()
	s.all.Wait()
	if s.dropped > 0 {
		s.note("%d writes were not sent, because %d were under way", s.dropped, streamBound)
	}
	for _, what := range []string{"Pod", "ConfigMap"} {
		var list unstructured.UnstructuredList
		path := map[string]string{"Pod": "/api/v1/pods", "ConfigMap": "/api/v1/configmaps"}[what]
		if err := s.sender.get(t.Context(), path+"?labelSelector="+streamLabel, &list); err != nil {
			t.Error(err)
			continue
		}
		for _, u := range list.Items {
			if u.GetName() != "counter" {
				s.expect.count("own writes: "+what+", without an answer", s.expect.settled(u.Object), false)
			}
		}
	}
}
