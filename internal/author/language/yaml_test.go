package language

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const namespaces = `apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {team: checkout, stage: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: shop}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team-defaults}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: other-group}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
`

const (
	nativeTop  = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata:\n  name: p\nspec:\n"
	ownTop     = "apiVersion: admissionregistration.mapd.dev/v1\nkind: MutatingAdmissionPolicy\nmetadata:\n  name: p\nspec:\n"
	bindingTop = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec:\n"
	assignTop  = "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec:\n"
	suiteTop   = "apiVersion: test.mapd.dev/v1alpha1\nkind: Suite\npolicies: [policy.yaml]\n"
	exceptTop  = "apiVersion: mapd.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: x, namespace: shop}\nspec:\n"
	podTop     = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
)

func TestCompleteYAML(t *testing.T) {
	tests := map[string]struct {
		text  string
		want  []string // among others; nil: nothing at all
		never []string
	}{
		"an empty document":        {"§", []string{"apiVersion", "kind", "metadata", "spec"}, nil},
		"a key that is begun":      {"api§", []string{"apiVersion"}, []string{"kind"}},
		"versions":                 {"apiVersion: §", []string{"admissionregistration.k8s.io/v1", "apps/v1", "test.mapd.dev/v1alpha1", "v1"}, nil},
		"directly behind a colon":  {"apiVersion:§", []string{"apps/v1"}, nil},
		"versions of a kind":       {"apiVersion: §\nkind: Deployment\n", []string{"apps/v1"}, []string{"v1"}},
		"kinds of a version":       {"apiVersion: apps/v1\nkind: §", []string{"Deployment", "StatefulSet"}, []string{"Pod"}},
		"kinds of mapd":            {"apiVersion: admissionregistration.mapd.dev/v1\nkind: Mut§", []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}, []string{"Pod"}},
		"keys of a spec":           {nativeTop + "  §", []string{"failurePolicy", "matchConstraints", "mutations", "paramKind", "variables"}, []string{"containers", "apiVersion"}},
		"a word of a spec":         {nativeTop + "  matchCons§", []string{"matchConstraints"}, []string{"mutations"}},
		"not what is there":        {nativeTop + "  failurePolicy: Fail\n  §\n  variables: []\n", []string{"mutations"}, []string{"failurePolicy", "variables"}},
		"between keys":             {nativeTop + "  failurePolicy: Fail\n  mut§\n  variables: []\n", []string{"mutations"}, nil},
		"a key that has its colon": {nativeTop + "  failureP§: Fail\n", []string{"failurePolicy"}, nil},
		"of the own group":         {ownTop + "  re§", []string{"reinvocationPolicy"}, nil},
		"metadata":                 {"apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata:\n  §", []string{"annotations", "labels", "name"}, nil},
		"metadata in braces":       {"apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: a, §}\n", []string{"annotations", "labels"}, []string{"name"}},
		"an enumeration":           {nativeTop + "  reinvocationPolicy: §", []string{"IfNeeded", "Never"}, []string{"Fail"}},
		"one that is begun":        {nativeTop + "  failurePolicy: I§\n  variables: []", []string{"Ignore"}, []string{"Never"}},
		"one in quotes":            {nativeTop + "  failurePolicy: \"I§\"\n", []string{"Ignore"}, nil},
		"on the next line":         {nativeTop + "  failurePolicy:\n    §\n", []string{"Fail", "Ignore"}, nil},
		"patchType":                {nativeTop + "  mutations:\n  - patchType: §", []string{"ApplyConfiguration", "JSONPatch"}, nil},
		"an element":               {nativeTop + "  mutations:\n  - §", []string{"applyConfiguration", "jsonPatch", "patchType"}, []string{"expression"}},
		"an element, deeper":       {nativeTop + "  mutations:\n    - §", []string{"patchType"}, nil},
		"a word of an element":     {nativeTop + "  mutations:\n  - pat§", []string{"patchType"}, []string{"jsonPatch2"}},
		"the second key":           {nativeTop + "  mutations:\n  - patchType: JSONPatch\n    §", []string{"jsonPatch"}, []string{"patchType", "mutations"}},
		"below an element":         {nativeTop + "  mutations:\n  - patchType: JSONPatch\n  §", []string{"matchConstraints"}, []string{"jsonPatch"}},
		"within an element":        {nativeTop + "  mutations:\n  - jsonPatch:\n      §", []string{"expression"}, []string{"patchType"}},
		"the second element":       {nativeTop + "  variables:\n  - name: a\n    expression: '1'\n  - §", []string{"expression", "name"}, nil},
		"a rule in braces":         {nativeTop + "  matchConstraints:\n    resourceRules:\n    - {§}", []string{"apiGroups", "operations"}, nil},
		"a rule's second key":      {nativeTop + "  matchConstraints:\n    resourceRules:\n    - {apiGroups: [\"\"], op§}", []string{"operations"}, []string{"apiGroups"}},
		"operations":               {nativeTop + "  matchConstraints:\n    resourceRules:\n    - {operations: [§]}", []string{"CREATE", "UPDATE", "*"}, nil},
		"the second operation":     {nativeTop + "  matchConstraints:\n    resourceRules:\n    - operations: [CREATE, U§]", []string{"UPDATE"}, nil},
		"operations below":         {nativeTop + "  matchConstraints:\n    resourceRules:\n    - operations:\n      - §", []string{"CREATE"}, nil},
		"an empty list":            {nativeTop + "  matchConstraints:\n    resourceRules:\n    - operations: §", []string{"CREATE"}, nil},
		"several lines":            {nativeTop + "  matchConstraints:\n    resourceRules:\n    - operations: [\n        CREATE,\n        §\n      ]\n      scope: Cluster\n", []string{"UPDATE"}, nil},
		"scope":                    {nativeTop + "  matchConstraints:\n    resourceRules:\n    - scope: §", []string{"Cluster", "Namespaced", "*"}, nil},
		"matchPolicy":              {nativeTop + "  matchConstraints:\n    matchPolicy: §", []string{"Equivalent", "Exact"}, nil},
		"groups":                   {nativeTop + "  matchConstraints:\n    resourceRules:\n    - apiGroups: [§]", []string{"apps", `""`}, nil},
		"versions of a group":      {nativeTop + "  matchConstraints:\n    resourceRules:\n    - apiGroups: [autoscaling]\n      apiVersions: [§]", []string{"v1", "v2"}, []string{"v1beta1"}},
		"resources":                {nativeTop + "  matchConstraints:\n    resourceRules:\n    - {apiGroups: [apps], apiVersions: [v1], resources: [§]}", []string{"deployments", "deployments/scale"}, []string{"pods"}},
		"resources in any group":   {nativeTop + "  matchConstraints:\n    resourceRules:\n    - resources: [po§", []string{"pods", "pods/status"}, nil},
		"paramKind":                {nativeTop + "  paramKind:\n    apiVersion: v1\n    kind: §", []string{"ConfigMap"}, []string{"Deployment", "MutatingAdmissionPolicy"}},
		"labels of Namespaces":     {nativeTop + "  matchConstraints:\n    namespaceSelector:\n      matchLabels:\n        §", []string{"team", "stage"}, nil},
		"values of labels":         {nativeTop + "  matchConstraints:\n    namespaceSelector:\n      matchLabels:\n        team: §", []string{"checkout"}, nil},
		"a selector's key":         {nativeTop + "  matchConstraints:\n    namespaceSelector:\n      matchExpressions:\n      - {key: §, operator: In}", []string{"team"}, nil},
		"a selector's values":      {nativeTop + "  matchConstraints:\n    namespaceSelector:\n      matchExpressions:\n      - key: team\n        operator: In\n        values: [§]", []string{"checkout"}, []string{"1"}},
		"operators":                {nativeTop + "  matchConstraints:\n    objectSelector:\n      matchExpressions:\n      - operator: §", []string{"Exists", "In"}, nil},
		"policies":                 {bindingTop + "  policyName: §", []string{"team-defaults"}, []string{"other-group", "limits"}},
		"parameters":               {bindingTop + "  policyName: team-defaults\n  paramRef:\n    name: §\n", []string{"limits"}, []string{"team-defaults"}},
		"parameterNotFoundAction":  {bindingTop + "  paramRef: {parameterNotFoundAction: §}", []string{"Allow", "Deny"}, nil},
		"a binding's rules":        {bindingTop + "  matchResources:\n    §", []string{"namespaceSelector", "resourceRules"}, nil},
		"a mutator":                {assignTop + "  §", []string{"applyTo", "location", "match", "parameters"}, nil},
		"a mutator's kinds":        {assignTop + "  applyTo:\n  - groups: [apps]\n    versions: [v1]\n    kinds: [§]", []string{"Deployment"}, []string{"Pod"}},
		"a mutator's scope":        {assignTop + "  match:\n    scope: §", []string{"Cluster", "Namespaced"}, nil},
		"a mutator's namespaces":   {assignTop + "  match:\n    namespaces:\n    - §", []string{"shop"}, nil},
		"a path test":              {assignTop + "  parameters:\n    pathTests:\n    - condition: §", []string{"MustExist", "MustNotExist"}, nil},
		"an exception":             {exceptTop + "  §", []string{"policies", "until", "reason"}, []string{"mutations"}},
		"policies of an exception": {exceptTop + "  policies: [§]", []string{"other-group", "AssignMetadata/owner"}, []string{"team-defaults", "limits", "owner"}},
		"mutators of an exception": {exceptTop + "  policies:\n  - AssignM§", []string{"AssignMetadata/owner"}, []string{"other-group"}},
		"rules of an exception":    {exceptTop + "  match:\n    resourceRules:\n    - {apiGroups: [apps], apiVersions: [v1], resources: [§]}", []string{"deployments"}, []string{"pods"}},
		"a suite":                  {suiteTop + "§", []string{"cases", "context"}, []string{"policies", "metadata"}},
		"a case":                   {suiteTop + "cases:\n- name: a\n  §", []string{"expect", "object", "operation"}, []string{"name"}},
		"a case's operation":       {suiteTop + "cases:\n- name: a\n  operation: §", []string{"CREATE", "DELETE"}, nil},
		"an expectation":           {suiteTop + "cases:\n- name: a\n  expect: {§}", []string{"denied", "fields", "unchanged"}, nil},
		"true or false":            {suiteTop + "unbound: §", []string{"false", "true"}, nil},
		"an object in a case":      {suiteTop + "cases:\n- name: a\n  object:\n    apiVersion: v1\n    kind: Pod\n    spec:\n      §", []string{"containers", "nodeSelector"}, []string{"expect"}},
		"an object is begun":       {suiteTop + "cases:\n- name: a\n  object:\n    §", []string{"apiVersion", "kind"}, []string{"expect"}},
		"an object":                {podTop + "  §", []string{"containers", "nodeSelector"}, []string{"replicas"}},
		"an element of an object":  {podTop + "  containers:\n  - name: a\n    im§", []string{"image", "imagePullPolicy"}, []string{"name"}},
		"a flag of an object":      {podTop + "  hostNetwork: §", []string{"false", "true"}, nil},
		"a List":                   {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  spec:\n    §", []string{"replicas"}, nil},
		"the namespace":            {"apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: §", []string{"shop"}, nil},
		"the second document":      {podTop + "---\n" + nativeTop + "  §", []string{"matchConstraints"}, []string{"containers"}},
		"the first document":       {nativeTop + "  §\n---\n" + podTop, []string{"matchConstraints"}, []string{"containers"}},
		"CRLF":                     {strings.ReplaceAll(nativeTop+"  mutations:\n  - patchType: §\n", "\n", "\r\n"), []string{"JSONPatch"}, nil},
		"tabs":                     {nativeTop + "\tfailureP§\n", []string{"failurePolicy"}, nil},
		"a tab behind a colon":     {nativeTop + "  failurePolicy:\t§\n", []string{"Fail"}, nil},
		"below a broken line":      {nativeTop + "  variables: [\n  {{ x }}: : y\n  §", []string{"matchConstraints"}, nil},
		"below a quote":            {nativeTop + "  paramKind: {kind: \"Con\n  §", []string{"matchConstraints"}, nil},
		"in a comment":             {nativeTop + "  # fail§", nil, nil},
		"behind a comment":         {nativeTop + "  failurePolicy: Fail # I§", nil, nil},
		"in a text of a block":     {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    api§\n", nil, nil},
		"an empty line of a block": {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    b\n    §\n    c\n", nil, nil},
		"behind a block":           {nativeTop + "  variables:\n  - name: a\n    expression: |\n      1\n  §", []string{"matchConstraints"}, []string{"name"}},
		"a folded text":            {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: >-\n    kind: §\n", nil, nil},
		"a free text":              {nativeTop + "  variables:\n  - name: §", nil, nil},
		"words of a free text":     {suiteTop + "cases:\n- name: what a case kin§", nil, nil},
		"a list of texts":          {suiteTop + "policies: [§]", nil, nil},
		"an unknown kind":          {"apiVersion: example.com/v1\nkind: Thing\nspec:\n  §", nil, nil},
		"a mark":                   {"--§-\n" + nativeTop, nil, nil},
		"JSON":                     {`{"apiVersion": "v1", "kind": "Pod", "spec": {"§"}}`, nil, nil},
		"a template":               {"{{- if .Values.x }}\nkind: §\n", nil, nil},
	}
	w := New(Options{})
	if err := w.Set("namespaces.yaml", namespaces); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			items, err := w.Complete(t.Context(), "p.yaml", at(t, w, "p.yaml", tt.text))
			if err != nil {
				t.Fatal(err)
			}
			got := labels(items)
			for _, l := range tt.want {
				if !slices.Contains(got, l) {
					t.Errorf("no %s in %q", l, got)
				}
			}
			for _, l := range tt.never {
				if slices.Contains(got, l) {
					t.Errorf("%s in %q", l, got)
				}
			}
			if tt.want == nil && len(got) > 0 {
				t.Errorf("%q", got)
			}
		})
	}
}

// A completion makes YAML of what is there.
func TestCompletionText(t *testing.T) {
	for text, want := range map[string]string{
		nativeTop + "  failureP§":                                                  "\n  failurePolicy: ",
		nativeTop + "  fail§ureP: Ignore":                                          "\n  failurePolicy: Ignore",
		nativeTop + "  matchCon§\n  variables: []":                                 "\n  matchConstraints:\n  variables: []",
		nativeTop + "  failurePolicy:§\n":                                          "  failurePolicy: Fail\n",
		nativeTop + "  failurePolicy: Ig§xx\n":                                     "  failurePolicy: Ignore\n",
		nativeTop + "  failurePolicy: 'Ig§'\n":                                     "  failurePolicy: 'Ignore'\n",
		nativeTop + "  mutations:\n  - patchType: J§":                              "  - patchType: JSONPatch",
		nativeTop + "  matchConstraints:\n    resourceRules:\n    - scope: *§":     `scope: "*"`,
		nativeTop + "  matchConstraints:\n    resourceRules:\n    - scope: \"*§\"": `scope: "*"`,
		nativeTop + "  matchConstraints:\n    resourceRules:\n    - operations: §": `operations: ["*"]`,
		nativeTop + "  matchConstraints:\n    resourceRules:\n    - {apiGroups: [apps], apiVersions: [v1], resources: [deployme§]}": "resources: [deployments]}",
	} {
		w := New(Options{})
		items, err := w.Complete(t.Context(), "p.yaml", at(t, w, "p.yaml", text))
		if err != nil || len(items) == 0 {
			t.Errorf("%q: %d, %v", text, len(items), err)
			continue
		}
		all, _ := w.Text("p.yaml")
		if got, err := Apply(all, Change{&items[0].Edit.Range, items[0].Edit.Text}); err != nil || !strings.Contains(got, want) {
			t.Errorf("%v\n%s", err, got)
		}
	}
}

func TestHoverYAML(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a key":             {nativeTop + "  failure§Policy: Fail", "failurePolicy: string"},
		"its documentation": {ownTop + "  failure§Policy: Fail", "One of Fail, Ignore."},
		"what is required":  {nativeTop + "  mut§ations: []", "It is required."},
		"a value":           {nativeTop + "  failurePolicy: Fa§il", "failurePolicy: string"},
		"in braces":         {nativeTop + "  matchConstraints: {match§Policy: Exact}", "Equivalent"},
		"an object's field": {podTop + "  host§Network: true", "hostNetwork: boolean"},
		"of an element":     {podTop + "  containers:\n  - im§age: a", "image: string"},
		"a suite":           {suiteTop + "ca§ses: []", "The cases."},
		"a mutator":         {assignTop + "  loca§tion: spec.a", "The path of the field"},
		"apiVersion":        {"api§Version: nobody/v1", "The group and version"},
		"a comment":         {nativeTop + "  # fail§ure", ""},
		"an unknown field":  {nativeTop + "  not§hing: 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			h, err := w.Hover(t.Context(), "p.yaml", at(t, w, "p.yaml", tt.text))
			switch {
			case err != nil:
				t.Fatal(err)
			case h == nil && tt.want != "":
				t.Fatal("nothing")
			case h != nil && (tt.want == "" || !strings.Contains(h.Text, tt.want)):
				t.Errorf("%+v", h)
			}
		})
	}
}

// The diagnostics of documents that the linter does not read.
func TestMisfits(t *testing.T) {
	for name, tt := range map[string]struct{ text, at, want string }{
		"a field":         {podTop + "  containrs: []\n", "containrs", "spec has no field containrs; did you mean containers?"},
		"of an element":   {podTop + "  containers:\n  - {name: a, imagePulPolicy: x}\n", "imagePulPolicy", "did you mean imagePullPolicy?"},
		"a type":          {podTop + "  hostNetwork: maybe\n", "maybe", "spec.hostNetwork: want boolean, not a text"},
		"a list":          {podTop + "  containers: {}\n", "containers", "want list of object, not an object"},
		"a suite":         {suiteTop + "cases: []\nunbond: true\n", "unbond", "did you mean unbound?"},
		"what is missing": {suiteTop, "", "cases is required"},
		"an operation":    {suiteTop + "cases:\n- name: a\n  operation: CREATED\n", "CREATED", "did you mean CREATE?"},
		"none":            {podTop + "  containers:\n  - name: a\n    resources: {limits: {cpu: 1, memory: 1Gi}}\n    ports: [{containerPort: 80}]\n    readinessProbe: {httpGet: {port: http}}\n", "", ""},
		"custom labels":   {"apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {kind: a, apiVersion: b}\n", "", ""},
		"an unknown kind": {"apiVersion: example.com/v1\nkind: Thing\nspec: {a: 1}\n", "", ""},
		"a schema":        {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.b}\nspec:\n  versions:\n  - schema:\n      openAPIV3Schema: {type: object, properties: {a: {default: {b: [1]}, enum: [1, a]}}}\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			if err := w.Set("a.yaml", tt.text); err != nil {
				t.Fatal(err)
			}
			found, err := w.Diagnostics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			list := found["a.yaml"]
			if tt.want == "" && len(list) > 0 || tt.want != "" && (len(list) != 1 || !strings.Contains(list[0].Message, tt.want)) {
				t.Fatalf("%+v", list)
			}
			if tt.at != "" {
				r := list[0].Range
				if got := tt.text[offsetOf(tt.text, r.Start):offsetOf(tt.text, r.End)]; got != tt.at {
					t.Errorf("at %q", got)
				}
			}
		})
	}
}

// Each quick fix takes away what it is for.
func TestQuickFixes(t *testing.T) {
	whole := func(spec string) string {
		return top + spec + "---\n" + "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: p}\nspec: {policyName: p}\n"
	}
	const mutation = "  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration: {expression: 'Object{}'}\n"
	for name, tt := range map[string]struct{ text, at, title, want string }{
		"a field":            {strings.Replace(whole(mutation), "reinvocationPolicy", "reinvocationPolcy", 1), "reinvocationPolcy", "Write reinvocationPolicy", "  reinvocationPolicy: Never"},
		"a value":            {strings.Replace(whole(mutation), "Never", "Newer", 1), "Newer", "Write Never", "reinvocationPolicy: Never"},
		"an object's field":  {podTop + "  containrs: []\n", "containrs", "Write containers", "  containers: []"},
		"a version":          {strings.Replace(whole(mutation), "/v1", "/v1beta1", 1), "admissionregistration.k8s.io/v1beta1", "Write admissionregistration.k8s.io/v1", "apiVersion: admissionregistration.k8s.io/v1\n"},
		"a field of CEL":     {whole("  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: >-\n        Object{metadata: Object.metadata{label: {\"a\": \"b\"}}}\n"), "label", "Write labels", "Object.metadata{labels: {"},
		"what is required":   {strings.Replace(whole(mutation), "  reinvocationPolicy: Never\n", "", 1), "spec", "Add reinvocationPolicy", "spec:\n  reinvocationPolicy: Never\n  matchConstraints"},
		"a patchType":        {whole("  mutations:\n  - applyConfiguration: {expression: 'Object{}'}\n"), "- applyC", "Add patchType", "  - patchType: ApplyConfiguration\n    applyConfiguration:"},
		"matchConstraints":   {nativeTop + "  reinvocationPolicy: Never\n" + mutation, "spec", "Add matchConstraints", "  matchConstraints:\n    resourceRules:\n    - apiGroups: [\"\"]\n      apiVersions: [v1]\n"},
		"a binding":          {top + mutation, "p}", "Add a binding", "kind: MutatingAdmissionPolicyBinding\nmetadata:\n  name: p\nspec:\n  policyName: p\n"},
		"no second binding":  {whole(mutation), "p}", "", ""},
		"nothing is missing": {whole(mutation), "spec", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			if err := w.Set("p.yaml", tt.text); err != nil {
				t.Fatal(err)
			}
			i := strings.Index(tt.text, tt.at)
			actions, err := w.Actions(t.Context(), "p.yaml", rangeOf(tt.text, i, i+1))
			if err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(actions, func(a Action) bool { return a.Title == tt.title })
			if tt.title == "" {
				for _, a := range actions {
					if strings.HasPrefix(a.Title, "Add") || strings.HasPrefix(a.Title, "Write") {
						t.Errorf("%+v", a)
					}
				}
				return
			}
			if n < 0 {
				t.Fatalf("%+v", actions)
			}
			text := tt.text
			for _, e := range actions[n].Edits {
				if text, err = Apply(text, Change{&e.Range, e.Text}); err != nil {
					t.Fatal(err)
				}
			}
			if !strings.Contains(text, tt.want) {
				t.Error(text)
			}
			if actions[n].Diagnostic == nil {
				t.Error("an editor would make it unasked, with all that can be mended")
			}
			if err := w.Set("p.yaml", text); err != nil {
				t.Fatal(err)
			}
			found, err := w.Diagnostics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range found["p.yaml"] {
				if actions[n].Diagnostic != nil && d.Message == actions[n].Diagnostic.Message {
					t.Errorf("it is still there: %+v", d)
				}
			}
		})
	}
}

func TestVariables(t *testing.T) {
	text := top + `  variables:
  - name: images
    expression: object.spec.containers.map(c, c.image)
  - {name: first, expression: "variables.images[0]"}
  - name: images2
    expression: "1"
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |-
        // variables are read here: 'images'
        variables.images.size() > 1 && variables.?images.hasValue() && object.variables.images
          ? Object{} : Object{metadata: Object.metadata{labels: {"variables.images2": variables.first}}}
`
	w := New(Options{})
	if err := w.Set("p.yaml", text); err != nil {
		t.Fatal(err)
	}
	use := strings.Index(text, "variables.images[0]") + len("variables.") + 1
	where, err := w.References(t.Context(), "p.yaml", positionOf(text, use), true)
	if err != nil || len(where) != 4 {
		t.Fatalf("%+v, %v", where, err)
	}
	if less, _ := w.References(t.Context(), "p.yaml", positionOf(text, strings.Index(text, "images\n")), false); len(less) != 3 {
		t.Errorf("%+v", less)
	}
	edits, err := w.Rename(t.Context(), "p.yaml", positionOf(text, use), "pictures")
	if err == nil || !strings.Contains(err.Error(), "may use images") {
		t.Errorf("what looks like a use is lost: %+v, %v", edits, err)
	}
	text = strings.Replace(text, " && object.variables.images", "", 1)
	_ = w.Set("p.yaml", text)
	if edits, err = w.Rename(t.Context(), "p.yaml", positionOf(text, use), "pictures"); err != nil || len(edits) != 4 {
		t.Fatalf("%+v, %v", edits, err)
	}
	slices.SortFunc(edits, func(a, b Edit) int {
		return b.Range.Start.Line*1000 + b.Range.Start.Character - a.Range.Start.Line*1000 - a.Range.Start.Character
	})
	got := text
	for _, e := range edits {
		if got, err = Apply(got, Change{&e.Range, e.Text}); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.NewReplacer("name: images\n", "name: pictures\n", "variables.images[", "variables.pictures[", "variables.images.", "variables.pictures.", "?images.", "?pictures.").Replace(text)
	if got != want {
		t.Error(got)
	}
	for to, word := range map[string]string{"images2": "has a variable", "a-b": "no name in CEL", "": "no name in CEL"} {
		if _, err := w.Rename(t.Context(), "p.yaml", positionOf(text, use), to); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := w.Rename(t.Context(), "p.yaml", Position{}, "x"); err == nil {
		t.Error("there is no variable")
	}
	if where, err := w.References(t.Context(), "p.yaml", Position{}, true); err != nil || len(where) > 0 {
		t.Errorf("%v, %v", where, err)
	}
}

func TestSymbols(t *testing.T) {
	w := New(Options{})
	text := apply("true") + "---\n" + bindingTop + "  policyName: p\n---\n# nothing\n---\n" + suiteTop + "cases:\n- name: one\n- name: two\n  object: {}\n"
	if err := w.Set("p.yaml", text); err != nil {
		t.Fatal(err)
	}
	symbols, err := w.Symbols(t.Context(), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	within := func(s Symbol) {
		got = append(got, s.Name)
		if before(s.Selection.Start, s.Range.Start) || before(s.Range.End, s.Selection.End) {
			t.Errorf("%+v: the name is outside", s)
		}
	}
	for _, s := range symbols {
		within(s)
		for _, c := range s.Children {
			within(c)
		}
	}
	want := []string{"MutatingAdmissionPolicy p", "images", "first", "mutations[0]", "MutatingAdmissionPolicyBinding b", "Suite", "one", "two"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestSignature(t *testing.T) {
	for name, tt := range map[string]struct {
		text, label string
		argument    int
	}{
		"a member":        {apply("object.metadata.name.startsWith(§"), "string.startsWith(string) → bool", 0},
		"its second":      {apply("object.metadata.name.replace('a', §"), "string.replace(string, string", 1},
		"within brackets": {apply("object.metadata.name.replace(['a'][0], [§"), "string.replace(string, string", 1},
		"of a space":      {apply("sets.contains([1], §"), "sets.contains(", 1},
		"global":          {apply("quantity(§)"), "quantity(string)", 0},
		"a macro":         {apply("object.spec.containers.all(c, §"), "all(…)", 1},
		"none":            {apply("(§"), "", 0},
		"behind":          {apply("quantity('1')§"), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			s, err := w.Signature(t.Context(), "p.yaml", at(t, w, "p.yaml", tt.text))
			switch {
			case err != nil:
				t.Fatal(err)
			case tt.label == "" && s == nil:
			case s == nil || tt.label == "":
				t.Fatalf("%+v", s)
			case !strings.Contains(s.Forms[s.Active].Label, tt.label) || s.Argument != tt.argument:
				t.Errorf("%+v", s)
			}
		})
	}
}

// With the cursor anywhere in any example, each question has an answer, keys and values
// are those of the place, and a text that is cut off there does no harm.
func TestEveryPlace(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../../examples/*/*.yaml", "../../../docs/tour/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	// Of every third file in turn each byte is a place, and of the rest where keys are.
	keys, known := 0, 0
	for n, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		w := New(Options{})
		f := &file{name: name, text: text}
		if err := w.Set(name, text); err != nil {
			t.Fatal(err)
		}
		for i := range len(text) + 1 {
			if n%3 > 0 && i > 0 && !strings.ContainsRune(" \n{", rune(text[i-1])) {
				continue
			}
			p := placeAt(text, i)
			if p.node < 0 {
				continue
			}
			if p.from > i || p.to < i || p.to > len(text) || strings.ContainsAny(text[p.from:p.to], "\n") {
				t.Fatalf("%s:%v: %d to %d", name, positionOf(text, i), p.from, p.to)
			}
			if i%3 == 0 {
				_ = w.completeYAML(f, i)
				_ = w.hoverYAML(f, i)
			}
			if i%7 == 0 {
				cut := &file{name: name, text: text[:i]}
				_ = w.completeYAML(cut, i)
			}
			// A key of a kind that is known is offered where it stands.
			if p.keyed && i == p.from && !p.value {
				form, in := w.formAt(&p, p.node)
				if form == nil || in.kind == "" || len(form.fields()) == 0 || !form.refuses("\x00") {
					continue
				}
				keys++
				word := text[p.from:p.to]
				if slices.Contains(labels(w.completeYAML(f, i)), word) {
					known++
				} else {
					t.Logf("%s:%v: %s is not offered", name, positionOf(text, i), word)
				}
			}
		}
	}
	t.Logf("%d files, %d keys", len(files), keys)
	if keys < 500 || known < keys {
		t.Errorf("%d of %d keys are offered in their place", known, keys)
	}
}

// FuzzPlace finds the place of any offset of any text.
func FuzzPlace(f *testing.F) {
	for _, text := range []string{
		nativeTop + "  mutations:\n  - {patchType: [a, 'b', \"c\\\"\"], x: }\n", "a: |\n  b\n\tc\r\n- - - d: e\n", "? a\n: b\n&x {*y: [}]\n", "a: 'b\n\n  c'\n---\n{\n", "- a:\n  - b:\n    [c,\n  d", "# x\n%Y\n\"a\": b: c # d\n",
	} {
		for _, i := range []int{0, 7, len(text) / 2, len(text)} {
			f.Add(text, i)
		}
	}
	w := New(Options{})
	f.Fuzz(func(t *testing.T, text string, offset int) {
		if len(text) > 4000 || offset < 0 || offset > len(text) {
			return
		}
		p := placeAt(text, offset)
		if p.node >= len(p.nodes) || p.node >= 0 && (p.from > offset || p.to < offset || p.from < 0 || p.to > len(text) || p.word != text[p.from:offset]) {
			t.Fatalf("%q at %d: %+v", text, offset, p)
		}
		for i, n := range p.nodes {
			if n.parent >= i || n.value > n.end || n.end > len(text) {
				t.Fatalf("%q: node %d: %+v", text, i, n)
			}
		}
		x := &file{name: "p.yaml", text: text}
		for _, c := range w.completeYAML(x, offset) {
			if _, err := Apply(text, Change{&c.Edit.Range, c.Edit.Text}); err != nil {
				t.Fatalf("%q at %d: %+v: %v", text, offset, c, err)
			}
		}
		_ = w.hoverYAML(x, offset)
		if w.Set("p.yaml", text) == nil {
			_, _ = w.Symbols(t.Context(), "p.yaml")
			_, _ = w.References(t.Context(), "p.yaml", positionOf(text, offset), true)
		}
	})
}

// Large documents of every form take no longer than a key may.
func TestHostilePlaces(t *testing.T) {
	for name, text := range map[string]string{
		"dashes": strings.Repeat("- ", 200_000),
		"deep keys": func() string {
			var b strings.Builder
			for i := range 1400 {
				fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
			}
			return b.String()
		}(),
		"open brackets": "a: " + strings.Repeat("[", 200_000),
		"braces":        "a: " + strings.Repeat("{a: ", 200_000),
		"open quotes": func() string {
			var b strings.Builder
			for i := range 1400 {
				fmt.Fprintf(&b, "%sa: '\n", strings.Repeat(" ", i))
			}
			return b.String()
		}(),
		"keys":            strings.Repeat("a:\n", 300_000),
		"blank lines":     nativeTop + strings.Repeat("\n", 300_000),
		"blocks":          strings.Repeat("a: |\n b\n", 100_000),
		"documents":       strings.Repeat("a: b\n---\n", 100_000),
		"one long line":   "a: " + strings.Repeat("b ", 500_000),
		"rules in braces": nativeTop + "  matchConditions:\n" + strings.Repeat("  - {name: a, expression: variables.a}\n", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			if err := w.Set("p.yaml", text); err != nil {
				t.Fatal(err)
			}
			for _, i := range []int{len(text) / 2, len(text)} {
				p := positionOf(text, i)
				_, _ = w.Complete(t.Context(), "p.yaml", p)
				_, _ = w.Hover(t.Context(), "p.yaml", p)
				_, _ = w.References(t.Context(), "p.yaml", p, true)
				_, _ = w.Signature(t.Context(), "p.yaml", p)
			}
			_, _ = w.Symbols(t.Context(), "p.yaml")
		})
	}
}
