package krm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const (
	// ConfigGroup is the API group of configKind.
	ConfigGroup = "krm.mapd.dev"
	// configVersion is the version of configKind.
	configVersion = ConfigGroup + "/v1alpha1"
	// configKind is the kind of a functionConfig with policies.
	configKind = "Policies"
)

// Config has the contents of functionConfig: which policies run, and how.
type Config struct {
	// Paths are files and directories with policies and the objects that these need, below the
	// directory in which the function runs.
	Paths []string
	// Policies are the policies that functionConfig itself contains.
	Policies []*mapd.Document
	// Namespace is the namespace of items that have none. External is a file with recorded answers
	// of external data. Kubernetes is the minor release whose CEL libraries are used.
	Namespace, External, Kubernetes string
	// Unbound also runs policies without a binding. Assume continues if something that policies
	// need is missing.
	Unbound, Assume bool
}

// fields has functions that read the fields of the spec of a functionConfig, or of the data of a
// ConfigMap, by the name of the field.
var fields = map[string]func(c *Config, r *reader, at string, v any) error{
	"paths": func(c *Config, r *reader, at string, v any) (err error) {
		c.Paths, err = r.paths(at, v)
		return err
	},
	"policies":   func(c *Config, r *reader, at string, v any) error { return r.policies(c, at, v) },
	"namespace":  func(c *Config, r *reader, at string, v any) error { return r.text(&c.Namespace, at, v) },
	"external":   func(c *Config, r *reader, at string, v any) error { return r.text(&c.External, at, v) },
	"kubernetes": func(c *Config, r *reader, at string, v any) error { return r.text(&c.Kubernetes, at, v) },
	"unbound":    func(c *Config, r *reader, at string, v any) error { return r.flag(&c.Unbound, at, v) },
	"assume":     func(c *Config, r *reader, at string, v any) error { return r.flag(&c.Assume, at, v) },
}

// reader reads a functionConfig.
type reader struct {
	doc  *mapd.Document // the ResourceList
	data bool           // functionConfig is a ConfigMap, so all values are strings
}

// readConfig reads the functionConfig of a ResourceList, which may have none.
func readConfig(doc *mapd.Document) (*Config, error) {
	c := &Config{}
	raw := doc.Object().Object["functionConfig"]
	if raw == nil {
		return c, nil
	}
	const at = "functionConfig"
	r := &reader{doc: doc}
	object, ok := raw.(map[string]any)
	if !ok {
		return nil, doc.ErrorAt(at, errors.New("functionConfig must be an object"))
	}
	var in string
	switch version, kind := object["apiVersion"], object["kind"]; {
	case version == configVersion && kind == configKind:
		in = "spec"
	case version == "v1" && kind == "ConfigMap":
		in, r.data = "data", true
	default:
		return nil, doc.ErrorAt(at+".kind", fmt.Errorf("functionConfig: expected %s of %s, or a ConfigMap of v1", configKind, configVersion))
	}
	for name := range object {
		if name != "apiVersion" && name != "kind" && name != "metadata" && name != in && !(r.data && name == "immutable") {
			return nil, r.unknown(at, name, []string{in})
		}
	}
	values, ok := object[in].(map[string]any)
	if object[in] != nil && !ok {
		return nil, doc.ErrorAt(at+"."+in, fmt.Errorf("functionConfig.%s must be an object", in))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read := fields[name]
		if read == nil {
			return nil, r.unknown(at+"."+in, name, slices.Sorted(maps.Keys(fields)))
		}
		if err := read(c, r, at+"."+in+"."+name, values[name]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (r *reader) unknown(at, name string, known []string) error {
	text := fmt.Sprintf("%s has no field %q", at, name)
	if near := lookup.Nearest(name, known); near != "" {
		text += "; did you mean " + near + "?"
	} else {
		text += "; it has: " + strings.Join(known, ", ")
	}
	return r.doc.ErrorAtKey(at+"["+name+"]", errors.New(text))
}

func (r *reader) text(to *string, at string, v any) error {
	s, ok := v.(string)
	if !ok || s == "" {
		return r.doc.ErrorAt(at, fmt.Errorf("%s must be a string that is not empty", at))
	}
	*to = s
	return nil
}

func (r *reader) flag(to *bool, at string, v any) error {
	b, ok := v.(bool)
	if s, isText := v.(string); isText && r.data {
		var err error
		b, err = strconv.ParseBool(s)
		ok = err == nil
	}
	if !ok {
		return r.doc.ErrorAt(at, fmt.Errorf("%s must be true or false", at))
	}
	*to = b
	return nil
}

// paths reads a list of paths, or from a ConfigMap a string with one path on each line.
func (r *reader) paths(at string, v any) (paths []string, err error) {
	list, ok := v.([]any)
	if s, isText := v.(string); isText && r.data {
		ok = true
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "" {
				list = append(list, line)
			}
		}
	}
	if !ok {
		return nil, r.doc.ErrorAt(at, fmt.Errorf("%s must be a list of paths", at))
	}
	for i, v := range list {
		path, _ := v.(string)
		if path == "" || !filepath.IsLocal(path) || path == manifest.Stdin {
			return nil, r.doc.ErrorAt(fmt.Sprintf("%s[%d]", at, i), fmt.Errorf("%s[%d]: expected a path below the directory in which the function runs, not %q", at, i, v))
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// policies reads a list of objects, or from a ConfigMap a string with YAML documents.
func (r *reader) policies(c *Config, at string, v any) error {
	if s, isText := v.(string); isText && r.data {
		for d, err := range mapd.Read(at, strings.NewReader(s)) {
			if err != nil {
				return err
			}
			if d.Object() != nil {
				c.Policies = append(c.Policies, d)
			}
		}
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return r.doc.ErrorAt(at, fmt.Errorf("%s must be a list of objects", at))
	}
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		object, ok := v.(map[string]any)
		if !ok {
			return r.doc.ErrorAt(at, fmt.Errorf("%s is not an object", at))
		}
		d, err := r.doc.Part(at, object)
		if err != nil {
			return err
		}
		c.Policies = append(c.Policies, d)
	}
	return nil
}

// Bounds of the files that a functionConfig may name.
const (
	maxFiles = 1000
	maxBytes = 16 << 20
)

// Files returns the files of Paths. It fails if one of them, or External, is not a regular file or
// is outside of the working directory, also through a symbolic link.
func (c *Config) Files() (files []string, err error) {
	paths := c.Paths
	if c.External != "" {
		if !filepath.IsLocal(c.External) {
			return nil, fmt.Errorf("functionConfig: external: expected a path below the directory in which the function runs, not %q", c.External)
		}
		paths = append(slices.Clip(paths), c.External)
	}
	if len(paths) == 0 {
		return nil, nil
	}
	root, err := os.Getwd()
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, err
	}
	var left int64 = maxBytes
	inside := func(path string) error {
		real, err := filepath.EvalSymlinks(filepath.Join(root, path))
		if err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), root+string(filepath.Separator), ""))
		}
		rest, err := filepath.Rel(root, real)
		if err != nil || !filepath.IsLocal(rest) {
			return fmt.Errorf("%s: leads out of the directory in which the function runs", path)
		}
		info, err := os.Stat(real)
		switch {
		case err != nil:
			return err
		case info.IsDir():
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s: no plain file", path)
		default:
			if left -= info.Size(); left < 0 {
				return fmt.Errorf("%s: more than %d MiB in all files", path, maxBytes>>20)
			}
		}
		return nil
	}
	for _, path := range paths {
		if err := inside(path); err != nil {
			return nil, fmt.Errorf("functionConfig: %w", err)
		}
	}
	left = maxBytes
	found, _, err := manifest.Files(c.Paths, false)
	if err != nil {
		return nil, fmt.Errorf("functionConfig: %w", err)
	}
	if len(found) > maxFiles {
		return nil, fmt.Errorf("functionConfig: %d files; the most is %d", len(found), maxFiles)
	}
	for _, file := range found {
		if err := inside(file); err != nil {
			return nil, fmt.Errorf("functionConfig: %w", err)
		}
	}
	return found, nil
}
