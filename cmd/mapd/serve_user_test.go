package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A person's user is named, since nothing that he writes is mutated; a service account of
// mapd's own needs no word.
func TestSayOwnUser(t *testing.T) {
	for user, want := range map[string]bool{"jane": true, "system:admin": true, "system:serviceaccount:mapd-system:mapd": false} {
		var text bytes.Buffer
		sayOwnUser(slog.New(slog.NewTextHandler(&text, nil)), user)
		said := strings.Contains(text.String(), `level=INFO msg="what this user writes is not mutated, because mapd runs as this user" user=`+slog.StringValue(user).String())
		if said != want {
			t.Errorf("user %q: %q", user, text.String())
		}
	}
}
