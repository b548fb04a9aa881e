package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/shm"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const readWrite = memory.PeerRead | memory.PeerWrite

// permittedBy is a policy by what peers call themselves, which stands for what they prove.
func permittedBy(policy map[string]Permissions) func(trust.PeerID) Permissions {
	return func(id trust.PeerID) Permissions { return policy[id.Claimed] }
}

// lie is a region as the peer's descriptor does not have it, for a peer that knows its ID.
func lie(p *Peer, of *Region, keys map[string]string) *RemoteRegion {
	r := &RemoteRegion{peer: p, t: transport.RemoteRegion{ID: of.r.ID(), Bytes: of.Size(), Grant: mem.PeerRead | mem.PeerWrite}, name: of.Name()}
	r.setKeys(keys)
	return r
}

// Two peers see, and may do, different things, whatever they say that they may do.
func TestPermit(t *testing.T) {
	for _, carrier := range []TransportFactory{TCP(), SHM()} {
		probe := newEngine(t, Options{Transports: []TransportFactory{carrier}})
		t.Run(probe.carrierNames(), func(t *testing.T) { testPermit(t, carrier) })
	}
}

func testPermit(t *testing.T, carrier TransportFactory) {
	checkLeaks(t)
	list := []TransportFactory{carrier, TCP()}
	if probe := newEngine(t, Options{Transports: list[:1]}); probe.carriers[0].name == "tcp" {
		list = list[:1]
	}
	ctx := testContext(t)
	server := newEngine(t, Options{Name: "server", Transports: list, Ports: Ports{Topology: fixturetest.Topology(t, "cpu-2eth")},
		Serve: Serve{Answer: func(context.Context, trust.PeerID, []byte) ([]byte, error) { return []byte("answer"), nil }},
		Security: Security{Permit: permittedBy(map[string]Permissions{
			"reader": {Regions: []RegionPermission{{"kv-*", memory.PeerRead}}},
			"writer": {Regions: []RegionPermission{{"*", memory.PeerRead}, {"kv-[0-9]", memory.PeerWrite}}, Topology: true, Calls: true},
			"looker": {Topology: true},
		})}})
	regions := map[string]*Region{}
	add := func(name string, grant memory.Grant) {
		r, err := server.Alloc(1<<16, RegionOptions{Name: name, Grant: grant})
		must(t, err)
		copy(r.Bytes(), name)
		regions[name] = r
	}
	add("kv-1", readWrite)
	add("kv-once", memory.PeerRead)
	add("other", readWrite)
	add("private", memory.None)
	open := func(name string) (*Peer, *Region) {
		e := newEngine(t, Options{Name: name, Transports: list})
		mine, err := e.Alloc(1<<16, RegionOptions{Name: "mine"})
		must(t, err)
		p, err := e.Open(ctx, server.Addrs()[0].String())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return p, mine
	}
	sees := func(p *Peer, want string) {
		t.Helper()
		list, err := p.Regions(ctx)
		must(t, err)
		var got []string
		for _, r := range list {
			got = append(got, fmt.Sprintf("%s %s", r.Name(), r.Grant()))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s sees %q, want %q", p.engine.Name(), got, want)
		}
	}
	reader, mineR := open("reader")
	writer, mineW := open("writer")
	sees(reader, "kv-1 read, kv-once read")
	sees(writer, "kv-1 read and write, kv-once read, other read")
	if reader.Topology() != nil || writer.Topology() == nil {
		t.Errorf("topologies: %v, %v", reader.Topology() != nil, writer.Topology() != nil)
	}
	if answer, err := writer.Call(ctx, nil); err != nil || string(answer) != "answer" {
		t.Errorf("a call that is permitted: %q, %v", answer, err)
	}
	for what, err := range map[string]error{"call": errOf(reader.Call(ctx, nil)), "notification": reader.Notify(ctx, []byte("x"))} {
		if err == nil || !strings.Contains(err.Error(), "not permitted: this engine does not allow calls of its application") {
			t.Errorf("a %s that is not permitted: %v", what, err)
		}
	}
	// What is permitted works.
	try := func(p *Peer, kind OpKind, mine *Region, there *RemoteRegion) error {
		op := WriteOp(mine.Span(0, 5000), there.At(1000))
		if kind == Read {
			op = ReadOp(mine.Span(0, 5000), there.At(1000))
		}
		b, err := p.Submit(ctx, []Op{op}, SubmitOptions{})
		if err == nil {
			err = b.Wait(ctx)
		}
		return err
	}
	named := func(p *Peer, name string) *RemoteRegion {
		r, err := p.Region(ctx, name)
		must(t, err)
		return r
	}
	for i := range mineW.Bytes() {
		mineW.Bytes()[i] = 'w'
	}
	if err := try(writer, Write, mineW, named(writer, "kv-1")); err != nil {
		t.Errorf("writer: %v", err)
	}
	if err := try(reader, Read, mineR, named(reader, "kv-1")); err != nil || !bytes.Equal(mineR.Bytes()[:5000], mineW.Bytes()[:5000]) {
		t.Errorf("reader: %v", err)
	}
	if err := try(reader, Read, mineR, named(reader, "kv-once")); err != nil {
		t.Errorf("reader: %v", err)
	}
	// What is not is refused where the memory is.
	for i := range mineR.Bytes() {
		mineR.Bytes()[i] = 'r'
	}
	before := map[string][]byte{}
	for name, r := range regions {
		before[name] = bytes.Clone(r.Bytes())
	}
	for _, x := range []struct {
		p    *Peer
		mine *Region
		kind OpKind
		name string
		why  error
	}{
		{reader, mineR, Write, "kv-1", ErrDenied}, {reader, mineR, Write, "kv-once", ErrDenied},
		{reader, mineR, Write, "other", ErrNoRegion}, {reader, mineR, Read, "other", ErrNoRegion},
		{reader, mineR, Read, "private", ErrNoRegion}, {writer, mineW, Write, "other", ErrDenied},
		{writer, mineW, Write, "kv-once", ErrDenied}, {writer, mineW, Write, "private", ErrNoRegion},
	} {
		for _, keys := range []map[string]string{nil, {"shm": shm.Mapped}} {
			err := try(x.p, x.kind, x.mine, lie(x.p, regions[x.name], keys))
			if err == nil || !errors.Is(err, transport.ErrRefused) || !errors.Is(err, x.why) && keys == nil {
				t.Errorf("%s: %v of %s (%v): %v", x.p.engine.Name(), x.kind, x.name, keys, err)
			}
		}
	}
	for name, r := range regions {
		if !bytes.Equal(before[name], r.Bytes()) {
			t.Errorf("region %q was written", name)
		}
	}
	// A peer that may use no region gets no connection, and one that may do nothing no answer.
	looker, _ := open("looker")
	sees(looker, "")
	if _, err := looker.session.Call(ctx, methodAccept, acceptBody(server.carriers[0].name, 1, nil)); err == nil || !strings.Contains(err.Error(), "does not allow data connections") {
		t.Errorf("a peer that may use no region: %v", err)
	}
	unnamed := newEngine(t, Options{Name: "unnamed", Transports: list})
	if _, err := unnamed.Open(ctx, server.Addrs()[0].String()); err == nil || !strings.Contains(err.Error(), "not permitted: this engine does not allow anything to a peer without a proven name") {
		t.Errorf("a peer that may do nothing: %v", err)
	}
	// Changes are told to the peers that may know of them.
	add("kv-2", readWrite)
	add("more", readWrite)
	told := func(p *Peer) int { // without asking
		p.mu.RLock()
		defer p.mu.RUnlock()
		return len(p.ordered)
	}
	for deadline := time.Now().Add(within); told(reader) != 3 || told(writer) != 5; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d and %d regions are told", told(reader), told(writer))
		}
	}
	sees(reader, "kv-1 read, kv-once read, kv-2 read")
	sees(writer, "kv-1 read and write, kv-once read, other read, kv-2 read and write, more read")
	sees(looker, "")
}

// Other permissions end the sessions, and with them the connections, of the peers that have them, and of
// no others.
func TestRecheckPermissions(t *testing.T) {
	checkLeaks(t)
	ctx := testContext(t)
	var policy atomic.Pointer[map[string]Permissions]
	both := []RegionPermission{{"*", readWrite}}
	policy.Store(&map[string]Permissions{"a": {Regions: both}, "b": {Regions: both}})
	server := newEngine(t, Options{Name: "server", Security: Security{Permit: func(id trust.PeerID) Permissions { return (*policy.Load())[id.Claimed] }}})
	kv, err := server.Alloc(4096, RegionOptions{Name: "kv", Grant: readWrite})
	must(t, err)
	open := func(e *Engine) *RemoteRegion {
		t.Helper()
		p, err := e.Open(ctx, server.Addrs()[0].String())
		must(t, err)
		r, err := p.Region(ctx, "kv")
		must(t, err)
		return r
	}
	a, b := newEngine(t, Options{Name: "a"}), newEngine(t, Options{Name: "b"})
	toA, toB := open(a), open(b)
	for _, r := range []*RemoteRegion{toA, toB} {
		must(t, errOf(r.WriteAt([]byte("before"), 0)))
	}
	server.RecheckPermissions() // nothing has
	if server.Stats().Sessions != 2 || server.Stats().ServedConns != 2 {
		t.Errorf("%+v", server.Stats())
	}
	policy.Store(&map[string]Permissions{"a": {Regions: []RegionPermission{{"*", memory.PeerRead}}}, "b": {Regions: both}})
	server.RecheckPermissions()
	if server.Stats().Sessions != 1 || server.Stats().ServedConns != 1 {
		t.Errorf("%+v", server.Stats())
	}
	if _, err := toA.WriteAt([]byte("after "), 0); err == nil || string(kv.Bytes()[:6]) != "before" {
		t.Errorf("a peer that may not write any more: %v, %q", err, kv.Bytes()[:6])
	}
	if _, err := toB.WriteAt([]byte("b"), 100); err != nil {
		t.Errorf("a peer whose permissions are the same: %v", err)
	}
	if again := open(a); again.Grant() != memory.PeerRead {
		t.Errorf("opened again, it may %s", again.Grant())
	}
	if n := len(server.permits.all); n != 2 {
		t.Errorf("%d decisions are kept", n)
	}
}

// What a peer has proven decides, and not what it calls itself.
func TestPermitByToken(t *testing.T) {
	checkLeaks(t)
	ctx := testContext(t)
	token := func(name string) trust.Token {
		return trust.Token{Name: name, Secret: []byte(name + ": a secret of this name")}
	}
	has := func(tokens ...trust.Token) func() *trust.Credentials {
		return func() *trust.Credentials { return &trust.Credentials{Tokens: tokens} }
	}
	server := newEngine(t, Options{Security: Security{Credentials: has(token("reader"), token("writer")), Permit: func(id trust.PeerID) Permissions {
		grants := map[string]memory.Grant{"reader": memory.PeerRead, "writer": readWrite}
		return Permissions{Regions: []RegionPermission{{"*", grants[id.Token]}}}
	}}})
	must(t, errOf(server.Alloc(4096, RegionOptions{Name: "kv", Grant: readWrite})))
	for name, want := range map[string]memory.Grant{"reader": memory.PeerRead, "writer": readWrite} {
		p, err := newEngine(t, Options{Name: "writer", Security: Security{Credentials: has(token(name))}}).Open(ctx, server.Addrs()[0].String())
		must(t, err)
		there, err := p.Region(ctx, "kv")
		must(t, err)
		if there.Grant() != want {
			t.Errorf("%s may %s", name, there.Grant())
		}
		if _, err := there.WriteAt([]byte("x"), 0); (err == nil) != (want == readWrite) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
