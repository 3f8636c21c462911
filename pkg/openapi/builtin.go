package openapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi/internal/compact"
	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

//go:generate go run ./internal/gen

//go:embed builtin/index.json
var indexFile []byte

// preview reports whether a version of the API is an alpha or a beta.
func preview(version string) bool { return strings.ContainsAny(version, "ab") }

// builtinIndex is what the generator recorded about its documents.
type builtinIndex struct {
	Module    string            `json:"module"`
	Revision  string            `json:"revision"`
	Sum       string            `json:"sum"`
	Documents []builtinDocument `json:"documents"`
	Resources []struct {
		Group        string            `json:"group"`
		Version      string            `json:"version"`
		Resource     string            `json:"resource"`
		Kind         string            `json:"kind"`
		Namespaced   bool              `json:"namespaced"`
		Subresources map[string]string `json:"subresources"`
	} `json:"resources"`
}

type builtinDocument struct {
	Group   string   `json:"group"`
	Version string   `json:"version"`
	File    string   `json:"file"`
	Source  string   `json:"source"`
	Size    int      `json:"size"`
	Kinds   []string `json:"kinds"` // "Kind=model"
}

// Builtin returns the source of the built-in kinds: the documents that a Kubernetes 1.37.2 API
// server publishes, including those of group-versions that it serves only on request. Each
// document is opened once in a process.
func Builtin() Source { return builtin() }

var builtin = sync.OnceValue(func() *builtinSource {
	var ix builtinIndex
	if err := json.Unmarshal(indexFile, &ix); err != nil {
		panic(fmt.Errorf("builtin/index.json: %w", err))
	}
	s := &builtinSource{index: ix, documents: map[schema.GroupVersion]*document{}}
	for _, d := range ix.Documents {
		doc := &document{file: d.File, size: d.Size, models: make(map[string]*builtinModel, len(d.Kinds))}
		for _, k := range d.Kinds {
			kind, model, _ := strings.Cut(k, "=")
			doc.models[kind] = &builtinModel{doc: doc, name: model}
		}
		s.documents[schema.GroupVersion{Group: d.Group, Version: d.Version}] = doc
	}
	for _, r := range ix.Resources {
		res := Resource{
			GVR:        schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
			Kind:       schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind},
			Namespaced: r.Namespaced,
		}
		if r.Resource == "events" && r.Group == "events.k8s.io" {
			// The one pair of groups on a 1.37 server that shares its objects:
			// k8s.io/kubernetes pkg/kubeapiserver, AddCohabitatingResources.
			res.Storage = "events"
		}
		if preview(r.Version) {
			// A 1.37 server with default flags serves no alpha or beta version. If one is
			// switched on, its objects do not count as views of the others here: under
			// Equivalent, a server would not look for them either.
			res.Storage = res.GVR.String()
		}
		for sub, kind := range r.Subresources {
			res.Subresources = append(res.Subresources, sub)
			if kind != "" {
				if res.SubresourceKinds == nil {
					res.SubresourceKinds = map[string]schema.GroupVersionKind{}
				}
				gv, _ := schema.ParseGroupVersion(strings.TrimPrefix(path.Dir(kind), "/"))
				res.SubresourceKinds[sub] = gv.WithKind(path.Base(kind))
			}
		}
		slices.Sort(res.Subresources)
		s.resources = append(s.resources, res)
	}
	return s
})

type builtinSource struct {
	index     builtinIndex
	documents map[schema.GroupVersion]*document
	resources []Resource
}

func (s *builtinSource) GroupVersions() []schema.GroupVersion {
	gvs := make([]schema.GroupVersion, 0, len(s.documents))
	for gv := range s.documents {
		gvs = append(gvs, gv)
	}
	return gvs
}

func (s *builtinSource) Resources() []Resource { return s.resources }

func (s *builtinSource) Lookup(gvk schema.GroupVersionKind) Model {
	doc := s.documents[gvk.GroupVersion()]
	if doc == nil {
		return nil
	}
	if m := doc.models[gvk.Kind]; m != nil {
		return m
	}
	return nil
}

type builtinModel struct {
	doc  *document
	name string
}

func (m *builtinModel) Schema() (*smd.Schema, smd.TypeRef) {
	return m.doc.open(), smd.TypeRef{NamedType: &m.name}
}

// document is one embedded OpenAPI document. The merge schema is that of the whole
// group-version, as upstream's is (k8s.io/apiserver …/patch/typeconverter.go:
// GetTypeConverter). The generator made it from the document, since that takes longer than many
// runs of the CLI; a test compares it with upstream's.
type document struct {
	file   string
	size   int
	models map[string]*builtinModel // by kind

	schema atomic.Pointer[smd.Schema] // nil: not opened
	mu     sync.Mutex                 // of opening it
}

func (d *document) open() *smd.Schema {
	if s := d.schema.Load(); s != nil {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schema.Load(); s != nil {
		return s
	}
	file := strings.TrimSuffix(d.file, ".json.zst") + ".schema"
	data, err := readSchema(file, d.size)
	if err != nil {
		panic(fmt.Errorf("%s: %w", file, err)) // part of the program, or see ReadSchema
	}
	s, err := compact.Decode(data)
	if err != nil {
		panic(fmt.Errorf("%s: %w", file, err))
	}
	d.schema.Store(s)
	return s
}
