package owners

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// attribute builds one of netlink's attributes.
func attribute(kind uint16, value []byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func number(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// message is what a kernel says of a device with a queue pair of a process and one of its own.
func message() []byte {
	return join(
		attribute(1, number(3)), attribute(attrDeviceName, []byte("mlx5_0\x00")),
		attribute(attrPairs|0x8000, join(
			attribute(attrPair, join(attribute(attrPort, number(1)), attribute(21, number(77)), attribute(26, []byte{2}), attribute(27, []byte{3}), attribute(attrPID, number(4312)))),
			attribute(attrPair, join(attribute(21, number(1)), attribute(26, []byte{1}), attribute(29, []byte("ib_core\x00")))),
		)))
}

func TestQueuePairs(t *testing.T) {
	got, err := parseQueuePairs(message())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]QueuePair{{Device: "mlx5_0", Port: 1, PID: 4312}}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := parseQueuePairs(message()[:25]); err == nil {
		t.Error("half a message is read without an error")
	}
}

func FuzzQueuePairs(f *testing.F) {
	f.Add(message())
	f.Add(message()[:30])
	f.Fuzz(func(t *testing.T, data []byte) {
		qps, _ := parseQueuePairs(data)
		for _, q := range qps {
			if q.PID == 0 {
				t.Errorf("%+v", q)
			}
		}
	})
}

func TestEnviron(t *testing.T) {
	got := parseEnviron([]byte("PATH=/bin\x00NCCL_IB_HCA=mlx5_0\x00NCCL_IB_HCA=mlx5_1\x00UCX_NET_DEVICES=mlx5_0:1\x00MC_API_KEY=x\x00odd\x00NCCL_TOPO_FILE=\x00"))
	if diff := cmp.Diff(map[string]string{"NCCL_IB_HCA": "mlx5_0", "UCX_NET_DEVICES": "mlx5_0:1", "NCCL_TOPO_FILE": ""}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAbsorb(t *testing.T) {
	one := QueuePair{Device: "a", PID: 1}
	s := &Snapshot{QueuePairs: []QueuePair{one}, Connections: []Connection{{Cookie: 5, SentBytes: 10}}}
	s.Absorb(&Snapshot{QueuePairs: []QueuePair{one, one, {Device: "b", PID: 1}}, Connections: []Connection{{Cookie: 5, SentBytes: 20, PID: 3}, {Cookie: 6}},
		Processes: map[int]*Process{3: {PID: 3, Name: "x"}}, Notes: []string{"n"}})
	s.Absorb(&Snapshot{Notes: []string{"n"}, Processes: map[int]*Process{3: {PID: 3}}})
	if len(s.QueuePairs) != 3 || len(s.Connections) != 2 || s.Connections[0].SentBytes != 20 || s.Connections[0].PID != 3 || s.Processes[3].Name != "x" || len(s.Notes) != 1 {
		t.Errorf("%+v", s)
	}
}

// A connection of this process between two of this host's own addresses is found with what it
// moved. Loopback is left out, so the test needs another address.
func TestReadFindsOwnConnection(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whose connections are")
	}
	address := ownAddress(t)
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Skipf("%s takes no listener: %v", address, err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	data := make([]byte, 100_000)
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		if _, err := c.Write(data); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.ReadFull(there, make([]byte, len(data))); err != nil {
		t.Fatal(err)
	}
	var r Reader
	s, err := r.Read(t.Context(), 50_000)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(s.Notes, func(n string) bool { return strings.HasPrefix(n, "TCP connections: ") }) {
		t.Skipf("this kernel tells of no connections over netlink (CONFIG_INET_TCP_DIAG): %q", s.Notes)
	}
	for _, x := range s.Connections {
		if x.ReceivedBytes == uint64(len(data)) && x.PID == os.Getpid() && x.Local.String() == address {
			return
		}
	}
	t.Errorf("%+v", s.Connections)
}

// ownAddress is an address of this host other than loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Skipf("the addresses of this host cannot be listed: %v", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this host has no address but loopback")
	return ""
}
