package modulepolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// answer is a module's answer to the operation validate (Kubewarden spec §2.5).
type answer struct {
	Accepted         *bool              `json:"accepted"`
	Message          *string            `json:"message"`
	Code             *uint16            `json:"code"`
	MutatedObject    any                `json:"mutated_object"`
	AuditAnnotations map[string]*string `json:"audit_annotations"`
	Warnings         []*string          `json:"warnings"`
}

// readAnswer accepts the answers that policy-server accepts. Its errors quote nothing of the
// answer, which may contain an object.
func readAnswer(text []byte) (*answer, error) {
	a := new(answer)
	if err := read(text, a); err != nil {
		return nil, fmt.Errorf("internal server error: invalid response from policy: %w", err)
	}
	invalid := func(format string, args ...any) (*answer, error) {
		return nil, fmt.Errorf("internal server error: invalid response from policy: "+format, args...)
	}
	if a.Accepted == nil {
		return invalid("missing field `accepted`")
	}
	for key, value := range a.AuditAnnotations {
		if value == nil {
			return invalid("audit_annotations: %.64q: null, expected a string", key)
		}
	}
	for i, w := range a.Warnings {
		if w == nil {
			return invalid("warnings[%d]: null, expected a string", i)
		}
	}
	return a, nil
}

// verdict is a module's answer to the operation validate_settings (Kubewarden spec §2.1).
type verdict struct {
	Valid   *bool   `json:"valid"`
	Message *string `json:"message"`
}

// checkVerdict returns the reason why a module refuses settings.
func checkVerdict(text []byte) error {
	var v verdict
	if err := read(text, &v); err != nil {
		return fmt.Errorf("validate_settings: invalid response from policy: %w", err)
	}
	switch {
	case v.Valid == nil:
		return errors.New("validate_settings: invalid response from policy: missing field `valid`")
	case *v.Valid:
		return nil
	case v.Message == nil:
		return invalidSettings("no message")
	}
	return invalidSettings(bounded(*v.Message, maxMessage))
}

// invalidSettings is the reason why a module refuses settings, in policy-server's words.
type invalidSettings string

func (e invalidSettings) Error() string { return "Policy settings are invalid: " + string(e) }

// read decodes JSON as strictly as policy-server: names are case-sensitive, and a known field
// must not occur twice. Unknown fields are ignored.
func read(text []byte, into any) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8")
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		return fmt.Errorf("%s: unexpected %.32s", typed.Field, typed.Value)
	case err != nil:
		if ok, offset := kjson.SyntaxErrorOffset(err); ok {
			return fmt.Errorf("not JSON from byte %d on", offset)
		}
		return errors.New("not the JSON that is expected")
	}
	for _, s := range strict {
		var at kjson.FieldError
		if errors.As(s, &at) && known[s.Error()] {
			return s
		}
	}
	return nil
}

// known are the error texts of strict decoding for known fields that occur twice.
var known = func() map[string]bool {
	texts := map[string]bool{}
	for _, name := range []string{"accepted", "message", "code", "mutated_object", "audit_annotations", "warnings", "valid"} {
		texts[fmt.Sprintf("duplicate field %q", name)] = true
	}
	return texts
}()

const (
	// maxMessage bounds a text for a client, in bytes.
	maxMessage = 4 << 10
	// maxAnnotations and maxAnnotation bound what one answer adds to an audit event.
	maxAnnotations, maxAnnotation = 32, 4 << 10
	maxKey                        = 128
	// maxWarnings bounds the number of warnings of one answer; an API server passes on 4 KiB of
	// warnings in all.
	maxWarnings = 64
)

// bounded cuts a text without breaking a character.
func bounded(s string, limit int) string {
	const dots = "…"
	if len(s) <= limit {
		return s
	}
	limit -= len(dots)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + dots
}
