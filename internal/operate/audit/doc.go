// Package audit answers one question: what would policies do to the objects that a cluster has?
//
// It lists the objects of each kind that a policy can match, page by page, runs the policies on
// each in memory, and keeps totals and a bounded number of differences. It writes nothing, except
// for Fixer, which writes selected results by server-side apply. Start reading at Run.
package audit
