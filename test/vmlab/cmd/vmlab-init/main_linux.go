// Command vmlab-init is the first process of a lab machine. It mounts, loads drivers,
// sets up the NICs as the hardware was stated, runs the suites and turns the machine off.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/test/vmlab"
)

func main() {
	// The lab sees a machine that is off before its suites ended, and shows its console.
	if err := boot(); err != nil {
		fmt.Fprintln(os.Stderr, "vmlab-init:", err)
	}
	syscall.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "vmlab-init: power off:", err)
	}
	select {}
}

func boot() error {
	for _, kv := range []string{"PATH=" + vmlab.ProgramsDir + ":/usr/bin", "HOME=/root", "LC_ALL=C", "TERM=dumb"} {
		k, v, _ := strings.Cut(kv, "=")
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	if err := mounts(); err != nil {
		return err
	}
	host, err := thisHost()
	if err != nil {
		return err
	}
	j, err := vmlab.LoadJob()
	if err != nil {
		return err
	}
	if host > len(j.Machines) {
		return fmt.Errorf("machine %d of %d", host, len(j.Machines))
	}
	if err := syscall.Sethostname(fmt.Appendf(nil, "lab%d", host)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 60*time.Second, fmt.Errorf("the machine was not set up in 60 s"))
	defer cancel()
	if err := vmlab.Command(ctx, "modprobe", append([]string{"-a"}, j.Modules...)...); err != nil {
		return err
	}
	if err := network(ctx, host, j.Machines[host-1]); err != nil {
		return err
	}
	if err := standIns(j.Machines[host-1]); err != nil {
		return err
	}
	return suites(ctx, host, j)
}

func mounts() error {
	for _, m := range []struct{ from, at, kind string }{
		{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"dev", "/dev", "devtmpfs"}, {"shm", "/dev/shm", "tmpfs"},
		{"tmp", "/tmp", "tmpfs"}, {"run", "/run", "tmpfs"}, {"out", vmlab.Out, "tmpfs"}, {"huge", "/dev/hugepages", "hugetlbfs"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.from, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

func thisHost() (int, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return 0, err
	}
	for _, w := range strings.Fields(string(line)) {
		if v, ok := strings.CutPrefix(w, "vmlab.host="); ok {
			host, err := strconv.Atoi(v)
			if err != nil || host < 1 || host > 2 {
				return 0, fmt.Errorf("%s on the kernel's command line: want 1 or 2", w)
			}
			return host, nil
		}
	}
	return 0, fmt.Errorf("no vmlab.host on the kernel's command line")
}

func network(ctx context.Context, host int, m *vmlab.Machine) error {
	if err := vmlab.Command(ctx, "ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	// Answer ARP only for a rail's own address, and only on that rail.
	for file, value := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/"+file, []byte(value), 0o644); err != nil {
			return err
		}
	}
	nics := m.NICs()
	if m.Management {
		nics = append(nics, vmlab.NIC{Rail: vmlab.ManagementRail})
	}
	if err := vmlab.Configure(ctx, host, nics...); err != nil {
		return err
	}
	var numbers []int
	for _, n := range m.NICs() {
		numbers = append(numbers, n.Rail)
	}
	if err := vmlab.AddRDMA(ctx, numbers...); err != nil {
		return err
	}
	// An e1000e has its carrier seconds late.
	for _, n := range m.NICs() {
		if err := vmlab.Wait(ctx, func() error { return vmlab.Carrier(vmlab.RailNetDev(n.Rail)) }); err != nil {
			return err
		}
		if err := vmlab.Wait(ctx, func() error { return vmlab.PortActive(n.Rail) }); err != nil {
			return err
		}
	}
	return nil
}
