package suite

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/internal/kyverno/policy"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// kyvernoTest is a test of Kyverno's command. Fields that matter only to policies that mapd does
// not run are accepted and ignored.
type kyvernoTest struct {
	APIVersion           string          `json:"apiVersion" need:"y"`
	Kind                 string          `json:"kind" need:"y"`
	Metadata             value           `json:"metadata"`
	Name                 string          `json:"name"`
	Policies             []string        `json:"policies"`
	Resources            []string        `json:"resources"`
	ParamResources       []string        `json:"paramResources"`
	ClusterResources     []string        `json:"clusterResources"`
	TargetResources      []string        `json:"targetResources"`
	Variables            string          `json:"variables"`
	Values               *kyvernoValues  `json:"values"`
	UserInfo             string          `json:"userinfo"`
	Results              []kyvernoResult `json:"results"`
	Checks               []value         `json:"checks"`
	Exceptions           []string        `json:"exceptions"`
	Context              string          `json:"context"`
	JSONPayload          string          `json:"jsonPayload"`
	HTTPPayloads         []string        `json:"httpPayloads"`
	EnvoyPayloads        []string        `json:"envoyPayloads"`
	APICallResponses     []value         `json:"apiCallResponses"`
	GlobalContextEntries []value         `json:"globalContextEntries"`
}

// kyvernoResult is what a test expects of a policy and some resources. The last fields are those
// of older releases.
type kyvernoResult struct {
	Policy                      string        `json:"policy" need:"y"`
	Rule                        string        `json:"rule"`
	Result                      string        `json:"result"`
	Kind                        string        `json:"kind"`
	Resources                   []string      `json:"resources"`
	ResourceSpecs               []kyvernoSpec `json:"resourceSpecs"`
	PatchedResources            string        `json:"patchedResources"`
	GeneratedResource           string        `json:"generatedResource"`
	CloneSourceResource         string        `json:"cloneSourceResource"`
	FailOnMissingResources      bool          `json:"failOnMissingResources"`
	IsMutatingAdmissionPolicy   bool          `json:"isMutatingAdmissionPolicy"`
	IsValidatingAdmissionPolicy bool          `json:"isValidatingAdmissionPolicy"`
	IsMutatingPolicy            bool          `json:"isMutatingPolicy"`
	IsValidatingPolicy          bool          `json:"isValidatingPolicy"`
	IsImageValidatingPolicy     bool          `json:"isImageValidatingPolicy"`
	IsGeneratingPolicy          bool          `json:"isGeneratingPolicy"`
	IsDeletingPolicy            bool          `json:"isDeletingPolicy"`
	Status                      string        `json:"status"`
	Resource                    string        `json:"resource"`
	Namespace                   string        `json:"namespace"`
	PatchedResource             string        `json:"patchedResource"`
}

type kyvernoSpec struct {
	Group       string `json:"group"`
	Version     string `json:"version"`
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace"`
	Subresource string `json:"subresource"`
	Name        string `json:"name"`
}

// kyvernoValues are values, in a file of their own or in the test. Policies see their
// Namespaces, the operation of the request, and data of ConfigMaps; other values stand for what
// rules would ask others, and such rules are not converted.
type kyvernoValues struct {
	APIVersion   string         `json:"apiVersion"`
	Kind         string         `json:"kind"`
	Metadata     value          `json:"metadata"`
	GlobalValues map[string]any `json:"globalValues"`
	Policies     []struct {
		Name      string                `json:"name" need:"y"`
		Resources []kyvernoValuesOf     `json:"resources"`
		Rules     []kyvernoValuesOfRule `json:"rules"`
	} `json:"policies"`
	Variables     value `json:"variables"`
	NamespaceList []struct {
		Name   string            `json:"name" need:"y"`
		Labels map[string]string `json:"labels"`
	} `json:"namespaceSelector"`
	Namespaces   []map[string]any `json:"namespaces"`
	Subresources []struct {
		Subresource kyvernoSpec `json:"subresource"`
		Parent      kyvernoSpec `json:"parentResource"`
	} `json:"subresources"`
}

type kyvernoValuesOf struct {
	Name   string         `json:"name" need:"y"`
	Values map[string]any `json:"values"`
}

type kyvernoValuesOfRule struct {
	Name          string         `json:"name" need:"y"`
	Values        map[string]any `json:"values"`
	ForeachValues value          `json:"foreachValues"`
}

type kyvernoUser struct {
	APIVersion   string   `json:"apiVersion"`
	Kind         string   `json:"kind"`
	Metadata     value    `json:"metadata"`
	Roles        []string `json:"roles"`
	ClusterRoles []string `json:"clusterRoles"`
	UserInfo     struct {
		Name   string              `json:"username"`
		UID    string              `json:"uid"`
		Groups []string            `json:"groups"`
		Extra  map[string][]string `json:"extra"`
	} `json:"userInfo"`
}

type kyvernoCluster struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   value  `json:"metadata"`
	Spec       struct {
		CRDs      []string         `json:"crds"`
		Resources []map[string]any `json:"resources"`
	} `json:"spec"`
}

// policyKind is the kind of policies that such a test may have besides Kyverno's own.
const policyKind = api.PolicyKind

// isKyverno reports whether an object is a test of Kyverno's. Its documentation has both
// versions, and it reads any.
func isKyverno(apiVersion, kind string) bool {
	return kind == "Test" && (apiVersion == "cli.kyverno.io/v1alpha1" || apiVersion == "kyverno.io/v1")
}

// kyverno is the state of reading a test.
type kyverno struct {
	*decoder
	kyvernoTest
	at *Suite // for paths
	// policies are the policies that run, in the order of their files, and bindings are theirs.
	// others has the kinds of policies that do not run, by name.
	policies, bindings []*mapd.Document
	others             map[string]string
	resources, beside  []*mapd.Document
	scales             map[schema.GroupVersionKind]bool // of values.subresources
	// rules has the types of the rules of Kyverno's policies, by the names of policy and rule.
	rules map[string]map[string]string
	// configMaps are those that rules read, by the name of the policy and the variable.
	configMaps map[[2]string]*policy.ConfigMap
	// operation is the request's, everywhere, or for a policy and a resource.
	operation  string
	operations map[[2]string]string
	user       *user
	suites     []*Suite
}

// readKyverno reads a test of Kyverno's: a Suite for each policy that its results are
// about. As in Kyverno, a policy sees what those before it made of the object.
func readKyverno(file string, d *mapd.Document) ([]*Suite, []error) {
	k := &kyverno{
		decoder: &decoder{doc: d}, others: map[string]string{}, scales: map[schema.GroupVersionKind]bool{},
		rules: map[string]map[string]string{}, configMaps: map[[2]string]*policy.ConfigMap{}, operations: map[[2]string]string{},
	}
	k.decode("", d.Object().Object, reflect.ValueOf(&k.kyvernoTest).Elem())
	k.at = &Suite{File: file, doc: d}
	k.Policies, k.Resources = slices.Clone(k.Policies), slices.Clone(k.Resources)
	if len(k.errs) > 0 {
		return nil, k.errs
	}
	k.readPolicies()
	k.resources = k.files("resources", k.Resources)
	for _, r := range k.resources {
		if !r.IsContext() || !api.IsAdmission(r.Object().GroupVersionKind().Group) {
			k.beside = append(k.beside, r)
		}
	}
	k.readCluster()
	k.readValues()
	k.readUser()
	for i := range k.Results {
		k.result(i)
	}
	for i := range k.Checks {
		k.suite(nil).leaveOut(d, fmt.Sprintf("checks[%d]", i), fmt.Sprintf("checks[%d]", i), "is an assertion tree, which mapd does not run")
	}
	if len(k.Results)+len(k.Checks) == 0 {
		k.fail("results", "results: there is no result to check")
	}
	return k.suites, k.errs
}

// files reads the documents of the files and directories that a field names.
func (k *kyverno) files(field string, names []string) (docs []*mapd.Document) {
	for i, name := range names {
		if path := fmt.Sprintf("%s[%d]", field, i); k.isFile(path, name) {
			docs = append(docs, k.at.policyFiles(k.decoder, path, name)...)
		}
	}
	return docs
}

// isFile reports an error for a name that Kyverno would download.
func (k *kyverno) isFile(path, name string) bool {
	if strings.Contains(name, "://") {
		k.fail(path, "%s: %s: mapd reads files only", path, name)
		return false
	}
	return true
}

func (k *kyverno) readPolicies() {
	for _, d := range k.files("policies", k.Policies) {
		gvk := d.Object().GroupVersionKind()
		switch {
		case api.IsAdmission(gvk.Group) && gvk.Kind == policyKind:
			k.policies = append(k.policies, d)
		case api.IsAdmission(gvk.Group) && gvk.Kind == api.BindingKind:
			k.bindings = append(k.bindings, d)
		case policy.Is(gvk):
			k.policies = append(k.policies, d)
			k.readRules(d)
		default:
			k.others[d.Object().GetName()] = gvk.Kind
		}
	}
}

// readRules reads what the rules of one of Kyverno's policies do. What is wrong with them is
// found when the policy is loaded.
func (k *kyverno) readRules(d *mapd.Document) {
	rules := map[string]string{}
	if p, err := policy.Decode(d.Object()); err == nil && p.Rules != nil {
		for i := range p.Rules.Rules {
			rules[p.Rules.Rules[i].Name] = p.Rules.Rules[i].Does()
			for _, c := range p.Rules.Rules[i].Context {
				if c.ConfigMap != nil {
					k.configMaps[[2]string{p.Name, c.Name}] = c.ConfigMap
				}
			}
		}
	}
	k.rules[d.Name()] = rules
}

// readCluster reads objects that are there beside the resources.
func (k *kyverno) readCluster() {
	k.beside = append(k.beside, k.files("paramResources", k.ParamResources)...)
	for _, d := range k.files("clusterResources", k.ClusterResources) {
		var c kyvernoCluster
		of := &decoder{doc: d}
		of.decode("", d.Object().Object, reflect.ValueOf(&c).Elem())
		k.errs = append(k.errs, of.errs...)
		k.beside = append(k.beside, k.files("clusterResources", c.Spec.CRDs)...)
		for i, object := range c.Spec.Resources {
			k.part(d, fmt.Sprintf("spec.resources[%d]", i), object)
		}
	}
}

// part adds an object that stands in a document.
func (k *kyverno) part(d *mapd.Document, path string, object map[string]any) {
	p, err := d.Part(path, object)
	if err != nil {
		k.errs = append(k.errs, err)
		return
	}
	k.beside = append(k.beside, p)
}

func (k *kyverno) readValues() {
	k.values(k.doc, "values.", k.kyvernoTest.Values)
	for _, d := range k.one("variables", k.Variables) {
		var v kyvernoValues
		of := &decoder{doc: d}
		of.decode("", d.Object().Object, reflect.ValueOf(&v).Elem())
		k.errs = append(k.errs, of.errs...)
		k.values(d, "", &v)
	}
}

// one reads the documents of the file that a field names, if it does.
func (k *kyverno) one(field, name string) []*mapd.Document {
	if name == "" || !k.isFile(field, name) {
		return nil
	}
	return k.at.several(k.decoder, field, name)
}

func (k *kyverno) values(d *mapd.Document, prefix string, v *kyvernoValues) {
	if v == nil {
		return
	}
	for i, n := range v.NamespaceList {
		labels := map[string]any{}
		for key, value := range n.Labels {
			labels[key] = value
		}
		k.part(d, fmt.Sprintf("%snamespaceSelector[%d]", prefix, i), map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": n.Name, "labels": labels},
		})
	}
	for i, n := range v.Namespaces {
		object := map[string]any{"apiVersion": "v1", "kind": "Namespace"}
		for key, value := range n {
			object[key] = value
		}
		k.part(d, fmt.Sprintf("%snamespaces[%d]", prefix, i), object)
	}
	k.operation = cmp.Or(operationIn(v.GlobalValues), k.operation)
	for i, p := range v.Policies {
		for j, r := range p.Rules {
			k.operations[[2]string{p.Name, ""}] = cmp.Or(operationIn(r.Values), k.operations[[2]string{p.Name, ""}])
			k.configMapsIn(d, fmt.Sprintf("%spolicies[%d].rules[%d].values", prefix, i, j), p.Name, r.Values)
		}
		for _, r := range p.Resources {
			k.operations[[2]string{p.Name, r.Name}] = operationIn(r.Values)
		}
	}
	for _, s := range v.Subresources {
		k.scales[schema.GroupVersionKind{Group: s.Subresource.Group, Version: s.Subresource.Version, Kind: s.Subresource.Kind}] = true
	}
}

// configMapsIn adds the ConfigMaps of which values for a rule have data, such as settings.data.team, if
// they are not there.
func (k *kyverno) configMapsIn(d *mapd.Document, path, policy string, values map[string]any) {
	data := map[string]map[string]any{}
	for key, v := range values {
		name, field, ok := strings.Cut(key, ".data.")
		text, isText := v.(string)
		if !ok || !isText || k.configMaps[[2]string{policy, name}] == nil {
			continue
		}
		if data[name] == nil {
			data[name] = map[string]any{}
		}
		data[name][strings.Trim(field, `"`)] = text
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		c := k.configMaps[[2]string{policy, name}]
		id := [4]string{"v1", "ConfigMap", cmp.Or(c.Namespace, mapd.DefaultNamespace), c.Name}
		if slices.ContainsFunc(k.beside, func(d *mapd.Document) bool { return identity(d) == id }) {
			continue
		}
		k.part(d, path, map[string]any{
			"apiVersion": id[0], "kind": id[1], "metadata": map[string]any{"namespace": id[2], "name": id[3]}, "data": data[name],
		})
	}
}

// operationIn returns the operation among values, "" if they have none.
func operationIn(values map[string]any) string {
	if s, ok := values["request.operation"].(string); ok {
		return s
	}
	request, _ := values["request"].(map[string]any)
	s, _ := request["operation"].(string)
	return s
}

func (k *kyverno) readUser() {
	for _, d := range k.one("userinfo", k.kyvernoTest.UserInfo) {
		var u kyvernoUser
		of := &decoder{doc: d}
		of.decode("", d.Object().Object, reflect.ValueOf(&u).Elem())
		k.errs = append(k.errs, of.errs...)
		k.user = &user{Name: u.UserInfo.Name, UID: u.UserInfo.UID, Groups: u.UserInfo.Groups, Extra: u.UserInfo.Extra}
	}
}

// suite returns the suite for the results about a policy: it runs the policy and those before it.
// nil stands for no policy.
func (k *kyverno) suite(of *mapd.Document) *Suite {
	name := ""
	if of != nil {
		name = of.Name()
	}
	for _, s := range k.suites {
		if s.tests == name {
			return s
		}
	}
	s := &Suite{File: k.at.File, doc: k.doc, given: true, tests: name, beside: k.beside}
	s.Unbound, s.Policies = true, slices.Concat(k.Policies, k.Resources)
	names := map[string]bool{}
	for _, d := range k.policies {
		s.docs = append(s.docs, d)
		names[d.Object().GetName()] = true
		if d == of {
			break
		}
	}
	for _, b := range k.bindings {
		spec, _ := b.Object().Object["spec"].(map[string]any)
		if of, _ := spec["policyName"].(string); names[of] {
			s.docs = append(s.docs, b)
		}
	}
	k.suites = append(k.suites, s)
	return s
}

// policyOf returns the policy that a result is about, nil if none of those that run is.
func (k *kyverno) policyOf(r *kyvernoResult) *mapd.Document {
	namespace, name, found := strings.Cut(r.Policy, "/")
	if !found {
		namespace, name = "", r.Policy
	}
	for _, d := range k.policies {
		u := d.Object()
		native := api.IsAdmission(u.GroupVersionKind().Group)
		cel := u.GroupVersionKind().Group == policy.CELGroup
		switch {
		case u.GetName() != name || namespace != "" && cmp.Or(u.GetNamespace(), mapd.DefaultNamespace) != namespace:
		case r.IsMutatingAdmissionPolicy && !native, r.IsMutatingPolicy && !cel: // of another kind with this name
		default:
			return d
		}
	}
	return nil
}

// claim returns what a result expects of a policy, or the reason why the result is left out.
func (k *kyverno) claim(r *kyvernoResult, path string, d *mapd.Document) (c claim, out string) {
	c = claim{stage: engine.PolicyStage, policy: r.Policy, result: cmp.Or(r.Result, r.Status)}
	if gvk := d.Object().GroupVersionKind(); policy.Is(gvk) {
		c.stage, c.policy = engine.RuleStage, policy.IDOf(d.Object())
		rules := k.rules[d.Name()]
		// Kyverno derives the names of rules that it generates for controllers from the rule for
		// Pods.
		rule := r.Rule
		for _, prefix := range []string{"autogen-cronjob-", "autogen-"} {
			if without, ok := strings.CutPrefix(rule, prefix); ok && rules[rule] == "" {
				rule = without
			}
		}
		switch does := rules[rule]; {
		case gvk.Group == policy.CELGroup:
			c.idle = true
		case rule == "" && len(rules) > 0:
			if !slices.Contains(slices.Collect(maps.Values(rules)), "mutate") {
				return c, "tests a " + gvk.Kind + " that does not mutate, which mapd test does not run"
			}
		case does == "mutate":
			c.policy += "/" + rule
		case does != "":
			return c, fmt.Sprintf("tests a rule that does not mutate (%s), which mapd test does not run", does)
		case len(rules) > 0:
			k.fail(path+".rule", "%s.rule: %s has no rule %s", path, d.Name(), r.Rule)
		}
	}
	if !slices.Contains([]string{"pass", "skip", "fail", "error"}, c.result) {
		k.fail(path+".result", "%s.result: %q: want pass, skip, fail or error", path, c.result)
	}
	return c, ""
}

// result adds the cases of a result.
func (k *kyverno) result(i int) {
	r, path := &k.Results[i], fmt.Sprintf("results[%d]", i)
	about := k.policyOf(r)
	name := strings.TrimSuffix(r.Policy+"/"+r.Rule, "/")
	if about == nil {
		if kind := k.otherKind(r); kind == "" {
			k.fail(path+".policy", "%s.policy: the policies have none named %s", path, r.Policy)
		} else {
			k.suite(nil).leaveOut(k.doc, path, name, fmt.Sprintf("tests a %s, which mapd test does not run", kind))
		}
		return
	}
	want, out := k.claim(r, path, about)
	if out != "" {
		k.suite(nil).leaveOut(k.doc, path, name, out)
		return
	}
	if r.GeneratedResource+r.CloneSourceResource != "" {
		k.fail(path, "%s: %s mutates, and generates nothing", path, about.Name())
	}
	s := k.suite(about)
	file := cmp.Or(r.PatchedResources, r.PatchedResource)
	patched := k.one(path+".patchedResources", file)
	for _, object := range k.selected(r, path) {
		claim := want
		u := &unit{
			suite: s, path: path, row: -1, line: k.doc.ErrorAt(path, nil).Line, object: object, claim: &claim,
			name: fmt.Sprintf("%s/%s: %s", name, want.result, object.Name()), spec: testCase{User: k.user},
		}
		switch k.operationOf(r.Policy, object.Object().GetName()) {
		case "UPDATE":
			u.spec.Operation, u.old = "UPDATE", object
		case "DELETE", "CONNECT":
			u.skip = "values say that it is deleted or connected to, and such requests are not mutated"
		}
		if k.scales[object.Object().GroupVersionKind()] {
			u.skip = "values say which subresource it is sent to; mapd test takes that from a case of " + APIVersion
		}
		if file != "" {
			u.spec.Expect = &cases.Expect{Object: file}
			at := slices.IndexFunc(patched, func(d *mapd.Document) bool { return identity(d) == identity(object) })
			switch {
			case at >= 0:
				u.want = patched[at]
			case want.result == "pass":
				k.fail(path+".patchedResources", "%s.patchedResources: %s has no %s", path, k.at.near(file), object.Name())
			case want.result == "fail" && !r.FailOnMissingResources:
				u.skip = cmp.Or(u.skip, fmt.Sprintf("%s has no %s, and Kyverno checks no result then, without failOnMissingResources", k.at.near(file), object.Name()))
			}
		}
		s.units = append(s.units, u)
	}
}

// operationOf returns the operation that values give for a policy and a resource.
func (k *kyverno) operationOf(policy, resource string) string {
	return cmp.Or(k.operations[[2]string{policy, resource}], k.operations[[2]string{policy, ""}], k.operation)
}

// otherKind returns the kind of a policy that does not run, "" if it is not known.
func (k *kyverno) otherKind(r *kyvernoResult) string {
	_, name, found := strings.Cut(r.Policy, "/")
	if !found {
		name = r.Policy
	}
	if kind := k.others[name]; kind != "" {
		return kind
	}
	switch {
	case r.IsMutatingAdmissionPolicy:
		return ""
	case r.IsValidatingAdmissionPolicy:
		return "ValidatingAdmissionPolicy"
	case r.IsMutatingPolicy:
		return "MutatingPolicy"
	case r.IsValidatingPolicy:
		return "ValidatingPolicy"
	case r.IsImageValidatingPolicy:
		return "ImageValidatingPolicy"
	case r.IsGeneratingPolicy:
		return "GeneratingPolicy"
	case r.IsDeletingPolicy:
		return "DeletingPolicy"
	}
	return ""
}

// identity identifies an object in one version.
func identity(d *mapd.Document) [4]string {
	u := d.Object()
	return [4]string{u.GetAPIVersion(), u.GetKind(), cmp.Or(u.GetNamespace(), mapd.DefaultNamespace), u.GetName()}
}

// selected returns the resources that a result is about: those that it names, or all of
// its kind.
func (k *kyverno) selected(r *kyvernoResult, path string) (docs []*mapd.Document) {
	find := func(at string, matches func(id [4]string) bool) {
		found := false
		for _, d := range k.resources {
			if id := identity(d); (r.Kind == "" || r.Kind == id[1]) && matches(id) {
				found = true
				if !slices.Contains(docs, d) {
					docs = append(docs, d)
				}
			}
		}
		if !found {
			k.fail(at, "%s: no resource matches", at)
		}
	}
	named := func(at, name string) {
		namespace, base, both := strings.Cut(name, "/")
		if !both {
			namespace, base = r.Namespace, name
		}
		find(at, func(id [4]string) bool { return id[3] == base && (namespace == "" || id[2] == namespace) })
	}
	for i, name := range r.Resources {
		named(fmt.Sprintf("%s.resources[%d]", path, i), name)
	}
	if r.Resource != "" {
		named(path+".resource", r.Resource)
	}
	for i, spec := range r.ResourceSpecs {
		version := strings.TrimPrefix(spec.Group+"/"+spec.Version, "/")
		find(fmt.Sprintf("%s.resourceSpecs[%d]", path, i), func(id [4]string) bool {
			return id[3] == spec.Name && id[0] == version && (spec.Kind == "" || id[1] == spec.Kind) && (spec.Namespace == "" || id[2] == spec.Namespace)
		})
	}
	if len(r.Resources)+len(r.ResourceSpecs) == 0 && r.Resource == "" {
		find(path, func([4]string) bool { return true })
	}
	return docs
}

// claim is the expectation of one result about one policy or one rule. pass: it changes the
// object. skip: it does not change the object. fail: it fails, or the object is not as expected.
// error: it fails.
type claim struct {
	stage, policy, result string
	// idle: the policy also passes if it ran and changed nothing.
	idle bool
}

// what is what messages call it.
func (c *claim) what() string {
	if c.stage == engine.RuleStage {
		return c.policy
	}
	return "policy " + c.policy
}

// got returns what the policy did: pass, skip or error, with the error.
func (c *claim) got(r *mapd.Result) (got, why string) {
	got = "skip"
	for _, s := range r.Decision.Steps {
		switch {
		case !c.about(s):
		case s.Outcome == engine.Failed:
			got, why = "error", s.Err.Error()
		case s.Outcome == engine.Changed && got == "skip":
			got = "pass"
		}
	}
	return got, why
}

// completed reports whether a mutation of the claim ran without changing the object.
func (c *claim) completed(r *mapd.Result) bool {
	return slices.ContainsFunc(r.Decision.Steps, func(s engine.Step) bool { return c.about(s) && s.Outcome == engine.Unchanged })
}

// about reports whether a step is one of the policy or the rule.
func (c *claim) about(s engine.Step) bool {
	return s.Stage == c.stage && (s.Policy == c.policy || c.stage == engine.RuleStage && strings.HasPrefix(s.Policy, c.policy+"/"))
}

// meets reports whether a result is as expected, apart from the object.
func (c *claim) meets(r *mapd.Result) bool {
	got, _ := c.got(r)
	return got == c.result || c.result == "pass" && got == "skip" && c.idle && c.completed(r)
}

// unconverted returns why a rule of Kyverno's that the claim is about does not run, "" if all run,
// and whether lists with keys may be in another order than Kyverno's.
func (c *claim) unconverted(p *mapd.Policies) (why string, reorders bool) {
	if c.stage != engine.RuleStage {
		return "", false
	}
	found := false
	for _, r := range p.KyvernoRules() {
		if r.Name == c.policy || strings.HasPrefix(r.Name, c.policy+"/") {
			found = true
			why, reorders = cmp.Or(why, r.Unconverted), reorders || r.Reorders
		}
	}
	if !found {
		why = "this program does not convert Kyverno's policies" // the playground's
	}
	return why, reorders
}

// of returns what is wrong with a result, nil if nothing is. want is nil if no object is
// expected; lists with keys may be in another order if reorders.
func (c *claim) of(r *mapd.Result, want map[string]any, reorders bool) *cases.Wrong {
	got, why := c.got(r)
	if r.Denied() && got != "error" {
		return &cases.Wrong{Message: "it is denied: " + report.Excerpts(r.Refusal())}
	}
	var changes []mapd.Change
	if want != nil && !r.Denied() {
		// Kyverno does not compare fields without content.
		changes = slices.DeleteFunc(r.Against(want), func(d mapd.Change) bool {
			return hollow(d.Before) && hollow(d.After) || reorders && d.Moved
		})
	}
	switch {
	case c.result == "fail" && (got == "error" || len(changes) > 0):
		return nil
	case c.result == "pass" && got == "skip" && (want != nil || c.idle) && len(changes) == 0 && c.completed(r):
		return nil // the object was as it should be
	case got != c.result:
		message := map[string]string{
			"pass": c.what() + " changes it", "skip": c.what() + " does not change it", "error": c.what() + " fails: " + why,
		}[got] + ", and the expected result is " + c.result
		if c.result == "fail" {
			message += ": an error, or another object than that of patchedResources"
		}
		return &cases.Wrong{Message: message, Changes: cases.AsReport(r.Diff())}
	case len(changes) > 0:
		return &cases.Wrong{Message: "it is not as in patchedResources", Changes: cases.AsReport(changes)}
	}
	return nil
}

// hollow reports whether a value is nothing but null, empty lists and empty maps.
func hollow(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, e := range v {
			if !hollow(e) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !hollow(e) })
	}
	return false
}
