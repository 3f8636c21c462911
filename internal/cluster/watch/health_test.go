package watch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/test/fakeapi"
)

// A replica that is cut off says since when, what it no longer reads and why, and stops
// saying so once it reads again.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse, cut atomic.Bool
		server := &fakeapi.Server{Intercept: func(fakeapi.Request) (map[string]any, error) {
			if refuse.Load() {
				return nil, apierrors.NewForbidden(things.GroupResource(), "", errors.New("no right"))
			}
			return nil, nil
		}}
		h := NewHealth()
		config := server.Config()
		config.Wrap(h.Transport)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if cut.Load() {
					return nil, errors.New("no route to host")
				}
				return next.RoundTrip(r)
			})
		})
		inner, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		client := &Client{Interface: inner, Health: h}
		ctx, stop := context.WithCancel(t.Context())
		refuse.Store(true)
		begin := time.Now()
		m := New(Options[string]{Client: client, Resource: things, Keep: keepName})
		go m.Run(ctx)
		check := func(when string, connected map[string]bool, want string) {
			t.Helper()
			synctest.Wait()
			if got := h.Connected(); !reflect.DeepEqual(got, connected) {
				t.Errorf("%s: Connected() = %v, want %v", when, got, connected)
			}
			if got := errString(h.Check()); got != want {
				t.Errorf("%s: Check() = %q, want %q", when, got, want)
			}
		}
		const name = "things.example.com"
		no, yes := map[string]bool{name: false}, map[string]bool{name: true}
		check("refused", no, name+": not read since "+stamp(begin)+`: things.example.com is forbidden: no right`)
		refuse.Store(false)
		time.Sleep(MaxRefusedRetry)
		check("read", yes, "")
		answered := h.LastContact()
		cut.Store(true)
		time.Sleep(silence)
		check("nothing is asked", yes, "the API server has not answered since "+stamp(answered))
		if _, err := client.Resource(things).List(ctx, metav1.ListOptions{}); err == nil {
			t.Fatal("a call went through the cut")
		}
		other := New(Options[string]{Client: client, Resource: things, Selection: Named("", "one"), Keep: keepName})
		cutAt := time.Now()
		go other.Run(ctx)
		synctest.Wait()
		time.Sleep(time.Minute)
		check("cut off", no, "the API server has not answered since "+stamp(answered)+"\n"+
			name+": not read since "+stamp(cutAt)+`: Get "http://fake/apis/example.com/v1/things?fieldSelector=metadata.name%3Done&limit=500&resourceVersion=0": no route to host`)
		cut.Store(false)
		time.Sleep(2 * maxRetry)
		check("again", yes, "")
		stop()
		check("stopped", map[string]bool{}, "")
	})
}

// Nothing counts as read while connections break, for which client-go makes up a watch that
// ends at once.
func TestHealthOfBrokenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		h := NewHealth()
		config := (&fakeapi.Server{}).Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if cut.Load() {
					return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
				}
				return next.RoundTrip(r)
			})
		})
		inner, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		cut.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		go New(Options[string]{Client: &Client{Interface: inner, Health: h}, Resource: things, Keep: keepName}).Run(ctx)
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if h.Connected()["things.example.com"] {
				t.Fatal("nothing can be read, and all is well")
			}
		}
		cut.Store(false)
		time.Sleep(2 * maxRetry)
		synctest.Wait()
		if !h.Connected()["things.example.com"] {
			t.Error(h.Check())
		}
		stop()
	})
}

// Many resources are not all named.
func TestHealthIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth()
		want := ""
		for i := range maxUnread + 2 {
			name := string(rune('a' + i))
			h.begin(name)
			h.begin(name).note(nil) // another part of it is read
			if i < maxUnread {
				want += name + ": not read since " + stamp(time.Now()) + "\n"
			}
		}
		if got := errString(h.Check()); got != want+"and 2 more" {
			t.Errorf("Check() = %q", got)
		}
		if h.Connected()["a"] {
			t.Error("a resource of which a part is not read counts as connected")
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
