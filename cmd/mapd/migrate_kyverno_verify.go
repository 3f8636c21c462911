//go:build !server

package main

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/mapd-project/mapd/internal/author/kyverno"
	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
)

var verifications = map[string]func(*kyverno.Verification, io.Writer) error{
	"table":    (*kyverno.Verification).WriteTable,
	"json":     (*kyverno.Verification).WriteJSON,
	"markdown": (*kyverno.Verification).WriteMarkdown,
	"html":     (*kyverno.Verification).WriteHTML,
}

// checkVerify returns an error for wrong usage of the flags for comparing.
func (f *kyvernoFlags) checkVerify() error {
	const name = "migrate kyverno: "
	switch {
	case f.verify && f.assess:
		return usagef(name + "--assess converts nothing that --verify could compare; leave out one of them")
	case !f.verify && len(f.objects) > 0:
		return usagef(name + "-f: objects are for --verify; policies are named without a flag")
	case f.generated < 0:
		return usagef(name+"--generated %d: must not be negative", f.generated)
	case f.verify && f.generated == 0 && len(f.objects) == 0:
		return usagef(name + "--verify: no objects; generate some, or give them with -f")
	}
	return nil
}

// verifyKyverno writes the policies, if they have a directory, and compares both sides.
func verifyKyverno(ctx context.Context, s streams, f *kyvernoFlags, in *kyverno.Input, a *kyverno.Assessment) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if f.directory != manifest.Stdin {
		if err := writeKyverno(s, f, a); err != nil {
			return &codedError{exitUsage, err}
		}
	}
	v := a.Verifier()
	if len(f.objects) > 0 {
		n, errs := readObjects(migrate.NewInput(), f.objects, f.recursive, s.in, func(o verify.Object) {
			o.Object = verify.Defaulted(o.Object)
			v.Check(ctx, o)
		})
		if len(errs) > 0 {
			printErrors(s.err, errs)
			return &codedError{code: exitUsage}
		}
		if n == 0 {
			return usagef("migrate kyverno: no objects in %s", strings.Join(f.objects, ", "))
		}
	}
	v.CheckGenerated(ctx, f.seed, f.generated)
	if ctx.Err() != nil {
		return &codedError{exitInterrupted, errors.New("migrate kyverno: interrupted; the comparison is not complete")}
	}
	v.Finish()
	if err := verifications[f.output](v, s.out); err != nil {
		return &codedError{exitUsage, err}
	}
	for _, u := range in.Unreadable {
		printErrors(s.err, u.Errors)
	}
	if !v.OK() || len(in.Unreadable) > 0 {
		return &codedError{code: exitDiffers}
	}
	if !v.Complete() {
		return &codedError{code: exitPartial}
	}
	return nil
}
