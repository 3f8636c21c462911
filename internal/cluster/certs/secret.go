package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

// Keys of the Secret's data.
const (
	keyLeafCert = "tls.crt" // the certificate that is served
	keyLeafKey  = "tls.key"
	keyCACert   = "ca.crt" // the authority that signed it
	keyCAKey    = "ca.Key"
	keyNextCert = "ca-next.crt" // the next authority, during a rotation
	keyNextKey  = "ca-next.Key"
	keyBundle   = "ca-bundle.crt" // all authorities to trust
	keyRotation = "rotation.json"
)

// RotationKey is in the data of a Secret that mapd writes, and of no other.
const RotationKey = keyRotation

// rotateAnnotation on the Secret requests a new authority with each new value.
const rotateAnnotation = "mapd.dev/rotate"

// state is the content of the Secret. It is a value: nothing that it refers to is modified.
type state struct {
	leaf, ca, next pair
	// bundle has the authorities to trust: ca, next, and former ones.
	bundle []*x509.Certificate
	// until has, by an authority's fingerprint, when the last certificate that it signed expires.
	until map[string]time.Time
	// rotated is the last value of rotateAnnotation that led to a rotation.
	rotated string

	// since is when the applied bundle was first seen to contain next. It is not stored, so
	// another replica starts to wait anew.
	since time.Time
}

// rotation is what is stored besides certificates and keys.
type rotation struct {
	Answered    string               `json:"answered,omitempty"`
	SignedUntil map[string]time.Time `json:"signedUntil,omitempty"`
}

// parse reads a Secret's data. It leaves out invalid parts, and describes them in the second
// result.
func parse(data map[string][]byte) (state, []string) {
	var s state
	var problems []string
	note := func(key string, err error) {
		problems = append(problems, key+" "+err.Error())
	}
	read := func(p *pair, certKey, keyKey string, optional bool) {
		if optional && len(data[certKey])+len(data[keyKey]) == 0 {
			return
		}
		var err error
		if p.Cert, err = parseCert(data[certKey]); err != nil {
			note(certKey, err)
			p.Cert = nil
		}
		if p.Key, err = parseKey(data[keyKey], p.Cert); err != nil {
			note(keyKey, err)
		}
		if p.Cert == nil { // a key without its certificate is useless
			p.Key = nil
		}
	}
	read(&s.leaf, keyLeafCert, keyLeafKey, false)
	read(&s.ca, keyCACert, keyCAKey, false)
	read(&s.next, keyNextCert, keyNextKey, true)
	if s.leaf.Key == nil {
		s.leaf = pair{}
	}
	if s.next.Key == nil {
		s.next = pair{}
	}
	var err error
	if s.bundle, err = parseCerts(data[keyBundle]); err != nil {
		note(keyBundle, err)
		s.bundle = nil
	}
	authority := func(key string, c *x509.Certificate) bool {
		if c.IsCA && c.BasicConstraintsValid {
			return true
		}
		note(key, fmt.Errorf("holds a certificate that is no authority"))
		return false
	}
	if s.ca.Cert != nil && !authority(keyCACert, s.ca.Cert) {
		s.ca = pair{}
	}
	if s.next.Cert != nil && !authority(keyNextCert, s.next.Cert) {
		s.next = pair{}
	}
	s.bundle = slices.DeleteFunc(s.bundle, func(c *x509.Certificate) bool { return !authority(keyBundle, c) })
	var r rotation
	if text := data[keyRotation]; len(text) > 0 {
		if json.Unmarshal(text, &r) != nil {
			note(keyRotation, fmt.Errorf("cannot be read"))
			r = rotation{}
		}
	}
	s.rotated, s.until = r.Answered, r.SignedUntil
	return s, problems
}

// data encodes s for the Secret; parse is the opposite.
func (s state) data() (map[string][]byte, error) {
	// A Secret of type kubernetes.io/tls must have tls.crt and tls.key, even if they are empty.
	data := map[string][]byte{keyLeafCert: {}, keyLeafKey: {}}
	write := func(p pair, certKey, keyKey string) error {
		if p.Cert != nil {
			data[certKey] = servingcert.Encode(p.Cert)
		}
		if p.Key == nil {
			return nil
		}
		var err error
		data[keyKey], err = encodeKey(p.Key)
		return err
	}
	if err := write(s.leaf, keyLeafCert, keyLeafKey); err != nil {
		return nil, err
	}
	if err := write(s.ca, keyCACert, keyCAKey); err != nil {
		return nil, err
	}
	if err := write(s.next, keyNextCert, keyNextKey); err != nil {
		return nil, err
	}
	data[keyBundle] = servingcert.Encode(s.bundle...)
	var err error
	data[keyRotation], err = json.Marshal(rotation{Answered: s.rotated, SignedUntil: s.until})
	return data, err
}

// ownKeys are the keys of the Secret's data that mapd writes and removes.
var ownKeys = []string{keyLeafCert, keyLeafKey, keyCACert, keyCAKey, keyNextCert, keyNextKey, keyBundle, keyRotation}

// stored reports whether a Secret's data already contains s.
func (s state) stored(in map[string][]byte) (bool, error) {
	want, err := s.data()
	if err != nil {
		return false, err
	}
	for _, key := range ownKeys {
		if !bytes.Equal(in[key], want[key]) {
			return false, nil
		}
	}
	return true, nil
}

// succeeds reports whether found can result from held by steps of a rotation: an authority stays
// in the bundle for as long as a certificate of it can be served, so a successor trusts what is
// served now.
func succeeds(found, held state, now time.Time) bool {
	return !usable(held.leaf, now) || issuer(held.leaf.Cert, found.bundle) != nil
}

// merge returns the state to use if a Secret contains found and this process has held. If found
// is a successor of held, that is found, with missing parts restored from held. Otherwise it is
// held: somebody has deleted, truncated or replaced the Secret.
func merge(found, held state, now time.Time) state {
	if len(found.bundle) == 0 && len(held.bundle) > 0 || !succeeds(found, held, now) {
		return held
	}
	s := found
	// A step puts an authority into the bundle, so one that is missing there was not written by a
	// step.
	if usable(held.ca, now) && !contains(found.bundle, found.ca.Cert) && contains(found.bundle, held.ca.Cert) {
		s.ca = held.ca
	}
	if s.ca.Key == nil && usable(held.ca, now) && (s.ca.Cert == nil || same(s.ca.Cert, held.ca.Cert)) && contains(found.bundle, held.ca.Cert) {
		s.ca = held.ca
	}
	if s.next.Cert == nil && usable(held.next, now) && contains(found.bundle, held.next.Cert) && same(s.ca.Cert, held.ca.Cert) {
		s.next = held.next
	}
	if !usable(s.leaf, now) || !trusted(s.leaf.Cert, append([]*x509.Certificate{found.ca.Cert}, found.bundle...), now) {
		s.leaf = pair{}
		if usable(held.leaf, now) {
			s.leaf = held.leaf
		}
	}
	if s.until == nil {
		s.until, s.rotated = held.until, held.rotated
	}
	return s
}

// signed returns s.until, updated for a certificate leaf that ca signed.
func (s state) signed(ca, leaf *x509.Certificate) map[string]time.Time {
	until := maps.Clone(s.until)
	if until == nil {
		until = map[string]time.Time{}
	}
	if name := fingerprint(ca); until[name].Before(leaf.NotAfter) {
		until[name] = leaf.NotAfter
	}
	return until
}
