package session

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

func someHello() hello {
	return hello{
		min: 2, max: 3, kind: kindControl, token: true, resume: true, features: 5, messageBytes: 6, calls: 7,
		epoch: 8, peerEpoch: 9, session: transport.SessionID{10}, conn: 11, nonce: [nonceSize]byte{12}, name: "ü n1", tokenName: "t",
	}
}

func TestHandshakePackets(t *testing.T) {
	h := someHello()
	if got, err := parseHello(h.encode()); err != nil || got != h {
		t.Errorf("%+v %v", got, err)
	}
	a := answer{min: 1, max: 2, version: 2, status: statusOK, token: true, certificate: true, features: 3, nonce: [nonceSize]byte{4}}
	if got, err := parseAnswer(a.encode()); err != nil || got != a {
		t.Errorf("%+v %v", got, err)
	}
	for _, p := range []proof{{client: [32]byte{1}}, {client: [32]byte{1}, resume: [32]byte{2}, hasResume: true}} {
		if got, err := parseProof(p.encode(), p.hasResume); err != nil || got != p {
			t.Errorf("%+v %v", got, err)
		}
	}
	w := welcome{status: statusLimit, proof: [32]byte{1}, epoch: 2, messageBytes: 3, calls: 4, name: "n"}
	if got, err := parseWelcome(w.encode()); err != nil || got != w {
		t.Errorf("%+v %v", got, err)
	}
}

// TestNewerMinor: fields that a newer peer adds at the end are skipped.
func TestNewerMinor(t *testing.T) {
	h := someHello()
	b := append(h.encode(), "more"...)
	b[helloHead-1] += 4
	if got, err := parseHello(b); err != nil || got != h {
		t.Errorf("%+v %v", got, err)
	}
	w := welcome{messageBytes: 3, calls: 4}
	b = append(w.encode(), "more"...)
	b[1] += 4
	if got, err := parseWelcome(b); err != nil || got != w {
		t.Errorf("%+v %v", got, err)
	}
}

func TestVersionRange(t *testing.T) {
	for _, c := range []struct{ min, max, want uint16 }{{2, 2, 2}, {1, 9, 2}, {1, 1, 0}, {3, 9, 0}} {
		h := hello{min: c.min, max: c.max}
		if got := h.version(); got != c.want {
			t.Errorf("%d to %d: %d, want %d", c.min, c.max, got, c.want)
		}
	}
	// The body of another version is not looked at.
	future := []byte("TPCT\x00\x03\x00\x04\x00\x03abc")
	if h, err := parseHello(future); err != nil || h.version() != 0 {
		t.Error(h, err)
	}
	for _, bad := range []string{"", "TPCT", "TPCT\x00\x00\x00\x01\x00\x00", "TPCT\x00\x02\x00\x01\x00\x00", "GET / HTTP/1.1\r\n\r\n"} {
		if _, err := parseHello([]byte(bad)); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestCutPackets: no packet that lacks bytes, or has a wrong length, is taken.
func TestCutPackets(t *testing.T) {
	h, a, p, w := someHello(), answer{min: 1, max: 1, version: 2}, proof{hasResume: true}, welcome{messageBytes: 1, calls: 1, name: "x"}
	for name, c := range map[string]struct {
		packet []byte
		parse  func([]byte) error
	}{
		"hello":   {h.encode(), func(b []byte) error { _, err := parseHello(b); return err }},
		"answer":  {a.encode(), func(b []byte) error { _, err := parseAnswer(b); return err }},
		"proof":   {p.encode(), func(b []byte) error { _, err := parseProof(b, true); return err }},
		"welcome": {w.encode(), func(b []byte) error { _, err := parseWelcome(b); return err }},
	} {
		if err := c.parse(c.packet); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for n := range c.packet {
			if c.parse(c.packet[:n]) == nil {
				t.Errorf("%s of %d bytes was taken with %d", name, len(c.packet), n)
			}
		}
		if c.parse(append(c.packet, 0)) == nil {
			t.Errorf("%s with a byte too many was taken", name)
		}
	}
}

func TestNames(t *testing.T) {
	for _, n := range []string{"\x00", "a\nb", "\x1b[31m", "\xff", strings.Repeat("x", 256)} {
		if validName(n) {
			t.Errorf("%q is valid", n)
		}
		if got := (Identity{Name: n}).complete().Name; !validName(got) {
			t.Errorf("%q cleaned: %q", n, got)
		}
	}
	if got := (Identity{Name: "a\nb"}).complete().Name; got != "ab" {
		t.Errorf("%q", got)
	}
	h := someHello()
	h.name = "a\nb"
	if _, err := parseHello(h.encode()); err == nil {
		t.Error("a name with a line break was taken")
	}
}

var someBounds = bounds{body: 1000, calls: 16}

func someMessages() []message {
	return []message{
		{kind: msgSync, number: 3, numbers: []uint64{}},
		{kind: msgSync, number: 3, numbers: []uint64{4, 7}},
		{kind: msgCall, number: 1, method: 2, body: []byte("body")},
		{kind: msgCall, number: 1, method: 2, body: []byte{}},
		{kind: msgAnswer, number: 1, outcome: outcomeError, body: []byte("no")},
		{kind: msgAck, numbers: []uint64{9, 2}},
		{kind: msgPing, number: 1 << 63},
		{kind: msgPong, number: 5},
		{kind: msgBye},
	}
}

func encode(m message) []byte { return append(m.appendHead(nil), m.body...) }

func TestMessages(t *testing.T) {
	for _, m := range someMessages() {
		got, err := readMessage(bytes.NewReader(encode(m)), someBounds)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
	}
	for name, m := range map[string]message{
		"body over the limit":    {kind: msgCall, body: make([]byte, 1001)},
		"too many numbers":       {kind: msgAck, numbers: make([]uint64, 17)},
		"numbers out of order":   {kind: msgSync, numbers: []uint64{2, 1}},
		"the same number twice":  {kind: msgSync, numbers: []uint64{2, 2}},
		"a type that is not one": {kind: 99},
	} {
		if _, err := readMessage(bytes.NewReader(encode(m)), someBounds); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnnouncedBytesCostNothing: a length of a gigabyte takes no memory until the
// bytes come.
func TestAnnouncedBytesCostNothing(t *testing.T) {
	m := message{kind: msgCall, body: make([]byte, 100)}
	b := encode(m)
	b[0] = 0x3f
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readMessage(bytes.NewReader(b), bounds{body: 1 << 30}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 100*readAtFirst {
		t.Errorf("%d bytes", got)
	}
}

// TestMACs: what proves one thing proves nothing else, nor over another connection.
func TestMACs(t *testing.T) {
	h, a := someHello(), answer{min: 1, max: 1, version: 2}
	w := welcome{messageBytes: 1, calls: 1}
	token, data := tokenSecret(held), dataSecret(transport.DataKey(bytes.Repeat([]byte{1}, 32)))
	data.key = token.key // the labels tell them apart
	first := transcript{exporter: exporter{1}, hello: h.encode(), answer: a.encode(), proof: []byte{1}}
	other, relayed := first, first
	other.answer = bytes.Clone(first.answer)
	other.answer[len(other.answer)-1] ^= 1
	relayed.exporter = exporter{2}
	key := first.key(token)
	all := [][32]byte{key, first.clientProof(tokenSecret(nil)), (&Session{key: key}).LeaveProof("tcp", 1), (&Session{key: key}).LeaveProof("tcp", 2), (&Session{key: key}).LeaveProof("rdma", 1)}
	for _, tr := range []transcript{first, other, relayed} {
		all = append(all, tr.resumeProof(key), tr.clientProof(token), tr.clientProof(data),
			tr.serverProof(token, w.encode(), nil), tr.serverProof(token, w.encode(), key[:]), tr.serverProof(data, w.encode(), nil))
		if tr.exporter != first.exporter || !bytes.Equal(tr.answer, first.answer) {
			all = append(all, tr.key(token))
		}
	}
	seen := map[[32]byte]int{}
	for i, m := range all {
		if j, dup := seen[m]; dup {
			t.Errorf("MACs %d and %d are the same", i, j)
		}
		seen[m] = i
	}
	// The server's proof does not depend on itself, and on everything else.
	b := w.encode()
	p := first.serverProof(token, b, nil)
	copy(b[welcomeProofAt:], p[:])
	if first.serverProof(token, b, nil) != p {
		t.Error("the proof is in the proof")
	}
	b[len(b)-1] ^= 1
	if first.serverProof(token, b, nil) == p {
		t.Error("the welcome is not proven")
	}
}

func FuzzHello(f *testing.F) {
	h := someHello()
	f.Add(h.encode())
	f.Add([]byte("TPCT\x00\x03\x00\x04\x00\x03abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil || h.version() == 0 {
			return
		}
		if !utf8.ValidString(h.name) {
			t.Fatal(h.name)
		}
		if again, err := parseHello(h.encode()); err != nil || again != h {
			t.Fatal(again, h, err)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	a := answer{min: 1, max: 2, version: 2}
	f.Add(a.encode())
	w := welcome{messageBytes: 3, calls: 4, name: "n"}
	f.Add(w.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := parseAnswer(b); err == nil {
			if again, err := parseAnswer(a.encode()); err != nil || again != a {
				t.Fatal(again, a, err)
			}
		}
		if w, err := parseWelcome(b); err == nil {
			if again, err := parseWelcome(w.encode()); err != nil || again != w {
				t.Fatal(again, w, err)
			}
		}
		if p, err := parseProof(b, true); err == nil {
			if again, err := parseProof(p.encode(), true); err != nil || again != p {
				t.Fatal(again, p, err)
			}
		}
	})
}

func FuzzMessage(f *testing.F) {
	for _, m := range someMessages() {
		f.Add(encode(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			m, err := readMessage(r, someBounds)
			if err != nil {
				return
			}
			if len(m.body) > someBounds.body || len(m.numbers) > someBounds.calls {
				t.Fatal("over the limit")
			}
			if m.kind == msgBye {
				continue // what a newer peer says with it is skipped
			}
			if again, err := readMessage(bytes.NewReader(encode(m)), someBounds); err != nil || !reflect.DeepEqual(again, m) {
				t.Fatal(again, m, err)
			}
		}
	})
}
