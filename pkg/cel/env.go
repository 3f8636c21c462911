package cel

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
)

// The supported minors. The oldest is the first that served MutatingAdmissionPolicy. Current is
// that of the Kubernetes libraries in go.mod. test/next compares newer minors with their own
// libraries.
const (
	oldestMinor  = 32
	currentMinor = 37
	newestMinor  = 38
)

// Options select a language.
type Options struct {
	// Version is a Kubernetes minor such as "1.37", from 1.32 to 1.38. Empty means Current, the
	// minor whose behaviour mapd follows.
	Version string
	// CELGo evaluates all expressions with cel-go and none with package quick. Tests and
	// benchmarks use it to compare the two.
	CELGo bool
	// Observe makes programs count the outcomes of their parts, see Program.Coverage, and
	// record what they read, see Activation.TakeTrace. Such programs are evaluated with cel-go,
	// and policies do not share them.
	Observe bool
}

// Env is the expression language of one Kubernetes minor. It is safe for concurrent use. All
// policies should share one, since making it is expensive; making a Scope costs almost nothing.
type Env struct {
	*languages
	// compiling holds the bounds of one policy. Only Within sets it.
	compiling *compiling
	asks      bool // see Asking
}

// languages are the parts of an Env that all policies share.
type languages struct {
	// of is indexed by Mode, by whether patch types exist, and by whether externalData exists.
	// Each entry is built when it is first needed: a server never needs those of Mode New.
	of       [2][2][2]func() (*language, error)
	shared   shared
	celGo    bool // see Options
	observes bool // Options.Observe
}

// Current is the version whose behaviour mapd follows, and the default of Options.Version.
const Current = "1.37"

// Newest is the newest version whose language is known.
const Newest = "1.38"

// Assumed returns a text that says which behaviour mapd assumes for a server whose minor is
// newer than Current; "" for others.
func Assumed(minor int) string {
	switch {
	case minor <= currentMinor:
		return ""
	case minor <= newestMinor:
		return fmt.Sprintf("expressions have the functions of 1.%d as its libraries had them before the release; all else is decided as on %s", minor, Current)
	}
	return fmt.Sprintf("1.%d is not known: expressions have the functions of %s, and all else is decided as on %s", minor, Newest, Current)
}

// Nearest returns the supported version for a server's minor: the minor itself, else the oldest
// or the newest.
func Nearest(minor int) string {
	return fmt.Sprintf("1.%d", min(max(minor, oldestMinor), newestMinor))
}

// Minors returns the versions that Options accept, the newest first.
func Minors() []string {
	var out []string
	for minor := newestMinor; minor >= oldestMinor; minor-- {
		out = append(out, fmt.Sprintf("1.%d", minor))
	}
	return out
}

// NewEnv returns the language of a minor.
func NewEnv(opts Options) (*Env, error) {
	minor, err := parseMinor(opts.Version)
	if err != nil {
		return nil, err
	}
	e := &Env{languages: &languages{celGo: opts.CELGo || opts.Observe, observes: opts.Observe}}
	for mode := range e.of {
		known := minor
		if Mode(mode) == New {
			// A stored expression must still compile after a downgrade by one minor, so a
			// server accepts only what the minor before it supports (spec §6.2).
			known--
		}
		for patch := range e.of[mode] {
			for asks := range e.of[mode][patch] {
				e.of[mode][patch][asks] = sync.OnceValues(func() (*language, error) {
					return newLanguage(known, patch == 1, asks == 1)
				})
			}
		}
	}
	// Report an error in the table of libraries now, not at the first policy.
	if _, err := e.of[Stored][0][0](); err != nil {
		return nil, err
	}
	return e, nil
}

func parseMinor(s string) (uint, error) {
	if s == "" {
		return currentMinor, nil
	}
	rest, ok := strings.CutPrefix(strings.TrimPrefix(s, "v"), "1.")
	minor, err := strconv.ParseUint(rest, 10, 16)
	if !ok || err != nil || strconv.FormatUint(minor, 10) != rest {
		return 0, fmt.Errorf("kubernetes version %q: want a minor such as %q", s, Current)
	}
	if minor < oldestMinor || minor > newestMinor {
		return 0, fmt.Errorf("kubernetes version %q: only 1.%d to 1.%d are known", s, oldestMinor, newestMinor)
	}
	return uint(minor), nil
}

// Mode selects one of the two environments of a server (spec §6.2).
type Mode uint8

const (
	// Stored is for expressions that run. It has everything that the minor supports.
	Stored Mode = iota
	// New is for expressions that are about to be stored. It has what the minor before
	// supports.
	New
)

// language is a CEL environment that contains nothing of a particular policy. The checkers add
// the names that differ between policies (params, variables), since that is cheaper than an
// environment for each policy.
type language struct {
	env      *celgo.Env
	planner  *planner
	checkers [2][2]*checkers // by whether params, variables are declared
	// The declarations of functions and names, for the weigher.
	overloads map[string][]overload
	names     map[string]*form
}

func newLanguage(minor uint, patch, asks bool) (*language, error) {
	env, err := baseEnv(minor)
	if err != nil {
		return nil, fmt.Errorf("environment of kubernetes 1.%d: %w", minor, err)
	}
	if patch {
		// A second step, since the resolver of patch types wraps the type
		// provider that the first one leaves behind.
		env, err = env.Extend(celgo.Lib(options{env: []celgo.EnvOption{
			common.ResolverEnvOption(&patchTypes{}),
			library.JSONPatch(),
		}}))
		if err != nil {
			return nil, fmt.Errorf("patch types of kubernetes 1.%d: %w", minor, err)
		}
	}
	if asks {
		if env, err = env.Extend(externalData); err != nil {
			return nil, fmt.Errorf("external data in kubernetes 1.%d: %w", minor, err)
		}
	}
	env, err = env.Extend(countNodes)
	if err != nil {
		return nil, fmt.Errorf("macros of kubernetes 1.%d: %w", minor, err)
	}
	plan, err := newPlanner(env)
	if err != nil {
		return nil, fmt.Errorf("planner of kubernetes 1.%d: %w", minor, err)
	}
	l := &language{env: env, planner: plan, overloads: overloadsOf(env.Functions()), names: map[string]*form{}}
	for _, v := range env.Variables() {
		l.names[v.Name()] = formOf(v.Type())
	}
	for params := range l.checkers {
		for variables := range l.checkers[params] {
			l.checkers[params][variables], err = newCheckers(env, params == 1, variables == 1)
			if err != nil {
				return nil, fmt.Errorf("checker of kubernetes 1.%d: %w", minor, err)
			}
		}
	}
	return l, nil
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// language returns the environment for the mode, with or without the types
// Object and JSONPatch, and the function externalData.
func (l *languages) language(mode Mode, patch, asks bool) (*language, error) {
	return l.of[mode][index(patch)][index(asks)]()
}

// variablesType is the type of the name "variables". Its fields are known to
// the provider of a checker only.
var variablesType = types.NewObjectType("kubernetes.variables")
