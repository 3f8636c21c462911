// Package gallery collects the examples of the playground. Most of them are also part of the
// documentation: the directories of examples/, the pages of the tour, and the policies in blocks
// of other pages. Those in web/gallery/gatekeeper are only for the playground.
package gallery

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

// A State is the contents of the playground: the Question of package web.
type State struct {
	Documents   []Text `json:"documents"`
	Objects     []Text `json:"objects"`
	Old         []Text `json:"old,omitempty"`
	Operation   string `json:"operation,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Unbound     bool   `json:"unbound,omitempty"`
}

// A Text is YAML with a name.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// An Entry is an example of the playground. Its State is in a file of its own, which the page
// fetches when the user opens the example.
type Entry struct {
	Name     string   `json:"name"` // of the file, and in a link: #example=NAME
	Group    string   `json:"group"`
	Title    string   `json:"title"`
	Sentence string   `json:"sentence"`
	Tags     []string `json:"tags"`
	// Words are the paragraphs of a tour's part, Markdown with nothing but `code`. Parts
	// follow each other in their order here.
	Words []string `json:"words,omitempty"`
	// From names the policy or check of another project that an example of the catalogue replaces.
	From string `json:"from,omitempty"`

	State State `json:"-"`
	// Traps are the warnings in the comment of an example of the catalogue.
	Traps []string `json:"-"`
	// The expected result. One of these is set: Objects (YAML, all objects in their order), Refused
	// (a part of the message) or Diff (in the format of mapd eval).
	Objects, Refused, Diff string `json:"-"`
	// Case is the file of test/cases that a tour's part is about, without extension.
	Case string `json:"-"`
}

// Entries returns all entries; root is that of the repository.
func Entries(root fs.FS) ([]Entry, error) {
	var all []Entry
	for _, read := range []func(fs.FS) ([]Entry, error){tour, examples, programs, gatekeeper} {
		entries, err := read(root)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	seen := map[string]bool{}
	for i := range all {
		e := &all[i]
		if seen[e.Name] {
			return nil, fmt.Errorf("two entries are called %s", e.Name)
		}
		seen[e.Name] = true
		if e.Tags == nil {
			tags, err := tagsOf(e.State)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name, err)
			}
			e.Tags = tags
		}
	}
	return all, nil
}

// Write writes index.json with the entries, and NAME.json with the state of each entry, to dir. It
// removes all other files there.
func Write(root fs.FS, dir string) error {
	entries, err := Entries(root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := WriteJSON(filepath.Join(dir, "index.json"), entries); err != nil {
		return err
	}
	for _, e := range entries {
		if err := WriteJSON(filepath.Join(dir, e.Name+".json"), e.State); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes v as JSON to a file. It creates the directory of the file if necessary.
func WriteJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o666)
}

// groups are the groups of the examples, in the order of the gallery.
var groups = []string{
	"From the Kubernetes documentation", "Images", "Resources and scheduling", "Security",
	"Environment, volumes and network", "Labels and annotations",
}

// examples reads the directories of examples/ that have a policy, group by group.
func examples(root fs.FS) ([]Entry, error) {
	policies, err := fs.Glob(root, "examples/*/policy.yaml")
	if err != nil {
		return nil, err
	}
	all := make([]Entry, len(policies))
	for i, file := range policies {
		dir := path.Dir(file)
		texts, err := files(root, dir, "policy.yaml", "objects.yaml", "want.yaml")
		if err != nil {
			return nil, err
		}
		e := Entry{Name: path.Base(dir), State: State{Documents: texts[:1], Objects: texts[1:2]}, Objects: texts[2].Text}
		e.Title = title(e.Name)
		if err := e.describe(texts[0].Text); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[i] = e
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return slices.Index(groups, a.Group) - slices.Index(groups, b.Group) })
	return all, nil
}

// describe reads the comment on top of a policy: a paragraph, whose first sentence says
// what the policy changes, and the fields Group, From and, once for each, Trap. A line
// that continues a field is indented.
func (e *Entry) describe(policy string) error {
	var about string
	fields := map[string][]string{}
	field := ""
	for line := range strings.Lines(policy) {
		text, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		text = strings.TrimPrefix(strings.TrimSuffix(text, "\n"), " ")
		name, value, isField := strings.Cut(text, ": ")
		switch {
		case text == "":
			field = "none"
		case field == "":
			about += text + " "
		case strings.HasPrefix(text, "  ") && len(fields[field]) > 0:
			fields[field][len(fields[field])-1] += " " + strings.TrimSpace(text)
		case !isField || !slices.Contains([]string{"Group", "From", "Trap"}, name):
			return fmt.Errorf("the comment has the line %q; want Group, From or Trap, a colon and a text", text)
		default:
			field = name
			fields[name] = append(fields[name], value)
		}
	}
	sentence, _, ok := strings.Cut(about, ". ")
	if !ok {
		return fmt.Errorf("the policy does not begin with a comment that says in a sentence what it changes")
	}
	e.Sentence = sentence + "."
	e.Traps = fields["Trap"]
	for name, to := range map[string]*string{"Group": &e.Group, "From": &e.From} {
		if len(fields[name]) > 1 {
			return fmt.Errorf("the comment has the field %s twice", name)
		}
		*to = strings.Join(fields[name], "")
	}
	switch {
	case !slices.Contains(groups, e.Group):
		return fmt.Errorf("the group %q is none of %q", e.Group, groups)
	case len(e.Traps) == 0:
		return fmt.Errorf("the comment names no trap")
	}
	return nil
}

// programs returns the examples that need what a page does not have: a provider of external data,
// or a runtime for WebAssembly modules of policies.
func programs(root fs.FS) ([]Entry, error) {
	var all []Entry
	for _, p := range []struct {
		name, title, sentence, dir string
		documents                  []string
	}{
		{
			"external-data", "External data",
			"A page asks no provider, so the mutator is reported and changes nothing; see docs/move/external-data.md.",
			"examples/external-data", []string{"mutator.yaml"},
		},
		{
			"kubewarden", "A policy of Kubewarden's",
			"A page runs no WebAssembly modules of policies, so the policy is reported and changes nothing; see docs/move/kubewarden.md.",
			"examples/kubewarden/drop-capabilities", []string{"policy.yaml"},
		},
	} {
		texts, err := files(root, p.dir, append(slices.Clone(p.documents), "pod.yaml")...)
		if err != nil {
			return nil, err
		}
		n := len(p.documents)
		all = append(all, Entry{
			Name: p.name, Group: "What needs more than a page", Title: p.title, Sentence: p.sentence,
			State: State{Documents: texts[:n], Objects: texts[n:]}, Objects: texts[n].Text,
		})
	}
	return all, nil
}

// gatekeeper reads web/gallery/gatekeeper: examples after Gatekeeper's documentation of mutators.
// The comment of a file consists of a title, a sentence and the tags.
func gatekeeper(root fs.FS) ([]Entry, error) {
	names, err := fs.Glob(root, "web/gallery/gatekeeper/*.txtar")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range names {
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		archive := txtar.Parse(data)
		comment := strings.Split(strings.TrimSpace(string(archive.Comment)), "\n")
		if len(comment) != 3 {
			return nil, fmt.Errorf("%s: want a title, a sentence and tags, each in a line", name)
		}
		base, _, _ := strings.Cut(filepath.Base(name), ".")
		_, base, _ = strings.Cut(base, "-") // files are numbered in the order of the gallery
		e := Entry{
			Name: "gatekeeper-" + base, Group: "Gatekeeper's mutators", Title: comment[0], Sentence: comment[1],
			Tags: strings.Split(comment[2], ", "),
		}
		for _, f := range archive.Files {
			text := Text{Name: f.Name, Text: string(f.Data)}
			switch f.Name {
			case "objects.yaml":
				e.State.Objects = append(e.State.Objects, text)
			case "old.yaml":
				e.State.Old = append(e.State.Old, text)
			case "want.yaml":
				e.Objects = text.Text
			case "want.error":
				e.Refused = strings.TrimSpace(text.Text)
			default:
				e.State.Documents = append(e.State.Documents, text)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

func files(root fs.FS, dir string, names ...string) ([]Text, error) {
	texts := make([]Text, len(names))
	for i, name := range names {
		data, err := fs.ReadFile(root, dir+"/"+name)
		if err != nil {
			return nil, err
		}
		texts[i] = Text{Name: name, Text: string(data)}
	}
	return texts, nil
}

// title returns a title for the name of a directory.
func title(name string) string {
	words := strings.NewReplacer("-", " ", "jsonpatch", "JSONPatch", "apply", "ApplyConfiguration", "dns", "DNS", "psa", "Pod Security", "ids", "IDs",
		"ips", "IPs", "ttl", "TTL", "emptydir", "emptyDir").Replace(name)
	return strings.ToUpper(words[:1]) + words[1:]
}

// plain returns a sentence of Markdown without its marks.
func plain(s string) string {
	return strings.ReplaceAll(s, "`", "")
}

// tagsOf returns the tags of a state: the kinds of its objects, and the features of policies that
// it uses.
func tagsOf(s State) ([]string, error) {
	var tags []string
	add := func(tag string) {
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	for _, t := range s.Objects {
		docs, err := documents(t.Text)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			add(d.Kind)
		}
	}
	for _, t := range s.Documents {
		docs, err := documents(t.Text)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			switch d.Kind {
			case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
				for _, m := range d.Spec.Mutations {
					add(m.PatchType)
				}
				for tag, has := range map[string]bool{
					"parameters": d.Spec.ParamKind != nil, "variables": d.Spec.Variables != nil, "conditions": d.Spec.MatchConditions != nil,
				} {
					if has {
						add(tag)
					}
				}
			case "CustomResourceDefinition":
				add("custom resource")
			case "Namespace", "ConfigMap":
			default:
				if strings.HasPrefix(d.APIVersion, "mutations.gatekeeper.sh/") {
					add(d.Kind)
				}
			}
		}
	}
	slices.Sort(tags)
	return tags, nil
}

// A document has the fields of a YAML document that the gallery reads.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		ParamKind       any `json:"paramKind"`
		Variables       any `json:"variables"`
		MatchConditions any `json:"matchConditions"`
		Mutations       []struct {
			PatchType string `json:"patchType"`
		} `json:"mutations"`
	} `json:"spec"`
}

// documents splits a YAML stream.
func documents(text string) ([]document, error) {
	var all []document
	for i, part := range strings.Split("\n"+text, "\n---\n") {
		var d document
		if err := yaml.Unmarshal([]byte(part), &d); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if d.Kind != "" {
			all = append(all, d)
		}
	}
	return all, nil
}
