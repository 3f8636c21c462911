package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mapd-project/mapd/internal/cluster/callertoken"
	"github.com/mapd-project/mapd/internal/cluster/metrics"
	"github.com/mapd-project/mapd/pkg/servingcert"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// callerFlags say how reviews without a token of an API server are treated.
type callerFlags struct {
	tokens, issuer, keys string
	given                func(context.Context) (*callertoken.Keys, error) // of the file keys; nil without one
}

func (f *callerFlags) add(fl *pflag.FlagSet) {
	choiceVar(fl, &f.tokens, "caller-tokens", string(callertoken.Off), " (cluster): what becomes of a review without a valid token of an API server (Kubernetes' APIServerWebhookAuthenticationToken): nothing, a warning in the log, or a refusal",
		string(callertoken.Off), string(callertoken.Warn), string(callertoken.Require))
	fl.StringVar(&f.issuer, "caller-token-issuer", "", "cluster: who issues these tokens (default the issuer that the API server publishes)")
	fl.StringVar(&f.keys, "caller-token-keys", "", "cluster: file with the issuer's public keys, a JSON Web Key Set; it is read again when it changes (default the keys that the API server publishes)")
}

// load reads the file of keys, so that an invalid file is reported at the start.
func (f *callerFlags) load() error {
	if f.keys == "" {
		return nil
	}
	files, err := servingcert.LoadFiles(func(texts [][]byte) (*callertoken.Keys, error) {
		keys, err := callertoken.ParseKeys(f.issuer, texts[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.keys, err)
		}
		return keys, nil
	}, f.keys)
	if err != nil {
		return usagef("serve: --caller-token-keys: %w", err)
	}
	f.given = func(context.Context) (*callertoken.Keys, error) { return files.Get(), files.Err() }
	return nil
}

// callers verifies the tokens of API servers. A nil callers verifies nothing.
type callers struct {
	*callertoken.Verifier
	mode callertoken.Mode
}

// verifier returns the callers for the flags, nil if tokens are not verified.
func (f *serveFlags) verifier(c *connection, m *metrics.Metrics, log *slog.Logger) *callers {
	mode := callertoken.Mode(f.callers.tokens)
	if mode == callertoken.Off {
		return nil
	}
	address := strings.TrimSuffix(f.url, "/")
	if address == "" {
		address = fmt.Sprintf("https://%s.%s.svc:%d", f.service, c.namespace, f.servicePort)
	}
	keys := f.callers.given
	if keys == nil {
		keys = callertoken.ServerKeys(c.kube)
	}
	return &callers{mode: mode, Verifier: callertoken.New(callertoken.Options{
		Mode: mode, Address: address, Keys: keys, UID: callertoken.ServerUID(c.kube), Log: log,
		Count: func(server, result string) { m.CallerToken(string(mode), server, result) },
	})}
}

func (c *callers) authenticate() webhook.Callers {
	if c == nil {
		return nil
	}
	return c.Verifier
}

// checks are those of /readyz.
func (c *callers) checks() []webhook.Check {
	if c == nil {
		return nil
	}
	return []webhook.Check{
		{Name: "keys of caller tokens", Run: c.Ready, Advisory: c.mode != callertoken.Require},
		{Name: "caller tokens", Run: c.Fresh, Advisory: true},
	}
}

func (c *callers) run(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.Run(ctx)
}
