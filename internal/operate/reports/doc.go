// Package reports writes the results of an audit as reports that tools for several policy engines
// can read: OpenReports (openreports.io) and the older PolicyReport (wgpolicyk8s.io).
//
// A namespace with results has one report, and objects without a namespace share another. A
// Collector takes results while an audit runs, and writes the reports of a cluster afterwards.
package reports
