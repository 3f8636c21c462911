// Package download answers one question: which bytes are the module that a policy names?
//
// A Fetcher reads files, downloads over https with a digest, and pulls OCI artifacts as kwctl
// pushes them (Kubewarden spec §6.5). It checks every download against a digest. Modules are
// cached in a directory by their SHA-256, which is checked again on reading. The directory has a
// size limit, and the modules that were not used for longest are removed first.
//
// The package does not look into a module: internal/kubewarden/wapc compiles and runs it. Start
// reading at Fetcher.Fetch.
package download
