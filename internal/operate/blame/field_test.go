package blame

import (
	"testing"

	"github.com/mapd-project/mapd/pkg/tree"
)

func TestParseField(t *testing.T) {
	for field, want := range map[string]string{
		"":                                   "",
		"/spec/replicas":                     "/spec/replicas",
		"spec.replicas":                      "/spec/replicas",
		"metadata.labels[example.com/team]":  "/metadata/labels/example.com~1team",
		"metadata.labels.app":                "/metadata/labels/app",
		"spec.containers[0].image":           "/spec/containers/0/image",
		"spec.containers[name=web].image":    "/spec/containers",
		"spec.template.spec.containers[1]":   "/spec/template/spec/containers/1",
		"metadata.annotations[a.b/c~d].more": "/metadata/annotations/a.b~1c~0d/more",
	} {
		if got, err := ParseField(field); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", field, got, err, want)
		}
	}
	for _, field := range []string{"/a~2", "a[]"} {
		if got, err := ParseField(field); err == nil {
			t.Errorf("%q: %q, want an error", field, got)
		}
	}
}

func FuzzParseField(f *testing.F) {
	for _, s := range []string{"", "a.b", "a[b.c/d]", "a[0].b", "a[k=v].b", "[", "a]", "a[", "..", "/a~1b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		pointer, err := ParseField(s)
		if err != nil {
			return
		}
		if _, err := tree.ParsePointer(pointer); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	})
}
