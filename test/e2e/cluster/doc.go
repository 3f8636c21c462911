// Package cluster starts a Kubernetes cluster with mapd for a test: real etcd, kube-apiserver,
// kubectl and mapd, as processes on loopback ports. It imitates only what such a small cluster
// lacks: kubelet, kube-proxy and the endpoint controller.
//
// # Most tests
//
//	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2})
//	m.Apply(t, policies)                       // kubectl apply
//	m.Kubernetes, m.Dynamic                    // clients of the administrator
//	m.Client(t, m.As("alice", "developers"))   // a client of another user
//	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error { … })
//
// With MAPD_E2E_KUBECONFIG set, Installed returns that cluster, where mapd must
// be installed already, and starts nothing. A test that stops processes must call
// m.NeedProcesses(t), which skips it there. NeedNoBindings and NeedFree skip tests that
// objects of the cluster's other users would disturb. Main prints at the end which tests were
// skipped. Every object that a test makes outside of its own namespaces, and these
// namespaces, must have Label: such objects are removed before the first test and after the
// last one, even if tests fail.
//
// # Servers
//
// Start starts a cluster without mapd: etcd and a kube-apiserver with RBAC, with the
// in-tree plugin (Options.Native) or without. Options.Flags adds flags to
// kube-apiserver, Options.Users users with tokens. Every Cluster has its own
// etcd, ports and directory, so tests may run in parallel; each pair takes about
// 350 MB and five seconds.
//
// There is no scheduler, kubelet or controller-manager. So Pods do not run,
// there is no garbage collection, and deleted namespaces stay Terminating. The
// admission plugin ServiceAccount is off unless Options.Flags say otherwise, because
// it requires the ServiceAccount "default", which only DefaultServiceAccounts creates.
//
// # Processes
//
// c.Etcd, c.APIServer and every Replica are a *Process: Stop (SIGTERM, and wait),
// Kill, Pause and Continue (SIGSTOP, SIGCONT), Start again with the same command
// line and ports; Restart is Stop and Start. RestartAPIServer waits until the
// server is ready again. Each writes a log file, whose end is printed when the
// test fails; Process.Log reads it. All of them end with the test, and also when
// the test program panics or is killed.
//
// # mapd
//
// Install applies manifests/install.yaml with kubectl, and does what other components do in a
// real cluster:
//
//   - the Deployment stays unscheduled, since there is no scheduler; every
//     Replica is a process `mapd serve`, built once from this tree (with the race
//     detector if MAPD_E2E_RACE is set). It has a token of the shipped
//     ServiceAccount from the TokenRequest API and no other credentials, so the tests
//     use the shipped RBAC;
//   - the Service becomes one of type ExternalName "localhost" whose port is
//     that of a Proxy. The Proxy does what kube-proxy does: it forwards connections to the
//     replicas that are ready, in turn, and resets them when there is none. It
//     keeps existing connections;
//   - an EndpointSlice lists the replicas under addresses from TEST-NET-1, ready as
//     /readyz says, as the endpoint controller would from the Pods' probes;
//   - Install fills in the rules of aggregated ClusterRoles once; m.GrantParams lets mapd
//     read more kinds of parameters than ConfigMaps.
//
// m.AddReplica starts one more replica, m.Scale sets their number, which may be 0, and m.Roll
// replaces each by a new one as a Deployment does. m.Replicas() returns the replicas that
// these methods started and did not stop. m.Proxy.Cut() resets all connections through the
// proxy. InstallOptions.Flags are passed to `mapd serve`. If InstallOptions.CutAPI is set,
// replicas reach the API server through another Proxy, m.API, so that a test can cut their
// watches.
//
// # Waiting
//
// Tests do not sleep. Eventually polls until a function returns nil and fails
// with its last error; Always checks that a function keeps returning nil.
//
// # Environment
//
//	MAPD_E2E_KUBECONFIG  the kubeconfig of a cluster with mapd, instead of own servers;
//	                     kubectl is then that of $PATH, and is built if there is none
//	MAPD_E2E_CACHE       where the built servers are kept
//	MAPD_E2E_SERVERS     a directory with etcd, kube-apiserver and kubectl, instead of building them
//	MAPD_E2E_CASES       "some": TestTwins runs a third of the cases, and what changed lately; of variants of a server one
//	MAPD_E2E_KYVERNO     run what needs Kyverno's admission controller, and build that
//	MAPD_E2E_RACE        build mapd with the race detector
//	MAPD_E2E_KEEP        keep directories with logs and data, and print where they are
package cluster
