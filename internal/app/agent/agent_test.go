package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/app/probe/fabric"
	"github.com/topoctl/topoctl/probe"
)

// An agent serves what it was told to, counts it, and leaves nothing behind.
func TestRun(t *testing.T) {
	before := runtime.NumGoroutine()
	token := []byte("0123456789abcdef")
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan Info, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Engine: engine.Options{Name: "n1", Token: token}, HTTP: []string{"127.0.0.1:0"}, Ready: func(i Info) { ready <- i },
			Regions: []Region{{4096, engine.RegionOptions{Name: "bench", Grant: memory.PeerRead | memory.PeerWrite}}, {8192, engine.RegionOptions{Name: "private"}}}})
	}()
	var i Info
	select {
	case i = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if i.Name != "n1" || len(i.Addresses) != 1 || len(i.HTTP) != 1 || len(i.Regions) != 2 || i.Regions[0].Name != "bench" || i.Epoch == 0 {
		t.Errorf("%+v", i)
	}
	e, err := engine.New(t.Context(), engine.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Open(t.Context(), i.Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	to, err := p.Region(t.Context(), "bench")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.WriteAt([]byte("hello"), 7); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := to.ReadAt(got, 7); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	stranger, err := engine.New(t.Context(), engine.Options{Token: []byte("another token, 1")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Open(t.Context(), i.Addresses[0]); err == nil {
		t.Error("let in without the token")
	}
	if err := stranger.Close(); err != nil {
		t.Error(err)
	}
	var metrics string
	refused := `topoctl_engine_refused_connections_total{reason="wrong_token"} 1` + "\n"
	for until := time.Now().Add(30 * time.Second); !strings.Contains(metrics, refused) && time.Now().Before(until); { // it is counted when it has been sent
		resp, err := http.Get("http://" + i.HTTP[0] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		metrics = string(text)
	}
	for _, want := range []string{`topoctl_engine_region_bytes{region="bench",`, "topoctl_engine_served_sessions 1\n", refused} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in: %s", want, metrics)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("being stopped is an error: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not stop")
	}
	for range 500 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), before)
}

// What cannot be served is said, and nothing stays open.
func TestRunFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, o := range map[string]Options{
		"address already in use": {Engine: engine.Options{Listen: []string{taken.Addr().String()}}},
		"agent: HTTP at":         {HTTP: []string{taken.Addr().String()}},
		`region "twice"`:         {Regions: []Region{{4096, engine.RegionOptions{Name: "twice"}}, {4096, engine.RegionOptions{Name: "twice"}}}},
	} {
		o.Ready = func(Info) { t.Errorf("%s: ready", want) }
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Run(ctx, Options{}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("stopped before it began: %v", err)
	}
}

// An agent lets a controller measure where it was told to, and does not where it was not.
func TestProbe(t *testing.T) {
	before := runtime.NumGoroutine()
	token := []byte("0123456789abcdef")
	ctx, stop := context.WithCancel(t.Context())
	var hosts []probe.Host
	ended := make(chan error, 3)
	for _, o := range []*fabric.ServerOptions{{Limits: fabric.Limits{MemoryBytes: 1 << 20}}, {}, nil} {
		ready := make(chan Info, 1)
		name := fmt.Sprintf("n%d", len(hosts))
		go func() {
			ended <- Run(ctx, Options{Engine: engine.Options{Name: name, Token: token}, Probe: o, Ready: func(i Info) { ready <- i }})
		}()
		select {
		case i := <-ready:
			hosts = append(hosts, probe.Host{Name: name, Address: i.Addresses[0]})
		case err := <-ended:
			t.Fatal(err)
		}
	}
	f, err := fabric.Open(t.Context(), fabric.Options{Hosts: hosts, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if h := f.Hosts()[2]; !strings.Contains(h.Error, "answers no calls") {
		t.Errorf("an agent that does not probe: %q", h.Error)
	}
	pair := probe.Pair{ID: "p", Kind: probe.Port, Transport: probe.TCP, From: probe.End{Host: "n0"}, To: probe.End{Host: "n1"}}
	out := f.Round(t.Context(), []probe.Pair{pair}, probe.Spec{LatencySamples: 10, PairTime: 10 * time.Second}, nil)
	if out[0].Err != nil || out[0].Latency == nil {
		t.Errorf("%+v", out[0])
	}
	stop() // while the controller holds it
	for range hosts {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it does not stop")
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for range 500 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), before)
}
