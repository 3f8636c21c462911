package suite

import "github.com/mapd-project/mapd/internal/author/suite/cases"

// APIVersion and Kind are those of a suite.
const (
	APIVersion = cases.APIVersion
	Kind       = cases.Kind
)

// Types of fields that are written in more than one way.
type (
	source = cases.Source
	value  = cases.Value
	denial = cases.Denial
	// operation is one of CREATE, UPDATE, CONNECT and DELETE.
	operation string
	// mode is one of written and enforce.
	mode string
)

// suite is a suite as it is written. Its fields and their comments (tag doc) are the
// JSON schema, see Schema; need says that a field must be there.
type suite struct {
	APIVersion string            `json:"apiVersion" need:"y" doc:"The version of this format: test.mapd.dev/v1alpha1."`
	Kind       string            `json:"kind" need:"y" doc:"Suite."`
	Policies   []string          `json:"policies" need:"y" doc:"Files, directories and globs, relative to this file, with policies, bindings, Gatekeeper's mutators, Kubewarden's policies and what they need: parameters, Namespaces, CustomResourceDefinitions, RBAC objects."`
	Context    []source          `json:"context" doc:"Objects beside those of policies: names of files, or objects in place."`
	Kubernetes string            `json:"kubernetes" doc:"The minor whose CEL libraries are there, such as \"1.37\"; 1.37 if left out."`
	Namespace  string            `json:"namespace" doc:"The namespace of namespaced objects that name none; default if left out."`
	Unbound    bool              `json:"unbound" doc:"Run policies that have no binding as if bound to everything."`
	Mode       mode              `json:"mode" doc:"enforce runs policies in shadow or that only warn as if they were enforced; written, or left out, as they are."`
	External   string            `json:"external" doc:"A file with recorded answers of providers of external data."`
	Modules    map[string]string `json:"modules" doc:"Files that stand in for the modules of Kubewarden's policies, by the module's name."`
	Skip       string            `json:"skip" doc:"Why no case of the suite is run."`
	Cases      []testCase        `json:"cases" need:"y" doc:"The cases."`
}

// testCase is a case as it is written.
type testCase struct {
	Name        string           `json:"name" need:"y" doc:"What the case shows. Names of a suite differ."`
	Skip        string           `json:"skip" doc:"Why the case is not run."`
	Focus       bool             `json:"focus" doc:"Run only the cases of the suite that have focus, while working on them."`
	Object      source           `json:"object" doc:"The object of the request: an object in place, or the name of a file with one."`
	Objects     string           `json:"objects" doc:"A file with objects, each a request of its own, instead of object."`
	Old         source           `json:"old" doc:"The object before an update, or the one that is deleted."`
	Operation   operation        `json:"operation" doc:"CREATE, UPDATE, CONNECT or DELETE; UPDATE with old and CREATE without if left out. A DELETE has old and no object; of all policies only Kubewarden's see it."`
	Subresource string           `json:"subresource" doc:"The subresource that is requested, such as status."`
	DryRun      bool             `json:"dryRun" doc:"Whether the request is a dry run."`
	Time        string           `json:"time" doc:"When the request is made, such as 2027-01-31T00:00:00Z, for exceptions that end; now if left out."`
	User        *user            `json:"user" doc:"Who asks; kubernetes-admin of the group system:masters if left out."`
	Namespace   string           `json:"namespace" doc:"The namespace of an object that names none."`
	Context     []source         `json:"context" doc:"Objects that the policies see in this case beside those of the suite, such as parameters and Namespaces: names of files, or objects in place."`
	Expect      *cases.Expect    `json:"expect" doc:"What has to come out. mapd test --update writes it."`
	Table       []map[string]any `json:"table" doc:"Rows of values, each a case of its own: $(column) in a text of the case stands for the value of the row. The column name is the name of the row."`
}

// user is who asks.
type user struct {
	Name   string              `json:"name" doc:"The user's name, such as system:serviceaccount:shop:deployer."`
	UID    string              `json:"uid" doc:"The user's UID."`
	Groups []string            `json:"groups" doc:"The user's groups. Those that every server adds are added."`
	Extra  map[string][]string `json:"extra" doc:"What an authenticator says besides."`
}
