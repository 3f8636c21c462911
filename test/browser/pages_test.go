package browser

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	anchor    = regexp.MustCompile(` id="([^"]*)"`)
	inline    = regexp.MustCompile(`<style|<[^>]* (?:style|on[a-z]+)=|<script>|<script [^>]*>[^<]|javascript:`)
	policy    = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]*)">`)
)

// Every page has the policy of the first one and nothing that it refuses, and every
// reference within the site leads somewhere.
func TestPages(t *testing.T) {
	pages := map[string]string{}
	err := filepath.WalkDir(site, func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".html" {
			return err
		}
		data, err := os.ReadFile(name)
		pages[filepath.ToSlash(must(filepath.Rel(site, name)))] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 25 {
		t.Errorf("%d pages", len(pages))
	}
	ids := map[string][]string{}
	for name, text := range pages {
		for _, m := range anchor.FindAllStringSubmatch(text, -1) {
			if slices.Contains(ids[name], m[1]) {
				t.Errorf("%s: two elements %s", name, m[1])
			}
			ids[name] = append(ids[name], m[1])
		}
	}
	want := policy.FindStringSubmatch(pages["index.html"])
	for name, text := range pages {
		if got := policy.FindStringSubmatch(text); want == nil || got == nil || got[1] != want[1] {
			t.Errorf("%s: policy %q", name, got)
		}
		if m := inline.FindString(text); m != "" {
			t.Errorf("%s has %s", name, m)
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.IsAbs() {
				continue
			}
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if strings.HasSuffix(u.Path, "/") || to == "." {
				to = path.Join(to, "index.html")
			}
			if example, ok := strings.CutPrefix(u.Fragment, "example="); ok {
				if _, err := os.Stat(filepath.Join(site, "gallery", example+".json")); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if strings.HasPrefix(u.Fragment, "1.") {
				unpacked(t, "#"+u.Fragment)
			} else if _, err := os.Stat(filepath.Join(site, to)); err != nil || u.Fragment != "" && !slices.Contains(ids[to], u.Fragment) {
				t.Errorf("%s: nothing at %s", name, m[1])
			}
		}
	}
}
