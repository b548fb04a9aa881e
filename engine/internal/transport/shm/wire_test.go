package shm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

func TestWire(t *testing.T) {
	f := frame{kind: mapped, status: noFile, grant: memory.PeerWrite, region: 1<<40 | 7, bytes: 1 << 50}
	b := f.append(nil)
	if got, err := parseFrame(b); err != nil || got != f || len(b) != frameSize {
		t.Errorf("%+v, %v, want %+v", got, err, f)
	}
	h := hello{key: transport.ConnKey{Session: transport.SessionID{1, 15: 9}, Conn: 1 << 60}, ticket: ticket{3, 31: 4}}
	b = h.encode()
	if got, err := parseHello(b); err != nil || got != h || len(b) != helloSize {
		t.Errorf("%+v, %v, want %+v", got, err, h)
	}
	for _, bad := range [][]byte{nil, b[:63], append(bytes.Clone(b), 0), append([]byte("toposhm2"), b[8:]...)} {
		if _, err := parseHello(bad); err == nil {
			t.Errorf("hello %q: no error", bad)
		}
	}
	for _, bad := range []string{"", "\x01", "123456789012345678901234567"} {
		if _, err := parseFrame([]byte(bad)); err == nil {
			t.Errorf("frame %q: no error", bad)
		}
		if _, err := parseAnswer([]byte(bad)); err == nil {
			t.Errorf("answer %q: no error", bad)
		}
	}
	reserved := f.append(nil)
	reserved[6] = 1
	if _, err := parseFrame(reserved); err == nil {
		t.Error("reserved bytes: no error")
	}
	for s, want := range map[status]error{noRegion: memory.ErrNoRegion, denied: memory.ErrDenied, noFile: errNoFile, noHandles: errNoHandles} {
		if !errors.Is(s.err(), want) {
			t.Errorf("status %d: %v", s, s.err())
		}
	}
	if ok.err() != nil || status(99).err() == nil {
		t.Error("statuses")
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame{kind: mapped, grant: 3, region: 5, bytes: 9}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseFrame(b); err == nil && !bytes.Equal(got.append(nil), b) {
			t.Errorf("%x read as %+v", b, got)
		}
		if got, err := parseHello(b); err == nil && !bytes.Equal(got.encode(), b) {
			t.Errorf("%x read as %+v", b, got)
		}
	})
}
