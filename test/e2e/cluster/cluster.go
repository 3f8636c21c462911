//go:build e2e

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

// Options describe servers. The zero value is a cluster that does not run
// MutatingAdmissionPolicy.
type Options struct {
	// Native runs the in-tree plugin MutatingAdmissionPolicy.
	Native bool
	// Flags are passed to kube-apiserver after the harness's own, which they override.
	Flags []string
	// Users are users with a token each: their groups by their names. The user "admin", in the
	// group system:masters, always exists.
	Users map[string][]string
}

// serverEnv returns an environment in which the servers collect garbage rarely. That saves a third
// of the CPU time of starting them, and costs little memory, because they need most of it from the
// beginning. If GOGC is set, as for measurements of their CPU time, serverEnv changes nothing.
func serverEnv() []string {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return []string{"GOGC=300"}
}

// Cluster is an API server and, unless the cluster was given, the processes that the test started.
type Cluster struct {
	// Etcd and APIServer are nil if the test did not start them.
	Etcd, APIServer *Process
	// Added are the API servers of AddAPIServer.
	Added []*Process
	// Config and the two clients are those of the administrator. They do not limit the requests per
	// second.
	Config     *rest.Config
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Dir is where logs, data and kubeconfigs are.
	Dir string

	etcd   string // the URL of etcd
	tokens map[string]string
	test   testing.TB
}

// Start starts etcd and kube-apiserver and waits until they are ready. They end
// with the test. With MAPD_E2E_KUBECONFIG set the test is skipped instead.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	NotGiven(t, "it needs servers of its own")
	c := &Cluster{Dir: directory(t), tokens: map[string]string{}, test: t}

	client, peer, secure := FreePort(t), FreePort(t), FreePort(t)
	etcd := fmt.Sprintf("http://127.0.0.1:%d", client)
	c.etcd = etcd
	peers := fmt.Sprintf("http://127.0.0.1:%d", peer)
	c.Etcd = newProcess(t, c.Dir, "etcd", Program(t, "etcd"), []string{
		"--data-dir=" + filepath.Join(c.Dir, "etcd"), "--log-level=warn",
		"--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
		"--unsafe-no-fsync", // the data need not survive the machine
	}, serverEnv())

	off := "ServiceAccount"
	if !o.Native {
		off += ",MutatingAdmissionPolicy"
	}
	keys, err := serverKeys()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		name = filepath.Join(c.Dir, name)
		c.write(t, name, data)
		return name
	}
	key := file("service-account.key", keys.key)
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", secure),
		"--tls-cert-file=" + file("server.crt", keys.cert), "--tls-private-key-file=" + file("server.key", keys.key),
		"--authorization-mode=RBAC", "--token-auth-file=" + c.tokenFile(t, o.Users),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=" + off,
	}
	c.APIServer = newProcess(t, c.Dir, "kube-apiserver", Program(t, "kube-apiserver"), append(args, o.Flags...), serverEnv())

	c.Etcd.Start(t)
	c.APIServer.Start(t)
	c.connect(t, &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", secure),
		BearerToken:     c.tokens["admin"],
		TLSClientConfig: rest.TLSClientConfig{CAData: keys.ca},
	})
	c.WaitReady(t)
	return c
}

// AddAPIServer starts another API server on the same etcd, with the same flags and
// certificate, and returns its address.
func (c *Cluster) AddAPIServer(t testing.TB) *rest.Config {
	t.Helper()
	port := FreePort(t)
	args := append(slices.Clone(c.APIServer.args), fmt.Sprintf("--secure-port=%d", port))
	p := newProcess(t, c.Dir, fmt.Sprintf("kube-apiserver-%d", len(c.Added)+2), c.APIServer.path, args, serverEnv())
	c.Added = append(c.Added, p)
	p.Start(t)
	config := rest.CopyConfig(c.Config)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	client := c.Client(t, config)
	Eventually(t, startTimeout, p.Name, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	return config
}

// startTimeout is long: many servers may start at once on few cores.
const startTimeout = 5 * time.Minute

// WaitReady waits until the API server is ready and has created the default namespace and the
// default roles of RBAC.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, startTimeout, "the API server", func(ctx context.Context) error {
		if err := c.ended(); err != nil {
			t.Fatal(err)
		}
		if err := c.Kubernetes.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := c.Kubernetes.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// RestartAPIServer stops the API server, starts it on the same port, and waits
// until it is ready.
func (c *Cluster) RestartAPIServer(t testing.TB) {
	t.Helper()
	c.APIServer.Stop(t, Patience)
	c.APIServer.Start(t)
	c.WaitReady(t)
}

// As returns the configuration of a user that the administrator impersonates.
func (c *Cluster) As(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// WithToken returns the configuration of a client with a bearer token; "" means an anonymous one.
func (c *Cluster) WithToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.Config)
	config.QPS = -1
	config.BearerToken = token
	return config
}

// User returns the configuration of one of Options.Users.
func (c *Cluster) User(t testing.TB, name string) *rest.Config {
	t.Helper()
	token, ok := c.tokens[name]
	if !ok {
		t.Fatalf("user %q has no token; name it in Options.Users, or use As", name)
	}
	return c.WithToken(token)
}

// Client makes a client from a configuration, such as that of As.
func (c *Cluster) Client(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// DynamicClient makes a dynamic client from a configuration.
func (c *Cluster) DynamicClient(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Kubeconfig writes a configuration into a file and returns its path. The file's
// only context uses namespace; "" is default.
func (c *Cluster) Kubeconfig(t testing.TB, config *rest.Config, namespace string) string {
	t.Helper()
	f, err := os.CreateTemp(c.Dir, "kubeconfig-")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	out := clientcmdapi.NewConfig()
	out.Clusters["e2e"] = &clientcmdapi.Cluster{
		Server: config.Host, TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
		CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
	}
	out.AuthInfos["e2e"] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, TokenFile: config.BearerTokenFile, Username: config.Username, Password: config.Password,
		ClientCertificate: config.CertFile, ClientCertificateData: config.CertData,
		ClientKey: config.KeyFile, ClientKeyData: config.KeyData,
		Impersonate: config.Impersonate.UserName, ImpersonateUID: config.Impersonate.UID,
		ImpersonateGroups: config.Impersonate.Groups, ImpersonateUserExtra: config.Impersonate.Extra,
		Exec: config.ExecProvider,
	}
	out.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e", Namespace: namespace}
	out.CurrentContext = "e2e"
	if err := clientcmd.WriteToFile(*out, f.Name()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// Kubectl runs kubectl as the administrator and returns its standard output. The
// error holds the standard error.
func (c *Cluster) Kubectl(t testing.TB, stdin []byte, args ...string) (string, error) {
	t.Helper()
	return c.KubectlAs(t, c.Config, stdin, args...)
}

// KubectlAs is like Kubectl, for the user of a configuration.
func (c *Cluster) KubectlAs(t testing.TB, config *rest.Config, stdin []byte, args ...string) (string, error) {
	t.Helper()
	kubeconfig := c.Kubeconfig(t, config, "")
	defer os.Remove(kubeconfig)
	// kubectl caches discovery below HOME; tests must not share that cache.
	return run(t, c.Dir, stdin, []string{"KUBECONFIG=" + kubeconfig, "HOME=" + c.Dir}, Program(t, "kubectl"), args...)
}

// Apply applies YAML as the administrator with kubectl.
func (c *Cluster) Apply(t testing.TB, yaml string) {
	t.Helper()
	if _, err := c.Kubectl(t, []byte(yaml), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) connect(t testing.TB, config *rest.Config) {
	t.Helper()
	config.QPS = -1
	c.Config = config
	c.Kubernetes, c.Dynamic = c.Client(t, config), c.DynamicClient(t, config)
}

// ended returns an error if a server that should be running has ended.
func (c *Cluster) ended() error {
	for _, p := range []*Process{c.Etcd, c.APIServer} {
		if p == nil {
			continue
		}
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) write(t testing.TB, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tokenFile makes a token for every user and writes a file with them for kube-apiserver.
func (c *Cluster) tokenFile(t testing.TB, users map[string][]string) string {
	t.Helper()
	all := map[string][]string{"admin": {"system:masters"}}
	maps.Copy(all, users)
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(all)) {
		c.tokens[name] = random(t)
		fmt.Fprintf(&b, "%s,%s,%d,%q\n", c.tokens[name], name, i, strings.Join(all[name], ","))
	}
	file := filepath.Join(c.Dir, "tokens.csv")
	c.write(t, file, []byte(b.String()))
	return file
}

// directory is like t.TempDir, but keeps the directory if MAPD_E2E_KEEP is set.
func directory(t testing.TB) string {
	t.Helper()
	if os.Getenv("MAPD_E2E_KEEP") == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("", "mapd-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("logs and data are kept in %s", dir)
	return dir
}

func random(t testing.TB) string {
	t.Helper()
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// serverKeys are the serving certificate of API servers and the key with which they sign tokens of
// service accounts. All servers of a test program use the same, because making RSA keys for each
// would take time.
var serverKeys = sync.OnceValues(func() (keys struct{ cert, key, ca []byte }, err error) {
	cert, ca, err := servingcert.SelfSigned([]string{"127.0.0.1", "localhost", "kubernetes.default.svc"})
	if err != nil {
		return keys, err
	}
	private, ok := cert.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return keys, fmt.Errorf("the key is a %T, want ECDSA", cert.PrivateKey)
	}
	key, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return keys, err
	}
	for _, der := range cert.Certificate {
		keys.cert = append(keys.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	keys.key, keys.ca = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}), ca
	return keys, nil
})
