// Package history answers one question: what have policies done on this replica?
//
// Recorder implements webhook.Recorder. For each policy and binding it counts the results of
// requests, keeps examples of what policies in shadow would change, and remembers which policy
// wrote which paths of which object. Only the examples contain values, which are masked as in all
// diffs.
//
// Everything is in memory and bounded: counts by the existing policies and bindings, examples by
// number and length, and the history of objects by bytes. That history is divided by namespace,
// so that many writes in one namespace do not displace the entries of most others.
//
// The package stores and sends nothing: internal/cluster/controllers and telemetry do. Start
// reading at Recorder.Record.
package history
