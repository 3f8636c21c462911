package download

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

const (
	// layerType is the media type of the layer that contains the module.
	layerType = "application/vnd.wasm.content.layer.v1+wasm"
	// maxManifest bounds the size of a manifest, as registries do.
	maxManifest = 4 << 20
)

// pull returns the module of an OCI artifact. With a digest or a tag other than latest, the
// artifact is pulled once and then taken from the cache; latest is pulled each time (Kubewarden
// spec §6.4).
func (f *Fetcher) pull(ctx context.Context, reference string) ([]byte, error) {
	ref, err := registry.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("not the reference of an OCI artifact: %w", err)
	}
	if err := f.sources.unlisted(withPort(&url.URL{Scheme: "https", Host: ref.Registry})); err != nil { // also what was pulled before
		return nil, err
	}
	once := ref.Reference != "" && ref.Reference != "latest"
	if ref.Reference == "" {
		ref.Reference = "latest"
	}
	if once {
		if digest := f.cache.named(ref.String()); digest != "" {
			if wasm := f.cache.get(digest, f.options.MaxBytes); wasm != nil {
				return wasm, nil
			}
		}
	}
	repo, err := f.repository(ref)
	if err != nil {
		return nil, err
	}
	layer, err := f.layer(ctx, repo, ref)
	if err != nil {
		return nil, err
	}
	digest := layer.Digest.Encoded()
	wasm := f.cache.get(digest, f.options.MaxBytes)
	if wasm == nil {
		r, err := repo.Blobs().Fetch(ctx, layer)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if wasm, err = content.ReadAll(r, layer); err != nil { // checks size and digest
			return nil, err
		}
		f.cache.put(digest, wasm)
	}
	if once {
		f.cache.name(ref.String(), digest)
	}
	return wasm, nil
}

func (f *Fetcher) repository(ref registry.Reference) (*remote.Repository, error) {
	repo, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		return nil, err
	}
	client := &auth.Client{Client: f.options.Client, Cache: auth.NewCache()}
	client.SetUserAgent("mapd")
	if f.options.Credentials != "" {
		store, err := credentials.NewFileStore(f.options.Credentials)
		if err != nil {
			return nil, fmt.Errorf("credentials of registries: %w", err)
		}
		client.Credential = credentials.Credential(store)
	}
	repo.Client = client
	repo.PlainHTTP = slices.Contains(f.options.Insecure, ref.Registry)
	repo.MaxMetadataBytes = maxManifest
	return repo, nil
}

// layer returns the descriptor of the layer that contains the module.
func (f *Fetcher) layer(ctx context.Context, repo *remote.Repository, ref registry.Reference) (ocispec.Descriptor, error) {
	described, r, err := repo.Manifests().FetchReference(ctx, ref.Reference)
	if err != nil {
		return described, err
	}
	defer r.Close()
	if described.Size > maxManifest {
		return described, fmt.Errorf("the manifest has %d bytes", described.Size)
	}
	text, err := content.ReadAll(io.LimitReader(r, maxManifest), described)
	if err != nil {
		return described, fmt.Errorf("manifest: %w", err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return described, errors.New("the manifest is not one of an OCI image")
	}
	if len(manifest.Layers) == 0 {
		return described, fmt.Errorf("the artifact is a %s without layers, not a policy", described.MediaType)
	}
	layer := manifest.Layers[0]
	switch {
	case layer.MediaType != layerType:
		return layer, fmt.Errorf("the first layer has type %q, not %s: not a policy of Kubewarden", layer.MediaType, layerType)
	case layer.Size > f.options.MaxBytes || layer.Size < 0:
		return layer, fmt.Errorf("larger than %d MiB", f.options.MaxBytes>>20)
	case layer.Digest.Validate() != nil || !strings.HasPrefix(layer.Digest.String(), "sha256:"):
		return layer, errors.New("the layer has no SHA-256 digest")
	}
	return layer, nil
}
