package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	suffix = ".shm"
	// maxPath is what fits into a socket's address.
	maxPath = 107
	// staleAfter is how old a socket must be to be taken for a dead process's: a
	// younger one may be bound and not yet listening. Where no process has the number
	// in its name, deadAfter will do: with another namespace of processes, of a
	// container that shares the directory, that is no proof.
	staleAfter = time.Minute
	deadAfter  = time.Second
)

// listener is the transport's socket.
type listener struct {
	*net.UnixListener
	path string
	// alone is the directory where no other engine has a socket, and which goes with this one; "" none.
	alone string
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// listen makes the socket in dir, "" in the user's own.
func listen(dir string) (_ *listener, err error) {
	l := &listener{}
	if dir == "" {
		if dir, l.alone, err = ownDir(); err != nil {
			return nil, err
		}
	}
	if err := l.listen(dir); err != nil {
		return nil, errors.Join(err, l.removeDir())
	}
	return l, nil
}

func (l *listener) listen(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	removeStale(dir, time.Now())
	l.path = filepath.Join(dir, fmt.Sprintf("%d-%s%s", os.Getpid(), randomName(), suffix))
	if len(l.path) > maxPath {
		return fmt.Errorf("%s: a socket's path has at most %d bytes: choose a shorter directory", l.path, maxPath)
	}
	if l.UnixListener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: l.path, Net: "unixpacket"}); err != nil {
		return err
	}
	l.SetUnlinkOnClose(true)
	return nil
}

// ownDir makes a directory that only this user can enter: one for all engines of the user, or
// where another user has taken its name, as all can in /tmp, one that is alone this engine's
// and has a name that no one can take first.
func ownDir() (dir, alone string, err error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = os.TempDir()
	}
	name := fmt.Sprintf("topoctl-%d", os.Geteuid())
	dir = filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", "", err
	}
	if checkDir(dir) == nil {
		return dir, "", nil
	}
	if dir, err = os.MkdirTemp(base, name+"-"); err != nil {
		return "", "", err
	}
	return dir, dir, nil
}

func (l *listener) close() error {
	err := l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if err = errors.Join(err, l.removeDir()); err != nil {
		return pkgerr.Errorf("shm", "%w", err)
	}
	return nil
}

func (l *listener) removeDir() error {
	if l.alone == "" {
		return nil
	}
	if err := os.Remove(l.alone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// checkDir wants a directory that only this user can enter.
func checkDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", dir)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to us (%d)", dir, st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%s can be entered by others (mode %04o): make it 0700", dir, st.Mode&0o7777)
	}
	return nil
}

// removeStale removes sockets of our kind and of our user that nobody listens at
// any more: their processes died without Close. What is in doubt is left.
func removeStale(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || info.Mode().Type() != os.ModeSocket || !strings.HasSuffix(path, suffix) {
			continue
		}
		old := staleAfter
		if ownerIsDead(e.Name()) {
			old = deadAfter
		}
		if now.Sub(info.ModTime()) < old {
			continue
		}
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// ownerIsDead says whether no process has the number that a socket's name begins
// with. Numbers are used again: the reverse says nothing.
func ownerIsDead(name string) bool {
	number, _, ok := strings.Cut(name, "-")
	pid, err := strconv.ParseInt(number, 10, 32)
	return ok && err == nil && pid > 0 && errors.Is(unix.Kill(int(pid), 0), unix.ESRCH)
}

// dial connects to a peer's socket. The path is what a peer says.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || !strings.HasSuffix(path, suffix) || len(path) > maxPath {
		return nil, fmt.Errorf("%.120q is not a socket of the shared memory transport", path)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, err
	}
	u := c.(*net.UnixConn)
	if err := checkPeer(u); err != nil {
		_ = u.Close()
		return nil, err
	}
	return u, nil
}

// oneFD is the room for a descriptor that comes with a packet.
var oneFD = unix.CmsgSpace(4)

// send writes one packet, with a descriptor if fd is not negative.
func send(c *net.UnixConn, b []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := c.WriteMsgUnix(b, rights, nil)
	return err
}

// receive reads one packet and the descriptor that came with it, -1 without. A
// nil oob has the kernel drop descriptors.
func receive(c *net.UnixConn, b, oob []byte) (n, fd int, err error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	fd = -1
	if oobn > 0 {
		fd = oneRight(oob[:oobn])
	}
	switch {
	case err != nil:
	case n == 0:
		err = errors.New("the peer closed the connection")
	case flags&unix.MSG_TRUNC != 0:
		err = errors.New("a packet that is too long")
	case flags&unix.MSG_CTRUNC != 0 && len(oob) > 0:
		err = errors.New("descriptors that were not asked for, or no room for them")
	}
	if err != nil {
		closeFD(fd)
		return 0, -1, err
	}
	return n, fd, nil
}

// oneRight takes the one descriptor out of a control message, and closes others.
func oneRight(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	fd := -1
	for i := range messages {
		rights, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, r := range rights {
			closeFD(fd)
			fd = r
		}
	}
	return fd
}
