package gatekeeper

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/recorded/*.yaml testdata/corpus/*.yaml
var files embed.FS

// Case is mutators and a request.
type Case struct {
	Name string
	// Mutators are in the order in which they come to Gatekeeper.
	Mutators []*unstructured.Unstructured
	// Request has no Object if the case is about the mutators alone.
	Request Request
}

// recordedCase is a case of testdata/recorded and what came of it.
type recordedCase struct {
	Case
	refused, conflicts map[string]string
	result             Result
	providers          Providers
}

var document = regexp.MustCompile(`(?m)^---$`)

// recorded reads one file of testdata/recorded.
func recorded(name string) ([]recordedCase, error) {
	docs, err := documents("testdata/recorded/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	var all []recordedCase
	for _, doc := range docs {
		c, err := newRecorded(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %w", name, doc["name"], err)
		}
		all = append(all, c)
	}
	return all, nil
}

func newRecorded(doc map[string]any) (recordedCase, error) {
	u := unstructured.Unstructured{Object: doc}
	c := recordedCase{Case: Case{Name: text(doc, "name")}}
	var err error
	if c.Mutators, err = mutatorsOf(u); err != nil {
		return c, err
	}
	r := &c.Request
	r.Object, _ = doc["object"].(map[string]any)
	if file := text(doc, "objectFile"); file != "" {
		if r.Object, err = corpusFile(file); err != nil {
			return c, err
		}
	}
	r.NamespaceObject, _ = doc["namespace"].(map[string]any)
	r.Operation, r.Source = "CREATE", "Original"
	// What was not said in a recording's request is what the object says.
	r.Namespace = (&unstructured.Unstructured{Object: r.Object}).GetNamespace()
	if request, ok := doc["request"].(map[string]any); ok {
		for key, to := range map[string]*string{"namespace": &r.Namespace, "operation": &r.Operation, "source": &r.Source, "username": &r.Username} {
			if v, ok := request[key].(string); ok {
				*to = v
			}
		}
		r.Annotate, _ = request["annotate"].(bool)
	}
	replies, _, _ := unstructured.NestedStringMap(doc, "providers")
	c.providers = Providers(replies)
	c.refused, _, _ = unstructured.NestedStringMap(doc, "want", "refused")
	c.conflicts, _, _ = unstructured.NestedStringMap(doc, "want", "conflicts")
	passes, _, _ := unstructured.NestedInt64(doc, "want", "passes")
	c.result.Passes = int(passes)
	c.result.Error, _, _ = unstructured.NestedString(doc, "want", "error")
	c.result.Error = mask(c.result.Error)
	c.result.Object, _, _ = unstructured.NestedMap(doc, "want", "object")
	if c.result.Object == nil && c.result.Error == "" {
		c.result.Object = r.Object
	}
	return c, nil
}

// mutatorsOf are those of a recording: as they are, since these cases were
// recorded without the defaults of an API server, or those of files, with them.
func mutatorsOf(u unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	given, _, _ := unstructured.NestedSlice(u.Object, "mutators")
	for _, m := range given {
		all = append(all, &unstructured.Unstructured{Object: m.(map[string]any)})
	}
	names, _, _ := unstructured.NestedStringSlice(u.Object, "mutatorFiles")
	for _, name := range names {
		tree, err := corpusFile(name)
		if err != nil {
			return nil, err
		}
		m, err := Default(&unstructured.Unstructured{Object: tree})
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func corpusFile(name string) (map[string]any, error) {
	docs, err := documents("testdata/corpus/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	if len(docs) != 1 {
		return nil, fmt.Errorf("%s: %d documents, want one", name, len(docs))
	}
	return docs[0], nil
}

// corpus are the objects of all files in testdata/corpus of which keep says yes,
// by file name without extension.
func corpus(keep func(name string) bool) (map[string]map[string]any, error) {
	entries, err := fs.ReadDir(files, "testdata/corpus")
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]any{}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), path.Ext(e.Name()))
		if !keep(name) {
			continue
		}
		if all[name], err = corpusFile(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Library are the mutators of Gatekeeper's library.
func Library() ([]*unstructured.Unstructured, error) {
	all, err := corpus(func(name string) bool { return strings.HasPrefix(name, "lib-") })
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, &unstructured.Unstructured{Object: all[name]})
	}
	return out, nil
}

// Documented are mutators of Gatekeeper's documentation that change any Pod.
func Documented() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, name := range []string{"doc-assign-dns-config", "doc-assign-dns-policy", "doc-assign-env-create-only",
		"doc-assign-image-pull-policy", "doc-assign-sidecar", "doc-assignimage-all-parts"} {
		tree, err := corpusFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, &unstructured.Unstructured{Object: tree})
	}
	return out, nil
}

func documents(name string) ([]map[string]any, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for i, doc := range document.Split(string(data), -1) {
		tree, err := parse(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, i, err)
		}
		if tree != nil {
			all = append(all, tree)
		}
	}
	return all, nil
}

// parse reads YAML as Kubernetes' clients do: by way of JSON, where a float
// without a fraction is an integer.
func parse(doc string) (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	return tree, kjson.UnmarshalCaseSensitivePreserveInts(data, &tree)
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
