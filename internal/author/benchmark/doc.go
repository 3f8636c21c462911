// Package benchmark answers one question: what does a request cost with these
// policies, and is that more than it was?
//
// Run sends reviews through webhook.Handler.Review, which is what a server does
// between the body that it has read and the body that it writes: decode the
// review, run the policies and mutators, find the patch, prove and encode it,
// count it in the metrics. HTTP, TLS and the network are not in the figures. A
// Result can be saved, read again and compared.
//
// The caller checks that the answers are right; Run checks that they are the
// same each time.
package benchmark
