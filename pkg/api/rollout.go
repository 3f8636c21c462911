package api

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations that restrict the effect of a policy or a binding, or extend it to existing
// objects. Only mapd reads them: an API server that runs the policy itself enforces it fully.
const (
	// ModeAnnotation is the Mode of a policy or a binding: enforce, warn or shadow. A binding's
	// annotation overrides that of its policy.
	ModeAnnotation = "mapd.dev/mode"
	// PercentAnnotation is the Share of a binding, from 0 to 100.
	PercentAnnotation = "mapd.dev/percent"
	// BreakerAnnotation is the Breaker of a policy, such as errors=5%,window=5m.
	BreakerAnnotation = "mapd.dev/breaker"
	// ExistingAnnotation is the Existing of a binding: report or fix.
	ExistingAnnotation = "mapd.dev/existing"
)

// RolloutAnnotations are all of the above.
var RolloutAnnotations = []string{ModeAnnotation, PercentAnnotation, BreakerAnnotation, ExistingAnnotation}

// RestrictingAnnotations returns the RolloutAnnotations that make mapd do less than an API
// server, which does not read them.
func RestrictingAnnotations(annotations map[string]string) (keys []string) {
	for _, key := range RolloutAnnotations {
		if value, ok := annotations[key]; ok && key != ExistingAnnotation && (key != ModeAnnotation || value != Enforce.String()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Mode says what happens with the result of a policy, or of a whole stage.
type Mode uint8

const (
	// Enforce means that the result is applied.
	Enforce Mode = iota
	// Warn means that the result is recorded and the client gets a warning. The object is not
	// changed and the request not refused because of it.
	Warn
	// Shadow means that the result is recorded only.
	Shadow
	// Off means that the policy or the stage does not run.
	Off
)

var modes = [...]string{Enforce: "enforce", Warn: "warn", Shadow: "shadow", Off: "off"}

// String returns the mode as annotations spell it.
func (m Mode) String() string { return modes[m] }

// Existing says what mapd does about existing objects that a policy by a binding would change
// if they were written again.
type Existing uint8

const (
	// Ignored means nothing. It is the default.
	Ignored Existing = iota
	// Reported means that they are counted.
	Reported
	// Fixed means that they are written.
	Fixed
)

var existings = [...]string{Ignored: "", Reported: "report", Fixed: "fix"}

// String returns the value of the annotation, "" for Ignored.
func (e Existing) String() string { return existings[e] }

// Rollout is what the annotations of a policy or a binding say.
type Rollout struct {
	// Mode is valid only if HasMode is set.
	Mode    Mode
	HasMode bool
	Share   Share
	// Breaker is nil without a BreakerAnnotation.
	Breaker  *Breaker
	Existing Existing
	// Tripped says that the Breaker has tripped: the policy is not enforced, whatever a binding
	// says. RolloutOf does not set it.
	Tripped bool
	// Unread says that an annotation has a Fault, so that the author's intent is not known. A
	// policy by a binding is in shadow if one of the two has Unread set.
	Unread bool
}

// With returns the mode of a policy with Rollout r by a binding: the binding's mode if it has
// one, else the policy's. It is Shadow if the policy's Breaker has tripped or one of the two has
// Unread set.
func (r Rollout) With(binding Rollout) Mode {
	switch {
	case r.Tripped || r.Unread || binding.Unread:
		return Shadow
	case binding.HasMode:
		return binding.Mode
	}
	return r.Mode
}

// Breaker says when a policy that fails or is slow is changed to shadow.
type Breaker struct {
	// Errors is the share of evaluations that must fail or be slow for the breaker to trip.
	Errors Share
	// Slow is the duration above which an evaluation is slow; 0 means that none is.
	Slow time.Duration
	// Window is the time over which evaluations are counted.
	Window time.Duration
}

// Bounds of Breaker.Window, and the defaults of a Breaker.
const (
	defaultErrors = Whole / 20
	defaultWindow = 5 * time.Minute
	minWindow     = 10 * time.Second
	maxWindow     = time.Hour
)

// Share is a fraction in millionths.
type Share uint32

// Whole is the Share that includes everything.
const Whole Share = 1_000_000

// Has reports whether a Share includes the object that a hash belongs to. Hashes must be
// uniformly distributed. A larger Share includes everything that a smaller one does.
func (s Share) Has(hash uint64) bool {
	return s >= LeastShare(hash)
}

// LeastShare returns the smallest Share that includes the object that a hash belongs to.
func LeastShare(hash uint64) Share {
	at, _ := bits.Mul64(hash, uint64(Whole))
	return Share(at) + 1
}

// String returns the Share in percent, without "%".
func (s Share) String() string {
	return strconv.FormatFloat(float64(s)/float64(Whole/100), 'f', -1, 64)
}

// ParseShare reads a number from 0 to 100 with at most four decimals.
func ParseShare(text string) (Share, error) {
	whole, decimals, dotted := strings.Cut(text, ".")
	const digits = 4
	bad := whole == "" || len(whole) > 3 || dotted && decimals == "" || len(decimals) > digits
	n, err := strconv.ParseUint(whole+decimals+strings.Repeat("0", max(0, digits-len(decimals))), 10, 32)
	if bad || err != nil || n > uint64(Whole) {
		return 0, fmt.Errorf("must be a number from 0 to 100 with at most %d decimals, such as 10 or 0.5", digits)
	}
	return Share(n), nil
}

// RolloutOf reads the annotations of a policy or a binding. A value that cannot be parsed is a
// Fault and has no effect, except that Unread is set.
func RolloutOf(annotations map[string]string) (Rollout, Faults) {
	out := Rollout{Share: Whole}
	var faults Faults
	fault := func(key, value, detail string) {
		path := field.NewPath("metadata", "annotations").Key(key)
		faults = append(faults, FormFault(field.Invalid(path, value, detail)))
	}
	if text, ok := annotations[ModeAnnotation]; ok {
		out.HasMode = true
		if i := slices.Index(modes[:Off], text); i >= 0 {
			out.Mode = Mode(i)
		} else {
			out.HasMode = false
			fault(ModeAnnotation, text, "must be enforce, warn or shadow")
		}
	}
	if text, ok := annotations[PercentAnnotation]; ok {
		share, err := ParseShare(text)
		if err == nil {
			out.Share = share
		} else {
			fault(PercentAnnotation, text, err.Error())
		}
	}
	if text, ok := annotations[BreakerAnnotation]; ok {
		breaker, err := parseBreaker(text)
		if out.Breaker = breaker; err != nil {
			fault(BreakerAnnotation, text, err.Error())
		}
	}
	if text, ok := annotations[ExistingAnnotation]; ok {
		if i := slices.Index(existings[:], text); i > 0 {
			out.Existing = Existing(i)
		} else {
			fault(ExistingAnnotation, text, "must be report or fix")
		}
	}
	out.Unread = len(faults) > 0
	return out, faults
}

// RolloutFor is RolloutOf for an object of a kind. It also returns a Fault for each annotation
// that has no effect on that kind.
func RolloutFor(kind string, annotations map[string]string) (Rollout, Faults) {
	out, faults := RolloutOf(annotations)
	others, only := []string{PercentAnnotation, ExistingAnnotation}, BindingKind
	if kind == BindingKind {
		others, only = []string{BreakerAnnotation}, PolicyKind
	}
	for _, other := range others {
		if _, ok := annotations[other]; ok {
			path := field.NewPath("metadata", "annotations").Key(other)
			faults = append(faults, FormFault(field.Forbidden(path, "only a "+only+" can have it")))
			out.Unread = true
		}
	}
	return out, faults
}

// parseBreaker reads parts such as errors=5%, slow=50ms and window=5m, separated by
// commas, each at most once.
func parseBreaker(text string) (*Breaker, error) {
	b := &Breaker{Errors: defaultErrors, Window: defaultWindow}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seen[key] {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "errors":
			number, percent := strings.CutSuffix(value, "%")
			if b.Errors, err = ParseShare(number); err != nil || !percent || b.Errors == 0 {
				return nil, fmt.Errorf("errors must be a percentage above 0%%, such as errors=5%%")
			}
		case "slow":
			if b.Slow, err = time.ParseDuration(value); err != nil || b.Slow <= 0 {
				return nil, fmt.Errorf("slow must be a duration above 0, such as slow=50ms")
			}
		case "window":
			if b.Window, err = time.ParseDuration(value); err != nil || b.Window < minWindow || b.Window > maxWindow {
				return nil, fmt.Errorf("window must be a duration from %v to %v, such as window=5m", minWindow, maxWindow)
			}
		default:
			return nil, fmt.Errorf("there is no part %q: write errors=5%%, slow=50ms and window=5m, separated by commas", key)
		}
	}
	if !seen["errors"] && !seen["slow"] {
		return nil, fmt.Errorf("needs errors=5%% or slow=50ms, or both")
	}
	return b, nil
}
