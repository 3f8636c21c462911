package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Skipped counts the skipped files of directories by their type.
type Skipped map[string]int

// Types of files without objects.
const (
	Kustomization = "Kustomization"
	HelmChart     = "Helm chart"
	HelmValues    = "Helm values"
	HelmTemplate  = "Helm template"
	JSONSchema    = "JSON schema"
	OtherFile     = "file without apiVersion and kind"
)

// clientSide are API groups whose documents are read by commands, and never sent to a server.
var clientSide = []string{"kustomize.config.k8s.io/", "test.mapd.dev/", "cli.kyverno.io/", "test.gatekeeper.sh/"}

// foreign returns the type of a file in a directory if it has no objects. It returns "" for all
// other files, including those that cannot be read.
func foreign(path string) string {
	if what := foreignName(path); what != "" {
		return what
	}
	return foreignContent(path)
}

// Unfit returns an error if a path names a kustomization or a suite: other commands than those
// that take objects read it. What a program cannot read twice is not looked at.
func Unfit(path string) error {
	info, err := os.Stat(path)
	if path == Stdin || err != nil || !info.Mode().IsRegular() || isStdin(info) {
		return nil
	}
	switch what := foreignContent(path); {
	case what == Kustomization, what == OtherFile && foreignName(path) == Kustomization:
		return fmt.Errorf("%s: a kustomization: -k %s builds it", path, filepath.Dir(path))
	case what == "Suite", what == "Test": // the kind is Kyverno's
		return fmt.Errorf("%s: a suite: mapd test runs it", path)
	}
	return nil
}

// foreignContent returns the type of a file according to its content, "" if it has objects or
// cannot be read.
func foreignContent(path string) string {
	f, err := Open(path, MaxFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, sniffed))
	if err != nil || plainly(text) {
		return ""
	}
	rest, err := io.ReadAll(io.LimitReader(f, MaxDocument+1-int64(len(text))))
	if err != nil {
		return ""
	}
	return foreignText(path, append(text, rest...))
}

// foreignName returns the type of a file according to its name, "" if the name does not tell.
func foreignName(path string) string {
	base := strings.ToLower(filepath.Base(path))
	name := strings.TrimSuffix(base, filepath.Ext(base))
	dir := filepath.Dir(path)
	switch {
	case name == "kustomization":
		return Kustomization
	case base == "chart.yaml":
		return HelmChart
	case strings.HasPrefix(name, "values") && filepath.Ext(base) != ".json" && inChart(dir):
		return HelmValues
	}
	return ""
}

// foreignText returns the type of a file according to its text, "" if it has objects.
func foreignText(path string, text []byte) string {
	switch {
	case len(text) > MaxDocument || plainly(text[:min(len(text), sniffed)]):
		return ""
	case bytes.Contains(text, []byte("{{")) && underTemplates(filepath.Dir(path)):
		return HelmTemplate
	}
	return understood(text)
}

// sniffed is how many bytes of a file are read to see whether it has objects.
const sniffed = 4 << 10

// inChart reports whether a directory is that of a Helm chart.
func inChart(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "Chart.yaml"))
	return err == nil
}

// underTemplates reports whether a directory is the one for templates of a Helm chart, or
// below it.
func underTemplates(dir string) bool {
	for {
		parent := filepath.Dir(dir)
		if parent == dir {
			return false
		}
		if filepath.Base(dir) == "templates" && inChart(parent) {
			return true
		}
		dir = parent
	}
}

// plainly reports whether a text begins with a YAML object, judged by its lines without parsing.
func plainly(text []byte) bool {
	var kind, version bool
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("---")) && (kind || version) {
			break
		}
		kind = kind || bytes.HasPrefix(line, []byte("kind: "))
		if v, ok := bytes.CutPrefix(line, []byte("apiVersion: ")); ok {
			version = !ofClient(string(v))
		}
	}
	return kind && version && !bytes.Contains(text, []byte("{{"))
}

func ofClient(apiVersion string) bool {
	return slices.ContainsFunc(clientSide, func(group string) bool { return strings.HasPrefix(apiVersion, group) })
}

// understood returns what a text is in which no document has a kind, or an apiVersion and
// metadata. It returns "" for others: a field that is missing there is a mistake.
func understood(text []byte) (what string) {
	chunks("", bytes.NewReader(text), ofFile, func(c chunk, err error) bool {
		var d *Document
		if err == nil {
			d, err = newDocument("", c)
		}
		switch {
		case errors.Is(err, errNoObject):
			what = cmp.Or(what, OtherFile)
			return true
		case err != nil && bytes.Contains(text, []byte("{{")):
			what = HelmTemplate
			return false
		case err != nil:
			what = ""
			return false
		case d.Object == nil:
			return true
		}
		object := d.Object.Object
		version, typed := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		switch {
		case object["$schema"] != nil:
			what = JSONSchema
		case ofClient(version) && kind != "":
			what = kind
		case object["kind"] != nil, typed && object["metadata"] != nil:
			what = ""
			return false
		default:
			what = cmp.Or(what, OtherFile)
		}
		return true
	})
	return what
}
