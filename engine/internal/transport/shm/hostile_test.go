//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/internal/memory"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// raw is a client that speaks the protocol as it likes.
type raw struct {
	t *testing.T
	c *net.UnixConn
}

func connect(t *testing.T, h *host) *raw {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.Endpoint().Address, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &raw{t, c}
}

func (r *raw) send(b []byte) {
	if _, err := r.c.Write(b); err != nil && !errors.Is(err, unix.EPIPE) {
		r.t.Error(err)
	}
}

// receive gives the next frame; an error is the end.
func (r *raw) receive() (frame, int, error) {
	var buf [frameSize + 1]byte
	n, fd, err := receive(r.c, buf[:], make([]byte, unix.CmsgSpace(4)))
	if err != nil {
		return frame{}, -1, err
	}
	f, err := parseFrame(buf[:n])
	return f, fd, err
}

func accept(t *testing.T, h *host, id transport.ConnID) hello {
	t.Helper()
	o := origin
	o.Conn, o.Rights = id, h.rights
	answer, err := h.Accept(t.Context(), o, []byte{version})
	if err != nil {
		t.Fatal(err)
	}
	tk, err := parseAnswer(answer)
	if err != nil {
		t.Fatal(err)
	}
	return hello{connKey(id), tk}
}

// enter is a raw client that was let in.
func enter(t *testing.T, h *host, id transport.ConnID) *raw {
	t.Helper()
	r := connect(t, h)
	r.send(accept(t, h, id).encode())
	f, fd, err := r.receive()
	if err != nil || f.kind != welcome || fd < 0 {
		t.Fatalf("not let in: %+v, %v", f, err)
	}
	closeFD(fd)
	return r
}

func TestHostileHello(t *testing.T) {
	h := newHost(t, 1)
	good := accept(t, h, 1)
	wrong := func(change func(*hello)) []byte {
		x := good
		change(&x)
		return x.encode()
	}
	for name, b := range map[string][]byte{
		"ticket":    wrong(func(x *hello) { x.ticket[31] ^= 1 }),
		"no ticket": wrong(func(x *hello) { x.ticket = ticket{} }),
		"session":   wrong(func(x *hello) { x.key.Session[0]++ }),
		"conn":      wrong(func(x *hello) { x.key.Conn++ }),
		"short":     good.encode()[:60],
		"long":      append(good.encode(), 0),
		"huge":      make([]byte, 50000),
		"frame":     frame{kind: mapIt, region: 1}.append(nil),
		"nothing":   {},
	} {
		r := connect(t, h)
		r.send(b)
		if len(b) == 0 {
			_ = r.c.CloseWrite()
		}
		if f, _, err := r.receive(); err == nil {
			t.Errorf("%s: let in: %+v", name, f)
		}
	}
	// Another engine looks whether a socket is a dead process's by connecting to it, and says nothing.
	if n := h.Served().Refused["other"]; n != 8 {
		t.Errorf("%d refused, want 8", n)
	}
	// The right one still works, once.
	for i := range 2 {
		r := connect(t, h)
		r.send(good.encode())
		if f, fd, err := r.receive(); (err == nil) != (i == 0) {
			t.Errorf("presented %d times: %+v, %v", i+1, f, err)
		} else {
			closeFD(fd)
		}
	}
	o := origin
	for _, b := range []string{"", "\x00", "\x01\x01", strings.Repeat("x", 1<<16)} {
		if _, err := h.Accept(t.Context(), o, []byte(b)); err == nil {
			t.Errorf("accept %.10q: no error", b)
		}
	}
	o.Conn = 1
	if _, err := h.Accept(t.Context(), o, []byte{version}); err == nil {
		t.Error("one connection was accepted twice")
	}
}

// TestSilent holds more connections open than are let wait, and says nothing.
func TestSilent(t *testing.T) {
	h := newHost(t, 1)
	var list []*raw
	for range maxUnknown + 10 {
		list = append(list, connect(t, h))
	}
	for _, r := range list[maxUnknown:] {
		if _, _, err := r.receive(); err == nil {
			t.Error("let in")
		}
	}
	for _, r := range list {
		_ = r.c.Close()
	}
	for deadline := time.Now().Add(patience); ; { // there is room again
		r := connect(t, h)
		hello := accept(t, h, transport.ConnID(time.Now().UnixNano()))
		_, _ = r.c.Write(hello.encode())
		if _, fd, err := r.receive(); err == nil {
			closeFD(fd)
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// keyOf names a connection of the session of these tests.
func connKey(id transport.ConnID) transport.ConnKey {
	return transport.ConnKey{Session: session, Conn: id}
}

func TestExpectationsAreBounded(t *testing.T) {
	h := newHost(t, 1)
	o := origin
	const most = maxConns / 2 // for one peer, over all of its sessions
	for i := range most {
		o.Session[0], o.Conn = session[0]+byte(i%2), transport.ConnID(i/2)
		if _, err := h.Accept(t.Context(), o, []byte{version}); err != nil {
			t.Fatal(err)
		}
	}
	o.Conn = most
	if _, err := h.Accept(t.Context(), o, []byte{version}); err == nil {
		t.Error("no limit")
	}
	other := transport.Origin{Session: transport.SessionID{9}, Conn: 1, Account: "another peer"}
	if _, err := h.Accept(t.Context(), other, []byte{version}); err != nil {
		t.Errorf("one peer has taken all: %v", err)
	}
	if err := h.Leave(t.Context(), origin, 5); err != nil {
		t.Fatal(err)
	}
	late := expectation{}
	late.ticket[0] = 1
	expectLate := func(id transport.ConnID, a transport.Account) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.ends.Expect(connKey(id), a, late, time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	expectLate(5000, "")
	if _, err := h.Accept(t.Context(), o, []byte{version}); err != nil {
		t.Errorf("one is late, and there is no room: %v", err)
	}
	// Late ones are not let in.
	expectLate(5001, "another peer")
	r := connect(t, h)
	r.send(hello{connKey(5001), late.ticket}.encode())
	if _, _, err := r.receive(); err == nil {
		t.Error("a late connection was let in")
	}
	// Left ones neither, before and after they were accepted.
	for i := range transport.MaxLeft + 10 {
		o.Conn = transport.ConnID(10_000 + i)
		if err := h.Leave(t.Context(), o, o.Conn); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Accept(t.Context(), o, []byte{version}); err == nil {
		t.Error("a connection that was left is accepted")
	}
}

// A peer with narrower rights than a region grants gets no descriptor of it: its user could open one
// for reading again for writing. A region of which it has no right is not there.
func TestNarrowedPeer(t *testing.T) {
	h := newHost(t, 1)
	all, sealed := h.region(8192, both, memory.Options{}), h.region(8192, memory.PeerRead, memory.Options{})
	narrowed, writing, hidden := h.region(8192, both, memory.Options{}), h.region(8192, both, memory.Options{}), h.region(8192, both, memory.Options{})
	h.rights = memory.NewRights(func(name string) memory.Grant {
		return map[string]memory.Grant{all.Name(): both, sealed.Name(): both, narrowed.Name(): memory.PeerRead, writing.Name(): memory.PeerWrite}[name]
	})
	r := enter(t, h, 1)
	for _, c := range []struct {
		region *memory.Region
		want   status
		grant  memory.Grant
	}{{all, ok, both}, {sealed, ok, memory.PeerRead}, {narrowed, denied, memory.PeerRead}, {writing, denied, memory.PeerWrite}, {hidden, noRegion, memory.None}} {
		r.send(frame{kind: mapIt, region: c.region.ID()}.append(nil))
		f, fd, err := r.receive()
		if err != nil || f.status != c.want || f.grant != c.grant || (fd >= 0) != (c.want == ok) || c.want == noRegion && f.bytes != 0 {
			t.Errorf("region %q: %+v, descriptor %d, %v", c.region.Name(), f, fd, err)
		}
		closeFD(fd)
	}
}

func TestHostileFrames(t *testing.T) {
	h := newHost(t, 1)
	readable := h.region(8192, memory.PeerRead, memory.Options{})
	none := h.region(8192, memory.None, memory.Options{})
	private := h.region(8192, memory.PeerRead|memory.PeerWrite, memory.Options{Backing: memory.Private})
	r := enter(t, h, 1)
	for id, want := range map[memory.ID]status{0: noRegion, 99: noRegion, readable.ID() | 1<<32: noRegion, none.ID(): noRegion, private.ID(): noFile, readable.ID(): ok} {
		r.send(frame{kind: mapIt, region: id, bytes: 1 << 60, grant: 3}.append(nil))
		f, fd, err := r.receive()
		if err != nil || f.kind != mapped || f.status != want || (fd >= 0) != (want == ok) {
			t.Fatalf("region %#x: %+v, descriptor %v, %v; want status %d", uint64(id), f, fd, err, want)
		}
		if fd < 0 {
			continue
		}
		if _, err := memory.Map(fd, 8192, true); err == nil {
			t.Error("what may be read was mapped for writing")
		}
		again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDWR, 0)
		if err == nil {
			if _, err := memory.Map(again, 8192, true); err == nil {
				t.Error("what may be read was reopened and mapped for writing")
			}
			closeFD(again)
		}
		closeFD(fd)
	}
	for i, b := range [][]byte{
		{1}, make([]byte, 100), frame{kind: welcome}.append(nil), frame{kind: revoke, region: readable.ID()}.append(nil),
		frame{kind: 77}.append(nil), accept(t, h, 50).encode(),
	} {
		r := enter(t, h, transport.ConnID(100+i))
		r.send(b)
		if f, _, err := r.receive(); err == nil {
			t.Errorf("%x: answered %+v", b, f)
		}
		_ = r.c.Close()
	}
	// Descriptors that nobody asked for are not kept.
	before := countFDs(t)
	r = enter(t, h, 200)
	for range 20 {
		if err := send(r.c, frame{kind: mapIt, region: 99}.append(nil), 1); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.receive(); err != nil {
			t.Fatal(err)
		}
	}
	if now := countFDs(t); now > before+4 {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

func countFDs(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestGreedy asks for descriptors and reads no answer: what is kept for it is
// bounded, and others are served.
func TestGreedy(t *testing.T) {
	h := newHost(t, 1)
	region := h.region(8192, memory.PeerRead|memory.PeerWrite, memory.Options{})
	before := countFDs(t)
	r := enter(t, h, 1)
	const many = 20_000
	sent := 0
	for ; sent < many; sent++ {
		_ = r.c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := r.c.Write(frame{kind: mapIt, region: region.ID()}.append(nil)); err != nil {
			break
		}
	}
	if sent == many {
		t.Error("everything was taken")
	}
	if now := countFDs(t); now > before+maxOutbox+20 {
		t.Errorf("%d descriptors, %d before", now, before)
	}
	active := newHost(t, 1)
	local := active.region(8192, memory.None, memory.Options{})
	e := dialTo(t, active, h, 2)
	if err := e.Do(one(transport.Write, local, 0, remote(region), 0, 100)); err != nil {
		t.Error(err)
	}
	_ = r.c.Close()
}

// server is a peer that answers as it likes.
func server(t *testing.T, serve func(c *net.UnixConn)) transport.Dial {
	t.Helper()
	l, err := listen(shortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.close(); <-done })
	return transport.Dial{
		Session: session, Conn: 1, Remote: transport.Endpoint{Transport: "shm", Address: l.path},
		Exchange: func(context.Context, []byte) ([]byte, error) {
			return append([]byte{version}, make([]byte, ticketSize)...), nil
		},
	}
}

func memfd(t *testing.T, size int64, seals int) int {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil && seals != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Error(err)
	}
	return fd
}

func TestHostileWelcome(t *testing.T) {
	a := newHost(t, 1)
	for name, serve := range map[string]func(c *net.UnixConn){
		"end":            func(c *net.UnixConn) {},
		"garbage":        func(c *net.UnixConn) { _ = send(c, []byte("hello"), -1) },
		"long":           func(c *net.UnixConn) { _ = send(c, make([]byte, 5000), -1) },
		"no board":       func(c *net.UnixConn) { _ = send(c, frame{kind: welcome}.append(nil), -1) },
		"a file":         func(c *net.UnixConn) { _ = send(c, frame{kind: welcome}.append(nil), 0) },
		"unsealed board": func(c *net.UnixConn) { sendBoard(t, c, boardBytes, 0) },
		"small board":    func(c *net.UnixConn) { sendBoard(t, c, 4096, unix.F_SEAL_SHRINK) },
		"other kind":     func(c *net.UnixConn) { _ = send(c, frame{kind: mapped}.append(nil), -1) },
		"several at once": func(c *net.UnixConn) {
			_, _, _ = c.WriteMsgUnix(frame{kind: welcome}.append(nil), unix.UnixRights(0, 1, 2, 0, 1), nil)
		},
	} {
		d := server(t, func(c *net.UnixConn) {
			var buf [helloSize]byte
			_, _ = c.Read(buf[:])
			serve(c)
			_, _ = c.Read(buf[:]) // until it is closed
		})
		if name == "end" {
			d = server(t, serve)
		}
		before := countFDs(t)
		if c, err := a.Dial(within(t), d); err == nil {
			c.Close(nil)
			t.Errorf("%s: connected", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		for deadline := time.Now().Add(patience); countFDs(t) > before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if now := countFDs(t); now > before {
			t.Errorf("%s: %d descriptors, %d before", name, now, before)
		}
	}
	// A server that says nothing is given up with the context.
	d := server(t, func(c *net.UnixConn) { var b [1000]byte; _, _ = c.Read(b[:]); _, _ = c.Read(b[:]) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Dial(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent server: %v", err)
	}
	for _, path := range []string{"", "relative.shm", "/tmp/x", "/tmp/../tmp/x.shm", "/" + strings.Repeat("x", 200) + ".shm", "/nowhere/x.shm"} {
		d.Remote.Address = path
		if _, err := a.Dial(within(t), d); err == nil {
			t.Errorf("dialled %q", path)
		}
	}
}

func sendBoard(t *testing.T, c *net.UnixConn, size int64, seals int) {
	fd := memfd(t, size, seals)
	_ = send(c, frame{kind: welcome}.append(nil), fd)
	closeFD(fd)
}

// TestHostileAnswers has a peer answer wrongly when it is asked for a region.
func TestHostileAnswers(t *testing.T) {
	a := newHost(t, 1)
	local := a.region(8192, memory.None, memory.Options{})
	const id = 1
	good := frame{kind: mapped, region: id, grant: 3, bytes: 8192}
	for name, c := range map[string]struct {
		change func(*frame)
		size   int64
		seals  int
		lost   bool
		want   error
	}{
		"unsealed":    {func(*frame) {}, 8192, 0, false, memory.ErrUnsealed},
		"grow seal":   {func(*frame) {}, 8192, unix.F_SEAL_GROW, false, memory.ErrUnsealed},
		"too small":   {func(*frame) {}, 4096, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"no bytes":    {func(f *frame) { f.bytes = 0 }, 8192, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"huge":        {func(f *frame) { f.bytes = 1 << 63 }, 8192, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"large":       {func(f *frame) { f.bytes = maxRegion + 1 }, 8192, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"no grant":    {func(f *frame) { f.grant = 0 }, 8192, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"odd grant":   {func(f *frame) { f.grant = 7 }, 8192, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"read grant":  {func(f *frame) { f.grant = 1 }, 8192, unix.F_SEAL_SHRINK, false, memory.ErrDenied},
		"status":      {func(f *frame) { f.status = 200 }, 8192, unix.F_SEAL_SHRINK, false, transport.ErrRefused},
		"other":       {func(f *frame) { f.region = 2 }, 8192, unix.F_SEAL_SHRINK, true, transport.ErrClosed},
		"other kind":  {func(f *frame) { f.kind = 9 }, 8192, unix.F_SEAL_SHRINK, true, transport.ErrClosed},
		"hello again": {func(f *frame) { f.kind = welcome }, 8192, unix.F_SEAL_SHRINK, true, transport.ErrClosed},
		"smaller":     {func(f *frame) { f.bytes = 50 }, 50, unix.F_SEAL_SHRINK, false, memory.ErrRange},
	} {
		d := server(t, func(u *net.UnixConn) {
			var buf [helloSize]byte
			_, _ = u.Read(buf[:])
			sendBoardOpen(t, u, id)
			_, _ = u.Read(buf[:])
			fd := memfd(t, c.size, c.seals)
			f := good
			c.change(&f)
			_ = send(u, f.append(nil), fd)
			closeFD(fd)
			_, _ = u.Read(buf[:])
		})
		e := a.dialTo(d)
		to := &transport.RemoteRegion{ID: id, Bytes: 8192, Grant: 3}
		if err := e.Do(one(transport.Write, local, 0, to, 0, 100)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !c.lost {
			e.Conn.Close(nil)
		}
		if err := e.WaitLost(); (err != nil) != c.lost {
			t.Errorf("%s: lost with %v", name, err)
		}
	}
}

// sendBoardOpen sends a board on which a region of the first use is open.
func sendBoardOpen(t *testing.T, c *net.UnixConn, id memory.ID) {
	b, table, err := newBoard()
	if err != nil {
		t.Error(err)
		return
	}
	_ = b.set(id, true)
	fd, _, _ := b.block.File(false)
	_ = send(c, frame{kind: welcome}.append(nil), fd)
	closeFD(fd)
	_ = table.Close()
}

// TestSilentPeer never answers: requests wait, and Close ends them.
func TestSilentPeer(t *testing.T) {
	a := newHost(t, 1)
	local := a.region(8192, memory.None, memory.Options{})
	d := server(t, func(u *net.UnixConn) {
		var buf [helloSize]byte
		_, _ = u.Read(buf[:])
		sendBoardOpen(t, u, 1)
		for {
			if n, err := u.Read(buf[:]); err != nil || n == 0 {
				return
			}
		}
	})
	e := a.dialTo(d)
	var list []*transport.Request
	for i := range 2 * maxPosted {
		list = append(list, one(transport.Read, local, 0, &transport.RemoteRegion{ID: memory.ID(i/10 + 1), Bytes: 10}, 0, 10))
	}
	n := e.TryPost(list)
	if n != maxPosted || e.HasEnded(list[0]) {
		t.Errorf("%d were taken; the first has ended: %t", n, e.HasEnded(list[0]))
	}
	cause := errors.New("enough")
	e.Conn.Close(cause)
	if err := e.Wait(list[:n]...); !errors.Is(err, cause) || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := e.WaitLost(); err != nil {
		t.Errorf("lost with %v", err)
	}
}

func TestDirectories(t *testing.T) {
	open := shortDir(t)
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(shortDir(t), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(shortDir(t), "l")
	if err := os.Symlink(shortDir(t), link); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(shortDir(t), strings.Repeat("d", 90))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{open: "0700", file: "not a directory", link: "not a directory", "/nowhere": "no such", long: "shorter"} {
		if s, err := New(Options{Dir: dir, Regions: memory.NewTable(1)}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", dir, err, says)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	if os.Geteuid() == 0 {
		theirs := shortDir(t)
		if err := os.Chown(theirs, 1234, 1234); err != nil {
			t.Fatal(err)
		}
		if err := checkDir(theirs); err == nil || !strings.Contains(err.Error(), "belongs to user 1234") {
			t.Errorf("another user's: %v", err)
		}
	}
	// By default it is a directory of this user's.
	runtime := shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	for range 2 {
		s, err := New(Options{Regions: memory.NewTable(1)})
		if err != nil {
			t.Fatal(err)
		}
		if path := s.Endpoint().Address; !strings.HasPrefix(path, runtime+"/topoctl-") {
			t.Errorf("listens at %s", path)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.Endpoint().Address); err == nil {
			t.Error("the socket is left")
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no table: no error")
	}
}

// Another user may have taken the name of our directory, as everybody can in /tmp. There is a socket that only we can
// reach all the same.
func TestDirectoryIsTaken(t *testing.T) {
	base := shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", base)
	taken := filepath.Join(base, fmt.Sprintf("topoctl-%d", os.Geteuid()))
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(taken, 0o777); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 2 {
		s, err := New(Options{Regions: memory.NewTable(1)})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(s.Endpoint().Address)
		if dir == taken || seen[dir] || checkDir(dir) != nil {
			t.Errorf("listens in %s: %v", dir, checkDir(dir))
		}
		seen[dir] = true
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

func TestStaleSockets(t *testing.T) {
	dir := shortDir(t)
	socket := func(name string, listening bool) string {
		path := filepath.Join(dir, name)
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if listening {
			t.Cleanup(func() { _ = l.Close() })
		} else {
			_ = l.Close()
		}
		return path
	}
	dead, live, other := socket("1-a.shm", false), socket("2-b.shm", true), socket("3-c.sock", false)
	file := filepath.Join(dir, "4-d.shm")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Names with the number of a process that has ended.
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	of := func(name string, listening bool) string {
		return socket(fmt.Sprintf("%d-%s.shm", ended.Process.Pid, name), listening)
	}
	killed, elsewhere := of("a", false), of("b", true)
	link := filepath.Join(dir, fmt.Sprintf("%d-c.shm", ended.Process.Pid))
	if err := os.Symlink(dead, link); err != nil {
		t.Fatal(err)
	}
	removeStale(dir, time.Now()) // too young
	for _, path := range []string{dead, live, other, file, killed, elsewhere, link} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("young: %v", err)
		}
	}
	removeStale(dir, time.Now().Add(2*deadAfter))
	if _, err := os.Lstat(killed); err == nil {
		t.Error("the socket of a process that is gone is left")
	}
	for _, path := range []string{dead, live, other, file, elsewhere, link} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed, though its process may be there: %v", err)
		}
	}
	removeStale(dir, time.Now().Add(2*staleAfter))
	if _, err := os.Lstat(dead); err == nil {
		t.Error("a dead process's socket is left")
	}
	for _, path := range []string{live, other, file, elsewhere, link} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

func TestOtherUsers(t *testing.T) {
	for _, c := range []struct {
		peer, ours int
		ok         bool
	}{{1000, 1000, true}, {0, 1000, true}, {0, 0, true}, {1001, 1000, false}, {1000, 0, false}, {65534, 1000, false}} {
		if err := allowed(c.peer, c.ours); (err == nil) != c.ok {
			t.Errorf("user %d at %d: %v", c.peer, c.ours, err)
		}
	}
}
