package legacy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotes(t *testing.T) {
	const assign = "\nlocation: 'spec.l[k: *].a'\nparameters: {assign: {value: x}}"
	tests := []struct {
		name, mutator string
		kind          Kind
		spec          string
		want          []Note
	}{
		{"nothing", "a", Assign, pods + assign + "\nmatch: {scope: '*', name: 'a-*', kinds: [{apiGroups: ['*'], kinds: [Pod, Service]}]}", nil},
		{"a name", "B", Assign, pods + assign, []Note{{"metadata.name",
			"an API server does not take this name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"}}},
		{"stars", "a", Assign, "applyTo: [{groups: ['*'], versions: [v1], kinds: [Pod, '*']}]" + assign, []Note{
			{"spec.applyTo[0].groups", `"*" is not a wildcard here and matches nothing`}, {"spec.applyTo[0].kinds", `"*" is not a wildcard here and matches nothing`}}},
		{"no kind left", "a", Assign, pods + assign + "\nmatch: {kinds: [{apiGroups: [apps], kinds: [Pod]}, {kinds: [Service]}]}", []Note{
			{"spec.match.kinds", "no kind is in both spec.applyTo and spec.match.kinds: the mutator never does anything"}}},
		{"match", "a", AssignMetadata, "location: metadata.labels.a\nparameters: {assign: {value: x}}\nmatch: {scope: namespaced, namespaces: [a.b], excludedNamespaces: [a*b], name: A, source: Generated}", []Note{
			{"spec.match.scope", `"namespaced" is neither Cluster nor Namespaced, and everything matches it`},
			{"spec.match.namespaces", `an API server does not take "a.b": lower-case letters, digits, - and : only, with * in front or at the end`},
			{"spec.match.excludedNamespaces", `an API server does not take "a*b": lower-case letters, digits, - and : only, with * in front or at the end`},
			{"spec.match.name", `an API server does not take "A": lower-case letters, digits, - and : only, with * in front or at the end`},
			{"spec.match.source", "generated resources do not come by admission: the mutator is for expansion only"}}},
		{"tests", "a", Assign, pods + "\nlocation: 'spec.l[k: *].m[k: *].a'\nparameters: {assign: {value: x}, pathTests: [{subPath: spec.l, condition: MustExist}, {subPath: spec}, {subPath: 'spec.l[k: *]', condition: MustExist}, {subPath: 'spec.l[k: *].m[k: *]', condition: MustNotExist}]}",
			[]Note{
				{"spec.parameters.pathTests", `the condition "" of spec is none: the mutator never does anything`},
				{"spec.parameters.pathTests", "MustExist says nothing about all elements, spec.l[k: *]"},
				{"spec.parameters.pathTests", "MustNotExist never holds for all elements, spec.l[k: *].m[k: *]: the mutator never does anything"}}},
		{"tests that contradict", "a", Assign, pods + "\nlocation: spec.a\nparameters: {assign: {value: x}, pathTests: [{subPath: spec.a, condition: MustExist}, {subPath: spec, condition: MustNotExist}]}",
			[]Note{{"spec.parameters.pathTests", "spec.a must exist in what must not: the mutator never does anything"}}},
		{"what it is", "a", Assign, pods + "\nlocation: kind\nparameters: {assign: {value: Pod}}",
			[]Note{{"spec.location", "changes what the object is, and with that which mutators are about it"}}},
		{"a label", "a", AssignMetadata, "location: 'metadata.labels.\"\"'\nparameters: {assign: {value: 'a b'}}", []Note{
			{"spec.location", `an API server does not take the key "": name part must be non-empty`},
			{"spec.parameters.assign.value", `an API server does not take the label value "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}}},
		{"a large number", "a", Assign, pods + "\nlocation: spec\nparameters: {assign: {value: {b: [9007199254740993], a: 5}}}",
			[]Note{{"spec.parameters.assign.value", "numbers are read as floats; 9007199254740992 is what became of one beyond 2^53"}}},
		{"external data", "a", Assign, pods + "\nlocation: spec\nparameters: {assign: {externalData: {dataSource: x, failurePolicy: z}}}", []Note{
			{"spec.parameters.assign.externalData.provider", "an API server does not take an absent provider"},
			{"spec.parameters.assign.externalData.dataSource", `"x" is neither ValueAtLocation nor Username`},
			{"spec.parameters.assign.externalData.failurePolicy", `"z" is none of Fail, Ignore and UseDefault`}}},
		{"an image", "a", AssignImage, pods + "\nlocation: spec\nparameters: {assignPath: n.w}",
			[]Note{{"spec.parameters.assignPath", "without a slash, some malformed images change at each run, which refuses the request"}}},
		{"prune nothing", "a", ModifySet, pods + "\nlocation: spec\nparameters: {operation: prune}",
			[]Note{{"spec.parameters.values.fromList", "there is nothing to prune: the mutator never does anything"}}},
		{"merge twice", "a", ModifySet, pods + "\nlocation: spec\nparameters: {values: {fromList: [a, b, a, b]}}",
			[]Note{{"spec.parameters.values.fromList", "a value is given twice, and is there twice if the list was missing"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Notes(mustDecode(t, tt.kind, tt.mutator, tt.spec))); diff != "" {
				t.Errorf("Notes (-want +got):\n%s", diff)
			}
		})
	}
}
