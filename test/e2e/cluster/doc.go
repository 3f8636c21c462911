// Package cluster answers "where does a test get a Kubernetes cluster with
// mapd in it?": real etcd, kube-apiserver, kubectl and mapd, as processes on
// loopback ports. Nothing in it imitates Kubernetes; it only plays the parts
// that such a small cluster lacks: kubelet, kube-proxy and endpoint controller.
//
// # Most tests
//
//	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2})
//	m.Apply(t, policies)                       // kubectl apply
//	m.Kubernetes, m.Dynamic                    // clients of the administrator
//	m.Client(t, m.As("alice", "developers"))   // somebody else's
//	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error { … })
//
// With MAPD_E2E_KUBECONFIG set, Installed returns that cluster, where mapd must
// be installed already, and starts nothing. A test that stops processes says so
// with m.NeedProcesses(t), which skips it there; NeedNoBindings and NeedFree are for
// what the cluster's other users may have made. Main prints at the end what was
// skipped. Everything that a test makes outside of its own namespaces, and these
// namespaces, must have Label: it is removed before the first test and after the
// last one, however they end.
//
// # Servers
//
// Start gives a bare cluster: etcd and a kube-apiserver with RBAC, with the
// in-tree plugin (Options.Native) or without. Options.Flags adds flags to
// kube-apiserver, Options.Users people with tokens. Every Cluster has its own
// etcd, ports and directory, so tests may run in parallel; each pair takes about
// 350 MB and five seconds.
//
// There is no scheduler, kubelet or controller-manager. So Pods do not run,
// nothing is collected as garbage, and deleted namespaces stay Terminating. The
// admission plugin ServiceAccount is off unless Options.Flags say otherwise, because
// nobody but DefaultServiceAccounts makes the ServiceAccount "default" that it asks for.
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
// Install applies manifests/install.yaml with kubectl and plays the parts that
// bring it to life:
//
//   - the Deployment stays unscheduled, since there is no scheduler; every
//     Replica is a process `mapd serve`, built once from this tree (with the race
//     detector if MAPD_E2E_RACE is set). It has a token of the shipped
//     ServiceAccount from the TokenRequest API and nothing else, so the shipped
//     RBAC is what is tested;
//   - the Service becomes one of type ExternalName "localhost" whose port is
//     that of a Proxy. The Proxy plays kube-proxy: it forwards connections to the
//     replicas that are ready, in turn, and resets them when there is none. It
//     leaves connections alone that exist;
//   - an EndpointSlice lists the replicas under addresses from TEST-NET-1, ready as
//     /readyz says, as the endpoint controller would from the Pods' probes;
//   - aggregated ClusterRoles get their rules once; m.GrantParams lets mapd read
//     more kinds of parameters than ConfigMaps.
//
// m.AddReplica starts one more, m.Scale sets the number (0 too), m.Roll replaces
// each by a new one as a Deployment does. m.Replicas() are those that were
// started and not stopped by these. m.Proxy.Cut() resets all connections that
// pass through it. InstallOptions.Flags go to `mapd serve`. If
// InstallOptions.CutAPI is set, replicas reach the API server through m.API, a
// Proxy as well, so that their watches can be cut.
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
