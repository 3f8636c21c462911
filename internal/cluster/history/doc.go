// Package history answers "what have policies done on this replica?".
//
// Recorder implements webhook.Recorder. It counts, for each policy and binding,
// what became of requests, keeps examples of what policies in shadow would change, and
// remembers which policy wrote which paths of which object. Values are kept only in the
// examples, and are masked there as in all diffs.
//
// All of it is in memory and bounded, whatever tenants write: counts by the policies and
// bindings that exist, examples by number and length, and the memory of objects by bytes.
// That memory is divided by namespace, so that many writes in one namespace cannot
// displace what is known of most others.
package history
