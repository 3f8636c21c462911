// Package download answers one question: which bytes are the module that a policy
// names?
//
// A Fetcher reads files, downloads over https with a digest, and pulls OCI artifacts
// as kwctl pushes them (Kubewarden spec §6.5). Every byte that came over the network is
// checked against a digest. What was fetched is kept in a directory by its SHA-256,
// which is checked again when it is read; the directory has a bound, and what was not
// used for longest goes first.
package download
