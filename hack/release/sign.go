package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// readKey reads a private key, ECDSA on P-256 without a passphrase, in the formats of cosign and
// openssl.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: not in PEM form", name)
	}
	var parsed any
	switch block.Type {
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("%s: a %s: want a private key without a passphrase, such as openssl genpkey makes", name, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: want an ECDSA key on the curve P-256", name)
	}
	return key, nil
}

// sign returns a signature of SHA-256 in base64, as `cosign sign-blob` writes it. The same key
// and data give the same signature (RFC 6979).
func sign(key *ecdsa.PrivateKey, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

const statementType = "application/vnd.in-toto+json"

// encoded returns the bytes that a DSSE signature signs.
func encoded(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// enclose returns a statement in an envelope, which has no signature without a key.
func enclose(key *ecdsa.PrivateKey, statement []byte) (*envelope, error) {
	e := &envelope{PayloadType: statementType, Payload: base64.StdEncoding.EncodeToString(statement), Signatures: []signature{}}
	if key != nil {
		s, err := sign(key, encoded(statementType, statement))
		if err != nil {
			return nil, err
		}
		// The key's name is left empty, which DSSE permits: cosign writes none, and skips a signature
		// with another name than it expects.
		e.Signatures = append(e.Signatures, signature{Sig: s})
	}
	return e, nil
}

// bundle is a Sigstore bundle, the form in which cosign 3 and later read a signature:
// https://docs.sigstore.dev/about/bundle.
type bundle struct {
	MediaType string `json:"mediaType"`
	Material  struct {
		PublicKey struct {
			Hint string `json:"hint"`
		} `json:"publicKey"`
	} `json:"verificationMaterial"`
	// One of the two is set: a signature of another file, or an envelope that contains the signed
	// statement.
	Message  *message  `json:"messageSignature,omitempty"`
	Envelope *envelope `json:"dsseEnvelope,omitempty"`
}

type message struct {
	Digest struct {
		Algorithm string `json:"algorithm"`
		Digest    []byte `json:"digest"`
	} `json:"messageDigest"`
	Signature []byte `json:"signature"`
}

// signatures returns the files of a release with signatures, by name, except the provenance's
// envelope itself: the signature of SHA256SUMS for openssl, the same as a bundle, and the
// provenance as a bundle.
func (r *release) signatures(sums []byte, provenance *envelope) (map[string][]byte, error) {
	text, err := sign(r.key, sums)
	if err != nil {
		return nil, err
	}
	id, err := keyID(&r.key.PublicKey)
	if err != nil {
		return nil, err
	}
	b := bundle{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", Message: &message{}}
	b.Material.PublicKey.Hint = base64.StdEncoding.EncodeToString(id)
	sum := sha256.Sum256(sums)
	b.Message.Digest.Algorithm, b.Message.Digest.Digest = "SHA2_256", sum[:]
	if b.Message.Signature, err = base64.StdEncoding.DecodeString(text); err != nil {
		return nil, err
	}
	ofSums, err := line(b)
	if err != nil {
		return nil, err
	}
	b.Message, b.Envelope = nil, provenance
	ofProvenance, err := line(b)
	return map[string][]byte{
		"SHA256SUMS.sig": []byte(text + "\n"), "SHA256SUMS.sigstore.json": ofSums, "mapd_" + r.version + ".intoto.sigstore.json": ofProvenance,
	}, err
}

// line returns a value as one line of JSON.
func line(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(text, '\n'), err
}

// keyID is the SHA-256 of a public key in DER.
func keyID(key *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	id := sha256.Sum256(der)
	return id[:], err
}

// open returns the statement of an envelope that a key has signed.
func open(key *ecdsa.PublicKey, text []byte) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(encoded(e.PayloadType, payload))
	for _, s := range e.Signatures {
		if sig, err := base64.StdEncoding.DecodeString(s.Sig); err == nil && ecdsa.VerifyASN1(key, sum[:], sig) {
			return payload, nil
		}
	}
	return nil, errors.New("no signature of this key")
}
