package engine

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/trust"
)

// Somebody on the path changes the data connections: the slices that it concerns are sent again,
// over another connection where the frames are not what they were, and all bytes are right. The log
// of the engine that got them says so.
func TestChangedOnTheWay(t *testing.T) {
	checkLeaks(t)
	const size = 8 << 20
	for _, tt := range []struct {
		protection Protection
		change     func(b []byte) []byte
		dropped    string // connections, by this reason
		says       string
	}{
		// One byte more: the next header is elsewhere. One less could end what is sent, and be waited for.
		{"headers", func(b []byte) []byte { return append([]byte{0}, b...) }, "header-tag", "the tag of a header is wrong"},
		{"payload", func(b []byte) []byte { b[0] ^= 1; return b }, "", "the tags of a payload are wrong"},
		{"sealed", func(b []byte) []byte { b[0] ^= 1; return b }, "record", "the tag of a TLS record is wrong"},
	} {
		t.Run(string(tt.protection), func(t *testing.T) {
			log := &logged{}
			server := newEngine(t, Options{Name: "server", Transports: []TransportFactory{TCP()}, Logger: textLogger(log)})
			way := newProxy(t, server.Addrs()[0].String())
			var changes atomic.Int64
			way.Update(func(up, _ *faulty.Line) {
				up.Change = func(at int64, b []byte) []byte {
					const place = 3 << 20
					if at <= place && place < at+int64(len(b)) && changes.Add(1) <= 3 {
						k := place - at
						return append(b[:k:k], tt.change(b[k:])...)
					}
					return b
				}
			})
			p := clientThrough(t, way, server, size, Options{Name: "client", Transports: []TransportFactory{TCP()}, Check: CheckAlways,
				Security: Security{Protection: tt.protection}, GiveUp: 20 * time.Second})
			p.randomize(9)
			ctx := testContext(t)
			for range 4 {
				clear(p.theirs.Bytes())
				must(t, p.peer.Write(ctx, p.mine.All(), p.to.At(0)))
				equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
			}
			if n := changes.Load(); n == 0 {
				t.Fatal("nothing was changed")
			}
			if s := p.client.Stats(); s.Retries == 0 {
				t.Errorf("nothing was sent again: %+v", s)
			}
			if n := server.Stats().DroppedConns; (len(n) > 0) != (tt.dropped != "") || tt.dropped != "" && n[tt.dropped] == 0 {
				t.Errorf("connections were dropped: %v, want some by %q", n, tt.dropped)
			}
			said := log.String()
			for _, want := range []string{`msg="frames were changed on the way"`, tt.says, "someone alters traffic", "last_from=127.0.0.1"} {
				if !strings.Contains(said, want) {
					t.Errorf("the log does not say %q:\n%s", want, said)
				}
			}
			if n := strings.Count(said, "frames were changed"); n > 2 {
				t.Errorf("it says so %d times:\n%s", n, said)
			}
		})
	}
}

// The level of data connections: by what the engines have, what is asked for, and what the peer
// demands; explanations and statistics say it.
func TestProtection(t *testing.T) {
	checkLeaks(t)
	token := []byte("a token of more than 16 bytes")
	for _, tt := range []struct {
		token          []byte
		client, server Protection
		want           string
	}{
		{nil, "", "", "crc32"},
		{token, "", "", "AES-GMAC headers,"},
		{token, "open", "open", "crc32"},
		{token, "open", "", "AES-GMAC headers,"},
		{nil, "", "payload", "AES-GMAC headers and payload"},
		{token, "sealed", "", "TLS 1.3"},
		{nil, "sealed", "", "TLS 1.3"},
	} {
		tcp := []TransportFactory{TCP()}
		p := newPair(t, 4096, Options{Transports: tcp, Security: Security{Credentials: trust.Secret(tt.token), Protection: tt.client}}, Options{Transports: tcp, Security: Security{Credentials: trust.Secret(tt.token), Protection: tt.server}})
		must(t, p.peer.Write(testContext(t), p.mine.All(), p.to.At(0)))
		lanes := p.peer.Lanes()
		if len(lanes) == 0 || !strings.Contains(lanes[0].Connection, ", "+tt.want) {
			t.Errorf("token %t, client %q, server %q: %+v", tt.token != nil, tt.client, tt.server, lanes)
		}
	}
	// Credentials that are not there yet.
	later := func() *trust.Credentials { return nil }
	p := newPair(t, 4096, Options{Transports: []TransportFactory{TCP()}}, Options{Transports: []TransportFactory{TCP()}, Security: Security{Credentials: later}})
	must(t, p.peer.Write(testContext(t), p.mine.All(), p.to.At(0)))
	if lanes := p.peer.Lanes(); len(lanes) == 0 || !strings.Contains(lanes[0].Connection, ", AES-GMAC headers,") {
		t.Errorf("with credentials that come later: %+v", lanes)
	}
	if _, err := New(t.Context(), Options{Security: Security{Protection: "much"}}); err == nil || !strings.Contains(err.Error(), `"much": want open, headers, payload`) {
		t.Errorf("an unknown level: %v", err)
	}
}
