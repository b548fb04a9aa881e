package discover

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/internal/text"
)

// Capture discovers a host and writes what it read, redacted, as a text archive:
// the files, and the answers of netlink and NVML. Discover finds the same host
// in the archive (opened with fixtures.OpenFile and passed as Options.FS), with
// placeholders for names, addresses and serial numbers. The archive leaves out
// files that only identify the machine and GID table entries that were not read.
func Capture(ctx context.Context, opts Options, w io.Writer) error {
	p, closeTree, err := open(opts)
	if err != nil {
		return err
	}
	defer closeTree()
	return newPipeline(p, opts).capture(ctx, w)
}

func (p pipeline) capture(ctx context.Context, w io.Writer) error {
	recorder := hosttree.NewRecorder(p.tree)
	p.tree = recorder
	t, raw, err := p.run(ctx)
	if err != nil {
		return err
	}
	r := redact.New(t)
	raw = rawReplies{gpus: r.GPUReport(raw.gpus), netlink: r.NetlinkReport(raw.netlink)}
	recorded := recorder.Recorded()
	spare := sysfs.SpareGIDs(recorded, t.Ports)
	tree, err := recorded.Rewrite(func(name string, data []byte) []byte {
		if path.Base(name) == "config" {
			data = withoutSerial(data)
		}
		return r.Text(sysfs.ForCapture(name, data))
	}, func(name string) bool { return spare[name] || identifies(name) })
	if err == nil {
		err = addProcess(tree, recorded)
	}
	if err == nil {
		err = raw.addTo(tree)
	}
	if err == nil {
		err = hosttree.WriteArchive(w, tree, p.captureComment(t))
	}
	if err != nil {
		return pkgerr.Errorf("discover", "capture: %w", err)
	}
	return nil
}

// identifies reports whether a capture never contains a file: files that only
// identify the machine, files of processes (they name users and containers) and
// recorded answers (they are written again).
func identifies(name string) bool {
	switch name {
	case "etc/hostname", "etc/machine-id", "proc/sys/kernel/hostname", replies.NVMLPath, replies.NetlinkPath:
		return true
	}
	if process, ok := strings.CutPrefix(name, "proc/"); ok && (process == "self" || process[0] >= '0' && process[0] <= '9') {
		return true
	}
	if path.Base(path.Dir(name)) != "id" || !strings.Contains(name, "/dmi/") {
		return false
	}
	base := path.Base(name)
	return strings.HasSuffix(base, "_serial") || strings.HasSuffix(base, "_uuid") || strings.HasSuffix(base, "_asset_tag")
}

// addProcess adds what is kept of this process's own files, the only files of
// a process that a capture contains.
func addProcess(tree, recorded *hosttree.Mem) error {
	for _, name := range sysfs.ProcessFiles() {
		data, err := recorded.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = tree.AddUnreadable(name, cause.Err)
		} else if err == nil {
			err = tree.AddFile(name, sysfs.ForCapture(name, data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addTo puts the answers where replay looks for them.
func (r rawReplies) addTo(tree *hosttree.Mem) error {
	add := func(name string, report any) error {
		data, err := json.MarshalIndent(report, "", " ")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return tree.AddFile(name, append(data, '\n'))
	}
	if r.gpus != nil {
		if err := add(replies.NVMLPath, r.gpus); err != nil {
			return err
		}
	}
	if r.netlink != nil {
		return add(replies.NetlinkPath, r.netlink)
	}
	return nil
}

func (p pipeline) captureComment(t *topo.Topology) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name+":", text.Printable(value))
		}
	}
	line("capture", strings.TrimSpace(t.Tool.Name+" "+t.Tool.Version))
	if t.CapturedAt != nil {
		line("date", t.CapturedAt.Format(time.RFC3339))
	}
	line("machine", strings.TrimSpace(t.Host.Vendor+" "+t.Host.Product))
	line("kernel", strings.TrimSpace(t.Host.Kernel+" "+t.Host.Arch))
	line("found", fmt.Sprintf("%d PCI functions, %d GPUs, %d RDMA devices, %d network interfaces",
		len(t.PCIDevices), len(t.GPUs), len(t.RDMADevices), len(t.Netdevs)))
	line("replaced", "MAC addresses, GUIDs, GIDs, UUIDs, serial numbers, IP addresses, host name")
	line("left out", "hostname and machine-id files, DMI serial numbers, PCIe serial numbers, most of the kernel's command line")
	return b.String()
}

// withoutSerial clears the device serial number in a PCI function's
// configuration space: network cards put their MAC address there. What is too
// short to hold one is given back as it is.
// Source: PCI Express Base Specification, extended capability 3.
func withoutSerial(config []byte) []byte {
	const (
		first      = 0x100 // where extended capabilities begin
		serialID   = 3
		serialSize = 12
		most       = (4096 - first) / 8 // capabilities that fit: a loop ends
	)
	at := first
	for range most {
		if at < first || at+serialSize > len(config) {
			return config
		}
		head := binary.LittleEndian.Uint32(config[at:])
		if head&0xffff == serialID {
			config = bytes.Clone(config)
			clear(config[at+4 : at+serialSize])
		}
		at = int(head >> 20 &^ 3)
	}
	return config
}
