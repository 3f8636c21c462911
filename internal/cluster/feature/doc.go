// Package feature says what `mapd serve` has to know of a kind of policy, beside mapd's
// own, that it runs in a cluster: Feature is where to start reading.
//
// A feature is a package of its own that implements Feature, and one line in cmd/mapd
// that lists it. The Store (internal/cluster/store) runs features and publishes their
// States; internal/cluster/controllers writes the webhook entries and the ConfigMaps that
// States ask for. Neither knows any feature by name.
package feature
