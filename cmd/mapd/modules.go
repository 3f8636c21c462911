package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/kubewarden/download"
	"github.com/mapd-project/mapd/internal/kubewarden/modulepolicy"
	"github.com/mapd-project/mapd/internal/kubewarden/wapc"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/policy"
)

// moduleFlags say where the modules of Kubewarden's policies come from.
type moduleFlags struct {
	local    []string
	cache    string
	sources  []string
	insecure []string
	config   string
}

func (f *moduleFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.local, "module", nil, "Kubewarden: MODULE=FILE takes FILE as the module that policies name by MODULE; repeatable")
	fl.StringVar(&f.cache, "module-cache", "", "Kubewarden: directory for modules that were fetched and compiled, none for no directory (default mapd in the user's cache directory)")
	fl.StringVar(&f.config, "registry-config", "", "Kubewarden: Docker config.json with the users of registries (default that of the user, if there is one)")
	fl.StringSliceVar(&f.sources, "module-source", nil, "Kubewarden: host, as host or host:port, that modules may be fetched from, redirects and servers of tokens included (default all with public addresses); repeatable")
	fl.StringSliceVar(&f.insecure, "insecure-registry", nil, "Kubewarden: registry, as host:port, that is asked over http")
}

// loader returns a loader for modules. At its first use it calls limit, which limits the memory
// of the process and returns the bound for modules.
func (f *moduleFlags) loader(log *slog.Logger, limit func() int64) (*moduleLoader, error) {
	if err := download.CheckSources(f.sources); err != nil {
		return nil, fmt.Errorf("--module-source: %w", err)
	}
	o := download.Options{Local: map[string]string{}, Insecure: f.insecure, Sources: f.sources, MaxBytes: wapc.MaxModule}
	for _, pair := range f.local {
		// A URL may contain an equals sign; the name of a file rarely does.
		i := strings.LastIndex(pair, "=")
		if i <= 0 || i == len(pair)-1 {
			return nil, fmt.Errorf("--module %s: want MODULE=FILE", pair)
		}
		o.Local[pair[:i]] = pair[i+1:]
	}
	usual := "" // the default directory, used if it can be created
	switch dir, err := os.UserCacheDir(); {
	case f.cache == "none":
	case f.cache != "":
		o.Dir = f.cache
	case err == nil:
		usual = filepath.Join(dir, "mapd", "modules")
	}
	switch home, err := os.UserHomeDir(); {
	case f.config != "":
		if _, err := os.Stat(f.config); err != nil {
			return nil, fmt.Errorf("--registry-config: %w", err)
		}
		o.Credentials = f.config
	case os.Getenv("DOCKER_CONFIG") != "":
		o.Credentials = fileIfThere(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"))
	case err == nil:
		o.Credentials = fileIfThere(filepath.Join(home, ".docker", "config.json"))
	}
	return &moduleLoader{make: func() (*modulepolicy.Loader, error) {
		if usual != "" && os.MkdirAll(usual, 0o700) == nil {
			o.Dir = usual
		}
		runtime := boundedRuntime(limit())
		if o.Dir != "" {
			runtime.CacheDir = filepath.Join(o.Dir, "compiled")
		}
		fetcher, err := download.New(o)
		if err != nil {
			return nil, fmt.Errorf("--module-cache: %w", err)
		}
		return modulepolicy.New(context.Background(), modulepolicy.Options{Modules: fetcher, Runtime: runtime, Log: log})
	}}, nil
}

// moduleMode returns the mode in --kubewarden, or usual without the flag.
func (f *serveFlags) moduleMode(usual api.Mode) api.Mode {
	for _, mode := range []api.Mode{api.Enforce, api.Shadow, api.Off} {
		if f.kubewarden == engine.ModeWord(mode) {
			return mode
		}
	}
	return usual
}

// boundedRuntime bounds the memory of modules to a quarter of the process's limit, so that
// modules cannot exhaust it.
func boundedRuntime(limit int64) (o wapc.Options) {
	const usual = 1 << 30 // wapc's own bound
	if limit/4 < usual {
		o.AllMemory = max(limit/4, 32<<20)
		o.Memory = min(o.AllMemory, 256<<20) &^ (64<<10 - 1) // whole pages
	}
	return o
}

// fileIfThere returns path if the file exists, else "".
func fileIfThere(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// moduleLoader is a kubewarden.Loader that is initialized when the first policy needs it.
type moduleLoader struct {
	make func() (*modulepolicy.Loader, error)

	once   sync.Once
	loader *modulepolicy.Loader
	err    error
}

// Load implements kubewarden.Loader.
func (l *moduleLoader) Load(ctx context.Context, p *kubewarden.Policy, deps policy.Deps, objects binding.Params) (policy.Mutator, error) {
	l.once.Do(func() { l.loader, l.err = l.make() })
	if l.err != nil {
		return nil, l.err
	}
	return l.loader.Load(ctx, p, deps, objects)
}

// moduleLog writes what modules log to the standard error of a command.
func moduleLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}}))
}
