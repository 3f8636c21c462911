package mapd

import (
	"sync"

	"github.com/mapd-project/mapd/pkg/cel"
)

// environments has an Env for each Kubernetes minor that a caller used. Making one is most of
// the cost of loading a few policies, and there are no more than the known minors.
var environments sync.Map // of string to *cel.Env

func environment(minor string, observe bool) (*cel.Env, error) {
	if observe {
		return cel.NewEnv(cel.Options{Version: minor, Observe: true})
	}
	if env, ok := environments.Load(minor); ok {
		return env.(*cel.Env), nil
	}
	env, err := cel.NewEnv(cel.Options{Version: minor})
	if err != nil {
		return nil, err
	}
	kept, _ := environments.LoadOrStore(minor, env)
	return kept.(*cel.Env), nil
}
