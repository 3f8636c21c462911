package oracle

import (
	"fmt"
	"slices"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Environment returns the Contents of the environment in which a server of a minor compiles
// expressions of policies, without patch types and params.
func Environment(minor uint) ([]string, error) {
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, minor)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		DeclTypes:         []*apiservercel.DeclType{plugincel.BuildNamespaceType(), plugincel.BuildRequestType()},
		EnvOptions: []celgo.EnvOption{
			celgo.Variable(plugincel.ObjectVarName, celgo.DynType),
			celgo.Variable(plugincel.OldObjectVarName, celgo.DynType),
			celgo.Variable(plugincel.NamespaceVarName, plugincel.BuildNamespaceType().CelType()),
			celgo.Variable(plugincel.RequestVarName, plugincel.BuildRequestType().CelType()),
			celgo.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
			celgo.Variable(plugincel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
		},
	})
	if err != nil {
		return nil, err
	}
	return Contents(set.NewExpressionsEnv())
}

// Contents returns what an environment has, one line each, sorted: libraries with their
// versions, functions with their overloads, macros, variables, validators and settings.
func Contents(env *celgo.Env) ([]string, error) {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for name, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			add("function %s: %s%v %v strict=%t", name, o.ID(), o.ArgTypes(), o.ResultType(), !o.IsNonStrict())
		}
	}
	for _, v := range env.Variables() {
		add("variable %s %s", v.Name(), v.Type())
	}
	for _, m := range env.Macros() {
		add("macro %s", m.MacroKey())
	}
	for _, v := range env.Validators() {
		add("validator %s", v.Name())
	}
	for _, l := range env.Libraries() {
		add("library %s", l)
	}
	config, err := env.ToConfig("env")
	if err != nil {
		return nil, err
	}
	for _, e := range config.Extensions {
		add("extension %s %s", e.Name, e.Version)
	}
	for _, f := range config.Features {
		add("feature %s %t", f.Name, f.Enabled)
	}
	slices.Sort(out)
	return out, nil
}
