//go:build !server

package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const postRenderLong = `Run policies on the manifests on standard input, or on what the kustomizations of -k
make, and print all of them.

It is a post-renderer of Helm, and a step of every pipeline that passes manifests on.
Objects that no policy changes come out byte by byte, changed ones with their comments
and the order of their keys. If one object is denied or fails, nothing is printed.
` + renderHelp + `

Exit codes:
  0  done
  1  an object was denied
  2  wrong usage, input that cannot be read, or something is missing
  3  a policy does not compile or validate
  5  some objects failed`

func newPostRender(s streams) *cobra.Command {
	f := renderFlags{evalFlags: evalFlags{command: "post-render"}}
	cmd := &cobra.Command{
		Use:   "post-render -p PATH...",
		Short: "Run policies on manifests from standard input, such as Helm's",
		Long:  postRenderLong,
		Example: `  helm upgrade web ./chart -n shop --post-renderer mapd --post-renderer-args post-render \
    --post-renderer-args --policies=policies/ --post-renderer-args --namespace=shop
  mapd post-render -p policies/ -k overlays/prod > rendered.yaml`,
		Args: noArguments("-p"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.postRender(cmd.Context(), s)
		},
	}
	f.add(cmd)
	f.addKustomize(cmd)
	return cmd
}

func (f *renderFlags) postRender(ctx context.Context, s streams) error {
	if len(f.policies) == 0 {
		return f.usagef("no policies; give them with -p")
	}
	if len(f.kustomize) == 0 {
		f.files = []string{manifest.Stdin}
	}
	if err := f.check(); err != nil {
		return err
	}
	var out bytes.Buffer
	e, err := newEvaluation(ctx, streams{s.in, &out, s.err}, &f.evalFlags, false)
	if err != nil {
		return err
	}
	defer e.notes.done()
	defer e.close()
	d := newRendering(ctx, e, func(r *mapd.Result, field, text string) {
		if field != "" {
			text = field + ": " + text
		}
		e.notes.warn("%s: %s\n", report.Line(r.Request.Name()), report.Line(text))
	})
	e.also = d.look
	if err := e.all(ctx); err != nil {
		return err
	}
	e.noteAssumed()
	e.summarize()
	if err := d.verdict(f.assume, func(string) {}); err != nil {
		return err
	}
	if _, err := s.out.Write(out.Bytes()); err != nil {
		return &codedError{exitUsage, err}
	}
	return nil
}
