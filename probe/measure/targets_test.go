package measure

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
)

func TestTargets(t *testing.T) {
	all, err := ParseTargets([]string{"10.1.0.0/16", "10.2.0.1", "10.3.0.1:7411", "[2001:db8::1]:7", "fd00::/8", "localhost:9"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"10.1.2.3:1": true, "10.2.0.1:65535": true, "10.3.0.1:7411": true, "[2001:db8::1]:7": true, "[fd12::1]:1": true, "127.0.0.1:9": true,
		"[::ffff:10.1.2.3]:1": true, "[fd12::1%eth0]:1": true,
		"10.2.0.2:1": false, "10.3.0.1:22": false, "[2001:db8::1]:8": false, "127.0.0.1:10": false, "localhost:9": false, "node2:7411": false, "10.1.2.3": false, "": false,
	} {
		if err := all.allows(t.Context(), address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/33", "node 2", "10.0.0.1:0", "10.0.0.1:x", "http://x/"} {
		if _, err := ParseTargets([]string{bad}); err == nil {
			t.Errorf("%q is a target", bad)
		}
	}
	var own Targets // loopback is not one of this host's networks
	if err := own.allows(t.Context(), "127.0.0.1:22"); err == nil || !strings.Contains(err.Error(), "--probe-targets") {
		t.Errorf("loopback: %v", err)
	}
	none, err := ParseTargets(nil)
	if err != nil || none.allows(t.Context(), "10.0.0.1:1") == nil {
		t.Errorf("an empty list allows something: %v", err)
	}
}

// An agent connects to its targets only, whatever a controller says.
func TestAgentConnectsToTargetsOnly(t *testing.T) {
	checkLeaks(t)
	stranger, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan bool)
	go func() {
		c, err := stranger.Accept()
		if err == nil {
			c.Close()
		}
		reached <- err == nil
	}()
	nets, err := ParseTargets([]string{"127.0.0.1/32"})
	if err != nil {
		t.Fatal(err)
	}
	a := agentOf(t, "a", ServerOptions{Targets: nets}, nil, nil)
	w := job{s: a.s, e: a.e, targets: []Targets{AnyTargets, nets}, want: jobWant{Transport: "tcp", Bytes: 4096, Host: "x", Addresses: []string{stranger.Addr().String()}, GiveUp: time.Second}}
	if err := w.connect(limited(t)); err == nil || !strings.Contains(err.Error(), "is not among the targets") {
		t.Errorf("%v", err)
	}
	w.close()
	stranger.Close()
	if <-reached {
		t.Error("the agent connected to an address that is no target")
	}
}

// Controllers measure as their permissions say.
func TestControllersAreNarrowed(t *testing.T) {
	s := NewServer(ServerOptions{Targets: AnyTargets, TargetsOf: func(id trust.PeerID) (Targets, bool) {
		return LoopbackTargets, id.Token == "ops"
	}})
	e, err := engine.New(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.Serve(e)
	defer s.Close()
	for do, want := range map[string]bool{doDescribe: false, doLease: false, doPrepare: false, doCPU: true} {
		data, err := encodeRequest(&request{Do: do, Lease: "0123456789abcdef"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Answer(t.Context(), trust.PeerID{Token: "kv", Claimed: "ops"}, data); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "--grants") {
			t.Errorf("%s by another: %v", do, err)
		}
		if do == doPrepare {
			continue
		}
		if _, err := s.Answer(t.Context(), trust.PeerID{Token: "ops"}, data); err != nil {
			t.Errorf("%s: %v", do, err)
		}
	}
}
