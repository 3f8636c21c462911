// Package supportbundle collects what somebody without access to the cluster needs to find out
// what is wrong with mapd there.
//
// A bundle shows names, states and counts. This package lists each field that a bundle may have;
// it does not take whole objects and remove fields from them. A bundle holds no Secret, no
// parameter, no value of an object that a policy would change, no value of an environment
// variable, no message of an event or of a container, and no annotation but mapd's own.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/words"
)

// Bounds of a bundle.
const (
	maxFile   = 8 << 20  // bytes of one file
	maxLog    = 2 << 20  // bytes of the log of one container, the last ones
	maxBundle = 64 << 20 // bytes of all files
	maxPods   = 10
	maxReason = 1 << 10 // bytes of the reason why something is missing
)

// Options say what goes into a bundle. Kubernetes is required.
type Options struct {
	Kubernetes kubernetes.Interface
	// Namespace and Name are those of mapd's Deployment, Service and Lease.
	Namespace, Name string
	// NoPolicies leaves the texts of policies, bindings and exceptions out.
	NoPolicies bool
	// Version describes mapd and the machine on which the bundle is made.
	Version string
	// Doctor writes the report of mapd doctor. If it is nil, the bundle has no such report.
	Doctor func(ctx context.Context, w io.Writer) error
	// Replicas finds mapd's replicas. If it is nil, they are not asked.
	Replicas func(ctx context.Context) (Replicas, error)
	Now      time.Time
}

// Manifest says what a bundle holds. It is the file manifest.json.
type Manifest struct {
	Made  time.Time `json:"made"`
	Files []File    `json:"files"`
	// Missing lists what could not be read, and why.
	Missing []Missing `json:"missing"`
	// LeftOut is what a bundle never holds.
	LeftOut []string `json:"leftOut"`
}

// File is one file of a bundle.
type File struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// Cut: the file has only a part of the text, because of a bound.
	Cut bool `json:"cut,omitempty"`
}

// Missing is something that could not be read or did not fit, with the reason.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Write writes a bundle, a tar archive compressed with gzip, and returns its Manifest. It fails
// only if w cannot be written; what cannot be read from the cluster is in Manifest.Missing.
func Write(ctx context.Context, w io.Writer, o Options) (Manifest, error) {
	zip := gzip.NewWriter(w)
	b := &builder{Options: o, tar: tar.NewWriter(zip), hidden: map[string]bool{}}
	b.Manifest = Manifest{Made: o.Now.UTC(), Files: []File{}, Missing: []Missing{}, LeftOut: []string{
		"Secrets", "parameters of policies", "values of environment variables", "messages of events and of containers",
		"annotations but those of mapd.dev", "values of objects in samples", "lines of logs that mapd did not format",
	}}
	if o.NoPolicies {
		b.LeftOut = append(b.LeftOut, "texts of policies, bindings and exceptions, and matchConditions of webhooks (--no-policies)")
	}
	b.collect(ctx)
	text, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return b.Manifest, err
	}
	b.put("manifest.json", append(text, '\n'))
	for _, close := range []func() error{b.tar.Close, zip.Close} {
		if err := close(); b.err == nil {
			b.err = err
		}
	}
	return b.Manifest, b.err
}

type builder struct {
	Options
	Manifest
	tar    *tar.Writer
	size   int
	err    error           // of writing
	hidden map[string]bool // values of environment variables
}

// missing adds an entry to Manifest.Missing.
func (b *builder) missing(what string, err error) {
	b.Missing = append(b.Missing, Missing{what, words.Cut(b.clean(err.Error()), maxReason)})
}

// add adds a file, without credentials and values of variables, up to the bounds.
func (b *builder) add(name string, text []byte, cut bool) {
	text = []byte(b.clean(string(text)))
	if len(text) > maxFile {
		text, cut = text[:maxFile], true
	}
	if b.size+len(text) > maxBundle {
		b.missing(name, fmt.Errorf("the bundle would have more than %d bytes", maxBundle))
		return
	}
	b.size += len(text)
	b.Files = append(b.Files, File{name, len(text), cut})
	b.put(name, text)
}

// put writes a file into the archive.
func (b *builder) put(name string, text []byte) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Name: "mapd-bundle/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.Now, Format: tar.FormatPAX})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

// addObjects adds objects as YAML.
func (b *builder) addObjects(name string, objects []map[string]any, cut bool) {
	var out strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			b.missing(name, err)
			return
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	b.add(name, []byte(out.String()), cut)
}

// raw reads a path of the API server, up to limit bytes of it.
func (b *builder) raw(ctx context.Context, limit int, req *rest.Request) (text []byte, cut bool, err error) {
	stream, err := req.Stream(ctx)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	text, err = io.ReadAll(io.LimitReader(stream, int64(limit)+1))
	if err != nil {
		return nil, false, err
	}
	if len(text) > limit {
		return text[:limit], true, nil
	}
	return text, false, nil
}

// end reads a path of the API server, and keeps the last limit bytes of it.
func (b *builder) end(ctx context.Context, limit int, req *rest.Request) (text []byte, cut bool, err error) {
	stream, err := req.Stream(ctx)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	for err == nil {
		into := bytes.NewBuffer(text)
		_, err = io.CopyN(into, stream, int64(limit))
		if text = into.Bytes(); len(text) > limit {
			text, cut = append([]byte(nil), text[len(text)-limit:]...), true
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	return text, cut, nil
}

// read returns one object, or the items of a list.
func (b *builder) read(ctx context.Context, path string, params ...string) ([]map[string]any, error) {
	req := b.Kubernetes.Discovery().RESTClient().Get().AbsPath(path)
	for i := 0; i+1 < len(params); i += 2 {
		req.Param(params[i], params[i+1])
	}
	text, cut, err := b.raw(ctx, 4*maxFile, req)
	if err != nil {
		return nil, err
	}
	if cut {
		return nil, fmt.Errorf("more than %d bytes", 4*maxFile)
	}
	var o unstructured.Unstructured
	if err := o.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	if !o.IsList() {
		return []map[string]any{o.Object}, nil
	}
	list, err := o.ToList()
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for i := range list.Items {
		all = append(all, list.Items[i].Object)
	}
	slices.SortStableFunc(all, func(a, b map[string]any) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return all, nil
}

func nameOf(o map[string]any) string {
	name, _, _ := unstructured.NestedString(o, "metadata", "name")
	return name
}
