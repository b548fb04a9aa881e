//go:build linux

package vmlab

// This file sets up a machine's NICs from inside: names, addresses, RDMA devices.
// The first process does it at boot, and tests do it after they broke something.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const classNet = "/sys/class/net"

// Command runs a program and gives its complaint as an error.
func Command(ctx context.Context, program string, args ...string) error {
	return command(ctx, "", program, args...)
}

func command(ctx context.Context, input, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// NetDev finds the interface with the address of a rail's NIC, whatever its name is.
func NetDev(host, rail int) (string, error) {
	want := MAC(host, rail)
	names, err := os.ReadDir(classNet)
	if err != nil {
		return "", err
	}
	for _, n := range names {
		mac, err := os.ReadFile(filepath.Join(classNet, n.Name(), "address"))
		if err == nil && strings.TrimSpace(string(mac)) == want {
			return n.Name(), nil
		}
	}
	return "", fmt.Errorf("rail %d: no interface has the address %s", rail, want)
}

// Wait polls a condition, whose error says what is missing.
func Wait(ctx context.Context, condition func() error) error {
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Configure gives the NICs of rails their names, MTUs and addresses, and starts them.
// What is done already is left as it is.
func Configure(ctx context.Context, host int, nics ...NIC) error {
	// One process for all: each takes an emulated processor a tenth of a second to start.
	var batch strings.Builder
	for _, nic := range nics {
		name, err := NetDev(host, nic.Rail)
		if err != nil {
			return err
		}
		want := RailNetDev(nic.Rail)
		if name != want {
			fmt.Fprintf(&batch, "link set %s down\nlink set %s name %s\n", name, name, want)
		}
		if nic.MTU > 0 {
			fmt.Fprintf(&batch, "link set %s mtu %d\n", want, nic.MTU)
		}
		fmt.Fprintf(&batch, "link set %s up\naddr replace %s/24 dev %s\n", want, Address(host, nic.Rail), want)
	}
	return command(ctx, batch.String(), "ip", "-b", "-")
}

// AddRDMA makes the Soft-RoCE devices of rails that have none.
func AddRDMA(ctx context.Context, rails ...int) error {
	var batch strings.Builder
	for _, rail := range rails {
		dev := RDMADev(rail)
		if _, err := os.Stat("/sys/class/infiniband/" + dev); err != nil {
			fmt.Fprintf(&batch, "link add %s type rxe netdev %s\n", dev, RailNetDev(rail))
		}
	}
	return command(ctx, batch.String(), "rdma", "-b", "-")
}

// Carrier says why an interface cannot send yet.
func Carrier(name string) error {
	data, err := os.ReadFile(filepath.Join(classNet, name, "carrier"))
	if err != nil {
		return fmt.Errorf("%s is down: %w", name, err)
	}
	if strings.TrimSpace(string(data)) != "1" {
		return fmt.Errorf("%s has no carrier", name)
	}
	return nil
}

// PortActive says why an RDMA device cannot send yet.
func PortActive(rail int) error {
	state, err := os.ReadFile("/sys/class/infiniband/" + RDMADev(rail) + "/ports/1/state")
	if err != nil {
		return err
	}
	if !strings.Contains(string(state), "ACTIVE") {
		return fmt.Errorf("%s port 1 is %s", RDMADev(rail), strings.TrimSpace(string(state)))
	}
	return nil
}

// PCI is the folder of a rail's PCI function in sysfs.
func PCI(rail int) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(classNet, RailNetDev(rail), "device"))
	if err != nil {
		return "", err
	}
	// A virtio NIC is a device on the function.
	if strings.HasPrefix(filepath.Base(dir), "virtio") {
		dir = filepath.Dir(dir)
	}
	return dir, nil
}
