package policyset

import (
	"cmp"
	"errors"
	"slices"

	"github.com/mapd-project/mapd/internal/document/manifest"
)

// inOrder sorts errors by where they stand, as a reader goes through the files.
func inOrder(errs []error, docs []*manifest.Document) []error {
	rank := map[string]int{}
	for _, d := range docs {
		if _, ok := rank[d.File]; !ok {
			rank[d.File] = len(rank)
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int {
		var x, y *manifest.PositionError
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(cmp.Compare(rank[x.File], rank[y.File]), cmp.Compare(x.Document, y.Document),
			cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return errs
}
