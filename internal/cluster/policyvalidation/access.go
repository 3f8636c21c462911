package policyvalidation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/policy"
)

// all stands for every group, version, resource, name or namespace. It is used in permission
// checks if a kind is unknown, because nothing more exact is known then.
const all = "*"

// mayReadKind returns an error unless the writer may get every object of a kind
// (k8s.io/kubernetes …/mutatingadmissionpolicy/authz.go).
func (v *Validator) mayReadKind(ctx context.Context, req *policy.Request, kind *admissionregistrationv1.ParamKind) error {
	who := req.User()
	if isMaster(who) {
		return nil
	}
	at, _, _ := v.resource(kind)
	allowed, err := v.authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "get", ResourceRequest: true, Name: all, Namespace: all,
		APIGroup: at.Group, APIVersion: at.Version, Resource: at.Resource,
	})
	if err == nil && !allowed {
		err = fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
			who, kind.Kind, kind.APIVersion)
	}
	return err
}

// mayReadParams returns an error unless the writer may get the parameter that a
// binding names, or list those among which it selects
// (k8s.io/kubernetes …/mutatingadmissionpolicybinding/authz.go).
func (v *Validator) mayReadParams(ctx context.Context, req *policy.Request, spec *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) error {
	who := req.User()
	if isMaster(who) {
		return nil
	}
	at := schema.GroupVersionResource{Group: all, Version: all, Resource: all}
	kind, policyErr := v.paramKind(ctx, spec.PolicyName)
	var parseErr, resolveErr error
	if kind != nil {
		at, parseErr, resolveErr = v.resource(kind)
	}
	verb := "get"
	if spec.ParamRef.Name == "" {
		verb = "list"
	}
	allowed, err := v.authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: verb, ResourceRequest: true, Name: spec.ParamRef.Name, Namespace: spec.ParamRef.Namespace,
		APIGroup: at.Group, APIVersion: at.Version, Resource: at.Resource,
	})
	const minimum = `unable to %s to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`
	switch {
	case err != nil:
		return err
	case allowed:
		return nil
	case policyErr != nil:
		return fmt.Errorf(minimum, "get policy "+spec.PolicyName, who, verb)
	case parseErr != nil:
		return fmt.Errorf(minimum, fmt.Sprintf("parse paramKind %v", printed(kind)), who, verb)
	case resolveErr != nil:
		return fmt.Errorf(minimum, fmt.Sprintf("resolve paramKind %v", printed(kind)), who, verb)
	}
	// An API server fills in the two values in this order, and users know the text.
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, verb, who)
}

// printed returns a paramKind in the form in which the server's error prints its internal type,
// which has no String method.
func printed(kind *admissionregistrationv1.ParamKind) any {
	return &struct{ APIVersion, Kind string }{kind.APIVersion, kind.Kind}
}

// paramKind returns the paramKind of a stored policy, nil if it has none.
func (v *Validator) paramKind(ctx context.Context, name string) (*admissionregistrationv1.ParamKind, error) {
	obj, err := v.Policy(ctx, name)
	if err != nil {
		return nil, err
	}
	// Only the paramKind is decoded, because it matters even if the rest of the policy is broken.
	kind, found, err := unstructured.NestedStringMap(obj.Object, "spec", "paramKind")
	if err != nil || !found {
		return nil, err
	}
	return &admissionregistrationv1.ParamKind{APIVersion: kind["apiVersion"], Kind: kind["kind"]}, nil
}

var errNoResource = errors.New("no resource of that kind")

// resource returns the resource that is read for parameters of a kind, as exactly as it is known,
// and the error because of which it is not more exact.
func (v *Validator) resource(kind *admissionregistrationv1.ParamKind) (at schema.GroupVersionResource, parseErr, resolveErr error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{Group: all, Version: all, Resource: all}, err, nil
	}
	if r, ok := v.Types.ResourceFor(gv.WithKind(kind.Kind)); ok {
		return gv.WithResource(r.GVR.Resource), nil, nil
	}
	return gv.WithResource(all), nil, errNoResource
}

// authorize asks whether something is allowed. Errors of the authorizer are not for the writer to
// see, except that mapd may not ask.
func (v *Validator) authorize(ctx context.Context, attrs authorizer.Attributes) (bool, error) {
	decision, _, err := v.Authorizer.Authorize(ctx, attrs)
	if err == nil {
		return decision == authorizer.DecisionAllow, nil
	}
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return false, errors.New(s.Status().Message)
	}
	return false, errors.New("the access check was not answered")
}

// isMaster reports whether a user has all rights by being in system:masters.
func isMaster(u user.Info) bool { return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) }
