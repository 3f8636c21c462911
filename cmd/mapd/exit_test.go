package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/operate/replicas"
)

func TestClusterCode(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		err        error
		code, want int
	}{
		"no connection":                    {fmt.Errorf("promote: %w", refused), exitUndone, exitUnreachable},
		"no connection, unspecific":        {refused, exitUsage, exitUnreachable},
		"among others":                     {errors.Join(errors.New("x"), refused), exitUndone, exitUnreachable},
		"no rights":                        {fmt.Errorf("list: %w", forbidden), exitUsage, exitUnreachable},
		"unknown user":                     {apierrors.NewUnauthorized("who"), exitUsage, exitUnreachable},
		"no mapd":                          {fmt.Errorf("%w: no webhook", replicas.ErrNotInstalled), exitUsage, exitUnreachable},
		"no replica yet":                   {fmt.Errorf("%w: no entry", replicas.ErrNotStarted), exitUsage, exitUnreachable},
		"some was done":                    {forbidden, exitPartial, exitPartial},
		"Ctrl-C":                           {fmt.Errorf("list namespaces: %w", context.Canceled), exitUnreachable, exitInterrupted},
		"Ctrl-C while a call is under way": {&url.Error{Op: "Get", Err: context.Canceled}, exitUndone, exitInterrupted},
		"out of time":                      {context.DeadlineExceeded, exitUndone, exitUndone},
		"another error":                    {errors.New("no such policy"), exitUsage, exitUsage},
	} {
		if got := clusterCode(tt.err, tt.code); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
