package direct

import (
	"testing"

	"github.com/mapd-project/mapd/pkg/legacy"
)

func TestImage(t *testing.T) {
	domain, tag := legacy.Image{Domain: "my.reg"}, legacy.Image{Tag: ":v2"}
	tests := map[string]struct {
		set      legacy.Image
		in, want string
	}{
		"no domain":                            {domain, "nginx", "my.reg/nginx"},
		"a dot without a slash is no domain":   {domain, "a.b", "my.reg/a.b"},
		"a first segment without a dot":        {domain, "foo/bar:v1", "my.reg/foo/bar:v1"},
		"a domain":                             {domain, "old.reg/library/nginx:1", "my.reg/library/nginx:1"},
		"a port":                               {domain, "reg:5000/x:1", "my.reg/x:1"},
		"localhost":                            {domain, "localhost/x", "my.reg/x"},
		"nothing before the slash":             {domain, "/x", "my.reg//x"},
		"nothing":                              {domain, "", "my.reg/"},
		"no tag":                               {tag, "nginx", "nginx:v2"},
		"tag and digest are one":               {tag, "repo:tag@sha256:abc", "repo:v2"},
		"a port without a slash is a tag":      {tag, "localhost:5000", "localhost:v2"},
		"the tag of nothing":                   {tag, "", ":v2"},
		"the path alone":                       {legacy.Image{Path: "x/y"}, "old.reg/repo:t@sha256:abc", "old.reg/x/y:t@sha256:abc"},
		"all":                                  {legacy.Image{Domain: "a.b", Path: "c", Tag: "@d:e"}, "x", "a.b/c@d:e"},
		"a path that is divided differently":   {legacy.Image{Path: "n.w"}, "foo@bar/baz", "n.w@bar/baz"},
		"and that is what happens to it again": {legacy.Image{Path: "n.w"}, "n.w@bar/baz", "n.w@bar/n.w"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, _, err := Apply(imageAt("image", tt.set), map[string]any{"image": tt.in}, Context{})
			if err != nil || got["image"] != tt.want {
				t.Errorf("%+v on %q = %q, %v; want %q", tt.set, tt.in, got["image"], err, tt.want)
			}
		})
	}
}

func TestImageField(t *testing.T) {
	tag := legacy.Image{Tag: ":v2"}
	testApply(t, map[string]application{
		"a missing field is created": {
			mutator: imageAt("c[name: x].image", tag),
			in:      `{}`,
			want:    `{"c":[{"image":":v2","name":"x"}]}`,
		},
		"null": {
			mutator: imageAt("image", tag),
			in:      `{"image":null}`,
			err:     "expected value at AssignImage location to be a string, got  of type string",
		},
	})
}
