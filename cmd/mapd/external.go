package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/externaldata"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

// providerFlags configure the client for providers of external data.
type providerFlags struct {
	cert, key        string
	ttl, negativeTTL time.Duration
}

func (f *providerFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.cert, "external-data-cert", "", "file with the client certificate for providers of external data; it is read again when it changes")
	fl.StringVar(&f.key, "external-data-key", "", "file with its key")
}

// client returns a client for providers. Its client certificate is that of the flags, else the
// one that certificate returns, which may be nil.
func (f *providerFlags) client(metrics externaldata.Metrics, certificate func() (*tls.Certificate, error)) (*externaldata.Client, error) {
	if (f.cert == "") != (f.key == "") {
		return nil, fmt.Errorf("--external-data-cert and --external-data-key go together")
	}
	if f.cert != "" {
		files, err := servingcert.LoadKeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--external-data-cert: %w", err)
		}
		certificate = func() (*tls.Certificate, error) { return files.GetCertificate(nil) }
	}
	return externaldata.New(externaldata.Options{Certificate: certificate, TTL: f.ttl, NegativeTTL: f.negativeTTL, Metrics: metrics}), nil
}

// checkProviders returns an error for wrong usage of serve's flags for providers.
func (f *serveFlags) checkProviders() error {
	for _, name := range []string{"external-data-cert", "external-data-key", "external-data-cache-ttl", "external-data-cache-negative-ttl"} {
		if f.set(name) && len(f.policies) == 0 && !f.externalData {
			return usagef("serve: --%s has no meaning without --external-data", name)
		}
	}
	if f.providers.ttl < 0 || f.providers.negativeTTL < 0 {
		return usagef("serve: --external-data-cache-ttl and --external-data-cache-negative-ttl must not be negative")
	}
	return nil
}

// externalFlags say what answers for providers of external data when files are evaluated.
type externalFlags struct {
	answers, record string
	recordable      bool // the command has --record
	watch           bool // the command uses outside.unanswered
	providers       providerFlags
}

func (f *externalFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.answers, "external", "", "file with recorded answers of external data providers: provider to key to value, or to {error: TEXT}")
}

func (f *externalFlags) addRecord(fl *pflag.FlagSet) {
	f.recordable = true
	fl.StringVar(&f.record, "record", "", "ask the providers, and write their answers to this file, for --external")
	f.providers.add(fl)
}

// outside answers questions of policies to external sources.
type outside struct {
	flags     *externalFlags
	resolver  engine.Resolver
	client    *externaldata.Client   // nil without --record
	recorder  *externaldata.Recorder // nil without --record
	providers []*legacy.Provider
	// unanswered records the questions without a recorded answer; nil without
	// externalFlags.watch.
	unanswered *watchedResolver
}

// watchedResolver is a Resolver that records the questions that another one cannot answer.
type watchedResolver struct {
	engine.Resolver
	mu    sync.Mutex
	texts map[string]bool
}

func (u *watchedResolver) Resolve(ctx context.Context, questions []engine.Question, dryRun bool) []engine.Answer {
	answers := u.Resolver.Resolve(ctx, questions, dryRun)
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range answers {
		if e := (*externaldata.Error)(nil); errors.As(a.Err, &e) && e.Reason == externaldata.Recorded {
			u.texts[e.Error()] = true
		}
	}
	return answers
}

// open reads the recorded answers, if the flags name some.
func (f *externalFlags) open() (*outside, error) {
	o := &outside{flags: f}
	var known *externaldata.Answers
	if f.answers != "" {
		data, err := manifest.ReadFile(f.answers, manifest.MaxFile)
		if err != nil {
			return nil, &codedError{exitUsage, err}
		}
		if known, err = externaldata.ReadAnswers(f.answers, data); err != nil {
			return nil, &codedError{exitUsage, err}
		}
	}
	switch {
	case f.record != "":
		client, err := f.providers.client(nil, nil)
		if err != nil {
			return nil, usagef("eval: %w", err)
		}
		o.client, o.recorder = client, &externaldata.Recorder{From: client, Known: known}
		o.resolver = o.recorder
	case f.providers.cert != "" || f.providers.key != "":
		return nil, usagef("eval: --external-data-cert and --external-data-key: only with --record")
	case known != nil:
		o.resolver = known
	case f.recordable:
		o.resolver = externaldata.Offline("--external FILE has recorded answers, and --record FILE asks the provider")
	default:
		o.resolver = externaldata.Offline("--external FILE has recorded answers")
	}
	if f.watch {
		o.unanswered = &watchedResolver{Resolver: o.resolver, texts: map[string]bool{}}
		o.resolver = o.unanswered
	}
	return o, nil
}

// provider validates a Provider, and adds it to those for publish.
func (o *outside) provider(u *unstructured.Unstructured) error {
	p, err := externaldata.DecodeProvider(u)
	if err == nil {
		o.providers = append(o.providers, p)
	}
	return err
}

// publish makes the loaded Providers available to policies.
func (o *outside) publish() {
	if o.client != nil {
		o.client.Set(o.providers, 0)
	}
}

// save writes the recorded answers, unless the file has the same contents.
func (o *outside) save() error {
	if o.recorder == nil {
		return nil
	}
	text, err := o.recorder.File()
	if err == nil {
		if old, _ := manifest.ReadFile(o.flags.record, manifest.MaxFile); !bytes.Equal(old, text) || len(text) == 0 {
			err = os.WriteFile(o.flags.record, text, 0o644)
		}
	}
	if err != nil {
		return &codedError{exitUsage, fmt.Errorf("--record: %w", err)}
	}
	return nil
}
