package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certificates "github.com/mapd-project/mapd/internal/cluster/certs"
	"github.com/mapd-project/mapd/pkg/servingcert"
)

const secretName = "mapd-tls"

// certificate checks the serving certificate and whether the API server accepts it. It uses only
// the certificate in the Secret, which is public, and not the key.
func (x *examination) certificate(ctx context.Context) {
	const check = "certificate"
	entries := x.entries()
	now := x.Now()
	secret, err := x.Kubernetes.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
	where := "Secret " + namespace + "/" + secretName
	switch {
	case apierrors.IsNotFound(err):
		if len(entries) == 0 {
			x.say(Warning, check, "there is no "+where+" yet, and no webhook entry that needs it", "mapd makes it when it has its lease: see its log")
			return
		}
		x.authorities(check, entries, now, Warning, "there is no "+where, "if mapd serves a certificate from files (--tls-cert) that is meant so; else see its log")
		return
	case err != nil:
		x.authorities(check, entries, now, Unknown, "the serving certificate is not known: "+whyUnseen("get", where, err), howToSee("get", "secrets in "+namespace, err))
		return
	}
	certs, err := parsePEM(secret.Data["tls.crt"])
	switch {
	case err != nil:
		x.say(Bad, check, where+": tls.crt: "+err.Error(), "delete the Secret: mapd makes another")
		return
	case len(certs) == 0:
		x.say(Bad, check, where+" holds no certificate yet", "mapd makes it when it has its lease: see its log")
		return
	}
	made := certs[0].NotBefore
	if _, own := secret.Data[certificates.RotationKey]; own {
		made = made.Add(servingcert.Skew) // mapd backdates what it makes
	}
	mark, fact, advice := lifetime(certs[0], made, now)
	for _, e := range entries {
		if err := trusts(e, certs, now); err != nil {
			x.say(Bad, check, fmt.Sprintf("caBundle of %s does not vouch for it: %v", e.name, err),
				"mapd writes caBundle when it has its lease: see its log; what serves may not be this mapd")
			return
		}
	}
	if len(entries) > 0 {
		fact += "; caBundle vouches for it"
	}
	x.say(mark, check, fact, advice)
}

// authorities checks the certificate authorities in the webhook configurations, for a serving
// certificate that could not be read. It adds a line with mark, fact and advice if they are valid.
func (x *examination) authorities(check string, entries []entry, now time.Time, mark Mark, fact, advice string) {
	first, soonest := "", time.Time{}
	for _, e := range entries {
		if len(e.client.CABundle) == 0 {
			x.say(Warning, check, fact+"; caBundle of "+e.name+" is empty, so the API server asks the authorities of its own machine", advice)
			return
		}
		certs, err := parsePEM(e.client.CABundle)
		if err == nil && len(certs) == 0 {
			err = errors.New("holds no certificate")
		}
		if err != nil {
			x.say(Bad, check, fmt.Sprintf("caBundle of %s: %v", e.name, err), advice)
			return
		}
		// A bundle may hold expired authorities beside valid ones.
		last := slices.MaxFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first == "" || last.NotAfter.Before(soonest) {
			first, soonest = e.name, last.NotAfter
		}
	}
	if first != "" {
		if soonest.Before(now) {
			x.say(Bad, check, fmt.Sprintf("%s; the authority in caBundle of %s expired on %s", fact, first, day(soonest)), advice)
			return
		}
		fact += fmt.Sprintf("; the authority in caBundle expires on %s, in %s", day(soonest), days(soonest.Sub(now)))
	}
	x.say(mark, check, fact, advice)
}

// lifetime returns the result of checking the age of a serving certificate. mapd replaces it when
// a third of its lifetime is left; if less than a quarter is left, replacing it has failed for a
// while.
func lifetime(c *x509.Certificate, made, now time.Time) (mark Mark, fact, advice string) {
	const log = "mapd replaces it when a third of its time is left: see the log of the replica that holds the lease"
	whole, left := c.NotAfter.Sub(made), c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		return Bad, fmt.Sprintf("expired on %s, %s ago", day(c.NotAfter), days(-left)), log
	case now.Before(c.NotBefore):
		return Bad, "not valid before " + c.NotBefore.UTC().Format(time.RFC3339), "see the clocks"
	}
	fact = fmt.Sprintf("%s old, expires on %s, in %s", days(max(0, now.Sub(made))), day(c.NotAfter), days(left))
	if left < whole/4 {
		return Warning, fact, log
	}
	return OK, fact, ""
}

// trusts returns an error if an API server would not trust a serving
// certificate at the address of a webhook entry.
func trusts(e entry, chain []*x509.Certificate, now time.Time) error {
	var roots *x509.CertPool // nil: the system's
	if len(e.client.CABundle) > 0 {
		certs, err := parsePEM(e.client.CABundle)
		if err != nil {
			return err
		}
		roots = pool(certs)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: e.host(), Roots: roots, Intermediates: pool(chain[1:]), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert == chain[0] {
		return nil // lifetime checks this
	}
	return err
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

// parsePEM reads certificates. Its errors do not quote the input, which may contain a private key
// by mistake.
func parsePEM(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("holds a certificate that cannot be read")
		}
		certs = append(certs, c)
	}
	return certs, nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// days formats a duration in days.
func days(d time.Duration) string {
	if d < time.Minute {
		return "less than a minute"
	}
	if d < 48*time.Hour {
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
