// Package externaldata answers one question: which values do providers of external data return
// for these keys?
//
// A Client calls Gatekeeper's Providers over HTTPS. Answers returns recorded answers from a file,
// and a Recorder makes such a file. All three implement engine.Resolver, so the engine does not
// depend on where answers come from. The package does not decide which keys are asked for:
// pkg/legacy does. Start reading at Client.
package externaldata

import (
	"errors"
	"fmt"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Error is the reason why a provider returned no value.
type Error struct {
	Provider string
	// Reason is one of the constants below, for metrics.
	Reason Reason
	// Text says what happened and what was expected.
	Text string
}

// Error names the provider.
func (e *Error) Error() string { return "provider " + e.Provider + ": " + e.Text }

// IsMissing reports whether the provider has answered and has no value for the key.
func (e *Error) IsMissing() bool { return e.Reason == Key || e.Reason == Missing }

// answered reports whether err, or the absence of one, is a provider's answer about the key.
// Otherwise the call failed, and the next one may succeed.
func answered(err error) bool {
	if err == nil {
		return true
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Reason {
	case Key, Missing, Duplicate, NoString, Recorded:
		return true
	}
	return false
}

// Reason is the way in which a provider failed.
type Reason string

// Reasons. Those from Key on concern one key, the others a whole call.
const (
	Unknown       Reason = "unknown"        // there is no Provider of the name
	Request       Reason = "request"        // the keys exceed what one call may send
	Busy          Reason = "busy"           // too many calls to the provider are under way
	Open          Reason = "circuit"        // the last calls failed, so the provider was not called
	DryRun        Reason = "dry_run"        // the provider may have side effects
	Certificate   Reason = "certificate"    // mapd's own client certificate cannot be used
	Name          Reason = "dns"            // the host name does not resolve
	Connection    Reason = "connection"     // no connection, or it was cut
	TLS           Reason = "tls"            // the handshake failed
	Timeout       Reason = "timeout"        // no complete answer in time
	Redirect      Reason = "redirect"       // the answer points elsewhere
	Status        Reason = "status"         // the answer has another HTTP status than 200
	TooLarge      Reason = "too_large"      // the answer has more bytes or items than allowed
	Malformed     Reason = "malformed"      // the answer is not a ProviderResponse
	System        Reason = "system_error"   // the provider reports an error for all keys
	NotIdempotent Reason = "not_idempotent" // the provider does not promise the same answer next time

	Key       Reason = "key_error"      // the provider reports an error for the key
	Missing   Reason = "missing_item"   // the answer does not have the key
	Duplicate Reason = "duplicate_item" // the answer has the key more than once
	NoString  Reason = "not_a_string"   // the value is not a string
	Recorded  Reason = "recorded"       // from a file, or not in it
)

func failed(provider string, reason Reason, format string, args ...any) *Error {
	return &Error{provider, reason, fmt.Sprintf(format, args...)}
}

var (
	_ engine.Resolver = (*Answers)(nil)
	_ engine.Resolver = (*Recorder)(nil)
	_ engine.Resolver = (*Client)(nil)
)
