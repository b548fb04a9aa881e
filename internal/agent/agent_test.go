package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
)

// running starts an agent, and gives what ends it.
func running(t *testing.T, o Options) (i Info, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan Info, 1), make(chan error, 1)
	o.Ready = func(i Info) { ready <- i }
	go func() { ended <- Run(ctx, o) }()
	select {
	case i = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return i, func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			return errors.New("it does not stop")
		}
	}
}

// settled waits for goroutines to end that were not there before.
func settled(t *testing.T, before int) {
	t.Helper()
	for range 6000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), before)
}

// An agent serves what it was told to, counts it, and leaves nothing behind; here without its name, which the
// registry has for another engine.
func TestRun(t *testing.T) {
	names := registrytest.NewMemory(0, nil)
	if _, err := names.Client().Publish(t.Context(), registry.Record{Name: "n1", Epoch: registry.NewEpoch(time.Now().Add(time.Minute)), Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7411")}}); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	token := []byte("0123456789abcdef")
	var log bytes.Buffer // read when the agent has ended
	i, stop := running(t, Options{Engine: engine.Options{Name: "n1", Security: engine.Security{Credentials: trust.Secret(token)}, Registry: names.Client(), Logger: slog.New(slog.NewTextHandler(&log, nil))}, HTTP: []string{"127.0.0.1:0"},
		Regions: []Region{{4096, engine.RegionOptions{Name: "bench", Grant: memory.PeerRead | memory.PeerWrite}}, {8192, engine.RegionOptions{Name: "private"}}}})
	if i.Name != "n1" || len(i.Addresses) != 1 || len(i.HTTP) != 1 || len(i.Regions) != 2 || i.Regions[0].Name != "bench" || i.Epoch == 0 || i.Registered {
		t.Errorf("%+v", i)
	}
	e, err := engine.New(t.Context(), engine.Options{Security: engine.Security{Credentials: trust.Secret(token)}})
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
	if err := p.Notify(t.Context(), make([]byte, 64<<10)); err == nil || !strings.Contains(err.Error(), "takes no notifications") {
		t.Errorf("a notification that no one reads: %v", err)
	}
	stranger, err := engine.New(t.Context(), engine.Options{Security: engine.Security{Credentials: trust.Secret([]byte("another token, 1"))}})
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
	for _, want := range []string{`topoctl_engine_registered{name="n1"} 0` + "\n", `topoctl_engine_region_bytes{region="bench",`, "topoctl_engine_served_sessions 1\n", refused} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in: %s", want, metrics)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Errorf("being stopped is an error: %v", err)
	}
	if !strings.Contains(log.String(), "level=INFO msg=stopped sessions_closed=1") {
		t.Errorf("the end is not in the log:\n%s", &log)
	}
	if !strings.Contains(log.String(), "has this engine's name in the registry") {
		t.Errorf("the name is not in the log:\n%s", &log)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	settled(t, before)
}

// What cannot be served is said, and nothing stays open.
func TestRunFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, o := range map[string]Options{
		"address already in use":                  {Engine: engine.Options{Listen: []string{taken.Addr().String()}}},
		"agent: HTTP at " + taken.Addr().String(): {HTTP: []string{"127.0.0.1:0", taken.Addr().String()}},
		`region "twice"`:                          {Regions: []Region{{4096, engine.RegionOptions{Name: "twice"}}, {4096, engine.RegionOptions{Name: "twice"}}}},
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
	var hosts []probe.Host
	var stops []func() error
	for n, o := range []*measure.ServerOptions{{Targets: measure.LoopbackTargets, Limits: measure.Limits{MemoryBytes: 1 << 20}}, {}, nil} {
		name := fmt.Sprintf("n%d", n)
		i, stop := running(t, Options{Engine: engine.Options{Name: name, Security: engine.Security{Credentials: trust.Secret(token)}}, Probe: o})
		hosts, stops = append(hosts, probe.Host{Name: name, Address: i.Addresses[0]}), append(stops, stop)
	}
	f, err := measure.Hosts(t.Context(), measure.HostsOptions{Hosts: hosts, Credentials: trust.Secret(token)})
	if err != nil {
		t.Fatal(err)
	}
	if h := f.Hosts()[2]; !strings.Contains(h.Error, "start it with --serve-probes") {
		t.Errorf("an agent that does not probe: %q", h.Error)
	}
	pair := probe.Pair{ID: "p", Kind: probe.Port, Transport: probe.TCP, From: probe.End{Host: "n0"}, To: probe.End{Host: "n1"}}
	out := f.Round(t.Context(), []probe.Pair{pair}, probe.Spec{LatencySamples: 10, PairTime: 10 * time.Second}, nil)
	if out[0].Err != nil || out[0].Latency == nil {
		t.Errorf("%+v", out[0])
	}
	for _, stop := range stops { // while the controller holds it
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	settled(t, before)
}

// Peers do what the file of grants says, also after it was changed.
func TestGrants(t *testing.T) {
	name := filepath.Join(t.TempDir(), "grants")
	write := func(text string) {
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	write("token:nobody read=*\n* read=bench\n")
	file, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	both := memory.PeerRead | memory.PeerWrite
	i, stop := running(t, Options{Grants: file, reloadEvery: time.Millisecond, Probe: &measure.ServerOptions{},
		Regions: []Region{{4096, engine.RegionOptions{Name: "bench", Grant: both}}, {4096, engine.RegionOptions{Name: "kv", Grant: both}}}})
	e, err := engine.New(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open := func() (*engine.Peer, string, error) {
		p, err := e.Open(t.Context(), i.Addresses[0])
		if err != nil {
			return nil, "", err
		}
		list, err := p.Regions(t.Context())
		var may []string
		for _, r := range list {
			may = append(may, r.Name()+" "+r.Grant().String())
		}
		return p, strings.Join(may, ", "), err
	}
	p, may, err := open()
	if err != nil || may != "bench read" || p.Topology() != nil {
		t.Errorf("%q, %v", may, err)
	}
	if _, err := p.Call(t.Context(), []byte("{}")); err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("a probe: %v", err)
	}
	write("* write=kv\n")
	for until := time.Now().Add(time.Minute); p.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a peer goes on with what it could")
		}
	}
	if _, may, err = open(); err != nil || may != "kv write" {
		t.Errorf("after the change: %q, %v", may, err)
	}
	write("* nothing\n")
	// A peer that opens it at the moment of the change is lost, and may try again.
	refused := func() bool {
		return err != nil && strings.Contains(err.Error(), "not permitted: this engine does not allow anything")
	}
	for until := time.Now().Add(time.Minute); !refused() && time.Now().Before(until); {
		if p, _, err = open(); p != nil {
			_ = p.Close()
		}
	}
	if !refused() {
		t.Errorf("a peer that may do nothing: %v", err)
	}
	if err := errors.Join(stop(), e.Close()); err != nil {
		t.Error(err)
	}
}
