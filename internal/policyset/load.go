package policyset

import (
	"slices"
	"time"

	"github.com/mapd-project/mapd/internal/document/manifest"
)

// Loaded is a Snapshot, and what it took to make it.
type Loaded struct {
	*Snapshot
	Documents      int
	Read, Compiled time.Duration
}

// Load reads documents and builds their Snapshot. It returns all errors that users can correct,
// as *PositionErrors where a position is known. unread: the errors are about reading, so nothing
// was built.
func Load(inputs []manifest.Input, opts Options) (l *Loaded, errs []error, unread bool) {
	start := time.Now()
	docs, errs := manifest.ReadAll(inputs, Pack)
	if len(errs) > 0 {
		return nil, errs, true
	}
	docs = append(docs, opts.Documents...)
	docs = append(slices.DeleteFunc(docs, func(d *manifest.Document) bool { return d.Object == nil }), opts.More...)
	read := time.Now()
	s, errs := Build(docs, opts)
	if len(errs) > 0 {
		return nil, errs, false
	}
	return &Loaded{s, len(docs), read.Sub(start), time.Since(read)}, nil, false
}
