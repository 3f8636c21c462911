package snapshot

import (
	"errors"
	"fmt"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/mutators"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Mutators says how Gatekeeper's mutators run.
type Mutators int

const (
	// RunMutators runs them on what the policies leave.
	RunMutators Mutators = iota
	// ShadowMutators has them look on and change nothing.
	ShadowMutators
	// IgnoreMutators takes them for any other objects.
	IgnoreMutators
)

// readMutators puts the mutators together, under the Config if there is one.
func (b *builder) readMutators(opts Options) {
	var config *legacy.Config
	for _, d := range b.configs {
		c, err := legacy.DecodeConfig(d.Object)
		if err != nil {
			b.mutatorError(d, err)
			continue
		}
		config = c
	}
	var all []*legacy.Mutator
	for _, d := range b.mutators {
		m, err := legacy.Decode(d.Object)
		if err != nil {
			b.mutatorError(d, err)
			continue
		}
		all = append(all, m)
	}
	if len(all) == 0 || len(b.errs) > 0 {
		return
	}
	built := mutators.NewBuilder(policy.Deps{Env: b.env, Types: b.snapshot.Types}).Build(all, config, b.snapshot.Types, mutators.Options{
		Shadow: opts.Mutators == ShadowMutators, Trace: opts.Trace, Namespace: b.snapshot.Namespaces.Namespace,
	})
	b.snapshot.Set, b.snapshot.Mutators, b.snapshot.Shapes = built.Set, built.States, built.Shapes
}

// mutatorError places what Gatekeeper would refuse of a mutator or a Config.
func (b *builder) mutatorError(d *manifest.Document, err error) {
	var refused *legacy.Error
	var syntax *legacy.SyntaxError
	switch {
	case !errors.As(err, &refused):
		b.fail(d.Errorf("%w", err))
	case errors.As(refused.Err, &syntax):
		b.fail(d.ErrorIn(refused.Field, syntax.Location, syntax.Line, syntax.Column,
			fmt.Errorf("%s: %s: %w", refused.Mutator, refused.Field, refused.Err)))
	default:
		b.fail(d.ErrorAt(refused.Field, fmt.Errorf("%s: %s: %w", refused.Mutator, refused.Field, refused.Err)))
	}
}
