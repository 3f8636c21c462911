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

// readKey reads a private key: ECDSA on P-256 without a passphrase, as cosign and openssl know it.
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

// encoded returns what a DSSE signature is about.
func encoded(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// enclose returns a statement in an envelope, which has no signature without a key.
func enclose(key *ecdsa.PrivateKey, statement []byte) ([]byte, error) {
	e := envelope{PayloadType: statementType, Payload: base64.StdEncoding.EncodeToString(statement), Signatures: []signature{}}
	if key != nil {
		s, err := sign(key, encoded(statementType, statement))
		if err != nil {
			return nil, err
		}
		id, err := keyID(&key.PublicKey)
		if err != nil {
			return nil, err
		}
		e.Signatures = append(e.Signatures, signature{id, s})
	}
	text, err := json.Marshal(e)
	return append(text, '\n'), err
}

// keyID is the SHA-256 of a public key in DER.
func keyID(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return fmt.Sprintf("%x", sha256.Sum256(der)), err
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
