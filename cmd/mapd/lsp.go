//go:build !server

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/author/lsp"
)

const lspLong = `Speak the Language Server Protocol on standard input and output. An editor starts it; see
docs/author/editor.md for what to set where.

It knows policies in YAML: what "mapd lint" finds while one types, completion of fields by the
schemas of the kinds that a policy matches, with the CustomResourceDefinitions of the
folder, functions, documentation, the definitions of variables, formatting as by "mapd fmt", and
what "mapd lint --fix" mends as actions. Nothing is written, run or fetched.

Exit codes:
  0  the editor ended it
  1  the connection ended before the editor said "exit"
  2  wrong usage, or what cannot be understood on standard input`

func newLSP(s streams) *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Help an editor with policies (Language Server Protocol)",
		Long:  lspLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			err = lsp.Serve(ctx, s.in, s.out, lsp.Options{Version: version(), Log: s.err, Lint: opts})
			switch {
			case errors.Is(err, lsp.ErrNoShutdown):
				return &codedError{code: exitDenied}
			case err != nil:
				return usagef("lsp: %w", err)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor versions of the servers that policies are for, such as 1.36 or 1.32-1.37 (default 1.37)")
	fl.Bool("stdio", true, "speak on standard input and output, as editors say; there is no other way")
	return cmd
}
