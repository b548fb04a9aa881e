package owners

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The limits of a look.
const (
	maxProcesses   = 1 << 15
	maxFiles       = 1 << 14 // open files of a process that are looked at
	maxConnections = 1 << 14
	maxEnviron     = 256 << 10 // bytes
)

// Reader looks at the running host again and again. The zero value is ready. It is for one
// goroutine.
type Reader struct {
	sockets map[uint32]int // inodes of sockets that are known, and the process
}

// Read looks once. least is how much a TCP connection must have moved to be told.
func (r *Reader) Read(ctx context.Context, least uint64) (*Snapshot, error) {
	s := &Snapshot{Processes: map[int]*Process{}}
	r.readQueuePairs(s)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.readConnections(s, least)
	if err := r.readProcesses(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// readQueuePairs asks the kernel for the queue pairs of each RDMA device.
func (r *Reader) readQueuePairs(s *Snapshot) {
	devices, err := netlink.RdmaLinkList()
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT): // a kernel without RDMA has none
		return
	case err != nil && !errors.Is(err, netlink.ErrDumpInterrupted):
		s.NoQueuePairs = true
		s.Notes = append(s.Notes, fmt.Sprintf("queue pairs: the kernel does not list its RDMA devices: %v", err))
		return
	}
	for _, d := range devices {
		req := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|cmdQueuePairs, unix.NLM_F_ACK|unix.NLM_F_DUMP)
		req.AddData(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(d.Attrs.Index)))
		messages, err := req.Execute(unix.NETLINK_RDMA, 0)
		for _, m := range messages {
			qps, bad := parseQueuePairs(m)
			for i := range qps {
				if qps[i].Device == "" {
					qps[i].Device = d.Attrs.Name
				}
			}
			s.QueuePairs = append(s.QueuePairs, qps...)
			err = errors.Join(err, bad)
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			s.NoQueuePairs = true
			s.Notes = append(s.Notes, fmt.Sprintf("queue pairs of %s: %v", d.Attrs.Name, err))
		}
	}
}

// readConnections asks the kernel for the TCP connections of this network namespace.
func (r *Reader) readConnections(s *Snapshot, least uint64) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.SocketDiagTCPInfo(family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			s.Notes = append(s.Notes, fmt.Sprintf("TCP connections: %v", err))
			continue
		}
		for _, c := range list {
			if c == nil || c.TCPInfo == nil || c.InetDiagMsg == nil || len(s.Connections) == maxConnections {
				continue
			}
			id := &c.InetDiagMsg.ID
			local, ok := netip.AddrFromSlice(id.Source)
			if !ok || local.Unmap().IsLoopback() || c.TCPInfo.Bytes_acked+c.TCPInfo.Bytes_received < least {
				continue
			}
			s.Connections = append(s.Connections, Connection{Local: local.Unmap(), Inode: c.InetDiagMsg.INode,
				Cookie:    uint64(id.Cookie[0]) | uint64(id.Cookie[1])<<32,
				SentBytes: c.TCPInfo.Bytes_acked, ReceivedBytes: c.TCPInfo.Bytes_received})
		}
	}
}

// readProcesses looks at the processes: whose the connections are, and the variables of owners and
// of others.
func (r *Reader) readProcesses(ctx context.Context, s *Snapshot) error {
	pids, err := listProcesses()
	if err != nil {
		s.Notes = append(s.Notes, fmt.Sprintf("processes: %v", err))
	}
	if err := r.findSockets(ctx, s, pids); err != nil {
		return err
	}
	owner := map[int]bool{}
	for _, q := range s.QueuePairs {
		owner[q.PID] = true
	}
	for _, c := range s.Connections {
		owner[c.PID] = c.PID != 0
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := &Process{PID: pid, Variables: map[string]string{}}
		if data, err := readSome("/proc/"+strconv.Itoa(pid)+"/environ", maxEnviron); err == nil {
			p.Variables, p.Readable = parseEnviron(data), true
		}
		if !owner[pid] && (!engaged(p.Variables) || pid == os.Getpid()) {
			continue
		}
		if data, err := readSome("/proc/"+strconv.Itoa(pid)+"/comm", 64); err == nil {
			p.Name = strings.TrimSuffix(string(data), "\n")
		}
		s.Processes[pid] = p
	}
	return nil
}

// findSockets finds out whose the connections are. A socket stays that of its process, so only
// new ones are looked for.
func (r *Reader) findSockets(ctx context.Context, s *Snapshot, pids []int) error {
	if r.sockets == nil {
		r.sockets = map[uint32]int{}
	}
	missing := map[uint32]bool{}
	for i := range s.Connections {
		if _, known := r.sockets[s.Connections[i].Inode]; !known && s.Connections[i].Inode != 0 {
			missing[s.Connections[i].Inode] = true
		}
	}
	for _, pid := range pids {
		if len(missing) == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, inode := range socketsOf(pid) {
			if missing[inode] {
				r.sockets[inode] = pid
				delete(missing, inode)
			}
		}
	}
	for i := range s.Connections {
		s.Connections[i].PID = r.sockets[s.Connections[i].Inode]
	}
	return nil
}

// listProcesses are the processes of this PID namespace.
func listProcesses() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 && len(out) < maxProcesses {
			out = append(out, pid)
		}
	}
	return out, err
}

// socketsOf are the inodes of a process's sockets; none where it belongs to another user.
func socketsOf(pid int) []uint32 {
	at := "/proc/" + strconv.Itoa(pid) + "/fd"
	dir, err := os.Open(at)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFiles)
	if err != nil {
		return nil
	}
	var out []uint32
	for _, name := range names {
		target, err := os.Readlink(at + "/" + name)
		if err != nil {
			continue
		}
		number, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 32); err == nil {
			out = append(out, uint32(inode))
		}
	}
	return out
}

func readSome(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
