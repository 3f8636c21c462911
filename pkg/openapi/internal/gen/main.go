// Command gen makes the embedded OpenAPI documents of pkg/openapi. Run it by
// "go generate ./pkg/openapi".
//
// Its source is the directory api/openapi-spec/v3 of the Kubernetes module at
// the pinned release: the documents that an API server of that release
// publishes. From each it reads how kinds are served and then writes what a
// merge schema needs: the models, without paths and descriptions. The output
// depends on the module and the pinned compressor alone, so that running it
// again changes nothing.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/mapd-project/mapd/pkg/openapi/internal/compact"
)

const (
	module  = "k8s.io/kubernetes"
	release = "v1.37.2"
)

// index mirrors the type that pkg/openapi reads; a test compares the two.
type index struct {
	Module    string     `json:"module"`
	Revision  string     `json:"revision"`
	Sum       string     `json:"sum"`
	Documents []document `json:"documents"`
	Resources []resource `json:"resources"`
}

type document struct {
	Group   string   `json:"group,omitempty"`
	Version string   `json:"version"`
	File    string   `json:"file"`
	Source  string   `json:"source"`
	Size    int      `json:"size"`
	Kinds   []string `json:"kinds"` // "Kind=model"
}

type resource struct {
	Group        string            `json:"group,omitempty"`
	Version      string            `json:"version"`
	Resource     string            `json:"resource"`
	Kind         string            `json:"kind"`
	Namespaced   bool              `json:"namespaced,omitempty"`
	Subresources map[string]string `json:"subresources,omitempty"` // name to "group/version/Kind", empty for the resource's own
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	if err := run("builtin"); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	src, sum, err := download()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(src, "api", "openapi-spec", "v3", "api*__*_openapi.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("the module has no OpenAPI documents")
	}
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()

	ix := index{Module: module, Revision: release, Sum: sum}
	for _, file := range files {
		gv, ok := groupVersion(filepath.Base(file))
		if !ok {
			continue
		}
		doc, err := read(file)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		models, kinds := doc.models(gv)
		if len(kinds) == 0 {
			continue
		}
		out, err := json.Marshal(models)
		if err != nil {
			return err
		}
		name := fileName(gv)
		if err := os.WriteFile(filepath.Join(dir, name), enc.EncodeAll(out, nil), 0o644); err != nil {
			return err
		}
		merge, err := mergeSchema(out)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if err := os.WriteFile(filepath.Join(dir, strings.TrimSuffix(name, ".json.zst")+".schema.zst"), enc.EncodeAll(merge, nil), 0o644); err != nil {
			return err
		}
		ix.Documents = append(ix.Documents, document{
			Group: gv.Group, Version: gv.Version, File: name, Source: filepath.Base(file), Size: len(out), Kinds: kinds,
		})
		ix.Resources = append(ix.Resources, doc.resources(gv)...)
	}
	slices.SortFunc(ix.Documents, func(a, b document) int { return order(a.Group, a.Version, b.Group, b.Version) })
	slices.SortFunc(ix.Resources, func(a, b resource) int {
		return cmp.Or(order(a.Group, a.Version, b.Group, b.Version), cmp.Compare(a.Resource, b.Resource))
	})
	return writeIndex(filepath.Join(dir, "index.json"), &ix)
}

// download gives the directory and the checksum of the module.
func download() (dir, sum string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", module+"@"+release)
	// The module is not a dependency: its checksum must not be added to go.sum.
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		return "", "", fmt.Errorf("go mod download %s@%s: %w", module, release, err)
	}
	var m struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", "", err
	}
	return m.Dir, m.Sum, nil
}

// groupVersion reads the name of a document: api__v1_openapi.json or
// apis__apps__v1_openapi.json. Documents of a group without a version list
// versions only and are left out.
func groupVersion(file string) (schema.GroupVersion, bool) {
	parts := strings.Split(strings.TrimSuffix(file, "_openapi.json"), "__")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}

func fileName(gv schema.GroupVersion) string {
	return cmp.Or(gv.Group, "core") + "_" + gv.Version + ".json.zst"
}

// order is that in which an API server installs group-versions: the core
// group first, in a group the preferred version first, which for all built-in
// groups is the order of kube-aware version names (each group's SetVersionPriority).
func order(ag, av, bg, bv string) int {
	return cmp.Or(cmp.Compare(ag, bg), -version.CompareKubeAwareVersionStrings(av, bv))
}

type openAPI struct {
	Components struct {
		Schemas map[string]map[string]any `json:"schemas"`
	} `json:"components"`
	Paths map[string]map[string]json.RawMessage `json:"paths"`
}

func read(file string) (*openAPI, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc openAPI
	return &doc, dec.Decode(&doc)
}

// models strips the models of the document and lists the kinds that belong to
// its own group-version.
func (d *openAPI) models(gv schema.GroupVersion) (map[string]map[string]any, []string) {
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		model := d.Components.Schemas[name]
		strip(model)
		gvks, _ := model["x-kubernetes-group-version-kind"].([]any)
		for _, e := range gvks {
			gvk, _ := e.(map[string]any)
			if gvk["group"] == gv.Group && gvk["version"] == gv.Version {
				kinds = append(kinds, fmt.Sprintf("%v=%s", gvk["kind"], name))
			}
		}
	}
	slices.Sort(kinds)
	return d.Components.Schemas, kinds
}

// mergeSchema makes the merge schema of a whole document, as upstream does at
// run time (k8s.io/apimachinery pkg/util/managedfields: NewTypeConverter).
func mergeSchema(models []byte) ([]byte, error) {
	var specs map[string]*spec.Schema
	if err := json.Unmarshal(models, &specs); err != nil {
		return nil, err
	}
	s, err := schemaconv.ToSchemaFromOpenAPI(specs, false)
	if err != nil {
		return nil, err
	}
	return compact.Encode(s)
}

// strip removes descriptions: the keyword, not properties of that name.
func strip(s map[string]any) {
	if d, ok := s["description"].(string); ok && d != "" {
		delete(s, "description")
	}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if sub, ok := s[key].(map[string]any); ok {
			strip(sub)
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := s[key].([]any)
		for _, e := range list {
			if sub, ok := e.(map[string]any); ok {
				strip(sub)
			}
		}
	}
	props, _ := s["properties"].(map[string]any)
	for _, e := range props {
		if sub, ok := e.(map[string]any); ok {
			strip(sub)
		}
	}
}

// resources reads from the paths what is served. A path is
//
//	/api/v1/namespaces/{namespace}/pods/{name}/status
//	/apis/apps/v1/deployments
//
// and its operations carry action and kind as extensions. Of a resource's own
// operations all carry its kind; a subresource's kind is that of its body, for
// CONNECT that of its options.
func (d *openAPI) resources(gv schema.GroupVersion) []resource {
	prefix := "/apis/" + gv.Group + "/" + gv.Version + "/"
	if gv.Group == "" {
		prefix = "/api/" + gv.Version + "/"
	}
	found := map[string]*resource{}
	get := func(name string) *resource {
		if found[name] == nil {
			found[name] = &resource{Group: gv.Group, Version: gv.Version, Resource: name}
		}
		return found[name]
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok || rest == "" || strings.HasPrefix(rest, "watch/") {
			continue
		}
		gvk, ok := kindOf(d.Paths[path])
		if !ok {
			continue
		}
		rest, namespaced := strings.CutPrefix(rest, "namespaces/{namespace}/")
		parts := strings.Split(rest, "/")
		r := get(parts[0])
		r.Namespaced = r.Namespaced || namespaced
		switch {
		case len(parts) < 3:
			r.Kind = gvk.Kind
		case len(parts) == 3: // longer ones are the path behind a proxy
			if r.Subresources == nil {
				r.Subresources = map[string]string{}
			}
			r.Subresources[parts[2]] = gvk.Group + "/" + gvk.Version + "/" + gvk.Kind
		}
	}
	var out []resource
	for _, name := range slices.Sorted(maps.Keys(found)) {
		r := found[name]
		own := gv.Group + "/" + gv.Version + "/" + r.Kind
		for sub, kind := range r.Subresources {
			if kind == own {
				r.Subresources[sub] = ""
			}
		}
		out = append(out, *r)
	}
	return out
}

func kindOf(operations map[string]json.RawMessage) (gvk schema.GroupVersionKind, ok bool) {
	for _, method := range slices.Sorted(maps.Keys(operations)) {
		var op struct {
			Action string                   `json:"x-kubernetes-action"`
			Kind   *schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(operations[method], &op) == nil && op.Kind != nil && op.Action != "" {
			return *op.Kind, true
		}
	}
	return gvk, false
}

// writeIndex writes one line for each document and resource, so that a diff
// between two releases can be read.
func writeIndex(file string, ix *index) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"module\": %q, \"revision\": %q, \"sum\": %q,\n\"documents\": [", ix.Module, ix.Revision, ix.Sum)
	if err := lines(&b, ix.Documents); err != nil {
		return err
	}
	b.WriteString("],\n\"resources\": [")
	if err := lines(&b, ix.Resources); err != nil {
		return err
	}
	b.WriteString("]}\n")
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func lines[T any](b *bytes.Buffer, list []T) error {
	for i, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(line)
	}
	return nil
}
