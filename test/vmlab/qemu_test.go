package vmlab

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func boot(kvm bool) Boot {
	return Boot{Host: 2, TSCKHz: 2600000, KVM: kvm, Kernel: "/k", Initrd: "/i", Console: "/c", Monitor: "/m",
		Ports: map[string]string{"init": "/p0", "suite": "/p1", "output": "/p2"},
		Rail:  func(rail int) string { return fmt.Sprint("/r", rail) }}
}

// devices are the values of an option.
func values(args []string, option string) []string {
	var out []string
	for i := 0; i+1 < len(args); i++ {
		if args[i] == option {
			out = append(out, args[i+1])
		}
	}
	return out
}

func TestArgs(t *testing.T) {
	args, err := qemuArgs(FourNodes(), boot(false))
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string][]string{
		"-accel": {"tcg,thread=multi,tb-size=256"}, "-cpu": {"max"}, "-m": {"512"}, "-smp": {"4,sockets=4,cores=1,threads=1"},
		"-kernel": {"/k"}, "-initrd": {"/i"}, "-serial": {"file:/c"},
		"-numa": {
			"node,nodeid=0,cpus=0-0,memdev=mem0", "node,nodeid=1,cpus=1-1,memdev=mem1",
			"node,nodeid=2,cpus=2-2,memdev=mem2", "node,nodeid=3,cpus=3-3,memdev=mem3",
			"dist,src=0,dst=1,val=21", "dist,src=0,dst=2,val=31", "dist,src=0,dst=3,val=31",
			"dist,src=1,dst=2,val=31", "dist,src=1,dst=3,val=31", "dist,src=2,dst=3,val=21",
		},
		"-netdev": {
			"stream,id=net0,server=off,addr.type=unix,addr.path=/r0", "stream,id=net1,server=off,addr.type=unix,addr.path=/r1",
			"stream,id=net2,server=off,addr.type=unix,addr.path=/r2", "stream,id=net3,server=off,addr.type=unix,addr.path=/r3",
			"stream,id=net99,server=off,addr.type=unix,addr.path=/r99",
		},
	} {
		if got := values(args, option); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", option, got, want)
		}
	}
	devices := values(args, "-device")
	for _, want := range []string{
		"pxb-pcie,id=pxb2,bus_nr=96,bus=pcie.0,addr=0x12,numa_node=3",
		"pcie-root-port,id=rp20_1,bus=pxb0,addr=0x1,chassis=", // its chassis follows
		"x3130-upstream,id=up25,bus=dn22_2",
		"e1000e,id=nic1,netdev=net1,mac=52:54:00:00:02:01,romfile=,bus=dn26_0",
		"virtio-net-pci,id=nic2,netdev=net2,mac=52:54:00:00:02:02,romfile=,speed=25000,duplex=full,rx_queue_size=1024,bus=rp40_0",
		"bochs-display,id=gpu1,bus=dn26_1",
		"virtio-net-pci,id=nic99,netdev=net99,mac=52:54:00:00:02:63,romfile=,speed=25000,duplex=full,rx_queue_size=1024,bus=pcie.0,addr=0x1d",
		"virtserialport,bus=serial.0,chardev=port1,name=suite",
	} {
		if !slices.ContainsFunc(devices, func(d string) bool { return strings.HasPrefix(d, want) }) {
			t.Errorf("no device %s in\n%s", want, strings.Join(devices, "\n"))
		}
	}
	chassis := map[string]bool{}
	for _, d := range devices {
		if _, rest, ok := strings.Cut(d, "chassis="); ok {
			if chassis[rest[:2]] {
				t.Errorf("two ports have chassis and slot of %s", d)
			}
			chassis[strings.SplitN(rest, ",", 2)[0]] = true
		}
	}
	if words := values(args, "-append")[0]; !strings.Contains(words, " vmlab.host=2 tsc_early_khz=2600000") {
		t.Errorf("the kernel is told %q", words)
	}
}

func TestArgsKVM(t *testing.T) {
	args, err := qemuArgs(Rails(), boot(true))
	if err != nil {
		t.Fatal(err)
	}
	if got := values(args, "-accel")[0] + " " + values(args, "-cpu")[0]; got != "kvm host" {
		t.Error(got)
	}
	if words := values(args, "-append")[0]; strings.Contains(words, "tsc_early_khz") {
		t.Error("a processor that is not emulated is told its clock")
	}
	m := Rails()
	m.CPUs = 3
	if _, err := qemuArgs(m, boot(true)); err == nil {
		t.Error("hardware that does not add up is taken")
	}
}

func TestNICProperties(t *testing.T) {
	p := NICProperties(1, NIC{Rail: 2, Model: Virtio})
	for name, want := range map[string]any{"driver": "virtio-net-pci", "rx_queue_size": 1024, "mac": "52:54:00:00:01:02", "romfile": ""} {
		i := slices.IndexFunc(p, func(p property) bool { return p.Name == name })
		if i < 0 || p[i].JSON() != want {
			t.Errorf("%s: %v, want %v", name, p, want)
		}
	}
}

// emulator answers QMP with the given lines, one for each command.
func answering(t *testing.T, conn net.Conn, greeting string, answers ...string) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		fmt.Fprintln(conn, greeting)
		in := bufio.NewScanner(conn)
		for _, a := range answers {
			if !in.Scan() {
				return
			}
			fmt.Fprintln(conn, a)
		}
	}()
}

func TestMonitor(t *testing.T) {
	here, there := net.Pipe()
	answering(t, there, `{"QMP": {"version": {}}}`, `{"return": {}, "id": 1}`,
		"{\"event\": \"DEVICE_DELETED\", \"data\": {}}\n{\"return\": {\"a\": 1}, \"id\": 2}",
		`{"error": {"class": "GenericError", "desc": "Device 'x' not found"}, "id": 3}`)
	m, err := newMonitor(here)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got, err := m.Run("query-x", []byte(`{"a": 1}`)); err != nil || string(got) != `{"a": 1}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := m.Run("device_del", nil); err == nil || err.Error() != "qmp: device_del: Device 'x' not found" {
		t.Error(err)
	}
	there.Close()
	if _, err := m.Run("query-x", nil); err == nil {
		t.Error("an emulator that is gone answers")
	}
}

func TestMonitorGreeting(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	answering(t, there, `{"HTTP": 1}`)
	if _, err := newMonitor(here); err == nil {
		t.Error("anybody is taken for an emulator")
	}
}

// The counter's rate is what a second of it is.
func TestTSCKHz(t *testing.T) {
	khz, err := tscKHz()
	if err != nil {
		t.Fatal(err)
	}
	again, err := tscKHz()
	if err != nil || again != khz {
		t.Errorf("%d and then %d, %v", khz, again, err)
	}
	if runtime.GOARCH == "amd64" && (khz < 500_000 || khz > 10_000_000) {
		t.Errorf("%d kHz", khz)
	}
}
