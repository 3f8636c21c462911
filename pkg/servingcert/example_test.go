package servingcert_test

import (
	"crypto/x509"
	"fmt"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

func Example() {
	cert, caBundle, err := servingcert.SelfSigned([]string{"mapd.mapd-system.svc"})
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caBundle)
	_, err = cert.Leaf.Verify(x509.VerifyOptions{DNSName: "mapd.mapd-system.svc", Roots: roots})
	fmt.Println(err)
	// Output: <nil>
}
