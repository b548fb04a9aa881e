package enginetest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/enginetest"
	"github.com/topoctl/topoctl/engine/memory"
)

// start makes an engine of the network, at port 7411 where it is the server, with a region.
func start(t *testing.T, n *enginetest.Network, name string) (*engine.Engine, *engine.Region) {
	t.Helper()
	var r *engine.Region
	o := engine.Options{Name: name, Transports: []engine.TransportFactory{n.Transport(enginetest.Options{BytesPerSec: 1 << 20})}}
	if name == "server" {
		o.Listen = []string{"127.0.0.1:7411"}
	}
	o.Serve.Prepare = func(e *engine.Engine) (err error) {
		r, err = e.Alloc(1<<20, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
		return err
	}
	e, err := engine.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return e, r
}

// TestNetwork: a program's waits of minutes are over in no time, and last as long as they say.
func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := enginetest.NewNetwork()
		server, theirs := start(t, n, "server")
		client, mine := start(t, n, "client")
		defer client.Close()
		to := client.Target("127.0.0.1:7411")
		push := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			p, err := to.Peer(ctx)
			if err != nil {
				return err
			}
			kv, err := p.Region(ctx, "kv")
			if err != nil {
				return err
			}
			return p.Write(ctx, mine.All(), kv.At(0))
		}
		took := func(what string, least, most time.Duration, do func()) {
			t.Helper()
			began := time.Now()
			do()
			if d := time.Since(began); d < least || d > most {
				t.Errorf("%s: %s, want %s to %s", what, d, least, most)
			}
		}
		fill(mine.Bytes(), 1)
		took("1 MiB at 1 MiB/s", time.Second, 1100*time.Millisecond, func() {
			if err := push(time.Minute); err != nil || !bytes.Equal(theirs.Bytes(), mine.Bytes()) {
				t.Error(err)
			}
		})

		n.Silence("server")
		took("a peer that is silent for less than GiveUp", 5*time.Second, 8*time.Second, func() {
			time.AfterFunc(5*time.Second, func() { n.Resume("server") })
			if err := push(time.Minute); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second) // the peer is heard again
		n.Silence("server")
		took("a peer that stays silent for GiveUp", 9*time.Second, 11*time.Second, func() {
			if err := push(time.Minute); !errors.Is(err, engine.ErrPeerLost) {
				t.Error(err)
			}
		})

		n.Kill("server")
		if err := push(time.Second); err == nil {
			t.Error("a peer that was killed took bytes")
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		server, theirs = start(t, n, "server")
		defer server.Close()
		fill(mine.Bytes(), 2)
		if err := push(time.Hour); err != nil || !bytes.Equal(theirs.Bytes(), mine.Bytes()) {
			t.Error(err)
		}
	})
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with + byte(i*i)
	}
}

// TestReply: what a peer has sent is answered over its own connection.
func TestReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := enginetest.NewNetwork()
		server, _ := start(t, n, "server")
		defer server.Close()
		client, err := engine.New(t.Context(), engine.Options{Name: "client", Transports: []engine.TransportFactory{n.Transport(enginetest.Options{})}, Limits: engine.Limits{Notifications: 1}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := client.Open(t.Context(), "127.0.0.1:7411")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Notify(t.Context(), []byte("page 7")); err != nil {
			t.Fatal(err)
		}
		got := <-server.Notifications()
		if err := got.Reply(t.Context(), []byte("page 7 is free")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := got.Reply(ctx, nil); !errors.Is(err, engine.ErrLimit) {
			t.Errorf("the sender's queue is full: %v", err)
		}
		if answer := <-client.Notifications(); string(answer.Payload) != "page 7 is free" || answer.From.Claimed != "server" {
			t.Errorf("%q from %q", answer.Payload, answer.From.Claimed)
		}
		if err := got.Reply(t.Context(), make([]byte, 1<<20+1)); !errors.Is(err, engine.ErrLimit) {
			t.Errorf("more than 1 MiB: %v", err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := got.Reply(t.Context(), nil); !errors.Is(err, engine.ErrPeerLost) {
			t.Errorf("the sender is gone: %v", err)
		}
		if err := (&engine.Notification{}).Reply(t.Context(), nil); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("nobody has sent it: %v", err)
		}
	})
}
