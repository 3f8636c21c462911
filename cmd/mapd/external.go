package main

import (
	"os"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/external"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// externalFlags say who answers for providers of external data.
type externalFlags struct{ answers string }

func (f *externalFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.answers, "external", "", "file with recorded answers of external data providers: provider to key to value, or to {error: TEXT}")
}

// outside is what policies may ask.
type outside struct{ resolver engine.Resolver }

// open reads the recorded answers.
func (f *externalFlags) open() (*outside, error) {
	if f.answers == "" {
		return &outside{external.Offline("recorded answers are given with --external FILE")}, nil
	}
	data, err := os.ReadFile(f.answers)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	answers, err := external.ReadAnswers(f.answers, data)
	if err != nil {
		return nil, &codedError{exitUsage, err}
	}
	return &outside{answers}, nil
}

// provider checks a Provider.
func (o *outside) provider(u *unstructured.Unstructured) error {
	_, err := legacy.DecodeProvider(u)
	return err
}
