//go:build wasip1

// A Kubewarden policy that drops capabilities from every container of a Pod. Its
// settings are {"drop": ["BPF"]}. The stock Go toolchain builds it:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath -o guest.wasm .
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

//go:wasmimport wapc __guest_request
func guestRequest(operation, payload unsafe.Pointer)

//go:wasmimport wapc __guest_response
func guestResponse(answer unsafe.Pointer, n uint32)

//go:wasmimport wapc __guest_error
func guestError(text string)

// main is required, and never run: a policy is called through guestCall.
func main() {}

//go:wasmexport __guest_call
func guestCall(operationLength, payloadLength uint32) uint32 {
	operation, payload := make([]byte, operationLength), make([]byte, payloadLength)
	guestRequest(unsafe.Pointer(unsafe.SliceData(operation)), unsafe.Pointer(unsafe.SliceData(payload)))
	answer, err := answer(string(operation), payload)
	if err != nil {
		guestError(err.Error())
		return 0
	}
	text, err := json.Marshal(answer)
	if err != nil {
		guestError(err.Error())
		return 0
	}
	guestResponse(unsafe.Pointer(unsafe.SliceData(text)), uint32(len(text)))
	return 1
}

func answer(operation string, payload []byte) (any, error) {
	switch operation {
	case "validate":
		return validate(payload)
	case "validate_settings":
		return validateSettings(payload), nil
	case "protocol_version":
		return "v1", nil
	}
	return nil, fmt.Errorf("unknown operation: %s", operation)
}

type settings struct {
	Drop []string `json:"drop"`
}

type settingsAnswer struct {
	Valid   bool   `json:"valid"`
	Message string `json:"message,omitempty"`
}

func validateSettings(payload []byte) settingsAnswer {
	var s settings
	if err := json.Unmarshal(payload, &s); err != nil {
		return settingsAnswer{Message: err.Error()}
	}
	if len(s.Drop) == 0 || slices.Contains(s.Drop, "") {
		return settingsAnswer{Message: "drop must name at least one capability"}
	}
	return settingsAnswer{Valid: true}
}

type validateAnswer struct {
	Accepted bool   `json:"accepted"`
	Message  string `json:"message,omitempty"`
	Code     int    `json:"code,omitempty"`
	Mutated  any    `json:"mutated_object,omitempty"`
}

// validate keeps the object as it is but for the capabilities: it is never read
// into Go's types, which would lose the fields that they do not have.
func validate(payload []byte) (any, error) {
	var in struct {
		Settings settings `json:"settings"`
		Request  struct {
			Object map[string]any `json:"object"`
		} `json:"request"`
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	if in.Request.Object == nil { // a DELETE
		return validateAnswer{Accepted: true}, nil
	}
	changed, err := dropFrom(in.Request.Object, in.Settings.Drop)
	switch {
	case err != nil:
		return validateAnswer{Message: err.Error(), Code: 400}, nil
	case !changed:
		return validateAnswer{Accepted: true}, nil
	}
	return validateAnswer{Accepted: true, Mutated: in.Request.Object}, nil
}

var errShape = errors.New("the object is not a Pod")

func dropFrom(pod map[string]any, drop []string) (changed bool, err error) {
	spec, ok := pod["spec"].(map[string]any)
	if !ok {
		return false, errShape
	}
	for _, field := range []string{"initContainers", "containers"} {
		containers, _ := spec[field].([]any)
		for _, c := range containers {
			container, ok := c.(map[string]any)
			if !ok {
				return false, errShape
			}
			capabilities := child(child(container, "securityContext"), "capabilities")
			list, _ := capabilities["drop"].([]any)
			for _, name := range drop {
				if !slices.Contains(list, any(name)) {
					list, changed = append(list, name), true
				}
			}
			capabilities["drop"] = list
		}
	}
	return changed, nil
}

// child returns the object of that name, made if need be.
func child(parent map[string]any, name string) map[string]any {
	c, ok := parent[name].(map[string]any)
	if !ok {
		c = map[string]any{}
		parent[name] = c
	}
	return c
}
