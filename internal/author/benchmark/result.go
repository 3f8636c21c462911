package benchmark

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// format is the version of the format that Marshal writes.
const format = 1

// Result is the outcome of a benchmark.
type Result struct {
	Format      int    `json:"mapdBench"`
	Mapd        string `json:"mapd"`
	Go          string `json:"go"`
	Platform    string `json:"platform"`
	CPUs        int    `json:"cpus"`
	Concurrency int    `json:"concurrency"`

	Policies int   `json:"policies"`
	Mutators int   `json:"mutators"`
	Setup    Setup `json:"setup"`

	Requests []Figures `json:"requests"`
	// Parts divide the time of a request into stages, as means over all Requests.
	Parts []Part `json:"parts"`

	// Comparison compares the Result with an earlier one; nil if there is none.
	Comparison *Comparison `json:"comparison,omitempty"`
}

// Setup is the cost of operations that happen once, in nanoseconds.
type Setup struct {
	Read    float64 `json:"readNanoseconds"`
	Compile float64 `json:"compileNanoseconds"`
}

// Figures are the cost of one request. Times are in nanoseconds; CPU,
// allocations and bytes are means.
type Figures struct {
	Name        string  `json:"name"`
	Answer      string  `json:"answer"`
	Requests    uint64  `json:"requests"`
	PerSecond   float64 `json:"requestsPerSecond"`
	P50         float64 `json:"p50Nanoseconds"`
	P90         float64 `json:"p90Nanoseconds"`
	P99         float64 `json:"p99Nanoseconds"`
	Max         float64 `json:"maxNanoseconds"`
	CPU         float64 `json:"cpuNanoseconds"`
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"allocatedBytes"`
}

// The kinds of Parts.
const (
	Decode  = "decode"  // of the review
	Match   = "match"   // which policies and parameters, conversions
	Policy  = "policy"  // conditions and mutations
	Mutator = "mutator" // with its match
	Encode  = "encode"  // the patch, its proof, the answer
)

// Part is the share of one stage in a request.
type Part struct {
	Kind string  `json:"kind"`
	Name string  `json:"name,omitempty"` // of the policy or mutator
	Time float64 `json:"nanoseconds"`    // of a mean request
	// Percent is the share of the time of all parts.
	Percent float64 `json:"percent"`
	// Cost is the mean for a request, in CEL units.
	Cost float64 `json:"cost"`
}

// Marshal writes a Result as Read reads it.
func Marshal(r *Result) ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// Read reads what Marshal wrote, without its Comparison. Its errors name the field.
func Read(data []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, readError(err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("mapdBench: must be %d, as mapd bench --save writes it", format)
	}
	r.Comparison = nil
	seen := map[string]bool{}
	for i, f := range r.Requests {
		where := fmt.Sprintf("requests[%d]", i)
		switch {
		case f.Name == "":
			return nil, fmt.Errorf("%s.name: must not be empty", where)
		case seen[f.Name]:
			return nil, fmt.Errorf("%s.name: %q is there twice", where, f.Name)
		}
		seen[f.Name] = true
		for _, c := range figures {
			if v := c.of(&f); v < 0 || math.IsInf(v, 0) {
				return nil, fmt.Errorf("%s.%s: must not be negative", where, c.field)
			}
		}
	}
	return &r, nil
}

// readError turns the decoder's errors into errors about the file.
func readError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("must be an object, is a JSON %s", wrong.Value)
		}
		return fmt.Errorf("%s: a JSON %s has no place here", wrong.Field, wrong.Value)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("byte %d: %w", syntax.Offset, err)
	}
	return err
}
