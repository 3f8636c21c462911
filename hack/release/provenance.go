package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// artifact is a file of the release with its SHA-256.
type artifact struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// statement is an in-toto statement with SLSA provenance: https://slsa.dev/spec/v1.0/provenance.
// It has no times, so that building the same release again gives the same bytes.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []artifact `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type provenance struct {
	BuildDefinition struct {
		BuildType            string         `json:"buildType"`
		ExternalParameters   map[string]any `json:"externalParameters"`
		ResolvedDependencies []dependency   `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type dependency struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest,omitempty"`
}

const (
	statementV1  = "https://in-toto.io/Statement/v1"
	provenanceV1 = "https://slsa.dev/provenance/v1"
	buildType    = repository + "/tree/main/hack/release"
)

// provenance returns the statement about the files of the release.
func (r *release) provenance(subjects []artifact, commit string) ([]byte, error) {
	s := statement{Type: statementV1, Subject: subjects, PredicateType: provenanceV1}
	d := &s.Predicate.BuildDefinition
	d.BuildType = buildType
	d.ExternalParameters = map[string]any{"version": r.version, "platforms": r.platforms}
	source := dependency{URI: "git+" + repository + "@refs/tags/" + r.version}
	if commit != "" {
		source.Digest = map[string]string{"gitCommit": commit}
	}
	d.ResolvedDependencies = []dependency{source, {URI: "pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go")}}
	s.Predicate.RunDetails.Builder.ID = r.builder
	return json.Marshal(s)
}

// head returns the commit that is checked out, or an error if there are uncommitted changes.
func head(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "", err
	}
	changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil {
		return "", err
	}
	if len(changes) > 0 {
		return "", fmt.Errorf("the tree has changes that are in no commit, so provenance would name another source:\n%s", changes)
	}
	return strings.TrimSpace(string(out)), nil
}
