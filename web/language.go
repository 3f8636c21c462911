package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/author/language"
	"github.com/mapd-project/mapd/internal/lint"
)

// edit returns the workspace with the documents of a question, without those that are longer than
// language.MaxDocument. It sets only the documents that differ from those of the last call.
func (d *desk) edit(q *LanguageQuestion) (*language.Workspace, error) {
	if err := small(q.Documents, q.Objects); err != nil {
		return nil, err
	}
	if n := len(q.Documents) + len(q.Objects); n > maxDocuments {
		return nil, fmt.Errorf("there are %d documents; at most %d are read", n, maxDocuments)
	}
	if d.workspace == nil || d.minor != q.Kubernetes {
		opts := lint.Options{Oldest: lint.CurrentMinor, Newest: lint.CurrentMinor}
		if q.Kubernetes != "" {
			minor := 0
			if n, err := fmt.Sscanf(strings.TrimPrefix(q.Kubernetes, "v"), "1.%d", &minor); n != 1 || err != nil || minor < lint.OldestMinor || minor > lint.NewestMinor {
				return nil, fmt.Errorf("kubernetes version %q: want 1.%d to 1.%d", q.Kubernetes, lint.OldestMinor, lint.NewestMinor)
			}
			opts.Oldest, opts.Newest = minor, minor
		}
		d.workspace, d.opened, d.minor = language.New(language.Options{Lint: opts, Fixable: true}), map[string]string{}, q.Kubernetes
	}
	there := map[string]bool{}
	for i, t := range slices.Concat(q.Documents, q.Objects) {
		if len(t.Text) > language.MaxDocument {
			continue
		}
		there[t.Name] = true
		if old, ok := d.opened[t.Name]; ok && old == t.Text {
			continue
		}
		set := d.workspace.Set
		if i >= len(q.Documents) {
			set = d.workspace.SetObject
		}
		if err := set(t.Name, t.Text); err != nil {
			d.workspace = nil
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		d.opened[t.Name] = t.Text
	}
	for name := range d.opened {
		if !there[name] {
			d.workspace.Remove(name)
			delete(d.opened, name)
		}
	}
	return d.workspace, nil
}

// editing is like edit, for a question about one document.
func (d *desk) editing(q *DocumentQuestion) (*language.Workspace, error) {
	w, err := d.edit(&q.LanguageQuestion)
	if err != nil {
		return nil, err
	}
	if _, ok := w.Text(q.Name); ok {
		return w, nil
	}
	for _, t := range slices.Concat(q.Documents, q.Objects) {
		if t.Name == q.Name {
			return nil, fmt.Errorf("%s: %s", q.Name, tooLarge)
		}
	}
	return nil, fmt.Errorf("there is no document %q", q.Name)
}

var tooLarge = fmt.Sprintf("the document has more than %d bytes, so it is not looked at", language.MaxDocument)

func (d *desk) diagnose(ctx context.Context, q LanguageQuestion) (map[string][]language.Diagnostic, error) {
	w, err := d.edit(&q)
	if err != nil {
		return nil, err
	}
	out, err := w.Diagnostics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Concat(q.Documents, q.Objects) {
		if len(t.Text) > language.MaxDocument {
			out[t.Name] = []language.Diagnostic{{Severity: lint.Warning, Rule: "size", Message: tooLarge}}
		}
	}
	return out, nil
}

func (d *desk) complete(ctx context.Context, q PositionQuestion) ([]language.Completion, error) {
	w, err := d.editing(&q.DocumentQuestion)
	if err != nil {
		return nil, err
	}
	items, err := w.Complete(ctx, q.Name, q.Position)
	return append([]language.Completion{}, items...), err
}

func (d *desk) hover(ctx context.Context, q PositionQuestion) (*language.Hover, error) {
	w, err := d.editing(&q.DocumentQuestion)
	if err != nil {
		return nil, err
	}
	return w.Hover(ctx, q.Name, q.Position)
}

func (d *desk) definition(ctx context.Context, q PositionQuestion) (*language.Location, error) {
	w, err := d.editing(&q.DocumentQuestion)
	if err != nil {
		return nil, err
	}
	return w.Definition(ctx, q.Name, q.Position)
}

func (d *desk) format(ctx context.Context, q DocumentQuestion) ([]language.Edit, error) {
	w, err := d.editing(&q)
	if err != nil {
		return nil, err
	}
	edits, err := w.Format(ctx, q.Name)
	return append([]language.Edit{}, edits...), err
}

func (d *desk) actions(ctx context.Context, q RangeQuestion) ([]language.Action, error) {
	w, err := d.editing(&q.DocumentQuestion)
	if err != nil {
		return nil, err
	}
	actions, err := w.Actions(ctx, q.Name, q.Range)
	return append([]language.Action{}, actions...), err
}
