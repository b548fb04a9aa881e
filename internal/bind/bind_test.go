package bind

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/testkit/childtest"
	"github.com/topoctl/topoctl/testkit/etcdtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// open makes an engine that knows no ports, which is quick.
func open(t testing.TB, options string) *Engine {
	t.Helper()
	e, err := Open(t.Context(), `{"topology":"none"`+options+`}`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// mapped is memory outside Go's heap, as a tensor's is.
func mapped(t testing.TB, size int64) ([]byte, uint64) {
	t.Helper()
	b, err := memory.Alloc(size, memory.Options{Backing: memory.Private})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	})
	return b.Bytes(), addressOf(b.Bytes())
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// at is memory that an engine allocated, by its address.
func at(address uint64, size int) []byte {
	p := uintptr(address)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size)
}

const (
	read  = 0
	write = 1
	both  = 3 // grant
)

// move submits a batch and waits for it.
func run(t testing.TB, e *Engine, x Transfer) {
	t.Helper()
	must(t, ended(e)(e.Submit(x)))
}

// ended is why a batch was not begun, or how it ended.
func ended(e *Engine) func(n int64, err error) error {
	return func(n int64, err error) error {
		if err != nil {
			return err
		}
		return errors.Join(e.Wait([]int64{n}, int64(20*time.Second)), e.Release(n))
	}
}

// result is what a batch of Call or PeerRanges is answered.
func result(e *Engine) func(n int64, err error) ([]byte, error) {
	return func(n int64, err error) ([]byte, error) {
		if err == nil {
			err = e.Wait([]int64{n}, int64(20*time.Second))
		}
		if err != nil {
			return nil, err
		}
		out, err := e.Result(n)
		return out, errors.Join(err, e.Release(n))
	}
}

func probe(e *Engine, peer string, timeout time.Duration) error {
	_, err := result(e)(e.Call(peer, nil, int64(timeout)))
	return err
}

// offered is the first range that a peer offers.
func offered(e *Engine, peer string) (address, length uint64, err error) {
	out, err := result(e)(e.PeerRanges(peer, 0))
	if err != nil || len(out) == 0 {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint64(out), binary.LittleEndian.Uint64(out[8:]), nil
}

// transfer does the same in one call.
func transfer(t testing.TB, e *Engine, x Transfer) {
	t.Helper()
	if n, err := e.Transfer(x, int64(20*time.Second)); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

// Random batches over ranges that touch, with gaps between groups, are held to copies of bytes.
func TestMovesAsBytesDo(t *testing.T) {
	const size, rounds = 1 << 16, 150
	r := rand.New(rand.NewPCG(1, 2))
	a, b := open(t, `,"transports":["tcp"]`), open(t, "")
	mine, here := mapped(t, size)
	theirs, there := mapped(t, size)
	groups := [2][][2]int{cut(t, r, a, here, size), cut(t, r, b, there, size)}
	for i := range theirs {
		mine[i], theirs[i] = byte(i*7), byte(i*13+1)
	}
	for round := range rounds {
		wantMine, wantTheirs := bytes.Clone(mine), bytes.Clone(theirs)
		x := Transfer{Peer: b.Address(), Op: int32(round % 2)}
		var taken [][2]int
		for range 1 + r.IntN(20) {
			g, h := groups[0][r.IntN(len(groups[0]))], groups[1][r.IntN(len(groups[1]))]
			n := r.IntN(1 + min(g[1]-g[0], h[1]-h[0]))
			l, m := g[0]+r.IntN(1+g[1]-g[0]-n), h[0]+r.IntN(1+h[1]-h[0]-n)
			to := [2]int{l, l + n}
			if x.Op == write {
				to = [2]int{m, m + n}
			}
			if slices.ContainsFunc(taken, func(o [2]int) bool { return o[0] < to[1] && to[0] < o[1] }) {
				continue // the result would not be defined
			}
			taken = append(taken, to)
			x.Local, x.Remote, x.Length = append(x.Local, here+uint64(l)), append(x.Remote, there+uint64(m)), append(x.Length, uint64(n))
			if x.Op == write {
				copy(wantTheirs[m:m+n], mine[l:])
			} else {
				copy(wantMine[l:l+n], theirs[m:])
			}
		}
		move := run
		if round/2%2 == 1 {
			move = transfer
		}
		move(t, a, x)
		if !bytes.Equal(mine, wantMine) || !bytes.Equal(theirs, wantTheirs) {
			t.Fatalf("round %d: other bytes than by copying: %+v", round, x)
		}
	}
}

// cut registers memory in ranges of random sizes that touch, with a gap now and then, and gives
// the stretches without a gap.
func cut(t *testing.T, r *rand.Rand, e *Engine, base uint64, size int) (groups [][2]int) {
	t.Helper()
	var addresses, lengths []uint64
	for lo, begin := 0, 0; lo < size; {
		n := min(1+r.IntN(3000), size-lo)
		addresses, lengths = append(addresses, base+uint64(lo)), append(lengths, uint64(n))
		lo += n
		if gap := r.IntN(5) == 0; gap || lo >= size {
			groups = append(groups, [2]int{begin, min(lo, size)})
			lo += 1 + r.IntN(100)
			begin = lo
		}
	}
	half := len(addresses) / 2
	for _, part := range [][2]int{{half, len(addresses)}, {0, half}} {
		if err := e.Register(addresses[part[0]:part[1]], lengths[part[0]:part[1]], "*", both); err != nil {
			t.Fatal(err)
		}
	}
	return groups
}

// What is wrong is refused, with the status that the header promises, and nothing begins.
func TestRefusals(t *testing.T) {
	a, b := open(t, ""), open(t, "")
	_, here := mapped(t, 1<<16)
	_, there := mapped(t, 1<<16)
	must(t, a.Register([]uint64{here}, []uint64{1 << 15}, "", 0))
	must(t, b.Register([]uint64{there, there + 1<<12}, []uint64{1 << 12, 1 << 12}, "cpu:0", 1))
	must(t, b.Register([]uint64{there + 1<<14}, []uint64{1 << 12}, "cpu:0", 2))
	peer := b.Address()
	submit := func(x Transfer) func() error {
		return func() error { return ended(a)(a.Submit(x)) }
	}
	one := func(op int32, local, remote, length uint64) func() error {
		return submit(Transfer{Peer: peer, Op: op, Local: []uint64{local}, Remote: []uint64{remote}, Length: []uint64{length}})
	}
	register := func(location string, grant int32, addresses, lengths []uint64) func() error {
		return func() error { return a.Register(addresses, lengths, location, grant) }
	}
	mine, err := a.List("", 2, []uint64{here, here + 64}, []uint64{64, 64}, 1)
	must(t, err)
	its, err := a.List(peer, 2, []uint64{there, 0, 0, there + 64}, []uint64{64, 0, 0, 32}, 3)
	must(t, err)
	pick := func(p Pick) func() error { return func() error { _, err := a.SubmitLists(p); return err } }
	for name, tt := range map[string]struct {
		call func() error
		want Status
	}{
		"op":                       {one(2, here, there, 1), Invalid},
		"lists of different sizes": {submit(Transfer{Peer: peer, Local: []uint64{here}}), Invalid},
		"timeout":                  {submit(Transfer{Peer: peer, TimeoutNS: -1}), Invalid},
		"range that wraps":         {one(read, here, ^uint64(0)-1, 8), Invalid},
		"length of an error":       {one(read, here, there, 1<<63), Invalid},
		"local, not registered":    {one(read, here+1<<15, there, 1), NoRegion},
		"local, over the end":      {one(read, here+1<<15-4, there, 8), NoRegion},
		"remote, over the end":     {one(read, here, there+1<<13-4, 8), NoRegion},
		"remote, not granted":      {one(write, here, there, 8), NoRegion},
		"remote, not granted, too": {one(read, here, there+1<<14, 8), NoRegion},
		"overlap": {submit(Transfer{Peer: peer, Op: read, Local: []uint64{here, here + 4}, Remote: []uint64{there, there + 64},
			Length: []uint64{8, 8}}), Invalid},
		"no such peer":       {submit(Transfer{Peer: "127.0.0.1:1", Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{1}}), NoPeer},
		"no name of a peer":  {submit(Transfer{Peer: "nobody"}), Invalid},
		"empty name":         {submit(Transfer{}), Invalid},
		"location":           {register("gpu", 0, []uint64{here + 1<<15}, []uint64{1}), Invalid},
		"location, too":      {register("cpu:01", 0, []uint64{here + 1<<15}, []uint64{1}), Invalid},
		"grant":              {register("", 4, []uint64{here + 1<<15}, []uint64{1}), Invalid},
		"nothing":            {register("", 0, []uint64{here + 1<<15}, []uint64{0}), Invalid},
		"not mapped":         {register("", 0, []uint64{4096}, []uint64{1}), Invalid},
		"registered":         {register("", 0, []uint64{here + 1<<14}, []uint64{1}), Exists},
		"twice":              {register("", 0, []uint64{here + 1<<15, here + 1<<15 + 1}, []uint64{2, 1}), Exists},
		"around another":     {register("", 0, []uint64{here - 1}, []uint64{1 << 16}), Exists},
		"one of two wrong":   {register("", 0, []uint64{here + 1<<15, 4096}, []uint64{1, 1}), Invalid},
		"unregister":         {func() error { return a.Unregister([]uint64{here + 1}) }, NoRegion},
		"unregister twice":   {func() error { return a.Unregister([]uint64{here, here}) }, Invalid},
		"free what is not":   {func() error { return a.Free(here) }, Invalid},
		"allocate nothing":   {func() error { _, err := a.Alloc(0, "", 0); return err }, Invalid},
		"allocate on a GPU":  {func() error { _, err := a.Alloc(1, "gpu:0", 0); return err }, Invalid},
		"list of a list":     {pick(Pick{Local: mine, Remote: mine, N: 1}), Invalid},
		"no list":            {pick(Pick{Local: mine, Remote: 1 << 40, N: 1}), NoHandle},
		"index":              {pick(Pick{Local: mine, Remote: its, LocalIndex: []int64{2}, N: 1}), Invalid},
		"index below 0":      {pick(Pick{Local: mine, Remote: its, RemoteIndex: []int64{-1}, N: 1}), Invalid},
		"more than indices":  {pick(Pick{Local: mine, Remote: its, LocalIndex: []int64{0}, N: 2}), Invalid},
		"more than entries":  {pick(Pick{Local: mine, Remote: its, N: 3}), Invalid},
		"different lengths":  {pick(Pick{Local: mine, Remote: its, N: 2}), Invalid},
		"stride":             {func() error { _, err := a.List("", 2, []uint64{1, 2}, []uint64{1, 2}, 2); return err }, Invalid},
		"stride of nothing":  {func() error { _, err := a.List("", 0, nil, nil, 0); return err }, Invalid},
		"list to free":       {func() error { return a.FreeList(1 << 40) }, NoHandle},
		"batch":              {func() error { return a.Release(1 << 40) }, NoHandle},
		"batch to wait for":  {func() error { return a.Wait([]int64{0}, 0) }, NoHandle},
		"another engine's":   {func() error { return b.FreeList(mine) }, NoHandle},
		"metadata":           {func() error { _, err := a.AddPeer([]byte("{}")); return err }, Invalid},
		"metadata, long":     {func() error { _, err := a.AddPeer(make([]byte, maxMetadata+1)); return err }, Invalid},
		"peer to remove":     {func() error { return a.RemovePeer("nobody") }, NoPeer},
		"result of none":     {func() error { _, err := a.Result(1 << 40); return err }, NoHandle},
		"notification, long": {submit(Transfer{Peer: peer, Notify: make([]byte, 1<<20+1)}), Limit},
		"call, long":         {func() error { _, err := a.Call(peer, make([]byte, 1<<20+1), 0); return err }, Limit},
		"call to none":       {func() error { return ended(a)(a.Call(peer, []byte("x"), 0)) }, Refused},
		"answer to none":     {func() error { return a.Answer(1, nil, "") }, NoHandle},
		"event descriptor":   {func() error { return a.CloseEventFD(-1) }, NoHandle},
	} {
		if err := tt.call(); StatusOf(err) != tt.want {
			t.Errorf("%s: %d, %v: want %d", name, StatusOf(err), err, tt.want)
		}
	}
	// What failed has left nothing behind.
	must(t, a.Register([]uint64{here + 1<<15}, []uint64{1 << 15}, "", 0))
	run(t, a, Transfer{Peer: peer, Local: []uint64{here + 1<<15 - 4}, Remote: []uint64{there + 1<<12 - 4}, Length: []uint64{8}})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPagesTellTheirPort(t *testing.T) {
	e, err := Open(t.Context(), `{"http":"127.0.0.1:0","topology":"none"}`)
	must(t, err)
	defer e.Close()
	data, err := e.Document()
	must(t, err)
	var d agent.EngineDocument
	must(t, json.Unmarshal(data, &d))
	if len(d.HTTP) != 1 {
		t.Fatalf("pages at %q, want one address", d.HTTP)
	}
	answer, err := http.Get("http://" + d.HTTP[0] + "/v1/engine")
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the page answers %s", answer.Status)
	}
	// A second engine of the same options takes another port.
	second := open(t, fmt.Sprintf(`,"http":%q`, d.HTTP[0]))
	data, err = second.Document()
	must(t, err)
	var other agent.EngineDocument
	must(t, json.Unmarshal(data, &other))
	if len(other.HTTP) != 1 || other.HTTP[0] == d.HTTP[0] {
		t.Errorf("the second engine's pages are at %q, those of the first at %q", other.HTTP, d.HTTP)
	}
}

// What fails before there is a batch is counted, by reason.
func TestFailuresAreCounted(t *testing.T) {
	here, there := open(t, ""), open(t, "")
	address, err := here.Alloc(4096, "", both)
	must(t, err)
	peer, err := there.Alloc(4096, "", both)
	must(t, err)
	metadata, err := there.Metadata()
	must(t, err)
	name, err := here.AddPeer(metadata)
	must(t, err)
	move := func(local, remote uint64) error {
		return ended(here)(here.Submit(Transfer{Peer: name, Local: []uint64{local}, Remote: []uint64{remote}, Length: []uint64{4096}}))
	}
	must(t, move(address, peer))
	if err := move(address, 1<<40); StatusOf(err) != NoRegion {
		t.Errorf("a range that is not offered: %v", err)
	}
	if err := move(1<<40, peer); StatusOf(err) != NoRegion {
		t.Errorf("a range that is not registered: %v", err)
	}
	must(t, there.Close())
	for range 2 {
		if err := move(address, peer); StatusOf(err) != NoPeer && StatusOf(err) != PeerLost {
			t.Errorf("nobody is there: %v", err)
		}
	}
	f := here.Stats().Failures
	if f.Submits["no_region"] != 2 || f.Opens["unreachable"] == 0 || len(f.Batches) != 0 {
		t.Errorf("counted: %+v", f)
	}
}

func TestListenRange(t *testing.T) {
	first := open(t, "")
	from := first.Port()
	second := open(t, fmt.Sprintf(`,"listen":["127.0.0.1:%d-%d"]`, from, from+20))
	if p := second.Port(); p <= from || p > from+20 {
		t.Errorf("port %d of %d-%d, where the first is taken", p, from, from+20)
	}
	if _, err := Open(t.Context(), fmt.Sprintf(`{"topology":"none","listen":["127.0.0.1:%d-%d"]}`, from, from)); err == nil || !strings.Contains(err.Error(), "all of these ports") {
		t.Errorf("a range that is taken: %v", err)
	}
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	must(t, os.WriteFile(short, []byte("x\n"), 0o600))
	for options, want := range map[string]string{
		`{"nam":"x"}`:           `unknown key "nam"`,
		`{"protection":"much"}`: `protection: "much": want one of ["open" "headers" "payload" "sealed"]`,
		`{"protection":"payload","compat":["mooncake"]}`: `compat and protection "payload"`,
		`{"Name":"x"}`:                    `unknown key "Name"`,
		`{"name":"x","name":"y"}`:         "given twice",
		`{"name":7}`:                      "name: want a string, not a number",
		`{"listen":[7]}`:                  "listen[0]: want a string, not a number",
		`{"insecure":"yes"}`:              "insecure: want true or false, not a string",
		`{"give_up_ns":"1s"}`:             "give_up_ns: want a whole number, not a string",
		`{} x`:                            "line 1",
		`[]`:                              "want an object",
		`{"listen":`:                      "truncated",
		`{"transports":["udp"]}`:          "udp",
		`{"transports":["tcp","tcp"]}`:    "at most once",
		`{"log":"loud"}`:                  "loud",
		`{"give_up_ns":-1}`:               "give_up_ns",
		`{"local_rank":2,"local_size":2}`: "local rank 2 of 2",
		`{"listen":["0.0.0.0:0"],"topology":"none"}`:    "without a token",
		`{"listen":["nohost"],"topology":"none"}`:       "host:port",
		`{"token_file":"` + short + `"}`:                "1 bytes, want 16",
		`{"cert_file":"/nonexistent"}`:                  "no such file",
		`{"cert_file":"x","insecure":true}`:             "insecure",
		`{"token_file":"/nonexistent"}`:                 "no such file",
		`{"token_file":"x","insecure":true}`:            "insecure",
		`{"topology":"/nonexistent"}`:                   "no such file",
		`{"topology":"` + short + `"}`:                  "topology",
		`{"devices":["mlx5_0"],"topology":"none"}`:      "need a topology",
		`{"devices":["no-such-nic"]}`:                   "no-such-nic",
		`{"http":"nohost","topology":"none"}`:           "HTTP",
		`{"listen":["127.0.0.1:9-8"]}`:                  "want a range of ports, first-last",
		`{"registry":"host:7411"}`:                      "registry: \"host:7411\": want etcd://HOST",
		`{"registry":"nosuch://x"}`:                     "registry: nosuch://: only registries in etcd are known",
		`{"registry":"etcd://x?ttl=1s"}`:                "registry: etcd: TTL of 1s: want 5s",
		`{"registry":"etcd://x","compat":["mooncake"]}`: "registry and compat",
		`{"serves":["kv"]}`:                             "serves is for registry",
		strings.Repeat(" ", maxOptions+1):               "at most",

		`{"regions":[{"bytes":1}]}`:                                                       "regions[0]: it has no name",
		`{"regions":[{"name":"kv","size":1}]}`:                                            `regions[0]: size: unknown key "size"`,
		`{"regions":[{"name":"kv","bytes":"1"}]}`:                                         "regions[0]: bytes: want a whole number, not a string",
		`{"topology":"none","regions":[{"name":"kv"}]}`:                                   `region "kv": allocation of 0 bytes`,
		`{"topology":"none","regions":[{"name":"kv","bytes":1,"grant":7}]}`:               `region "kv": grant 7`,
		`{"topology":"none","regions":[{"name":"kv","bytes":1},{"name":"kv","bytes":1}]}`: `region "kv": an open region has that name`,
	} {
		e, err := Open(t.Context(), options)
		if err == nil {
			must(t, e.Close())
		}
		if StatusOf(err) != Invalid || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.80s: %d, %v: want %q", options, StatusOf(err), err, want)
		}
	}
	e := open(t, `,"listen":["0.0.0.0:0"],"insecure":true,"advertise":"127.0.0.1","name":"n1"`)
	if got := e.Address(); got != fmt.Sprint("127.0.0.1:", e.Port()) || e.Name() != "n1" {
		t.Errorf("%s, %s", got, e.Name())
	}
}

// Engines find each other by name in a registry, and addresses are still names. Nothing is left of those that were closed.
func TestRegistry(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	leavesNothing(t, 3, func() {
		e, err := Open(t.Context(), fmt.Sprintf(`{"topology":"none","registry":"%s"}`, c.URL("/t")))
		must(t, err)
		if err := probe(e, "nobody", 0); StatusOf(err) != NoPeer {
			t.Error(err)
		}
		must(t, e.Close())
	})
	a := open(t, fmt.Sprintf(`,"name":"a","registry":"%s"`, c.URL("/t")))
	b := open(t, fmt.Sprintf(`,"name":"b","registry":"%s","serves":["kv"]`, c.URL("/t")))
	_, here := mapped(t, 1<<16)
	theirs, there := mapped(t, 1<<16)
	theirs[0] = 7
	must(t, a.Register([]uint64{here}, []uint64{1 << 16}, "", 0))
	must(t, b.Register([]uint64{there}, []uint64{1 << 16}, "", both))
	run(t, a, Transfer{Peer: "b", Op: write, Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{1 << 16}})
	if theirs[0] != 0 {
		t.Error("nothing was written")
	}
	run(t, a, Transfer{Peer: b.Address(), Op: write, Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{1 << 16}})
	if err := probe(a, "c", 0); StatusOf(err) != NoPeer {
		t.Errorf("one that is not there: %v", err)
	}
	if there, err := a.names.Lookup(t.Context(), "b"); err != nil || !slices.Equal(there.Serves, []string{"kv"}) {
		t.Errorf("%+v, %v", there, err)
	}
}

// A peer that is started again at its address is opened again; what ran fails.
func TestPeerRestarts(t *testing.T) {
	a := open(t, "")
	b, err := Open(t.Context(), `{"topology":"none"}`)
	must(t, err)
	_, here := mapped(t, 1<<16)
	theirs, there := mapped(t, 1<<16)
	must(t, a.Register([]uint64{here}, []uint64{1 << 16}, "", 0))
	must(t, b.Register([]uint64{there}, []uint64{1 << 16}, "", both))
	x := Transfer{Peer: b.Address(), Op: write, Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{1 << 16}}
	run(t, a, x)
	meta, err := b.Metadata()
	must(t, err)
	name, err := a.AddPeer(meta)
	must(t, err)
	must(t, b.Close())
	theirs[0] = 7

	again := open(t, fmt.Sprintf(`,"listen":[%q]`, x.Peer))
	if err := ended(a)(a.Submit(x)); StatusOf(err) != NoRegion { // it is another process, which has registered nothing
		t.Errorf("%v", err)
	}
	must(t, again.Register([]uint64{there}, []uint64{1 << 15}, "", both))
	must(t, again.Register([]uint64{there + 1<<15}, []uint64{1 << 15}, "", both))
	run(t, a, x)
	if theirs[0] != 0 {
		t.Error("nothing was written")
	}
	byName := x
	byName.Peer = name
	if err := ended(a)(a.Submit(byName)); StatusOf(err) != PeerLost {
		t.Errorf("by the metadata of the engine that is gone: %v", err)
	}
	meta, err = again.Metadata()
	must(t, err)
	newName, err := a.AddPeer(bytes.Replace(meta, []byte(again.Name()), []byte(name), 1))
	must(t, err)
	byName.Peer = newName
	run(t, a, byName)
	must(t, a.RemovePeer(newName))
	if err := ended(a)(a.Submit(byName)); StatusOf(err) != NoPeer {
		t.Errorf("after it was removed: %v", err)
	}
}

// Regions with names are there when the engine is; they are found by peers that came before them.
func TestFind(t *testing.T) {
	a := open(t, "")
	mine, here := mapped(t, 1<<16)
	must(t, a.Register([]uint64{here}, []uint64{1 << 16}, "", 0))
	address := childtest.Address(t)
	for round := range byte(3) {
		n, err := a.Find(address, "kv", int64(20*time.Second))
		must(t, err)
		if err := a.Wait([]int64{n}, int64(50*time.Millisecond)); StatusOf(err) != Timeout {
			t.Fatalf("round %d: before the peer is there: %v", round, err)
		}
		b := open(t, fmt.Sprintf(`,"listen":[%q],"regions":[{"name":"kv","bytes":65536},{"name":"own","bytes":1,"grant":0}]`, address))
		out, err := result(a)(n, nil)
		must(t, err)
		there, length, err := b.Region("kv")
		if want := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, there), 1<<16); err != nil || length != 1<<16 || !bytes.Equal(out, want) {
			t.Fatalf("round %d: found %x, want %x: %v", round, out, want, err)
		}
		mine[0] = round + 1
		run(t, a, Transfer{Peer: address, Op: write, Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{1 << 16}})
		if got := at(there, 1)[0]; got != round+1 {
			t.Errorf("round %d: %d was written", round, got)
		}
		for _, name := range []string{"own", "nosuch"} {
			if _, err := result(a)(a.Find(address, name, int64(50*time.Millisecond))); StatusOf(err) != NoRegion {
				t.Errorf("%s: %v", name, err)
			}
		}
		must(t, b.Free(there))
		if _, _, err := b.Region("kv"); StatusOf(err) != NoRegion {
			t.Errorf("after it was freed: %v", err)
		}
		must(t, b.Close())
	}
	if _, err := result(a)(a.Find(address, "kv", int64(50*time.Millisecond))); StatusOf(err) != NoPeer {
		t.Errorf("a peer that does not come: %v", err)
	}
	if _, err := a.Find(address, "", 0); StatusOf(err) != Invalid {
		t.Errorf("no name: %v", err)
	}
}

// The engines of two hosts listen at the same port of an address that both have: metadata leads to the peer, and
// not to the engine that was given it.
func TestMetadataWithAnAddressOfOurs(t *testing.T) {
	a, b := open(t, `,"name":"a"`), open(t, `,"name":"b"`)
	meta, err := b.Metadata()
	must(t, err)
	name, err := a.AddPeer(bytes.Replace(meta, []byte(`"addresses":[`), []byte(`"addresses":["`+a.Address()+`",`), 1))
	must(t, err)
	if err := probe(a, name, time.Minute); err != nil {
		t.Error(err)
	}
	x, err := a.peer(t.Context(), name)
	must(t, err)
	if got := x.p.EngineName(); got != "b" {
		t.Errorf("%q answers", got)
	}
}

// Memory that was registered after the peer was opened is found, and what is gone is refused.
func TestRegionsComeAndGo(t *testing.T) {
	a, b := open(t, ""), open(t, "")
	_, here := mapped(t, 1<<12)
	must(t, a.Register([]uint64{here}, []uint64{1 << 12}, "", 0))
	for range 20 {
		there, err := b.Alloc(1<<12, "*", both)
		must(t, err)
		x := Transfer{Peer: b.Address(), Op: write, Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{1 << 12}}
		run(t, a, x)
		address, length, err := offered(a, b.Address())
		if address != there || length != 1<<12 || err != nil {
			t.Fatalf("%#x, %d, %v", address, length, err)
		}
		must(t, b.Free(there))
		err = ended(a)(a.Submit(x)) // the peer's word that the region is gone may still be on its way
		if StatusOf(err) != NoRegion {
			t.Fatalf("%v", err)
		}
	}
}

// Ranges that touch are one region; given back one by one, the others stay, and what is given back
// is closed to peers.
func TestUnregisterSome(t *testing.T) {
	const size, ranges = 4096, 4
	a, b := open(t, ""), open(t, "")
	_, here := mapped(t, ranges*size)
	theirs, there := mapped(t, ranges*size)
	must(t, a.Register([]uint64{here}, []uint64{ranges * size}, "", 0))
	var addresses, lengths []uint64
	for i := range uint64(ranges) {
		addresses, lengths = append(addresses, there+i*size), append(lengths, size)
	}
	must(t, b.Register(addresses, lengths, "", both))
	if n := len(b.e.Regions()); n != 1 {
		t.Errorf("%d regions", n)
	}
	write := func(from, to int) error {
		err := ended(a)(a.Submit(Transfer{Peer: b.Address(), Op: write, Local: []uint64{here}, Remote: []uint64{there + uint64(from*size)}, Length: []uint64{uint64((to - from) * size)}}))
		return err
	}
	must(t, write(0, ranges))
	must(t, b.Unregister(addresses[1:2]))
	look := func() { // at what is offered now: the peer's word of it may be on its way
		_, _, err := offered(a, b.Address())
		must(t, err)
	}
	look()
	for i := range ranges {
		theirs[i*size] = 7
		if err := write(i, i+1); i == 1 && StatusOf(err) != NoRegion || i != 1 && err != nil {
			t.Errorf("range %d: %v", i, err)
		}
		if gone := theirs[i*size] == 7; gone != (i == 1) {
			t.Errorf("range %d: %d", i, theirs[i*size])
		}
	}
	if err := write(0, 2); StatusOf(err) != NoRegion {
		t.Errorf("over the gap: %v", err)
	}
	must(t, write(2, 4))
	must(t, b.Register(addresses[1:2], lengths[1:2], "", both))
	look()
	must(t, write(0, ranges)) // three regions that touch
	must(t, b.Unregister(addresses))
	if n := len(b.e.Regions()); n != 0 {
		t.Errorf("%d regions", n)
	}
}

// Entries of two lists are picked by index, and both strides are read.
func TestLists(t *testing.T) {
	const entries, bytesEach = 1000, 64
	a, b := open(t, ""), open(t, "")
	mine, here := mapped(t, entries*bytesEach)
	there, err := b.Alloc(entries*bytesEach, "", both)
	must(t, err)
	theirs := at(there, entries*bytesEach)
	must(t, a.Register([]uint64{here}, []uint64{entries * bytesEach}, "", 0))
	var rows []uint64 // address, length, device
	var addresses, lengths []uint64
	for i := range uint64(entries) {
		rows = append(rows, here+i*bytesEach, bytesEach, 0)
		addresses, lengths = append(addresses, there+i*bytesEach), append(lengths, bytesEach)
	}
	local, err := a.List("", entries, rows, rows[1:], 3)
	must(t, err)
	remote, err := a.List(b.Address(), entries, addresses, lengths, 1)
	must(t, err)
	for i := range mine {
		mine[i] = byte(i / bytesEach)
	}
	back := make([]int64, entries)
	for i := range back {
		back[i] = int64(entries - 1 - i)
	}
	n, err := a.SubmitLists(Pick{Op: write, Local: local, Remote: remote, RemoteIndex: back, N: entries})
	must(t, err)
	must(t, errors.Join(a.FreeList(local), a.FreeList(remote), a.Wait([]int64{n}, int64(20*time.Second))))
	for i := range theirs {
		if theirs[i] != byte(entries-1-i/bytesEach) {
			t.Fatalf("byte %d is %d", i, theirs[i])
		}
	}
	tel, err := a.Telemetry(n)
	if err != nil || tel.Ops != entries || tel.Bytes != entries*bytesEach || tel.PostNS <= 0 || tel.PostNS > tel.DurationNS {
		t.Errorf("%+v, %v", tel, err)
	}
	var x engine.Explanation
	data, err := a.Explain(n)
	if err != nil || json.Unmarshal(data, &x) != nil || x.Schema != engine.SchemaExplain || x.Bytes != tel.Bytes {
		t.Errorf("%s, %v", data, err)
	}
	data, err = a.Document()
	if err != nil || !bytes.Contains(data, []byte(`"topoctl.engine/v1"`)) {
		t.Errorf("%s, %v", data, err)
	}
}

// Notifications come in order, after the data, and whole ones only.
func TestNotifications(t *testing.T) {
	a, b := open(t, `,"name":"sender"`), open(t, "")
	run(t, a, Transfer{Peer: b.Address(), Notify: []byte("one")})
	run(t, a, Transfer{Peer: b.Address(), Notify: []byte{}})
	run(t, a, Transfer{Peer: b.Address(), Notify: []byte("three")})
	run(t, a, Transfer{Peer: b.Address()})
	if _, err := b.Notifications(make([]byte, 16)); StatusOf(err) != Limit || !strings.Contains(err.Error(), "33 bytes") {
		t.Errorf("%v", err)
	}
	var got []string
	out := make([]byte, 66)
	for {
		n, err := b.Notifications(out)
		must(t, err)
		if n == 0 {
			break
		}
		if n > 64 {
			t.Errorf("%d bytes, not whole notifications", n)
		}
		for left := out[:n]; len(left) > 0; {
			name, proven, message := binary.LittleEndian.Uint32(left[8:]), binary.LittleEndian.Uint32(left[12:]), binary.LittleEndian.Uint32(left[16:])
			got = append(got, string(left[24:24+name])+" "+string(left[24+name+proven:24+name+proven+message]))
			left = left[24+name+proven+message:]
		}
	}
	if want := []string{"sender one", "sender ", "sender three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A wait that is too short leaves the batch running; released, it ends, and a peer that does not
// answer is no peer.
func TestWaitAndRelease(t *testing.T) {
	const size = 256 << 20
	a, b := open(t, `,"transports":["tcp"]`), open(t, "")
	there, err := b.Alloc(size, "", both)
	must(t, err)
	here, err := a.Alloc(size, "", 0)
	must(t, err)
	x := Transfer{Peer: b.Address(), Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{size}}
	n, err := a.Submit(x)
	must(t, err)
	if err := a.Wait([]int64{n}, 1); StatusOf(err) != Timeout {
		t.Errorf("%v", err)
	}
	if over, err := a.Poll(n); over || err != nil {
		t.Errorf("%v, %v", over, err)
	}
	must(t, a.Release(n))
	if _, err := a.Poll(n); StatusOf(err) != NoHandle {
		t.Errorf("%v", err)
	}
	for _, wait := range []int64{0, 1} {
		n, err = a.Transfer(x, wait)
		if n == 0 || StatusOf(err) != Timeout {
			t.Fatalf("%d bytes in %d ns: batch %d, %v", size, wait, n, err)
		}
		must(t, errors.Join(a.Wait([]int64{n}, int64(20*time.Second)), a.Release(n)))
	}
	transfer(t, a, x)
	if n, err := a.Transfer(x, -1); n != 0 || StatusOf(err) != Invalid {
		t.Errorf("batch %d, %v", n, err)
	}
	if left := a.batches.Len(); left != 0 {
		t.Errorf("%d batches are kept", left)
	}
	x.TimeoutNS = 1
	if n, err := a.Transfer(x, int64(20*time.Second)); n != 0 || StatusOf(err) != Timeout {
		t.Errorf("a batch without time: %d, %v", n, err)
	}
	err = ended(a)(a.Submit(x))
	if StatusOf(err) != Timeout {
		t.Errorf("a batch without time: %v", err)
	}
	must(t, probe(a, b.Address(), 0))
	if err := probe(a, "127.0.0.1:1", 0); StatusOf(err) != NoPeer {
		t.Errorf("%v", err)
	}
	// Closing the engine ends what runs, and those who wait for it.
	n, err = a.Submit(Transfer{Peer: b.Address(), Local: x.Local, Remote: x.Remote, Length: x.Length})
	must(t, err)
	waited := make(chan error)
	go func() { waited <- a.Wait([]int64{n}, int64(20*time.Second)) }()
	for { // the waiter has the batch
		if _, ok := a.batches.Get(n); ok {
			break
		}
	}
	must(t, a.Close())
	if err := <-waited; err != nil && StatusOf(err) != Canceled {
		t.Errorf("%v", err)
	}
	if _, err := a.Transfer(x, 0); StatusOf(err) != Canceled {
		t.Errorf("%v", err)
	}
	if _, err := a.Submit(x); StatusOf(err) != Canceled {
		t.Errorf("%v", err)
	}
}

// Many goroutines that use a peer at once open it once.
func TestOpenedOnce(t *testing.T) {
	const goroutines, rounds, each = 10, 30, 512
	a, b := open(t, ""), open(t, "")
	_, here := mapped(t, goroutines*each)
	there, err := b.Alloc(goroutines*each, "", both)
	must(t, err)
	must(t, a.Register([]uint64{here}, []uint64{goroutines * each}, "", 0))
	var wg sync.WaitGroup
	for g := range uint64(goroutines) {
		wg.Go(func() {
			for range rounds {
				n, err := a.Submit(Transfer{Peer: b.Address(), Op: int32(g % 2), Local: []uint64{here + g*each}, Remote: []uint64{there + g*each}, Length: []uint64{each}})
				if err == nil {
					err = errors.Join(a.Wait([]int64{n}, int64(20*time.Second)), a.Release(n))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := b.e.Stats().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// Engines that were closed leave nothing behind.
func TestOpenAndClose(t *testing.T) {
	count := 100
	if longtest.On() {
		count = 10_000
	}
	once := func() {
		e, err := Open(t.Context(), `{"topology":"none"}`)
		must(t, err)
		_, err = e.Alloc(4096, "", both)
		must(t, errors.Join(err, e.Close()))
	}
	leavesNothing(t, count, once)
}

// leavesNothing fails where goroutines or open files grow with what once does.
func leavesNothing(t *testing.T, count int, once func()) {
	t.Helper()
	once()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for range count {
		once()
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d open files, %d before", now, files)
	}
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("/proc/self/fd is not there: descriptors cannot be counted")
	}
	return len(list)
}

// Ranges that a peer claims may overlap and wrap around: what cannot be is left out.
func TestHostileSpace(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var list []interval[int]
		for i := range 1 + r.IntN(30) {
			lo := r.Uint64N(1000)
			hi := lo + r.Uint64N(100)
			if r.IntN(10) == 0 {
				lo, hi = ^uint64(0)-r.Uint64N(50), r.Uint64N(50)
			}
			list = append(list, interval[int]{lo, hi, i})
		}
		s := newSpace(slices.Clone(list))
		c := cursor[int]{space: s}
		for range 500 {
			a := r.Uint64N(1200)
			x := c.at(a)
			for i := range s {
				if i > 0 && s[i].lo < s[i-1].hi || s[i].lo >= s[i].hi {
					t.Fatalf("%v", s)
				}
				if s[i].lo <= a && a < s[i].hi && x != &s[i] {
					t.Fatalf("%d is in %v, not %v", a, s[i], x)
				}
			}
			if x != nil && (a < x.lo || a >= x.hi) {
				t.Fatalf("%d is not in %v", a, x)
			}
		}
	}
}

// A peer's application answers calls, refuses them, and is asked nothing where it has not said that it answers.
func TestCalls(t *testing.T) {
	a, b := open(t, `,"name":"caller"`), open(t, `,"answer":true`)
	n, err := a.Call(b.Address(), []byte("what is there?"), 0)
	must(t, err)
	other, err := a.Call(b.Address(), []byte("and here?"), 0)
	must(t, err)
	if _, err := a.Result(n); StatusOf(err) != Timeout {
		t.Errorf("before it is answered: %v", err)
	}
	fd, err := b.EventFD()
	must(t, err)
	out := make([]byte, 1<<10)
	asked := map[string]int64{}
	for len(asked) < 2 {
		readable(t, fd)
		size, err := b.Calls(out)
		must(t, err)
		for left := out[:size]; len(left) > 0; {
			name, proven, message := binary.LittleEndian.Uint32(left[8:]), binary.LittleEndian.Uint32(left[12:]), binary.LittleEndian.Uint32(left[16:])
			end := 24 + name + proven + message
			asked[string(left[24:end])] = int64(binary.LittleEndian.Uint64(left))
			left = left[end:]
		}
	}
	must(t, b.Answer(asked["callerwhat is there?"], []byte("a cache"), ""))
	must(t, b.Answer(asked["callerand here?"], nil, "not yours"))
	if got, err := result(a)(n, nil); string(got) != "a cache" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := result(a)(other, nil); StatusOf(err) != Refused || !strings.Contains(err.Error(), "not yours") {
		t.Errorf("%v", err)
	}
	if err := b.Answer(asked["callerand here?"], nil, ""); StatusOf(err) != NoHandle {
		t.Errorf("answered twice: %v", err)
	}
	must(t, b.CloseEventFD(fd))
}

// A descriptor wakes a loop when a batch has ended, whenever it was submitted, when a notification comes, and when
// the engine is closed. All wake at once.
func TestEvents(t *testing.T) {
	a, b := open(t, ""), open(t, `,"answer":true`)
	before, err := a.Call(b.Address(), []byte("x"), 0)
	must(t, err)
	one, err := a.EventFD()
	must(t, err)
	two, err := a.EventFD()
	must(t, err)
	theirs, err := b.EventFD()
	must(t, err)
	readable(t, theirs)
	out := make([]byte, 1<<10)
	for size := 0; size == 0; size, err = b.Calls(out) {
		must(t, err)
	}
	must(t, b.Answer(int64(binary.LittleEndian.Uint64(out)), nil, ""))
	for over := false; !over; over, err = a.Poll(before) {
		must(t, err)
		readable(t, one)
	}
	readable(t, two)
	run(t, a, Transfer{Peer: b.Address(), Notify: []byte("y")})
	readable(t, one)
	for size := 0; size == 0; size, err = b.Notifications(out) {
		must(t, err)
		readable(t, theirs)
	}
	must(t, b.Close())
	readable(t, theirs)
	must(t, unix.Close(int(theirs)))
	must(t, a.CloseEventFD(two))
	if err := a.CloseEventFD(two); StatusOf(err) != NoHandle {
		t.Errorf("closed twice: %v", err)
	}
	must(t, a.CloseEventFD(one))
}

// A notification that peers were told has arrived is there at once, also where a descriptor tells of it: programs rely on
// finding it when they have taken a later call.
func TestNotificationsAreThere(t *testing.T) {
	a, b := open(t, `,"name":"a"`), open(t, "")
	_, err := b.EventFD()
	must(t, err)
	const count, bytes = 40, 24 + 1 + 1
	out := make([]byte, count*bytes)
	for range 20 {
		for range count {
			run(t, a, Transfer{Peer: b.Address(), Notify: []byte("x")})
		}
		if size, err := b.Notifications(out); size != len(out) || err != nil {
			t.Fatalf("%d of %d, %v", size/bytes, count, err)
		}
	}
}

// readable waits for a descriptor, and takes what makes it readable.
func readable(t *testing.T, fd int32) {
	t.Helper()
	if n, err := unix.Poll([]unix.PollFd{{Fd: fd, Events: unix.POLLIN}}, 20_000); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	_, err := unix.Read(int(fd), make([]byte, 8))
	must(t, err)
}

// Of several batches the first that ends ends the wait.
func TestWaitAny(t *testing.T) {
	a, b := open(t, ""), open(t, `,"answer":true`)
	slow, err := a.Call(b.Address(), []byte("nobody answers"), 0)
	must(t, err)
	if err := a.WaitAny([]int64{slow}, 1); StatusOf(err) != Timeout {
		t.Error(err)
	}
	quick, err := a.Submit(Transfer{Peer: b.Address(), Notify: []byte("x")})
	must(t, err)
	must(t, a.WaitAny([]int64{slow, quick}, int64(20*time.Second)))
	if over, err := a.Poll(quick); !over || err != nil {
		t.Errorf("%v, %v", over, err)
	}
	must(t, a.Release(slow))
	if err := a.WaitAny([]int64{slow}, 0); StatusOf(err) != NoHandle {
		t.Error(err)
	}
}

// A peer that accepts and is silent holds no caller up: the batch waits for it, and ends in its time or when it is released.
func TestSilentPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	a := open(t, "")
	_, here := mapped(t, 1<<12)
	must(t, a.Register([]uint64{here}, []uint64{1 << 12}, "", 0))
	x := Transfer{Peer: l.Addr().String(), Op: write, Local: []uint64{here}, Remote: []uint64{1 << 40}, Length: []uint64{1 << 12}}
	n, err := a.Submit(x)
	must(t, err)
	if over, err := a.Poll(n); over || err != nil {
		t.Errorf("%v, %v", over, err)
	}
	must(t, a.Release(n))
	x.TimeoutNS = int64(100 * time.Millisecond)
	if err := ended(a)(a.Submit(x)); StatusOf(err) != NoPeer {
		t.Errorf("%v", err)
	}
	x.Local[0]++ // what this engine knows by itself it says at once
	if _, err := a.Submit(x); StatusOf(err) != NoRegion {
		t.Errorf("%v", err)
	}
}
