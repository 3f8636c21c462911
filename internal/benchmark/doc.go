// Package benchmark answers one question: what does a request cost with these
// policies, and is that more than it was?
//
// Run sends reviews through webhook.Handler.Review, which is what a server does
// between the body that it has read and the body that it writes: decode the
// review, run the policies and mutators, find the patch, prove and encode it,
// count it in the metrics. HTTP, TLS and the network are not in the figures. A
// Result can be saved, read again and compared.
//
// Whether the answers are right is the caller's business; that they are the same
// each time is checked.
package benchmark
