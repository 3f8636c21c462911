package election

import (
	"testing"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestPlausible(t *testing.T) {
	for name, tt := range map[string]struct {
		in, want resourcelock.LeaderElectionRecord
	}{
		"as replicas write it": {resourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 6, LeaderTransitions: 3},
			resourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 6, LeaderTransitions: 3}},
		"for years":          {resourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 1 << 30}, resourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 6}},
		"no duration":        {resourcelock.LeaderElectionRecord{HolderIdentity: "x"}, resourcelock.LeaderElectionRecord{HolderIdentity: "x"}},
		"negative":           {resourcelock.LeaderElectionRecord{LeaseDurationSeconds: -5, LeaderTransitions: -1}, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: -5}},
		"too many changes":   {resourcelock.LeaderElectionRecord{LeaderTransitions: 1<<31 - 1}, resourcelock.LeaderElectionRecord{}},
		"promised to others": {resourcelock.LeaderElectionRecord{PreferredHolder: "y", Strategy: "OldestEmulationVersion"}, resourcelock.LeaderElectionRecord{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.in
			if correct(&got); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}
