package mooncake

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// What Mooncake 0.3.12 sends, byte by byte.
const (
	stockDescriptor = `{"buffers":[{"addr":140354579951616,"length":1048576,"name":"127.0.0.1:15011"}],"name":"127.0.0.1:15011",` +
		`"protocol":"tcp","tcp_data_port":15800,"tcp_proto_version":2,"timestamp":"2026-11-20 11:01:10.631706"}` + "\n"
	stockWrite  = "40000000000000000070e1d8a67f00008100000000000000"
	stockRead   = "400d0300000000000070e1d8a67f00008000000000000000"
	stockWrite1 = "40000000000000000070e1d8a67f00000100000000000000"
	stockRead1  = "40000000000000000070e1d8a67f00000000000000000000"
	stockOK     = "000000005654434d"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHeader(t *testing.T) {
	const at = 0x7fa6d8e17000
	for text, want := range map[string]header{
		stockWrite:  {64, at, true, true},
		stockRead:   {200000, at, false, true},
		stockWrite1: {64, at, true, false},
		stockRead1:  {64, at, false, false},
	} {
		got, err := parseHeader(unhex(t, text))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again := hex.EncodeToString(want.append(nil)); again != text {
			t.Errorf("%+v is %s, want %s", want, again, text)
		}
	}
	for what, text := range map[string]string{
		"nothing":            "00000000000000000070e1d8a67f00008100000000000000",
		"around the end":     "1100000000000000f0ffffffffffffff8100000000000000",
		"another opcode":     "40000000000000000070e1d8a67f00000200000000000000",
		"another, version 2": "40000000000000000070e1d8a67f0000c100000000000000",
	} {
		if h, err := parseHeader(unhex(t, text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
	}
	if _, err := parseHeader(unhex(t, "1000000000000000f0ffffffffffffff81ffffffffffffff")); err != nil {
		t.Error("up to the last byte, with padding:", err)
	}
}

func TestStatus(t *testing.T) {
	if got := hex.EncodeToString(statusOK.append(nil)); got != stockOK {
		t.Error(got)
	}
	if s, err := parseStatus(unhex(t, "010000005654434d")); err != nil || s != statusRejected {
		t.Error(s, err)
	}
	if _, err := parseStatus(make([]byte, statusBytes)); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestFrame(t *testing.T) {
	stock := append(unhex(t, "d10000000000000001"), stockDescriptor...)
	if got := encodeFrame(frameMetadata, []byte(stockDescriptor)); !bytes.Equal(got, stock) {
		t.Errorf("%q", got)
	}
	kind, body, err := readFrame(iotest.OneByteReader(bytes.NewReader(stock)), maxRequest)
	if err != nil || kind != frameMetadata || string(body) != stockDescriptor {
		t.Error(kind, string(body), err)
	}
	old := append(unhex(t, "0200000000000000"), "{}"...)
	if kind, body, err := readFrame(bytes.NewReader(old), maxRequest); err != nil || kind != frameConnection || string(body) != "{}" {
		t.Error("without a type:", kind, string(body), err)
	}
	for _, n := range []string{"0000000000000000", "0100100000000000", "ffffffffffffffff"} {
		if _, _, err := readFrame(bytes.NewReader(unhex(t, n+"01")), maxRequest); !errors.Is(err, ErrMalformed) {
			t.Errorf("length %s: %v", n, err)
		}
	}
	if _, _, err := readFrame(bytes.NewReader(stock[:100]), maxRequest); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("cut off:", err)
	}
	for _, first := range []string{"TPCT\x00\x01\x00\x01\x00\x80", "GET / HTTP/1.1", "\x16\x03\x01\x02\x00\x01\x00\x01"} {
		if _, _, err := readFrame(strings.NewReader(first), maxReply); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.12q: %v", first, err)
		}
	}
}

func TestDescriptor(t *testing.T) {
	d, err := parseDescriptor([]byte(stockDescriptor))
	want := &descriptor{
		Name: "127.0.0.1:15011", Protocol: "tcp", DataPort: 15800, ProtoVersion: 2,
		Buffers: []buffer{{"127.0.0.1:15011", 140354579951616, 1048576}},
	}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v", d, err)
	}
	again, err := parseDescriptor(encode(d))
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("%+v, %v", again, err)
	}
	ours, err := parseDescriptor([]byte(`{"name":"a","protocol":"tcp","tcp_data_port":1,"topoctl":{"name":"h:1","more":[1]}}`))
	if err != nil || ours.Topoctl == nil || ours.Topoctl.Name != "h:1" || ours.ProtoVersion != 1 || len(ours.Buffers) != 0 {
		t.Errorf("%+v, %v", ours, err)
	}
	for text, want := range map[string]error{
		`{"name":"a","protocol":"rdma","tcp_data_port":0,"devices":[{"name":"m","lid":0,"gid":"00"}],"buffers":[{"name":"cpu:0","addr":1,"length":2,"rkey":[1],"lkey":[1]}]}`: ErrNoPeer,
		`{"name":"a","protocol":["tcp","rdma"],"tcp_data_port":1}`: ErrNoPeer,
		`{}`:                                   ErrNoPeer,
		`{"protocol":"tcp","tcp_data_port":1}`: ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":0}`:                                                                     ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":65536}`:                                                                 ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1,"tcp_proto_version":0}`:                                               ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":[{"addr":0,"length":0}]}`:                                   ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":[{"addr":18446744073709551615,"length":2}]}`:                ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":[{"addr":-1,"length":2}]}`:                                  ErrMalformed,
		`{"name":"` + strings.Repeat("a", maxText+1) + `","protocol":"tcp","tcp_data_port":1}`:                                ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`: ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":[` + strings.Repeat(`{},`, maxBuffers) + `{}]}`:             ErrMalformed,
		`{"name":"a","protocol":"tcp","tcp_data_port":1} {}`:                                                                  ErrMalformed,
		``: ErrMalformed, `[]`: ErrMalformed, "not found": ErrMalformed,
	} {
		if d, err := parseDescriptor([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.100s: %+v, %v, want %v", text, d, err, want)
		}
	}
}

func TestRPCMeta(t *testing.T) {
	const stock = `{"ip_or_host_name":"127.0.0.1","rpc_port":16973}` + "\n"
	m, err := parseRPCMeta([]byte(stock))
	if err != nil || m.address() != "127.0.0.1:16973" || string(encode(m)) != stock {
		t.Errorf("%+v, %v, %s", m, err, encode(m))
	}
	if m, err := parseRPCMeta([]byte(`{"ip_or_host_name":"::1","rpc_port":1}`)); err != nil || m.address() != "[::1]:1" {
		t.Error(m, err)
	}
	for _, bad := range []string{``, `{}`, `{"ip_or_host_name":"","rpc_port":1}`, `{"ip_or_host_name":"a","rpc_port":65536}`, `{"ip_or_host_name":"a","rpc_port":"1"}`} {
		if m, err := parseRPCMeta([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", bad, m, err)
		}
	}
}

func TestJoin(t *testing.T) {
	got := join([]Range{{100, 10}, {0, 10}, {10, 5}, {112, 1}, {104, 4}, {50, 0}, {^uint64(0), 1}, {^uint64(0), 2}})
	if want := []Range{{0, 15}, {100, 10}, {112, 1}, {^uint64(0), 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzHeader(f *testing.F) {
	for _, s := range []string{stockWrite, stockRead, stockWrite1, stockRead1} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerBytes {
			return
		}
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if h.size == 0 || h.address+(h.size-1) < h.address {
			t.Fatalf("%+v is taken", h)
		}
		if again := h.append(nil); !bytes.Equal(again[:17], b[:17]) {
			t.Fatalf("%x is %x again", b, again)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(encodeFrame(frameMetadata, []byte(stockDescriptor)))
	f.Add(encodeFrame(frameProbe, []byte("{}")))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := readFrame(bytes.NewReader(b), 1<<16)
		if err != nil {
			return
		}
		if kind > frameProbe || len(body) > 1<<16 {
			t.Fatalf("type %d with %d bytes", kind, len(body))
		}
	})
}

func FuzzDescriptor(f *testing.F) {
	f.Add([]byte(stockDescriptor))
	f.Add([]byte(`{"name":"a","protocol":"tcp","tcp_data_port":1,"topoctl":{"name":"h:1"},"buffers":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDescriptor(b)
		if err != nil || 6*len(b) > maxText { // escaped, a text may be six times as long
			return
		}
		again, err := parseDescriptor(encode(d))
		if err != nil || !reflect.DeepEqual(again.ranges(), d.ranges()) || again.Name != d.Name || again.DataPort != d.DataPort {
			t.Fatalf("%s is %+v, and %+v again: %v", b, d, again, err)
		}
	})
}

// bytesConn is a connection over which these bytes come, and nothing that is written goes anywhere.
type bytesConn struct {
	net.Conn
	io.Reader
}

func (c bytesConn) Read(p []byte) (int, error)    { return c.Reader.Read(p) }
func (bytesConn) Write(p []byte) (int, error)     { return len(p), nil }
func (bytesConn) SetDeadline(time.Time) error     { return nil }
func (bytesConn) SetReadDeadline(time.Time) error { return nil }

// FuzzData: whatever comes on a data connection, only memory that may be written is, and only by
// what follows a WRITE's header.
func FuzzData(f *testing.F) {
	const base = 0x1000
	write := header{size: 3, address: base + 5, write: true, v2: true}
	read := header{size: 7, address: base}
	f.Add(append(read.append(append(write.append(nil), "abc"...)), write.append(nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newArena(base, 64)
		n := &Node{o: Options{Offered: a, Limits: Limits{}.withDefaults()}}
		if err := n.serveData(&guest{conn: bytesConn{Reader: bytes.NewReader(b)}}); err == nil {
			t.Fatal("no error at the end")
		}
		for _, c := range a.bytes {
			if c != 0 && !bytes.Contains(b[min(len(b), headerBytes):], []byte{c}) {
				t.Fatalf("%#x was written and did not come", c)
			}
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"ip_or_host_name":"127.0.0.1","rpc_port":16973}`))
	f.Add([]byte(`{"name":"a","notify_msg":"success"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseRPCMeta(b); err == nil && (m.Host == "" || m.Port < 1) {
			t.Fatalf("%s is %+v", b, m)
		}
		var n notifyRequest
		if parse(b, &smallLimits, &n) == nil && len(n.Message) > 6*len(b) {
			t.Fatalf("%d bytes of %d", len(n.Message), len(b))
		}
	})
}
