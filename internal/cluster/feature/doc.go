// Package feature has the interface between `mapd serve` and the kinds of policies that it runs
// in a cluster besides mapd's own. Start reading at Feature.
//
// A feature is a package that implements Feature, and one line in cmd/mapd that lists it. The
// Store (internal/cluster/store) runs features and publishes their States;
// internal/cluster/controllers writes the webhook entries and the ConfigMaps that the States ask
// for. Neither knows any feature by name.
package feature
