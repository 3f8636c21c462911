package kubewarden

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Source is the location of a module (Kubewarden spec §6.4).
type Source struct {
	// URL is the text that it was parsed from.
	URL string
	// Scheme is "file", "https" or "registry".
	Scheme string
	// Location is an absolute path, a URL of https without its digest, or the
	// reference of an OCI artifact.
	Location string
	// Digest is the SHA-256 of the module, in hex. It is empty for files and for OCI artifacts.
	// The reference of an artifact may have the digest of a manifest.
	Digest string
}

const digestPrefix = "sha256:"

// ParseSource parses spec.module. An https URL needs the digest of the reviewed module, as
// https://host/policy.wasm#sha256:HEX. Kubewarden does not know this form, and downloads the
// same URL without a check.
func ParseSource(module string) (Source, error) {
	s := Source{URL: module}
	scheme, rest, ok := strings.Cut(module, "://")
	if !ok {
		scheme, rest = "registry", module
	}
	s.Scheme, s.Location = scheme, rest
	if rest == "" {
		return s, errors.New("names no module")
	}
	if strings.ContainsFunc(module, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return s, errors.New("contains white space or control characters")
	}
	switch scheme {
	case "registry":
		if !strings.Contains(rest, "/") {
			return s, fmt.Errorf("%q has no registry; write registry://host/path:tag", rest)
		}
	case "file":
		if !filepath.IsAbs(rest) {
			return s, fmt.Errorf("file://%s is not an absolute path; write file:///path/policy.wasm", rest)
		}
	case "https":
		location, digest, found := strings.Cut(rest, "#"+digestPrefix)
		if !found {
			location, digest, found = strings.Cut(rest, "@"+digestPrefix)
		}
		if !found {
			return s, errors.New("a module from https:// needs the digest of its bytes; append #sha256:HEX (sha256sum policy.wasm)")
		}
		if !isDigest(digest) {
			return s, fmt.Errorf("%q is no SHA-256; want 64 lower-case hexadecimal digits", digest)
		}
		s.Location, s.Digest = "https://"+location, digest
	case "http":
		return s, errors.New("http:// is not supported, since anybody on the way can replace the module; use https:// or registry://")
	default:
		return s, fmt.Errorf("scheme %q is not known; want file, https or registry", scheme)
	}
	return s, nil
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
