package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
)

// ReviewError says why a review cannot be answered. Such a request gets an HTTP
// error instead of an AdmissionReview, so that the failurePolicy of the
// webhook's configuration applies.
type ReviewError struct {
	Code   int // HTTP status
	Reason string
}

func (e *ReviewError) Error() string { return e.Reason }

func badReview(format string, args ...any) error {
	return &ReviewError{Code: http.StatusBadRequest, Reason: fmt.Sprintf(format, args...)}
}

// review is an AdmissionReview v1 as it is read: k8s.io/api/admission/v1 with
// the objects as trees, so that they are scanned once.
type review struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Request    *reviewRequest `json:"request"`
}

type reviewRequest struct {
	UID                types.UID                    `json:"uid"`
	Kind               metav1.GroupVersionKind      `json:"kind"`
	Resource           metav1.GroupVersionResource  `json:"resource"`
	SubResource        string                       `json:"subResource"`
	RequestKind        *metav1.GroupVersionKind     `json:"requestKind"`
	RequestResource    *metav1.GroupVersionResource `json:"requestResource"`
	RequestSubResource string                       `json:"requestSubResource"`
	Name               string                       `json:"name"`
	Namespace          string                       `json:"namespace"`
	Operation          admissionv1.Operation        `json:"operation"`
	UserInfo           authenticationv1.UserInfo    `json:"userInfo"`
	Object             any                          `json:"object"`
	OldObject          any                          `json:"oldObject"`
	DryRun             *bool                        `json:"dryRun"`
	Options            any                          `json:"options"`
}

// DecodeReview decodes the request of an AdmissionReview v1. The objects become trees in which
// integers and floats are different. requestKind and requestResource default to kind and
// resource, as in Kubernetes. An error is a *ReviewError: for text that is not JSON, another
// kind or version of review, or a request without required fields. Unknown fields are ignored,
// since a newer server may send more.
func DecodeReview(data []byte) (*policy.Request, error) {
	return decodeReview(context.Background(), nil, string(data))
}

// decodeReview is DecodeReview within ctx and the limits of account, whose
// errors it returns unchanged. The request keeps account, and strings that
// share memory with text.
func decodeReview(ctx context.Context, account *memory.Account, text string) (*policy.Request, error) {
	var r review
	before := account.Charged()
	ok, err := r.read(ctx, account, text)
	if err != nil {
		return nil, err
	}
	if !ok {
		// sigs.k8s.io/json returns the errors, and reads the documents that the reader leaves
		// to it.
		r = review{}
		data := bytesOf(text)
		// The reader has charged for a part of the same text.
		if err := account.Charge(WeighJSON(data) - (account.Charged() - before)); err != nil {
			return nil, err
		}
		if err := r.unmarshal(data); err != nil {
			return nil, err
		}
	}
	req, err := r.check()
	if err != nil {
		return nil, err
	}
	req.Memory = account
	return req, nil
}

// unmarshal reads any review that an API server would accept. read must return the same for
// those that it accepts.
func (out *review) unmarshal(data []byte) error {
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, out)
	if err == nil {
		return nil
	}
	if ok, offset := kjson.SyntaxErrorOffset(err); ok {
		return badReview("malformed AdmissionReview: offset %d: %v", offset, err)
	}
	return badReview("malformed AdmissionReview: %s", mistyped(err))
}

// check returns the request of the review, or an error if the review cannot be answered.
func (r *review) check() (*policy.Request, error) {
	if want := admissionv1.SchemeGroupVersion.String(); r.Kind != "AdmissionReview" || r.APIVersion != want {
		return nil, badReview("want kind AdmissionReview of apiVersion %s, got kind %q of apiVersion %q", want, r.Kind, r.APIVersion)
	}
	in := r.Request
	switch {
	case in == nil:
		return nil, badReview("the review has no request")
	case in.UID == "":
		return nil, badReview("request.uid is missing")
	case in.Kind.Kind == "" || in.Kind.Version == "":
		return nil, badReview("request.kind needs a version and a kind")
	case in.Resource.Resource == "" || in.Resource.Version == "":
		return nil, badReview("request.resource needs a version and a resource")
	}
	switch in.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
	default:
		return nil, badReview("request.operation is %q, want CREATE, UPDATE, DELETE or CONNECT", in.Operation)
	}

	req := &policy.Request{
		UID:         in.UID,
		Kind:        schema.GroupVersionKind(in.Kind),
		Resource:    schema.GroupVersionResource(in.Resource),
		SubResource: in.SubResource,
		Name:        in.Name,
		Namespace:   in.Namespace,
		Operation:   in.Operation,
		UserInfo:    in.UserInfo,
		DryRun:      in.DryRun != nil && *in.DryRun,
	}
	req.RequestKind, req.RequestResource, req.RequestSubResource = req.Kind, req.Resource, req.SubResource
	if in.RequestKind != nil {
		req.RequestKind = schema.GroupVersionKind(*in.RequestKind)
	}
	if in.RequestResource != nil {
		req.RequestResource = schema.GroupVersionResource(*in.RequestResource)
		req.RequestSubResource = in.RequestSubResource
	}
	var err error
	if req.Object, err = object("object", in.Object); err != nil {
		return nil, err
	}
	if req.OldObject, err = object("oldObject", in.OldObject); err != nil {
		return nil, err
	}
	options, err := object("options", in.Options)
	if err != nil {
		return nil, err
	}
	if options != nil {
		req.Options = options.Object
	}
	return req, nil
}

// mistyped turns the decoder's error, which is about Go types, into a text about fields of the
// review. It leaves out a large number that the decoder quotes, because it is part of an
// object.
func mistyped(err error) string {
	var typed *json.UnmarshalTypeError
	if !errors.As(err, &typed) {
		return "not the JSON of a review"
	}
	field := cmp.Or(typed.Field, "the review")
	if strings.HasPrefix(typed.Value, "number ") {
		return field + ": a number is out of range"
	}
	return field + ": unexpected " + typed.Value
}

// object wraps v, which must be a JSON object or null.
func object(field string, v any) (*unstructured.Unstructured, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return &unstructured.Unstructured{Object: v}, nil
	}
	return nil, badReview("request.%s is neither an object nor null", field)
}
