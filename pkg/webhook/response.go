package webhook

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// EncodeResponse writes the AdmissionReview that answers req with d: a minimal
// patch from the request's object to the decision's if the request is allowed
// and something changed, the decision's status if it is denied, warnings, and
// audit annotations (see acts).
//
// The server applies a patch without checking the result, and no failurePolicy covers a wrong
// one (spec §11). So EncodeResponse applies it first; if the result is not the decision's
// object, the response is a denial with code 500. It returns an error if the object has a value
// that JSON cannot represent.
func EncodeResponse(req *policy.Request, d *engine.Decision) ([]byte, error) {
	return encodeResponse(req, d, false)
}

// encodeResponse is EncodeResponse. With warn it adds warnings about all mutations, otherwise
// only those of policies in mode warn.
func encodeResponse(req *policy.Request, d *engine.Decision, warn bool) ([]byte, error) {
	did := actsOf(d.Steps, d.Changed)
	var would acts
	var wouldWarn []string
	warnings := slices.Clip(d.Warnings)
	for i := range d.Stages {
		r := &d.Stages[i]
		if warn && r.Stage.Mode == api.Enforce {
			stage := actsOf(r.Steps, d.Changed)
			warnings = append(warnings, stage.mutated.warnings(r.Stage.Member, "changed")...)
		}
		if r.Stage.Mode != api.Enforce || len(r.Shadows) > 0 {
			wouldWarn = append(wouldWarn, shadowWarnings(r, warn)...)
			would.join(shadowActs(r))
		}
	}
	r := response{
		uid:         req.UID,
		allowed:     d.Status == nil,
		status:      d.Status,                                      // the server treats a status of success as no reason
		warnings:    boundWarnings(append(warnings, wouldWarn...)), // those of enforced policies first
		annotations: did.annotations(&would),
		said:        d.Annotations(),
	}
	if d.Status != nil {
		return r.encode()
	}
	ops, err := patch(req.Object, d.Object)
	if err != nil {
		return encodeFailure(req.UID, err.Error())
	}
	if len(ops) > 0 {
		// Buffers that grow by doubling, the base64 of the patch, and the copy to which the
		// patch is applied for the check.
		if err := req.Memory.Charge(4 * tree.PatchSize(ops)); err != nil {
			return nil, err
		}
		if r.patch, err = tree.EncodePatch(ops); err != nil {
			return nil, fmt.Errorf("encode the patch: %w", err)
		}
	}
	return r.encode()
}

var errWrongPatch = errors.New("the patch does not give the object that was decided")

// patch returns the operations from one object to the other, after checking them by applying
// them.
func patch(before, after *unstructured.Unstructured) ([]tree.Op, error) {
	if before == after {
		return nil, nil
	}
	if before == nil || after == nil {
		return nil, errors.New("an object cannot be patched into being or away")
	}
	ops := tree.Patch(before.Object, after.Object)
	if err := verify(before.Object, after.Object, ops); err != nil {
		return nil, err
	}
	return ops, nil
}

func verify(before, after map[string]any, ops []tree.Op) error {
	got, err := tree.Apply(before, ops)
	if err != nil {
		return fmt.Errorf("%w: %w", errWrongPatch, err)
	}
	if !tree.Equal(got, after) {
		return errWrongPatch
	}
	return nil
}

// encodeFailure writes a denial because of an error of mapd itself.
func encodeFailure(uid types.UID, message string) ([]byte, error) {
	r := response{uid: uid, status: failure(http.StatusInternalServerError, "mapd: "+message)}
	return r.encode()
}

// response is an admissionv1.AdmissionResponse whose patch, if there is one, is a
// JSON patch.
type response struct {
	uid         types.UID
	allowed     bool
	status      *metav1.Status
	patch       []byte
	annotations annotations
	said        map[string]string // annotations of Kubewarden's policies
	warnings    []string
}

// encode writes the AdmissionReview that holds the response, as json.Marshal
// would.
func (r *response) encode() ([]byte, error) {
	const (
		head = `{"kind":"AdmissionReview","apiVersion":"` + admissionv1.GroupName + `/v1","response":{"uid":`
		room = len(head) + 200 // for the parts that every response has
	)
	size := room + base64.StdEncoding.EncodedLen(len(r.patch))
	for i := range r.annotations {
		size += len(r.annotations[i].value)
	}
	for _, w := range r.warnings {
		size += len(w)
	}
	b := append(make([]byte, 0, size), head...)
	b = tree.AppendString(b, string(r.uid))
	b = strconv.AppendBool(append(b, `,"allowed":`...), r.allowed)
	if r.status != nil {
		status, err := json.Marshal(r.status)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"status":`...), status...)
	}
	if len(r.patch) > 0 {
		b = base64.StdEncoding.AppendEncode(append(b, `,"patch":"`...), r.patch)
		b = append(b, `","patchType":"`+string(admissionv1.PatchTypeJSONPatch)+`"`...)
	}
	b = r.annotations.append(b, r.said)
	for i, w := range r.warnings {
		sign := ","
		if i == 0 {
			sign = `,"warnings":[`
		}
		b = tree.AppendString(append(b, sign...), w)
	}
	if len(r.warnings) > 0 {
		b = append(b, ']')
	}
	return append(b, "}}"...), nil
}

// maxSaid bounds the annotations of Kubewarden's policies, in bytes.
const maxSaid = 64 << 10

// append writes the annotations that have a value, each preceded by a comma, and after them as
// many annotations of policies as maxSaid permits.
func (a *annotations) append(b []byte, said map[string]string) []byte {
	sign := `,"auditAnnotations":{`
	for i := range a {
		if a[i].value != "" {
			b = tree.AppendString(append(b, sign...), a[i].key)
			b = tree.AppendString(append(b, ':'), a[i].value)
			sign = ","
		}
	}
	if len(said) > 0 {
		b, sign = appendSaid(b, sign, said)
	}
	if sign == "," {
		b = append(b, '}')
	}
	return b
}

func appendSaid(b []byte, sign string, said map[string]string) ([]byte, string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(said)) {
		value := said[key]
		if size += len(key) + len(value); size > maxSaid {
			break
		}
		b = tree.AppendString(append(b, sign...), key)
		b = tree.AppendString(append(b, ':'), value)
		sign = ","
	}
	return b, sign
}

// failure is a Status as the API machinery writes it for an HTTP code.
func failure(code int, message string) *metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusBadRequest:            metav1.StatusReasonBadRequest,
		http.StatusForbidden:             metav1.StatusReasonForbidden,
		http.StatusNotFound:              metav1.StatusReasonNotFound,
		http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
		http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
		http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
		http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError:   metav1.StatusReasonInternalError,
		http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reasons[code],
		Message:  message,
	}
}
