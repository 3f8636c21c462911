package lint

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/pkg/api"
)

// fixGuard puts an expression behind a guard; what does not pass it is left as it is.
func fixGuard(e *expression, guard string) func(map[string]any) bool {
	if guard == "" || e.part == api.Variables {
		return nil
	}
	return fixText(e, func(text string) string {
		text = strings.TrimSpace(text)
		switch {
		case e.part == api.MatchConditions:
			return guard + " && (" + text + ")"
		case e.patch:
			return guard + " ?\n" + text + "\n: []"
		}
		return guard + " ?\n" + text + "\n: Object{}"
	})
}

// fixText changes the text of an expression.
func fixText(e *expression, change func(string) string) func(map[string]any) bool {
	return func(object map[string]any) bool {
		return editSpec(object, string(e.part), e.index, func(list []any) []any {
			entry, _ := list[e.index].(map[string]any)
			list, entry = slices.Clone(list), maps.Clone(entry)
			list[e.index] = entry
			if e.part != api.Mutations {
				entry["expression"] = change(e.text)
				return list
			}
			member := "applyConfiguration"
			if e.patch {
				member = "jsonPatch"
			}
			patch, _ := entry[member].(map[string]any)
			patch = maps.Clone(patch)
			patch["expression"] = change(e.text)
			entry[member] = patch
			return list
		})
	}
}

// editSpec changes a list of the spec that has an element at index. The object is
// a copy down to the spec.
func editSpec(object map[string]any, part string, index int, change func([]any) []any) bool {
	spec, _ := object["spec"].(map[string]any)
	list, _ := spec[part].([]any)
	if index >= len(list) {
		return false
	}
	spec = maps.Clone(spec)
	object["spec"] = spec
	if list = change(list); len(list) == 0 {
		delete(spec, part)
	} else {
		spec[part] = list
	}
	return true
}

// maxFixes bounds how many fixes one document gets.
const maxFixes = 50

// Fixed is a file with what Fix has made of it.
type Fixed struct {
	Source
	// Mended are the findings that are gone.
	Mended []Finding
}

// Fix mends what is mechanical, and returns the files that differ then. Each fix is one
// that leaves a policy which compiles, and that takes its finding away without a new one
// of that rule; others are not made. Comments stay. A file whose documents are not the
// whole text, such as one with a List, is left alone.
func Fix(ctx context.Context, sources []Source, opts Options) ([]Fixed, error) {
	files := slices.Clone(sources)
	mended := make([][]Finding, len(files))
	failed := map[string]bool{}
	fixes := map[string]int{} // by document
	r, err := Run(ctx, files, opts)
	if err != nil {
		return nil, err
	}
	for changed := true; changed; {
		changed = false
		for _, f := range r.Findings {
			at := slices.IndexFunc(files, func(s Source) bool { return s.Name == f.File })
			id := f.File + "\x00" + f.Object + "\x00" + f.Rule + "\x00" + f.Field + "\x00" + f.Message
			doc := f.File + "\x00" + f.Object
			if f.fix == nil || at < 0 || failed[id] || fixes[doc] == maxFixes {
				continue
			}
			next, after, err := apply(ctx, files, at, &f, opts, r)
			if err != nil {
				return nil, err
			}
			if next == nil {
				failed[id] = true
				continue
			}
			files[at].Data = next
			mended[at] = append(mended[at], f)
			fixes[doc]++
			r, changed = after, true
			// The other findings of this run stand in the text as it was.
			break
		}
	}
	var out []Fixed
	for i, f := range files {
		if !bytes.Equal(f.Data, sources[i].Data) {
			out = append(out, Fixed{f, mended[i]})
		}
	}
	return out, nil
}

func countErrors(r *Result) (n int) {
	for _, f := range r.Findings {
		if f.Severity == Error {
			n++
		}
	}
	return n
}

// apply returns the text of a file with one fix and the findings after it, nil if it
// cannot be made or does not help. before are the findings without it.
func apply(ctx context.Context, files []Source, at int, f *Finding, opts Options, before *Result) ([]byte, *Result, error) {
	object := maps.Clone(f.doc.Object.Object)
	if !f.fix(object) {
		return nil, nil, nil
	}
	next := replace(files[at], f.doc, manifest.Rewrite(f.doc, object))
	if next == nil {
		return nil, nil, nil
	}
	trial := slices.Clone(files)
	trial[at].Data = next
	after, err := Run(ctx, trial, opts)
	if err != nil {
		return nil, nil, err
	}
	count := func(r *Result) (n int) {
		for _, g := range r.Findings {
			if g.Object == f.Object && g.File == f.File && g.Rule == f.Rule {
				n++
			}
		}
		return n
	}
	if countErrors(after) > countErrors(before) || count(after) >= count(before) {
		return nil, nil, nil
	}
	return next, after, nil
}

// replace puts the text of a document in the place of what it was, nil if its text
// is not to be found once in the file.
func replace(file Source, d *manifest.Document, text []byte) []byte {
	if d.JSON || len(d.Raw) == 0 || bytes.Count(file.Data, d.Raw) != 1 {
		return nil
	}
	if bytes.HasSuffix(d.Raw, []byte("\n")) && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	return bytes.Replace(bytes.Clone(file.Data), d.Raw, text, 1)
}
