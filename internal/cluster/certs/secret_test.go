package certs

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

// stored is what a Secret holds for s.
func stored(t *testing.T, s state) map[string][]byte {
	t.Helper()
	data, err := s.data()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParse(t *testing.T) {
	whole, _, _ := mustStep(t, state{}, start, nil, years)
	other, _, _ := mustStep(t, state{}, start, nil, years)
	next := years
	next.rotate = "1"
	rotating, _, _ := mustStep(t, whole, start, whole.bundle, next)
	leafIsCA := stored(t, whole)
	leafIsCA[keyCACert], leafIsCA[keyCAKey] = leafIsCA[keyLeafCert], leafIsCA[keyLeafKey]
	tests := map[string]struct {
		data map[string][]byte
		edit func(map[string][]byte)
		want string
	}{
		"as written":        {data: stored(t, whole)},
		"during a rotation": {data: stored(t, rotating)},
		"nothing":           {want: "tls.crt is missing; tls.key is missing; ca.crt is missing; ca.Key is missing; ca-bundle.crt is missing"},
		"a key cut short":   {data: stored(t, whole), edit: func(d map[string][]byte) { d[keyCAKey] = d[keyCAKey][:100] }, want: "ca.Key holds no key"},
		"text for a key":    {data: stored(t, whole), edit: func(d map[string][]byte) { d[keyLeafKey] = []byte("hunter2") }, want: "tls.key holds no key"},
		"a key of another":  {data: stored(t, whole), edit: func(d map[string][]byte) { d[keyLeafKey] = stored(t, other)[keyLeafKey] }, want: "tls.key is not the key of the certificate beside it"},
		"a certificate twice": {data: stored(t, whole), edit: func(d map[string][]byte) { d[keyCAKey] = d[keyCACert] },
			want: "ca.Key holds something that is not a key in PKCS #8"},
		"half a rotation":          {data: stored(t, rotating), edit: func(d map[string][]byte) { delete(d, keyNextKey) }, want: "ca-next.Key is missing"},
		"a bundle of rubbish":      {data: stored(t, whole), edit: func(d map[string][]byte) { d[keyBundle] = []byte("rubbish") }, want: "ca-bundle.crt holds no certificate"},
		"notes of rubbish":         {data: stored(t, whole), edit: func(d map[string][]byte) { d[keyRotation] = []byte("{") }, want: "rotation.json cannot be read"},
		"an authority that is not": {data: leafIsCA, want: "ca.crt holds a certificate that is no authority"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.edit != nil {
				tt.edit(tt.data)
			}
			s, problems := parse(tt.data)
			if got := strings.Join(problems, "; "); got != tt.want {
				t.Fatalf("parse: %q, want %q", got, tt.want)
			}
			if tt.want == "" {
				if ok, err := s.stored(tt.data); err != nil || !ok {
					t.Errorf("what was parsed is not what is stored: %v", err)
				}
			}
		})
	}
}

// Whatever is in a Secret, messages are made of our own words.
func FuzzParse(f *testing.F) {
	s, _, _, err := step(state{}, start, nil, years)
	if err != nil {
		f.Fatal(err)
	}
	data, err := s.data()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[keyLeafCert], data[keyLeafKey], data[keyBundle], data[keyRotation])
	f.Add(data[keyLeafCert], data[keyCAKey], data[keyLeafKey], []byte(`{"answered":"hunter2"}`))
	f.Add([]byte("hunter2"), []byte("hunter2"), []byte("-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----"), []byte("hunter2"))
	f.Fuzz(func(t *testing.T, cert, key, bundle, notes []byte) {
		in := map[string][]byte{keyLeafCert: cert, keyLeafKey: key, keyCACert: cert, keyCAKey: key, keyNextCert: cert, keyNextKey: key, keyBundle: bundle, keyRotation: notes}
		s, problems := parse(in)
		for _, p := range problems {
			words := p
			for _, ours := range ownKeys {
				words = strings.TrimPrefix(words, ours+" ")
			}
			switch words {
			case "is missing", "holds no certificate", "holds something that is not a certificate", "holds no key", "cannot be read",
				"holds something that is not a key in PKCS #8", "holds a key of another kind than ECDSA",
				"is not the key of the certificate beside it", "holds a certificate that is no authority":
			default:
				t.Errorf("problem %q", p)
			}
		}
		// Whatever it was, a step makes something whole of it.
		s = merge(s, state{}, start)
		s, _, _, err := step(s, start, nil, years)
		if err != nil {
			t.Fatal(err)
		}
		if !usable(s.leaf, start) || !trusted(s.leaf.Cert, s.bundle, start) {
			t.Error("nothing to serve")
		}
	})
}

func secretOf(version string, data map[string][]byte) *secret {
	s := &secret{Data: data}
	s.Name, s.UID, s.ResourceVersion = "tls", "1", version
	return s
}

func TestIssuerFollowsTheSecret(t *testing.T) {
	synctest.Test(t, testIssuerFollowsTheSecret) // for its clock
}

func testIssuerFollowsTheSecret(t *testing.T) {
	start := time.Now()
	var log bytes.Buffer
	m := New(Options{Namespace: "ns", Secret: "tls", Hosts: years.hosts, Log: logTo(&log)})
	changed := m.Changed()
	observe := func(s *secret) { m.secret.Observe(s); m.adopt() }
	if _, err := m.GetCertificate(nil); err == nil || m.Check() == nil || len(m.Bundle()) > 0 {
		t.Fatal("there is a certificate from nowhere")
	}
	serves := func(what string, want state) {
		t.Helper()
		got, err := m.GetCertificate(nil)
		if err != nil || !same(got.Leaf, want.leaf.Cert) {
			t.Errorf("%s: another certificate is served (%v)", what, err)
		}
		if !bytes.Equal(m.Bundle(), servingcert.Encode(want.bundle...)) {
			t.Errorf("%s: another bundle", what)
		}
		if err := m.Check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	heard := func(what string, want bool) {
		t.Helper()
		select {
		case <-changed:
			if !want {
				t.Errorf("%s: told of a change", what)
			}
		default:
			if want {
				t.Errorf("%s: told of nothing", what)
			}
		}
	}

	first, _, _ := mustStep(t, state{}, start, nil, years)
	observe(secretOf("5", stored(t, first)))
	serves("first", first)
	heard("first", true)

	observe(secretOf("6", stored(t, first)))
	heard("the same again", false)

	shorter := years
	shorter.validity /= 2
	renewed, _, _ := mustStep(t, first, start, first.bundle, shorter)
	observe(secretOf("8", stored(t, renewed)))
	serves("renewed", renewed)
	heard("renewed", true)
	observe(secretOf("7", stored(t, first)))
	serves("an older one, late", renewed)

	rubbish := stored(t, renewed)
	rubbish[keyLeafKey], rubbish[keyBundle] = []byte("hunter2"), []byte("hunter2")
	observe(secretOf("9", rubbish))
	serves("rubbish", renewed)
	m.secret.Forget("1")
	m.adopt()
	serves("deleted", renewed)
	heard("damage", false)

	// Authorities that were never announced are accepted only if nobody repairs the Secret.
	other, _, _ := mustStep(t, state{}, start, nil, years)
	replaced := secretOf("12", stored(t, other))
	replaced.UID = "2" // another object under its name
	observe(replaced)
	serves("replaced", renewed)
	m.acceptUnannounced(secretOf("11", nil))
	serves("given in too late", renewed)
	m.acceptUnannounced(replaced)
	serves("given in", other)
	m.stopTimer()
	if strings.Contains(log.String(), "hunter2") || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("log: %s", log.String())
	}
	time.Sleep(91 * day)
	if err := m.Check(); err == nil || err.Error() != "the certificate in Secret ns/tls ended at 2000-03-31T00:00:00Z" {
		t.Errorf("Check after the end: %v", err)
	}
}
