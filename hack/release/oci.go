package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"time"

	digest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// file is a file of an archive.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// tarball returns files as a tar archive whose bytes depend only on the arguments.
func tarball(files []file, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: modified, Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// imageRepository is the name of the image in the manifests and the chart.
const imageRepository = "ghcr.io/mapd-project/mapd"

// layout is an OCI image layout in a tar archive. podman, skopeo, oras and ctr can read it; docker
// can if it also contains manifest.json.
type layout struct {
	files []file
	there map[digest.Digest]bool
}

// add adds a blob.
func (l *layout) add(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(fmt.Sprintf("sha256:%x", sha256.Sum256(data))), Size: int64(len(data))}
	if !l.there[d.Digest] {
		l.files = append(l.files, file{blobName(d.Digest), 0o644, data})
		if l.there == nil {
			l.there = map[digest.Digest]bool{}
		}
		l.there[d.Digest] = true
	}
	return d
}

func blobName(d digest.Digest) string { return "blobs/sha256/" + d.Encoded() }

// addJSON adds a value as a blob.
func (l *layout) addJSON(mediaType string, v any) (ocispec.Descriptor, error) {
	text, err := json.Marshal(v)
	return l.add(mediaType, text), err
}

// dockerImage is an image in manifest.json. docker reads that file if it stores images itself
// instead of in containerd.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// tar returns the layout, whose index has the descriptor top with a tag. name is the name that an
// image gets when it is loaded: without it podman uses localhost/TAG:latest, and ctr
// import-DATE:TAG.
func (l *layout) tar(top ocispec.Descriptor, tag, name string, docker []dockerImage, modified time.Time) ([]byte, error) {
	top.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	if name != "" {
		top.Annotations["io.containerd.image.name"] = name
	}
	files := []file{{name: ocispec.ImageLayoutFile}, {name: ocispec.ImageIndexFile}}
	values := []any{
		ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion},
		ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{top}},
	}
	if docker != nil {
		files, values = append(files, file{name: "manifest.json"}), append(values, docker)
	}
	for i, v := range values {
		var err error
		files[i].mode = 0o644
		if files[i].data, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return tarball(append(files, l.files...), modified)
}

// layer is a layer of an image.
type layer struct {
	packed []byte
	diffID digest.Digest // the digest of the layer before compression
}

func newLayer(files []file, modified time.Time) (layer, error) {
	plain, err := tarball(files, modified)
	if err != nil {
		return layer{}, err
	}
	packed, err := compress(plain)
	return layer{packed, digest.Digest(fmt.Sprintf("sha256:%x", sha256.Sum256(plain)))}, err
}

// image returns an image of programs for Linux, one for each architecture, in their order. It is
// like that of Dockerfile: the program and its licence, run by a user that is not root.
func image(version, tag string, programs []*program, modified time.Time) ([]byte, error) {
	var l layout
	var manifests []ocispec.Descriptor
	var docker []dockerImage
	labels := map[string]string{
		ocispec.AnnotationTitle: "mapd", ocispec.AnnotationDescription: description, ocispec.AnnotationSource: repository,
		ocispec.AnnotationLicenses: "Apache-2.0", ocispec.AnnotationVersion: version,
	}
	for _, p := range programs {
		layer := l.add(ocispec.MediaTypeImageLayerGzip, p.layer.packed)
		platform := ocispec.Platform{OS: "linux", Architecture: p.goarch}
		config, err := l.addJSON(ocispec.MediaTypeImageConfig, ocispec.Image{
			Created: &modified, Platform: platform,
			Config: ocispec.ImageConfig{
				User: "65532:65532", ExposedPorts: map[string]struct{}{"8443/tcp": {}}, Entrypoint: []string{"/mapd"}, Labels: labels,
			},
			RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{p.layer.diffID}},
		})
		if err != nil {
			return nil, err
		}
		manifest, err := l.addJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{layer},
		})
		if err != nil {
			return nil, err
		}
		docker = append(docker, dockerImage{blobName(config.Digest), []string{imageRepository + ":" + tag + "-" + p.goarch}, []string{blobName(layer.Digest)}})
		manifest.Platform = &platform
		manifests = append(manifests, manifest)
	}
	index, err := l.addJSON(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: manifests, Annotations: labels,
	})
	if err != nil {
		return nil, err
	}
	return l.tar(index, tag, imageRepository+":"+tag, docker, modified)
}

// Media types of charts: https://helm.sh/docs/topics/registries.
const (
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chartArtifact returns a packed chart as the artifact that `helm push` uploads. meta is its
// Chart.yaml.
func chartArtifact(packed []byte, meta map[string]any, modified time.Time) ([]byte, error) {
	var l layout
	config, err := l.addJSON(chartConfigType, meta)
	if err != nil {
		return nil, err
	}
	name, version := fmt.Sprint(meta["name"]), fmt.Sprint(meta["version"])
	manifest, err := l.addJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config,
		Layers: []ocispec.Descriptor{l.add(chartLayerType, packed)},
		Annotations: map[string]string{
			ocispec.AnnotationTitle: name, ocispec.AnnotationVersion: version, ocispec.AnnotationDescription: description, ocispec.AnnotationSource: repository,
		},
	})
	if err != nil {
		return nil, err
	}
	return l.tar(manifest, version, "", nil, modified)
}
