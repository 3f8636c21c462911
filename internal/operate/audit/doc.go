// Package audit answers one question: what would policies make of the objects that a
// cluster has?
//
// It lists the objects of each kind that a policy can match, page by page, runs the
// policies on each in memory, and keeps totals and a bounded number of differences. It
// reads only. Fixer is the exception: it writes chosen results by server-side apply.
package audit
