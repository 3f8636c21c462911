//go:build !server

package main

import (
	"context"
	"errors"
	"io"

	"github.com/mapd-project/mapd/internal/author/suite"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// generateSuite prints a suite for the policies of a file.
func generateSuite(ctx context.Context, s streams, file string) error {
	env, err := cel.NewEnv(cel.Options{Observe: true})
	if err != nil {
		return &codedError{exitUsage, err}
	}
	text, loaded, err := suite.Generate(ctx, file, env)
	var refused *mapd.LoadError
	switch {
	case errors.As(err, &refused) && !refused.Unreadable:
		printErrors(s.err, refused.Errs)
		return &codedError{code: exitPolicy}
	case err != nil:
		return usagef("test: --generate: %w", err)
	}
	if _, err := s.out.Write(text); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return &codedError{exitUsage, err}
	}
	f := testFlags{coverage: true}
	return f.report(s, &suite.Results{Loaded: []suite.Loaded{*loaded}})
}
