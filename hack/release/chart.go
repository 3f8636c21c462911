package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const chartDir = "manifests/chart"

// chart returns the chart as the archive that `helm package` writes, and as an OCI layout of what
// `helm push` would upload. The chart and its image have the version of the release.
func chart(version string, modified time.Time) ([]file, error) {
	packed, meta, err := packChart(version, modified)
	if err != nil {
		return nil, err
	}
	artifact, err := chartArtifact(packed, meta, modified)
	if err != nil {
		return nil, err
	}
	return []file{
		{name: fmt.Sprintf("mapd-%s.tgz", meta["version"]), data: packed},
		{name: "mapd_" + version + "_chart.tar", data: artifact},
	}, nil
}

// packChart also returns the chart's Chart.yaml.
func packChart(version string, modified time.Time) (packed []byte, meta map[string]any, err error) {
	text, err := os.ReadFile(filepath.Join(chartDir, "Chart.yaml"))
	if err != nil {
		return nil, nil, err
	}
	if err := yaml.Unmarshal(text, &meta); err != nil {
		return nil, nil, fmt.Errorf("%s: Chart.yaml: %w", chartDir, err)
	}
	meta["version"], meta["appVersion"] = strings.TrimPrefix(version, "v"), version
	if text, err = yaml.Marshal(meta); err != nil {
		return nil, nil, err
	}
	files := []file{{"mapd/Chart.yaml", 0o644, text}} // Helm wants it first
	err = filepath.WalkDir(chartDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "Chart.yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		files = append(files, file{"mapd/" + filepath.ToSlash(strings.TrimPrefix(path, chartDir+string(filepath.Separator))), 0o644, data})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	plain, err := tarball(files, modified)
	if err != nil {
		return nil, nil, err
	}
	packed, err = compress(plain)
	return packed, meta, err
}
