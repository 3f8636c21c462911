package cel

import (
	"strings"

	"k8s.io/apiserver/pkg/cel"
)

// Names that expressions may use. They and the types below are those of
// k8s.io/apiserver/pkg/admission/plugin/cel. A test compares them. mapd does not import that
// package, since it would link an API server's admission chain into every program.
const (
	objectName    = "object"
	oldObjectName = "oldObject"
	paramsName    = "params"
	requestName   = "request"
	namespaceName = "namespaceObject"
	authzName     = "authorizer"
	resourceName  = "authorizer.requestResource"
	variablesName = "variables"
)

type fields map[string]*cel.DeclType

// declared returns an object type; names of optional fields end with "?".
func declared(name string, of fields) *cel.DeclType {
	out := make(map[string]*cel.DeclField, len(of))
	for field, t := range of {
		field, optional := strings.CutSuffix(field, "?")
		out[field] = cel.NewDeclField(field, t, !optional, nil, nil)
	}
	return cel.NewObjectType(name, out)
}

var (
	requestType   = newRequestType()
	namespaceType = newNamespaceType()
)

func newRequestType() *cel.DeclType {
	text, texts := cel.StringType, cel.NewListType(cel.StringType, -1)
	kind := declared("kubernetes.GroupVersionKind", fields{"group": text, "version": text, "kind": text})
	resource := declared("kubernetes.GroupVersionResource", fields{"group": text, "version": text, "resource": text})
	user := declared("kubernetes.UserInfo", fields{
		"username?": text, "uid?": text, "groups?": texts, "extra?": cel.NewMapType(text, texts, -1),
	})
	return declared("kubernetes.AdmissionRequest", fields{
		"kind": kind, "resource": resource, "subResource?": text,
		"requestKind": kind, "requestResource": resource, "requestSubResource?": text,
		"name": text, "namespace?": text, "operation": text, "userInfo": user, "dryRun?": cel.BoolType, "options?": cel.DynType,
	})
}

func newNamespaceType() *cel.DeclType {
	text, texts, labels, date := cel.StringType, cel.NewListType(cel.StringType, -1), cel.NewMapType(cel.StringType, cel.StringType, -1), cel.TimestampType
	condition := declared("kubernetes.NamespaceCondition", fields{
		"status": text, "type": text, "lastTransitionTime": date, "message": text, "reason": text,
	})
	return declared("kubernetes.Namespace", fields{
		"metadata": declared("kubernetes.NamespaceMetadata", fields{
			"name": text, "generateName": text, "namespace": text, "labels": labels, "annotations": labels, "UID": text,
			"creationTimestamp": date, "deletionGracePeriodSeconds": cel.IntType, "deletionTimestamp": date,
			"generation": cel.IntType, "resourceVersion": text, "finalizers": texts,
		}),
		"spec":   declared("kubernetes.NamespaceSpec", fields{"finalizers": texts}),
		"status": declared("kubernetes.NamespaceStatus", fields{"conditions": cel.NewListType(condition, -1), "phase": text}),
	})
}
