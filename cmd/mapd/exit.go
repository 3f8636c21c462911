package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mapd-project/mapd/internal/operate/replicas"
	"github.com/mapd-project/mapd/internal/output/report"
)

// The exit codes are part of the interface, since scripts test them. A code means the same in
// all commands; docs/author/eval.md has the table.
const (
	exitOK          = 0
	exitDenied      = 1   // an object was denied, or a case of a suite failed
	exitDiffers     = 1   // a mutator has no exact policy, or a comparison found a difference
	exitRegression  = 1   // a figure is worse than the one that it is compared with
	exitUndone      = 1   // a cluster is not as it was asked to be
	exitUsage       = 2   // wrong usage, or input that cannot be read
	exitPolicy      = 3   // a policy does not compile or validate
	exitUnreachable = 4   // the cluster cannot be reached or read, or has no mapd that has started
	exitPartial     = 5   // some inputs failed, the others were done
	exitInterrupted = 130 // a signal ended it
)

// The last exit codes in the help of commands on a cluster. A command with a code 5 puts its line
// between the two.
const (
	clusterExits    = unreachableExit + interruptedExit
	unreachableExit = `
  4  the cluster does not answer or may not be read, or mapd is not installed or has not started`
	interruptedExit = `
  130  interrupted`
)

// codedError is an error with an exit code. A nil err means that the command has already
// printed what is wrong.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode prints an error of a command, unless the command did, and returns its exit code.
func exitCode(stderr io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	code, text := exitUsage, err.Error()
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		code = coded.code
		if coded.err == nil {
			return code
		}
		text = coded.err.Error()
	}
	if cmd.Flags().Lookup("kubeconfig") != nil {
		code = clusterCode(err, code)
		if code == exitInterrupted && strings.Contains(text, context.Canceled.Error()) {
			text = strings.TrimPrefix(cmd.CommandPath(), "mapd ") + ": interrupted"
		}
	}
	fmt.Fprintln(stderr, "mapd:", report.Printable(text))
	return code
}

// clusterCode returns the exit code of a command on a cluster that ended with err: exitInterrupted
// after a signal. Instead of exitUndone and exitUsage it returns exitUnreachable if the cluster did
// not answer, refused access or has no mapd that runs. Otherwise it returns code.
func clusterCode(err error, code int) int {
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case code != exitUndone && code != exitUsage:
		return code
	case noAnswer(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err),
		errors.Is(err, replicas.ErrNotInstalled), errors.Is(err, replicas.ErrNotStarted):
		return exitUnreachable
	}
	return code
}

// noAnswer reports whether the API server did not respond to a call.
func noAnswer(err error) bool {
	var ue *url.Error
	return errors.As(err, &ue)
}

// interruptible returns a context that ends with a signal or after timeout. A second signal
// ends the process.
func interruptible(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, func() { cancel(); stop() }
}

// interrupted reports whether a signal ended a context of interruptible, and not its
// timeout.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
