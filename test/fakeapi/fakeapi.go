// Package fakeapi is an API server in memory, for tests of code that uses a cluster.
//
// It stores any object of any resource, sets uids and resourceVersions, and refuses writes with an
// old resourceVersion. It serves lists, also page by page, watches, creations, updates, server-side
// apply as a merge, JSON patches, status as a subresource, and deletions with finalizers and
// preconditions. It has no schemas, no field managers and no garbage collection: test/e2e uses
// real servers for that.
//
// Clients reach it without a network, so that a whole test can run in a bubble of
// testing/synctest.
package fakeapi

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Request is one call of the API.
type Request struct {
	Verb            string // as in RBAC: get, list, watch, create, update, patch, delete
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Subresource     string
	DryRun, Apply   bool
	Object          map[string]any // of a write
	Ops             []tree.Op      // of a JSON patch, which has no Object
	// Limit and Continue are those of a list; Limit 0 asks for all objects.
	Limit                   int
	Continue                string
	fields, labels, version string
}

// String returns a short form of the call, such as "delete deployments mapd".
func (r Request) String() string {
	return strings.TrimSpace(strings.Join([]string{r.Verb, strings.TrimSuffix(r.Resource.Resource+"/"+r.Subresource, "/"), r.Name}, " "))
}

// Server is an API server. The zero Server is empty and ready.
type Server struct {
	// Intercept, if not nil, is called before each call. If it returns an error, the call fails
	// with it; if it returns an object, that is the answer.
	Intercept func(r Request) (map[string]any, error)
	// Discovery has the answers for paths that are not those of resources, such as /version.
	Discovery map[string]map[string]any

	mu      sync.Mutex
	version int
	objects map[key]map[string]any
	history []event
	changed chan struct{} // closed at the next change
	calls   []Request
}

type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

type event struct {
	kind    string
	key     key
	object  map[string]any
	version int
}

// Config returns the configuration for clients of s.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "http://fake", QPS: -1, Transport: transport{s},
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

// Put stores an object unchanged, or replaces one; nil deletes it. An object without a kind gets
// the name of its resource as its kind.
func (s *Server) Put(resource schema.GroupVersionResource, namespace, name string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{resource, namespace, name}
	if object == nil {
		s.remove(k)
		return
	}
	u := unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	if u.GetKind() == "" {
		u.SetKind(resource.Resource)
		u.SetAPIVersion(resource.GroupVersion().String())
	}
	u.SetName(name)
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	s.store(k, u.Object)
}

// Get returns an object, nil if there is none.
func (s *Server) Get(resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[key{resource, namespace, name}]; o != nil {
		return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o)}
	}
	return nil
}

// List returns all objects of a resource, by namespace and name.
func (s *Server) List(resource schema.GroupVersionResource) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*unstructured.Unstructured
	for _, k := range s.keys(Request{Resource: resource}) {
		out = append(out, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(s.objects[k])})
	}
	return out
}

// Writes returns all calls so far that could change something, in order.
func (s *Server) Writes() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// store stores an object with a uid and a new resourceVersion. The caller must hold s.mu.
func (s *Server) store(k key, object map[string]any) map[string]any {
	u := unstructured.Unstructured{Object: object}
	kind := "MODIFIED"
	old := s.objects[k]
	if old == nil {
		kind = "ADDED"
		u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version+1)))
	} else {
		u.SetUID((&unstructured.Unstructured{Object: old}).GetUID())
		u.SetResourceVersion((&unstructured.Unstructured{Object: old}).GetResourceVersion())
		if reflect.DeepEqual(old, object) {
			return old
		}
	}
	s.version++
	u.SetResourceVersion(strconv.Itoa(s.version))
	if s.objects == nil {
		s.objects = map[key]map[string]any{}
	}
	s.objects[k] = object
	s.tell(event{kind, k, object, s.version})
	return object
}

func (s *Server) remove(k key) {
	object := s.objects[k]
	if object == nil {
		return
	}
	delete(s.objects, k)
	s.version++
	last := unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	last.SetResourceVersion(strconv.Itoa(s.version))
	s.tell(event{"DELETED", k, last.Object, s.version})
}

func (s *Server) tell(e event) {
	s.history = append(s.history, e)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// keys returns the keys of the objects that a request selects, in order. The caller must hold s.mu.
func (s *Server) keys(r Request) []key {
	var out []key
	for k, o := range s.objects {
		if r.selects(k, o) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b key) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) })
	return out
}

func (r Request) selects(k key, object map[string]any) bool {
	if k.resource != r.Resource || r.Namespace != "" && k.namespace != r.Namespace {
		return false
	}
	if name, ok := strings.CutPrefix(r.fields, "metadata.name="); ok && name != k.name {
		return false
	}
	label, value, equals := strings.Cut(r.labels, "=")
	got, has := (&unstructured.Unstructured{Object: object}).GetLabels()[label]
	return label == "" || has && (!equals || got == value)
}

// handle answers all calls except watches.
func (s *Server) handle(r Request) (map[string]any, error) {
	if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
		s.mu.Lock()
		s.calls = append(s.calls, r)
		s.mu.Unlock()
	}
	if s.Intercept != nil {
		if answer, err := s.Intercept(r); answer != nil || err != nil {
			return answer, err
		}
	}
	if r.Resource.Resource == "" {
		if answer := s.Discovery[r.Name]; answer != nil {
			return answer, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{r.Resource, r.Namespace, r.Name}
	old := s.objects[k]
	if old == nil && (r.Verb == "get" || r.Verb == "update" || r.Verb == "delete" || r.Verb == "patch" && r.Subresource != "") {
		return nil, apierrors.NewNotFound(r.Resource.GroupResource(), r.Name)
	}
	before := unstructured.Unstructured{Object: old}
	switch r.Verb {
	case "get":
		return old, nil
	case "list":
		last := ""
		items, kind, meta := []any{}, "List", map[string]any{"resourceVersion": strconv.Itoa(s.version)}
		for _, k := range s.keys(r) {
			if r.Continue != "" && k.namespace+"/"+k.name <= r.Continue {
				continue
			}
			if r.Limit > 0 && len(items) == r.Limit {
				meta["continue"] = last
				break
			}
			items, last = append(items, s.objects[k]), k.namespace+"/"+k.name
			kind = (&unstructured.Unstructured{Object: s.objects[k]}).GetKind() + "List" // typed clients need the list kind of the items
		}
		return map[string]any{"apiVersion": r.Resource.GroupVersion().String(), "kind": kind, "metadata": meta, "items": items}, nil
	case "create":
		sent := unstructured.Unstructured{Object: r.Object}
		k.name = sent.GetName()
		if s.objects[k] != nil {
			return nil, apierrors.NewAlreadyExists(r.Resource.GroupResource(), k.name)
		}
		if r.DryRun {
			return r.Object, nil
		}
		return s.store(k, r.Object), nil
	case "update", "patch":
		return s.write(r, k, before)
	case "delete":
		if uid, ok, _ := unstructured.NestedString(r.Object, "preconditions", "uid"); ok && uid != string(before.GetUID()) {
			return nil, apierrors.NewConflict(r.Resource.GroupResource(), r.Name, fmt.Errorf("the uid is %s", before.GetUID()))
		}
		if len(before.GetFinalizers()) > 0 {
			going := unstructured.Unstructured{Object: runtime.DeepCopyJSON(old)}
			_ = unstructured.SetNestedField(going.Object, time.Now().UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
			return s.store(k, going.Object), nil
		}
		s.remove(k)
		return map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"}, nil
	}
	return nil, apierrors.NewMethodNotSupported(r.Resource.GroupResource(), r.Verb)
}

// write updates or patches an object. The caller must hold s.mu.
func (s *Server) write(r Request, k key, before unstructured.Unstructured) (map[string]any, error) {
	sent := unstructured.Unstructured{Object: r.Object}
	if v := sent.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.Resource.GroupResource(), r.Name, fmt.Errorf("the resourceVersion is %s", before.GetResourceVersion()))
	}
	if uid := sent.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, apierrors.NewConflict(r.Resource.GroupResource(), r.Name, fmt.Errorf("the uid is %q", before.GetUID()))
	}
	now := r.Object
	switch {
	case r.Ops != nil:
		patched, err := tree.Apply(any(before.Object), r.Ops)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		now = runtime.DeepCopyJSON(patched.(map[string]any))
		if v := (&unstructured.Unstructured{Object: now}).GetResourceVersion(); v != before.GetResourceVersion() {
			return nil, apierrors.NewConflict(r.Resource.GroupResource(), r.Name, fmt.Errorf("the resourceVersion is %s", before.GetResourceVersion()))
		}
	case r.Verb == "patch":
		now = merge(runtime.DeepCopyJSON(before.Object), r.Object)
	}
	after := unstructured.Unstructured{Object: now}
	if before.Object != nil && r.Subresource == "" {
		generation := before.GetGeneration()
		if !reflect.DeepEqual(before.Object["spec"], now["spec"]) {
			generation++
		}
		if generation != 0 {
			after.SetGeneration(generation)
		}
	}
	if r.DryRun {
		return now, nil
	}
	stored := s.store(k, now)
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		s.remove(k)
	}
	return stored, nil
}

func merge(into, from map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for name, value := range from {
		if value == nil {
			delete(into, name)
			continue
		}
		m, isMap := value.(map[string]any)
		old, wasMap := into[name].(map[string]any)
		if isMap && wasMap {
			into[name] = merge(maps.Clone(old), m)
		} else {
			into[name] = value
		}
	}
	return into
}

// transport calls a Server without a network.
type transport struct{ s *Server }

// ServeHTTP implements http.Handler, for clients in other processes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := transport{s}.RoundTrip(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer answer.Body.Close()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // fails only if the client has closed the connection
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	req, err := parse(r)
	if err != nil {
		return nil, err
	}
	if req.Verb == "watch" {
		return t.s.watch(r, req), nil
	}
	answer, err := t.s.handle(req)
	return respond(r, answer, err), nil
}

func respond(r *http.Request, answer map[string]any, err error) *http.Response {
	code := http.StatusOK
	var body any = answer
	if err != nil {
		status, ok := err.(apierrors.APIStatus)
		if !ok {
			status = apierrors.NewInternalError(err)
		}
		s := status.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		code, body = int(s.Code), s
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // objects are JSON
	}
	return response(r, code, io.NopCloser(bytes.NewReader(text)))
}

func response(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r, ContentLength: -1,
	}
}

// watch streams events until the request's context ends.
func (s *Server) watch(r *http.Request, req Request) *http.Response {
	if s.Intercept != nil {
		if _, err := s.Intercept(req); err != nil {
			return respond(r, nil, err)
		}
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		return respond(r, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	}
	since, _ := strconv.Atoi(req.version)
	read, write := io.Pipe()
	go func() {
		defer write.Close()
		for next := 0; ; {
			s.mu.Lock()
			if s.changed == nil {
				s.changed = make(chan struct{})
			}
			events, changed := s.history[next:], s.changed
			next = len(s.history)
			s.mu.Unlock()
			for _, e := range events {
				if e.version <= since || !req.selects(e.key, e.object) {
					continue
				}
				text, err := json.Marshal(map[string]any{"type": e.kind, "object": e.object})
				if err != nil {
					return
				}
				if _, err := write.Write(append(text, '\n')); err != nil {
					return
				}
			}
			select {
			case <-r.Context().Done():
				return
			case <-changed:
			}
		}
	}()
	return response(r, http.StatusOK, read)
}

// parse returns the Request of an HTTP request.
func parse(r *http.Request) (Request, error) {
	q := r.URL.Query()
	req := Request{
		DryRun: q.Get("dryRun") != "", Apply: r.Header.Get("Content-Type") == string(types.ApplyPatchType),
		Continue: q.Get("continue"),
		fields:   q.Get("fieldSelector"), labels: q.Get("labelSelector"), version: q.Get("resourceVersion"),
	}
	req.Limit, _ = strconv.Atoi(q.Get("limit"))
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case path[0] == "api" && len(path) > 2:
		req.Resource.Version, path = path[1], path[2:]
	case path[0] == "apis" && len(path) > 3:
		req.Resource.Group, req.Resource.Version, path = path[1], path[2], path[3:]
	default: // discovery
		req.Verb, req.Name = "get", r.URL.Path
		return req, nil
	}
	if path[0] == "namespaces" && len(path) > 2 {
		req.Namespace, path = path[1], path[2:]
	}
	req.Resource.Resource = path[0]
	if len(path) > 1 {
		req.Name = path[1]
	}
	if len(path) > 2 {
		req.Subresource = path[2]
	}
	switch r.Method {
	case http.MethodGet:
		req.Verb = "list"
		if req.Name != "" {
			req.Verb = "get"
		} else if q.Get("watch") == "true" {
			req.Verb = "watch"
		}
	case http.MethodPost:
		req.Verb = "create"
	case http.MethodPut:
		req.Verb = "update"
	case http.MethodPatch:
		req.Verb = "patch"
	case http.MethodDelete:
		req.Verb = "delete"
	}
	if r.Body == nil {
		return req, nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || len(text) == 0 {
		return req, err
	}
	if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
		var ops []struct {
			Op    string `json:"op"`
			Path  string `json:"path"`
			Value any    `json:"value"`
		}
		err := json.Unmarshal(text, &ops)
		req.Ops = []tree.Op{}
		for _, op := range ops {
			req.Ops = append(req.Ops, tree.Op(op))
		}
		return req, err
	}
	return req, json.Unmarshal(text, &req.Object)
}
