package cases

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

var (
	headline   = regexp.MustCompile(`^((?:Gatekeeper |Kubewarden )?§)(\d+(?:\.\d+)?)((?: [AT]\d+,?)*): \S`)
	directive  = regexp.MustCompile(`^(skip|compat): ([a-z0-9-]+) — (\S.*)$`)
	minorRange = regexp.MustCompile(`^kubernetes: (from|to) 1\.(\d+) — \S`)
	documentAt = regexp.MustCompile(`(?m)^---\s*$`)
	runners    = []string{"oracle", "engine", "e2e", "gatekeeper", "guests"}
	sections   = []string{"policies.yaml", "mutators.yaml", "guests.yaml", "modules.yaml", "params.yaml", "namespaces.yaml", "crds.yaml", "rbac.yaml", "external.yaml",
		"request.yaml", "want.object.yaml", "want.error", "want.rounds", "want.passes", "want.steps"}
)

// Parse reads one case file. name is the case's name.
func Parse(name string, data []byte) (*Case, error) {
	archive := txtar.Parse(data)
	c := &Case{Name: name, Skip: map[string]string{}}
	if err := c.comment(string(archive.Comment)); err != nil {
		return nil, err
	}
	section := map[string]string{}
	for _, f := range archive.Files {
		if !slices.Contains(sections, f.Name) {
			return nil, fmt.Errorf("section %q is not known", f.Name)
		}
		if _, twice := section[f.Name]; twice {
			return nil, fmt.Errorf("section %q appears twice", f.Name)
		}
		section[f.Name] = string(f.Data)
	}
	switch {
	case section["policies.yaml"] == "" && section["mutators.yaml"] == "" && section["guests.yaml"] == "":
		return nil, fmt.Errorf("section %q is missing", "policies.yaml")
	case section["request.yaml"] == "":
		return nil, fmt.Errorf("section %q is missing", "request.yaml")
	}

	docs := map[string][]*unstructured.Unstructured{}
	for _, name := range []string{"policies.yaml", "mutators.yaml", "guests.yaml", "params.yaml", "namespaces.yaml", "crds.yaml", "rbac.yaml"} {
		objs, err := documents(section[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		docs[name] = objs
	}
	for _, u := range docs["policies.yaml"] {
		switch u.GetKind() {
		case "MutatingAdmissionPolicy":
			c.Policies = append(c.Policies, u)
		case "MutatingAdmissionPolicyBinding":
			c.Bindings = append(c.Bindings, u)
		default:
			return nil, fmt.Errorf("policies.yaml: kind %q is neither a policy nor a binding", u.GetKind())
		}
	}
	if err := yaml.UnmarshalStrict([]byte(section["external.yaml"]), &c.External); err != nil {
		return nil, fmt.Errorf("external.yaml: %w", err)
	}
	if err := c.mutators(docs["mutators.yaml"]); err != nil {
		return nil, fmt.Errorf("mutators.yaml: %w", err)
	}
	if err := c.guests(docs["guests.yaml"], section["modules.yaml"]); err != nil {
		return nil, err
	}
	c.CRDs, c.RBAC = docs["crds.yaml"], docs["rbac.yaml"]
	kinds, err := newKinds(c.CRDs)
	if err != nil {
		return nil, fmt.Errorf("crds.yaml: %w", err)
	}
	kinds.raw = len(c.Mutators) > 0 && len(c.Policies)+len(c.Guests) == 0
	for _, u := range docs["params.yaml"] {
		n, err := kinds.normal(u)
		if err != nil {
			return nil, fmt.Errorf("params.yaml: %w", err)
		}
		c.Params = append(c.Params, n)
	}
	if err := c.request(section["request.yaml"], kinds); err != nil {
		return nil, fmt.Errorf("request.yaml: %w", err)
	}
	if err := c.namespaces(section, docs["namespaces.yaml"], kinds); err != nil {
		return nil, fmt.Errorf("namespaces.yaml: %w", err)
	}
	return c, c.want(section)
}

// mutators sorts what Gatekeeper reads. Kubernetes knows nothing of it.
func (c *Case) mutators(docs []*unstructured.Unstructured) error {
	for _, u := range docs {
		switch gvk := u.GroupVersionKind(); {
		case gvk.Group == "mutations.gatekeeper.sh":
			c.Mutators = append(c.Mutators, u)
		case gvk.Group == "config.gatekeeper.sh" && gvk.Kind == "Config" && c.Config == nil:
			c.Config = u
		default:
			return fmt.Errorf("%v is neither a mutator nor the one Config", gvk)
		}
	}
	if len(docs) > 0 {
		c.Request.UID = "<uuid>" // as Gatekeeper's errors are recorded
		for _, r := range []string{"oracle", "e2e"} {
			c.Skip[r] = "Kubernetes has no mutators"
		}
	}
	return nil
}

// guests reads Kubewarden's policies and what their modules answer. Nobody but mapd runs
// them.
func (c *Case) guests(docs []*unstructured.Unstructured, modules string) error {
	c.Guests = docs
	if err := yaml.UnmarshalStrict([]byte(modules), &c.Modules); err != nil {
		return fmt.Errorf("modules.yaml: %w", err)
	}
	for _, u := range docs {
		if group := u.GroupVersionKind().Group; group != "policies.kubewarden.io" {
			return fmt.Errorf("guests.yaml: group %q is not Kubewarden's", group)
		}
		module, _, _ := unstructured.NestedString(u.Object, "spec", "module")
		if _, ok := c.Modules[strings.TrimPrefix(module, "registry.example/")]; !ok {
			return fmt.Errorf("guests.yaml: module %q: want registry.example/ and a name of modules.yaml", module)
		}
	}
	if len(docs) == 0 {
		c.Skip["guests"] = "it has none"
		return nil
	}
	for _, r := range []string{"oracle", "engine", "e2e", "gatekeeper"} {
		c.Skip[r] = "only mapd runs WebAssembly, see internal/kubewarden/modulepolicy"
	}
	return nil
}

// comment reads the story and the directives.
func (c *Case) comment(text string) error {
	text = strings.TrimSpace(text)
	first, _, _ := strings.Cut(text, "\n")
	m := headline.FindStringSubmatch(first)
	if m == nil {
		return fmt.Errorf("first line %q: want a section and a sentence, such as \"§7.3: An atomic list …\"", first)
	}
	if c.Section = m[2]; m[1] != "§" {
		c.Section = strings.TrimSuffix(m[1], "§") + m[2]
	}
	c.Vectors = strings.Fields(strings.ReplaceAll(m[3], ",", " "))
	var story []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		d, only := directive.FindStringSubmatch(line), minorRange.FindStringSubmatch(line)
		switch {
		case only != nil:
			minor, err := strconv.Atoi(only[2])
			if err != nil {
				return fmt.Errorf("directive %q: %w", line, err)
			}
			if only[1] == "from" {
				c.Oldest = minor
			} else {
				c.Newest = minor
			}
		case d == nil:
			if strings.HasPrefix(line, "skip:") || strings.HasPrefix(line, "compat:") || strings.HasPrefix(line, "kubernetes:") {
				return fmt.Errorf("directive %q: want \"skip: RUNNER — reason\", \"compat: ROW — reason\" or \"kubernetes: from 1.N — reason\" (or \"to\")", line)
			}
			story = append(story, line)
		case d[1] == "compat":
			c.Compat, c.CompatReason = d[2], d[3]
		case !slices.Contains(runners, d[2]):
			return fmt.Errorf("directive %q: runner must be one of %v", line, runners)
		default:
			c.Skip[d[2]] = d[3]
		}
	}
	c.Story = strings.TrimSpace(strings.Join(story, "\n"))
	return nil
}

// documents splits a YAML stream into objects.
func documents(text string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for i, doc := range documentAt.Split(text, -1) {
		tree, err := decode(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if tree != nil {
			all = append(all, &unstructured.Unstructured{Object: tree})
		}
	}
	return all, nil
}

// decode reads one YAML document into a tree that keeps integers; an empty
// document is nil. Duplicate keys are errors.
func decode(doc string) (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	return tree, kjson.UnmarshalCaseSensitivePreserveInts(data, &tree)
}

func (c *Case) namespaces(section map[string]string, given []*unstructured.Unstructured, k *kinds) error {
	for _, u := range given {
		n, err := k.normal(u)
		if err != nil {
			return err
		}
		c.Namespaces = append(c.Namespaces, n)
	}
	// A case that does not care about its namespace need not write it down. One
	// that has the section, if only an empty one, says exactly which exist.
	_, exact := section["namespaces.yaml"]
	if exact || c.Request.Namespace == "" || c.Request.Kind.Kind == "Namespace" {
		return nil
	}
	n, err := k.normal(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata": map[string]any{
			"name":   c.Request.Namespace,
			"labels": map[string]any{"kubernetes.io/metadata.name": c.Request.Namespace},
		},
	}})
	c.Namespaces = append(c.Namespaces, n)
	return err
}

func (c *Case) want(section map[string]string) error {
	object, hasObject := section["want.object.yaml"]
	text, hasError := section["want.error"]
	if hasObject && hasError {
		return fmt.Errorf("both want.object.yaml and want.error")
	}
	c.WantUnchanged = !hasObject && !hasError
	c.WantError = strings.TrimSpace(text)
	if hasError && c.WantError == "" {
		return fmt.Errorf("want.error is empty")
	}
	switch {
	case hasObject:
		tree, err := decode(object)
		if err != nil {
			return fmt.Errorf("want.object.yaml: %w", err)
		}
		c.WantObject = &unstructured.Unstructured{Object: tree}
	case !hasError:
		c.WantObject = c.Request.Object
	}
	if text, ok := section["want.rounds"]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 2 {
			return fmt.Errorf("want.rounds: %q: want 1 or 2", strings.TrimSpace(text))
		}
		c.WantRounds = n
	}
	if text, ok := section["want.passes"]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 {
			return fmt.Errorf("want.passes: %q: want a number", strings.TrimSpace(text))
		}
		c.WantPasses = &n
	}
	c.WantSteps = strings.TrimSpace(section["want.steps"])
	return nil
}

// requestFile is request.yaml as written.
type requestFile struct {
	Operation          string                     `json:"operation"`
	Kind               string                     `json:"kind"`
	Resource           string                     `json:"resource"`
	SubResource        string                     `json:"subresource"`
	RequestKind        string                     `json:"requestKind"`
	RequestResource    string                     `json:"requestResource"`
	RequestSubResource *string                    `json:"requestSubresource"`
	Name               *string                    `json:"name"`
	Namespace          *string                    `json:"namespace"`
	User               *authenticationv1.UserInfo `json:"user"`
	DryRun             bool                       `json:"dryRun"`
	Source             string                     `json:"source"`
	// The trees are taken from the raw document, where integers are kept.
	Options   any `json:"options"`
	Object    any `json:"object"`
	OldObject any `json:"oldObject"`
}

func (c *Case) request(text string, k *kinds) error {
	var f requestFile
	if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
		return err
	}
	tree, err := decode(text)
	if err != nil {
		return err
	}
	r := &c.Request
	r.Operation, r.SubResource, r.DryRun = f.Operation, f.SubResource, f.DryRun
	if r.Operation == "" {
		r.Operation = "CREATE"
	}
	if !slices.Contains([]string{"CREATE", "UPDATE", "DELETE", "CONNECT"}, r.Operation) {
		return fmt.Errorf("operation %q is not known", r.Operation)
	}
	if r.Generated = f.Source == "Generated"; !r.Generated && f.Source != "" {
		return fmt.Errorf("source %q is not known", f.Source)
	}
	for _, o := range []struct {
		key string
		to  **unstructured.Unstructured
	}{{"object", &r.Object}, {"oldObject", &r.OldObject}} {
		content, ok := tree[o.key].(map[string]any)
		if !ok {
			continue
		}
		if *o.to, err = k.normal(&unstructured.Unstructured{Object: content}); err != nil {
			return fmt.Errorf("%s: %w", o.key, err)
		}
	}
	main := r.Object
	if main == nil {
		main = r.OldObject
	}

	switch {
	case f.Kind != "":
		r.Kind, err = parseKind(f.Kind)
	case main != nil:
		r.Kind = main.GroupVersionKind()
	default:
		err = fmt.Errorf("no object and no kind")
	}
	if err != nil {
		return err
	}
	if f.Resource != "" {
		r.Resource, err = parseResource(f.Resource)
	} else {
		r.Resource, err = k.resource(r.Kind)
	}
	if err != nil {
		return err
	}
	r.RequestKind, r.RequestResource, r.RequestSubResource = r.Kind, r.Resource, r.SubResource
	if f.RequestKind != "" {
		if r.RequestKind, err = parseKind(f.RequestKind); err != nil {
			return err
		}
	}
	if f.RequestResource != "" {
		if r.RequestResource, err = parseResource(f.RequestResource); err != nil {
			return err
		}
	}
	if f.RequestSubResource != nil {
		r.RequestSubResource = *f.RequestSubResource
	}

	if main != nil {
		r.Name, r.Namespace = main.GetName(), main.GetNamespace()
		if r.Kind == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
			r.Namespace = r.Name // spec §6.1: the server sets both
		}
	}
	if f.Name != nil {
		r.Name = *f.Name
	}
	if f.Namespace != nil {
		r.Namespace = *f.Namespace
	}
	r.User = authenticationv1.UserInfo{Username: "alice", Groups: []string{"developers", "system:authenticated"}}
	if f.User != nil {
		r.User = *f.User
	}
	r.Options = options(r.Operation, r.DryRun, tree["options"])
	return nil
}

// options are the operation's options as a server hands them on: none for
// CONNECT, spec §2.6.
func options(operation string, dryRun bool, given any) map[string]any {
	kind := map[string]string{"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[operation]
	if kind == "" {
		return nil
	}
	all := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind}
	if dryRun {
		all["dryRun"] = []any{"All"}
	}
	if tree, ok := given.(map[string]any); ok {
		for key, v := range runtime.DeepCopyJSON(tree) {
			all[key] = v
		}
	}
	return all
}

// parseKind reads "group/version/Kind" or "version/Kind".
func parseKind(s string) (schema.GroupVersionKind, error) {
	gv, kind, err := groupVersion(s)
	return gv.WithKind(kind), err
}

// parseResource reads "group/version/resources" or "version/resources".
func parseResource(s string) (schema.GroupVersionResource, error) {
	gv, resource, err := groupVersion(s)
	return gv.WithResource(resource), err
}

func groupVersion(s string) (schema.GroupVersion, string, error) {
	i := strings.LastIndexByte(s, '/')
	if i <= 0 || i == len(s)-1 {
		return schema.GroupVersion{}, "", fmt.Errorf("%q: want [group/]version/name", s)
	}
	gv, err := schema.ParseGroupVersion(s[:i])
	return gv, s[i+1:], err
}
