package rdma

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/verbs"
)

func connectRequest() *request {
	return &request{
		kind: askConnect, nonce: 0x1122334455667788, target: "port:mlx5_0/1", generation: 7,
		from:  qpAddr{link: verbs.LinkEthernet, global: true, kind: verbs.GIDRoCEv2, gid: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}, pkey: 0xffff},
		toGID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}, mtu: 4096, readsOut: 16, qps: []qpEnd{{17, 0xffffff}, {18, 0}},
	}
}

func requests() []*request {
	ib := connectRequest()
	ib.from = qpAddr{link: verbs.LinkInfiniBand, lid: 9, pkey: 0x8001}
	return []*request{
		connectRequest(), ib, {kind: askReplace, nonce: 1, slot: 3, qps: []qpEnd{{9, 9}}},
		{kind: askRenew, nonce: 4, qps: []qpEnd{{1, 2}}}, {kind: askArrived, nonce: 2}, {kind: askEnd, nonce: math.MaxUint64},
	}
}

func TestRequests(t *testing.T) {
	for _, q := range requests() {
		b := q.encode()
		back, err := parseRequest(b)
		if err != nil || !reflect.DeepEqual(back, q) {
			t.Errorf("%+v came back as %+v, %v", q, back, err)
		}
		if back, err := parseRequest(append(b, 1, 2, 3)); err != nil || !reflect.DeepEqual(back, q) {
			t.Errorf("with fields of a later version: %+v, %v", back, err)
		}
		for n := range b {
			if _, err := parseRequest(b[:n]); err == nil {
				t.Errorf("kind %d was taken with %d of %d bytes", q.kind, n, len(b))
			}
		}
	}
	if len(connectRequest().encode()) > maxMessage {
		t.Error("a request does not fit")
	}
}

func TestHostileRequests(t *testing.T) {
	for what, change := range map[string]func(*request){
		"a QPN of 25 bits": func(q *request) { q.qps[0].number = 1 << 24 },
		"a PSN of 25 bits": func(q *request) { q.qps[1].psn = 1 << 24 },
		"no queue pairs":   func(q *request) { q.qps = nil },
		"too many":         func(q *request) { q.qps = make([]qpEnd, maxLanePairs+1) },
		"an MTU of 1500":   func(q *request) { q.mtu = 1500 },
		"no READs":         func(q *request) { q.readsOut = 0 },
		"no address":       func(q *request) { q.from.global = false },
		"no LID":           func(q *request) { q.from = qpAddr{link: verbs.LinkInfiniBand} },
		"a link layer":     func(q *request) { q.from.link = 3 },
		"a kind of GID":    func(q *request) { q.from.kind = 9 },
		"a kind":           func(q *request) { q.kind = 9 },
	} {
		q := connectRequest()
		change(q)
		if got, err := parseRequest(q.encode()); err == nil {
			t.Errorf("%s was taken: %+v", what, got)
		}
	}
	two := (&request{kind: askReplace, qps: []qpEnd{{1, 1}, {2, 2}}}).encode()
	if _, err := parseRequest(two); err == nil {
		t.Error("two queue pairs were taken to replace one")
	}
}

func TestAnswers(t *testing.T) {
	q := connectRequest()
	a := &answer{nonce: q.nonce, generation: 3, lid: 4, mtu: 2048, readsIn: 8, qps: []qpEnd{{5, 6}, {7, 8}}}
	b := a.encode()
	if back, err := parseAnswer(append(b, 9), q); err != nil || !reflect.DeepEqual(back, a) {
		t.Errorf("%+v came back as %+v, %v", a, back, err)
	}
	for n := range b {
		if _, err := parseAnswer(b[:n], q); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(b))
		}
	}
	for what, change := range map[string]func(*answer){
		"another request's": func(a *answer) { a.nonce++ },
		"a queue pair more": func(a *answer) { a.qps = append(a.qps, qpEnd{}) },
		"a larger MTU":      func(a *answer) { a.mtu = 8192 },
		"no READs":          func(a *answer) { a.readsIn = 0 },
		"a QPN of 25 bits":  func(a *answer) { a.qps[0].number = 1 << 30 },
		"an impossible MTU": func(a *answer) { a.mtu = 1000 },
	} {
		bad := *a
		bad.qps = append([]qpEnd(nil), a.qps...)
		change(&bad)
		if _, err := parseAnswer(bad.encode(), q); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	lid := *q
	lid.from = qpAddr{link: verbs.LinkInfiniBand, lid: 3}
	a.lid = 0
	if _, err := parseAnswer(a.encode(), &lid); err == nil {
		t.Error("an answer without a LID was taken")
	}
	if _, err := parseAnswer(make([]byte, maxMessage+1), q); err == nil {
		t.Error("a large answer was taken")
	}
}

func FuzzExchange(f *testing.F) {
	for _, q := range requests() {
		f.Add(q.encode())
	}
	f.Add((&answer{nonce: 5, mtu: 1024, readsIn: 3, qps: []qpEnd{{1, 2}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := parseRequest(b); err == nil {
			back, err := parseRequest(q.encode())
			if err != nil || !reflect.DeepEqual(back, q) {
				t.Errorf("%+v came back as %+v, %v", q, back, err)
			}
		}
		for _, q := range requests() {
			a, err := parseAnswer(b, q)
			if err == nil && (len(a.qps) != len(q.qps) || a.nonce != q.nonce) {
				t.Errorf("%+v was taken for the answer to %+v", a, q)
			}
		}
	})
}

func TestKeys(t *testing.T) {
	k := regionKey{bytes: 8 << 20, grant: memory.PeerRead | memory.PeerWrite, devices: []deviceKey{{1, 0xdead, 0x1000}, {0xffffffff, 2, math.MaxUint64 - 8<<20}}}
	if got, want := k.text(), "1 8388608 rw 1:dead:1000 ffffffff:2:ffffffffff7fffff"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	back, err := parseKey(k.text())
	if err != nil || !reflect.DeepEqual(*back, k) {
		t.Errorf("%+v came back as %+v, %v", k, back, err)
	}
	if d := back.of(1); d == nil || d.rkey != 0xdead {
		t.Errorf("the key of device 1 is %+v", d)
	}
	if back.of(5) != nil {
		t.Error("a device that is not there has a key")
	}
	var most regionKey
	most.bytes, most.grant = math.MaxInt64, memory.PeerWrite
	for i := range maxDevices {
		most.devices = append(most.devices, deviceKey{math.MaxUint32 - uint32(i), math.MaxUint32, 1<<63 - 1})
	}
	if n := len(most.text()); n > maxKey {
		t.Errorf("the largest key has %d bytes, want at most %d", n, maxKey)
	}
	for _, s := range []string{
		"", "1", "1 5", "2 5 rw", "1 -5 rw", "1 x rw", "1 5 x", "1 5 rw 1:2", "1 5 rw 1:2:3:4", "1 5 rw 1:2:3 1:4:5",
		"1 5 rw 100000000:2:3", "1 5 rw 1:2:ffffffffffffffff", "1 5 - 1:2:3", "1 5 rw" + strings.Repeat(" ", maxKey),
	} {
		if k, err := parseKey(s); err == nil {
			t.Errorf("%.60q was taken: %+v", s, k)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("1 8388608 rw 1:dead:1000 ffffffff:2:ffffffffff7fffff")
	f.Add("1 0 -")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := parseKey(s)
		if err != nil {
			return
		}
		for _, d := range k.devices {
			if end := d.iova + uint64(k.bytes); end < d.iova {
				t.Errorf("%q: the region leaves the address space", s)
			}
		}
		if len(k.devices) > 0 && k.grant == memory.None {
			t.Errorf("%q grants nothing and has keys", s)
		}
		back, err := parseKey(k.text())
		if err != nil || !reflect.DeepEqual(back, k) {
			t.Errorf("%q: %+v came back as %+v, %v", s, k, back, err)
		}
	})
}
