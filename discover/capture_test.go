package discover

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// anonymous removes what a capture leaves out and how a tree is named.
func anonymous(t *topo.Topology) *topo.Topology {
	t.Host.Name, t.Host.MachineIDSHA256 = "", ""
	var kept topo.Facts
	for _, f := range t.Host.Facts {
		if f.Name != "name" && f.Name != "machine_id_sha256" {
			kept = append(kept, f)
		}
	}
	t.Host.Facts = kept
	return t
}

// TestCaptureReplays: what is found in a capture is what was found on the
// host, redacted.
func TestCaptureReplays(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: slow, and one goroutine")
	}
	for _, name := range longtest.Sample([]string{
		"dgx-h100-missing-files", "cpu-2eth", "mi300x-8nic", "bonds", "dgx-a100", "gb200-tray",
		"lab-softrdma", "dgx-h100-rdma-no-pci", "sriov-pf-vf", "nd96asr-v4", "vm-flat",
	}, 4) {
		t.Run(name, func(t *testing.T) {
			tree, err := fixtures.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{FS: tree, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ToolVersion: "1.2.3"}
			direct, err := Discover(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			var archive bytes.Buffer
			if err := Capture(t.Context(), opts, &archive); err != nil {
				t.Fatal(err)
			}
			opts.FS, err = hosttree.ParseArchive(archive.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			replayed, err := Discover(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			want := anonymous(redact.New(direct).Topology(direct))
			if diff := cmp.Diff(want, anonymous(replayed)); diff != "" {
				t.Errorf("direct and redacted (-), replayed (+):\n%s", diff)
			}
			var again bytes.Buffer
			if err := Capture(t.Context(), opts, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(archive.String(), again.String()); diff != "" {
				t.Errorf("captured again:\n%s", diff)
			}
		})
	}
}

// TestCaptureGivesNothingAway looks for what identifies a machine in the text
// of its capture.
func TestCaptureGivesNothingAway(t *testing.T) {
	tree := hosttree.NewMem()
	const dev = "sys/devices/pci0000:00/0000:00:01.0"
	config := make([]byte, 4096)
	binary.LittleEndian.PutUint32(config[0x100:], 0x14810001) // AER, next 0x148
	binary.LittleEndian.PutUint32(config[0x148:], 0x00010003) // device serial number, the last
	copy(config[0x14c:], "\x2a\x1a\x29\xff\xff\x9f\x59\xb8")
	for name, text := range map[string]string{
		"etc/hostname": "gpu12\n", "etc/machine-id": strings.Repeat("c0ffee00", 4) + "\n",
		"proc/4712/status":              "Name:\ttopoctl\nGroups:\t4711\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1\n",
		"proc/4712/environ":             "AWS_KEY=h1dd3n\x00UCX_IB_GID_INDEX=3\x00HOME=/home/h1dd3n\x00",
		"proc/4712/uid_map":             "         0          0 4294967295\n",
		"etc/nccl.conf":                 "NCCL_SOCKET_IFNAME=h1dd3n\nNCCL_IB_GID_INDEX=1\n",
		"proc/4712/limits":              "Max open files            4711                 4711                 files\nMax locked memory         65536                unlimited            bytes\n",
		"proc/cmdline":                  "BOOT_IMAGE=/vmlinuz root=/dev/mapper/vault token=s3cr3t iommu=pt ro\n",
		"proc/driver/nvidia/version":    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (root@builder7)  Sat\nGCC version:  builder7\n",
		"sys/module/secret_sensor/x":    "1\n",
		"sys/module/nvidia/refcnt":      "4711\n",
		"sys/devices/system/cpu/online": "0-3\n",
		"proc/1/cgroup":                 "0::/kubepods/pod0badcafe\n",
		"proc/sys/kernel/hostname":      "gpu12\n", "proc/sys/kernel/osrelease": "6.8.0\n",
		"sys/class/dmi/id/sys_vendor": "ACME\n", "sys/class/dmi/id/product_name": "Box\n",
		"sys/class/dmi/id/product_serial": "S3R14L\n", "sys/class/dmi/id/product_uuid": "4c4c4544-0000-1111-8222-333344445555\n",
		dev + "/class": "0x020000\n", dev + "/vendor": "0x15b3\n", dev + "/device": "0x1021\n", dev + "/config": string(config),
		dev + "/net/eth0/address": "b8:59:9f:29:1a:2a\n", dev + "/net/eth0/type": "1\n", dev + "/net/eth0/mtu": "1500\n",
		dev + "/net/eth0/ifalias": "uplink of gpu12\n",
	} {
		if err := tree.AddFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"sys/bus/pci/devices/0000:00:01.0": "../../../devices/pci0000:00/0000:00:01.0",
		"proc/self":                        "4712",
		"sys/class/net/eth0":               "../../devices/pci0000:00/0000:00:01.0/net/eth0",
	} {
		if err := tree.AddSymlink(name, target); err != nil {
			t.Fatal(err)
		}
	}
	rtnl := func(context.Context) (*replies.NetlinkReport, error) {
		return &replies.NetlinkReport{
			Schema: replies.SchemaNetlink, Links: []replies.Link{{Index: 2, Name: "eth0", MAC: "b8:59:9f:29:1a:2a", PermMAC: "b8:59:9f:29:1a:2b"}},
			Addresses: []replies.Address{{Link: 2, CIDR: "10.7.8.9/24"}}, Routes: []replies.Route{{Link: 2, Dst: "default", Gateway: "10.7.8.1"}},
		}, nil
	}
	p := live(t, nil, rtnl)
	p.tree, p.read = tree, sysfs.Read
	p.opts.Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out bytes.Buffer
	if err := p.capture(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	text := strings.ToLower(out.String())
	for _, secret := range []string{
		"gpu12", "c0ffee", "s3r14l", "333344445555", "b8:59:9f", "10.7.8", "-- etc/hostname", "-- etc/machine-id", "_serial", "2a 1a 29", "4711", "4712", "0badcafe", "vault", "s3cr3t", "builder7", "secret_sensor", "h1dd3n",
	} {
		if strings.Contains(text, secret) {
			t.Errorf("the capture holds %q", secret)
		}
	}
	for _, fact := range []string{"# date:     2026-01-02t03:04:05z", "acme", "0x15b3", "02:00:00:00:00:01", "192.0.2.9/24", "6.8.0"} {
		if !strings.Contains(text, fact) {
			t.Errorf("the capture lacks %q", fact)
		}
	}
	m, err := hosttree.ParseArchive(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	data, err := m.ReadFile(replies.NetlinkPath)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Discover(t.Context(), Options{FS: m})
	if err != nil {
		t.Fatal(err)
	}
	want := &topo.Software{Modules: []string{"nvidia"}, GPUModule: "open", KernelOptions: []string{"iommu=pt"},
		Memlock: &topo.Memlock{SoftBytes: new(int64(65536)), Exempt: new(true)},
		Environment: &topo.Environment{Settings: []topo.Setting{
			{Name: "NCCL_IB_GID_INDEX", Value: "1", Where: "/etc/nccl.conf"}, {Name: "UCX_IB_GID_INDEX", Value: "3", Where: "/proc/self/environ"},
		}}}
	if diff := cmp.Diff(want, again.Host.Software); diff != "" {
		t.Errorf("software (-want +replayed):\n%s", diff)
	}
	var report replies.NetlinkReport
	if err := json.Unmarshal(data, &report); err != nil || report.Schema != replies.SchemaNetlink {
		t.Errorf("recorded answers: %+v, %v", report, err)
	}
}

// TestCaptureSpareGIDs: of a GID table a capture holds what was read and the last
// entry, and the table is as large as before when it is read again.
func TestCaptureSpareGIDs(t *testing.T) {
	tree, err := fixtures.Open("lab-softrdma")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := Discover(t.Context(), Options{FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := Capture(t.Context(), Options{FS: tree}, &archive); err != nil {
		t.Fatal(err)
	}
	m, err := hosttree.ParseArchive(archive.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	replayed, err := Discover(t.Context(), Options{FS: m})
	if err != nil {
		t.Fatal(err)
	}
	for i := range direct.Ports {
		was, is := &direct.Ports[i], &replayed.Ports[i]
		if diff := cmp.Diff([]*int{was.GIDTable, was.GIDsRead}, []*int{is.GIDTable, is.GIDsRead}); diff != "" {
			t.Errorf("%s: direct (-), replayed (+):\n%s", was.ID, diff)
		}
		held, err := m.ReadDir(strings.TrimPrefix(is.Evidence, "/") + "/gids")
		want := *was.GIDTable
		if was.GIDsRead != nil {
			want = *was.GIDsRead + 1
		}
		if err != nil || len(held) != want {
			t.Errorf("%s: the capture holds %d entries of %d, want %d: %v", was.ID, len(held), *was.GIDTable, want, err)
		}
	}
	if *direct.Ports[0].GIDTable != 1024 {
		t.Errorf("a table of %d", *direct.Ports[0].GIDTable)
	}
}

// TestCaptureKeepsRefusal: limits that could not be read cannot be read in the
// capture either, and none are made up.
func TestCaptureKeepsRefusal(t *testing.T) {
	for patch, warnings := range map[string]int{"{unreadable: proc/self/limits, error: EACCES}": 1, "{set: proc/self/limits, to: nothing}": 1, "{remove: proc/self}": 0} {
		tree, err := fixtures.OpenFile([]byte("machine: m\ndescription: x\nbase: cpu-2eth\npatches:\n- " + patch + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		direct, err := Discover(t.Context(), Options{FS: tree})
		if err != nil {
			t.Fatal(err)
		}
		var archive bytes.Buffer
		if err := Capture(t.Context(), Options{FS: tree}, &archive); err != nil {
			t.Fatal(err)
		}
		m, err := hosttree.ParseArchive(archive.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		replayed, err := Discover(t.Context(), Options{FS: m})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(direct.Warnings, replayed.Warnings); diff != "" || len(direct.Warnings) != warnings || replayed.Host.Software.Memlock != nil {
			t.Errorf("%s: direct (-), replayed (+):\n%s", patch, diff)
		}
	}
}

func TestCaptureFails(t *testing.T) {
	if err := Capture(t.Context(), Options{Root: t.TempDir()}, &bytes.Buffer{}); err == nil {
		t.Error("an empty directory: no error")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Capture(ctx, Options{FS: smallTree(t)}, &bytes.Buffer{}); err == nil {
		t.Error("cancelled: no error")
	}
}

func TestWithoutSerial(t *testing.T) {
	loop := make([]byte, 4096)
	binary.LittleEndian.PutUint32(loop[0x100:], 0x10010001) // leads to itself
	for _, config := range [][]byte{nil, make([]byte, 64), make([]byte, 256), make([]byte, 260), make([]byte, 4096), loop} {
		before := bytes.Clone(config)
		if got := withoutSerial(config); !bytes.Equal(got, before) {
			t.Errorf("%d bytes without a serial number are changed", len(config))
		}
	}
}
