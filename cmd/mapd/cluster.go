package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterFlags choose the cluster, and the user to impersonate there.
type clusterFlags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// add adds kubectl's flags, with the names and meanings that kubectl gives them.
func (f *clusterFlags) add(fl *pflag.FlagSet) {
	f.addPlace(fl)
	recommended := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&f.overrides, fl, clientcmd.ConfigOverrideFlags{
		ContextOverrideFlags: clientcmd.ContextOverrideFlags{ClusterName: recommended.ContextOverrideFlags.ClusterName},
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate:       recommended.AuthOverrideFlags.Impersonate,
			ImpersonateUID:    recommended.AuthOverrideFlags.ImpersonateUID,
			ImpersonateGroups: recommended.AuthOverrideFlags.ImpersonateGroups,
		},
		Timeout: recommended.Timeout,
	})
}

// addPlace adds the flags that select the cluster, without impersonation.
func (f *clusterFlags) addPlace(fl *pflag.FlagSet) {
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, in a Pod its service account, else ~/.kube/config)")
	fl.StringVar(&f.overrides.CurrentContext, "context", "", "context of the kubeconfig file (default its current one)")
}

// The API server protects itself by priority and fairness. client-go's default of 5 requests a
// second would only delay mapd after many changes.
const (
	clientQPS   = 50
	clientBurst = 100
)

// inCluster returns the configuration of a Pod's API server. It is a variable for tests, which
// run in no Pod.
var inCluster = rest.InClusterConfig

// config returns the configuration of the cluster: from the flags, else from $KUBECONFIG, else,
// in a Pod, from its service account, else from ~/.kube/config, with kubectl's rules for files.
//
// $KUBECONFIG comes before the service account: a user who sets it in a Pod means another
// cluster than the Pod's.
func (f *clusterFlags) config() (*rest.Config, error) {
	rules := f.rules()
	explicit := f.kubeconfig != "" || f.overrides.CurrentContext != "" || f.overrides.Context.Cluster != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != ""

	var config *rest.Config
	var err error
	if !explicit {
		if config, err = inCluster(); err != nil && !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("the service account of this Pod: %w", err)
		}
		if config != nil {
			err = f.override(config)
		}
	}
	if config == nil {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides).ClientConfig()
	}
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, noCluster(f, rules)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.UserAgent = "mapd/" + version()
	config.QPS, config.Burst = clientQPS, clientBurst
	return config, nil
}

// override applies the flags to the configuration of a Pod, since clientcmd does not.
func (f *clusterFlags) override(config *rest.Config) error {
	a := f.overrides.AuthInfo
	if a.Impersonate != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: a.Impersonate, UID: a.ImpersonateUID, Groups: a.ImpersonateGroups}
	}
	timeout, err := clientcmd.ParseTimeout(cmp.Or(f.overrides.Timeout, "0"))
	if err != nil {
		return err
	}
	config.Timeout = timeout
	return nil
}

func (f *clusterFlags) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	rules.ExplicitPath = f.kubeconfig
	return rules
}

// namespace returns the namespace of the context, which kubectl takes without -n.
func (f *clusterFlags) namespace() string {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules(), &f.overrides).Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}

// noCluster returns an error that says where mapd looked for a cluster.
func noCluster(f *clusterFlags, rules *clientcmd.ClientConfigLoadingRules) error {
	if f.kubeconfig != "" {
		return fmt.Errorf("no cluster configured: %s names none; give another file with --kubeconfig", f.kubeconfig)
	}
	return fmt.Errorf("no cluster configured: looked into %s, and this is not a Pod; give a file with --kubeconfig or $KUBECONFIG",
		strings.Join(rules.Precedence, ", "))
}

// clients returns the clients for built-in and for all kinds.
func clients(config *rest.Config) (kubernetes.Interface, dynamic.Interface, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	d, err := dynamic.NewForConfig(config)
	return kube, d, err
}
