package tree_test

import (
	"testing"

	"github.com/mapd-project/mapd/pkg/tree"
)

func TestField(t *testing.T) {
	for pointer, want := range map[string]string{
		"":                                    "",
		"/spec/replicas":                      "spec.replicas",
		"/metadata/labels/example.com~1team":  "metadata.labels[example.com/team]",
		"/metadata/labels/a-b_c$1":            "metadata.labels.a-b_c$1",
		"/spec/containers/0/image":            "spec.containers[0].image",
		"/spec/containers/-":                  "spec.containers[-]",
		"/data/tls.crt":                       "data[tls.crt]",
		"/data/":                              `data[""]`,
		"/data/a=b/x]y":                       `data["a=b"]["x]y"]`,
		"/metadata/annotations/a.b~1c~0d/say": "metadata.annotations[a.b/c~d].say",
		"/a~2":                                "/a~2",
	} {
		got := tree.Field(pointer)
		if got != want {
			t.Errorf("Field(%q) = %q, want %q", pointer, got, want)
		}
		if back, err := tree.ParseField(got); pointer != "/a~2" && (back != pointer || err != nil) {
			t.Errorf("ParseField(%q) = %q, %v, want %q", got, back, err, pointer)
		}
	}
}

func TestParseField(t *testing.T) {
	for field, want := range map[string]string{
		"/spec/replicas":                     "/spec/replicas",
		"metadata.labels.app":                "/metadata/labels/app",
		"spec.containers[name=web].image":    "/spec/containers",
		"spec.template.spec.containers[1]":   "/spec/template/spec/containers/1",
		"metadata.annotations[a.b/c~d].more": "/metadata/annotations/a.b~1c~0d/more",
		`data["a=b"]`:                        "/data/a=b",
	} {
		if got, err := tree.ParseField(field); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", field, got, err, want)
		}
	}
	for _, field := range []string{"/a~2", "a[]", "a..b", "a.", ".a", "a[b", "a[b]c", `a["b]`, `a["b"`, "a.[0]"} {
		if got, err := tree.ParseField(field); err == nil {
			t.Errorf("%q: %q, want an error", field, got)
		}
	}
}

// What is printed is read as the same field, and what is read is printed so that it is read
// again.
func FuzzParseField(f *testing.F) {
	for _, s := range []string{"", "a.b", "a[b.c/d]", "a[0].b", "a[k=v].b", "[", "a]", "a[", "..", "/a~1b", "/", "/a=b", "/x]y", `/"`, `["a\"]b"]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, pointer := range []string{s, "/" + s, tree.Pointer(s), tree.Pointer("a", s, "b")} {
			if _, err := tree.ParsePointer(pointer); err != nil {
				continue
			}
			if back, err := tree.ParseField(tree.Field(pointer)); back != pointer || err != nil {
				t.Errorf("%q is printed as %q and read as %q, %v", pointer, tree.Field(pointer), back, err)
			}
		}
		pointer, err := tree.ParseField(s)
		if err != nil {
			return
		}
		if _, err := tree.ParsePointer(pointer); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	})
}
