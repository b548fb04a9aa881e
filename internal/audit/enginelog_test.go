package audit_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/audit"
)

// The forms of the lines are those of public logs: NVIDIA/nccl issues 1412, 1814 and 1053,
// nccl-mesh-plugin issue 56, openucx/ucx pull requests 3511 and 7950, issues 8967, 9971 and 11011.
func TestParse(t *testing.T) {
	nccl := func(way audit.Way, device string, port, channels, direct int) audit.Use {
		return audit.Use{Engine: audit.NCCL, Host: "n1", PID: 7, Way: way, Device: device, Port: port, Channels: channels, Direct: direct}
	}
	ucx := func(way audit.Way, device string, port, channels int) audit.Use {
		return audit.Use{Engine: audit.UCX, Host: "n1", PID: 9, Way: way, Device: device, Port: port, Channels: channels}
	}
	for _, tt := range []struct {
		name, log string
		want      []audit.Use
	}{
		{"channels over InfiniBand", `
n1:7:289 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>
n1:7:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:2/RoCE [RO]; OOB ib0:192.168.11.1<0>
n1:7:289 [0] NCCL INFO Using network IB
n1:7:301 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:7:301 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1(3)/GDRDMA/Shared
n1:7:301 [0] NCCL INFO Channel 02 : 0[1a000] -> 8[1a000] [send] via NET/IB/1
n1:7:301 [0] NCCL INFO Channel 00/0 : 0[0] -> 7[7] via P2P/CUMEM/read
`, []audit.Use{nccl(audit.RDMA, "mlx5_0", 1, 1, 1), nccl(audit.RDMA, "mlx5_3", 2, 2, 1)}},
		{"a plugin that names its devices", `
n1:7:289 [2] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_2:1/RoCE [RO]; OOB bond0:10.1.1.2<0>
n1:7:1260 [7] NCCL INFO Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/2
`, []audit.Use{nccl(audit.RDMA, "mlx5_2", 1, 1, 0)}},
		{"a plugin that does not", `
n1:7:289 [2] NCCL INFO Channel 03/0 : 47[7] -> 39[7] [receive] via NET/AWS Libfabric/2/GDRDMA
`, []audit.Use{nccl(audit.Unnamed, "AWS Libfabric/2", 0, 1, 1)}},
		{"two ports as one device", `
n1:7:289 [2] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:10.1.1.2<0>
n1:7:289 [2] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2
n1:7:289 [2] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA
`, []audit.Use{nccl(audit.RDMA, "mlx5_0", 0, 1, 1), nccl(audit.RDMA, "mlx5_1", 0, 1, 1)}},
		{"sockets", `
[rank0] n1:7:3048566 [0] NCCL INFO NET/Socket : Using [0]eno1:10.0.0.1<0> [1]eno2:10.0.1.1<0>
n1:7:3048566 [0] NCCL INFO Using network Socket
n1:7:807 [1] NCCL INFO Channel 01/0 : 1[2a000] -> 8[27000] [send] via NET/Socket/1
`, []audit.Use{nccl(audit.TCP, "eno2", 0, 1, 0)}},
		{"the beginning is missing", `
n1:7:807 [1] NCCL INFO Channel 01/0 : 1[1] -> 8[0] [send] via NET/IB/1
`, []audit.Use{nccl(audit.Unnamed, "IB/1", 0, 1, 0)}},
		{"the beginning is missing, over sockets", `
n1:7:807 [1] NCCL INFO Channel 01/0 : 1[1] -> 8[0] [send] via NET/Socket/1
`, []audit.Use{nccl(audit.TCP, "Socket/1", 0, 1, 0)}},
		{"what mpirun, pdsh and kubectl put before a line", `
[1,0]<stdout>:n1:7:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:192.168.11.1<0>
n9: n1:7:301 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
worker-0 | n1:7:301 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
[1,1]<stderr>:[1556608533.470652] [n1:9:0]         wireup.c:825  UCX  INFO  ep_cfg[2]: tag(rc_mlx5/mlx5_0:1);
`, []audit.Use{nccl(audit.RDMA, "mlx5_0", 1, 2, 2), ucx(audit.RDMA, "mlx5_0", 1, 1)}},
		{"NCCL 2.4", `
n1:7:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>
n1:7:301 [0] NCCL INFO Ring 00 : 0 -> 1 [send] via NET/IB/0/GDRDMA
`, []audit.Use{nccl(audit.RDMA, "mlx5_0", 1, 1, 1)}},
		{"a plugin whose devices NCCL names", `
n1:7:289 [0] NCCL INFO NET/AWS Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap79s0'
n1:7:301 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA(PCI)/Shared
`, []audit.Use{nccl(audit.RDMA, "rdmap79s0", 0, 1, 1)}},
		{"lanes of UCX", `
[1556608533.301227] [n1:9:0]         wireup.c:825  UCX  INFO  ep_cfg[1]: tag(self/self knem/knem);
[1556608533.470652] [n1:9:0]         wireup.c:825  UCX  INFO  ep_cfg[2]: tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_4:1); amo(rc_mlx5/mlx5_0:1);
[1750940428.181226] [n1:9:0]      ucp_worker.c:1903 UCX  INFO    ucp_context_0 inter-node cfg#8 tag(rc_mlx5/mlx5_2:1 rc_mlx5/mlx5_0:1)
[1679582609.300318] [n1:9:0]      ucp_worker.c:1783 UCX  INFO    ep_cfg[0]: tag(tcp/eno1) stream(tcp/eno1)
`, []audit.Use{ucx(audit.RDMA, "mlx5_0", 1, 3), ucx(audit.RDMA, "mlx5_2", 1, 1), ucx(audit.RDMA, "mlx5_4", 1, 1), ucx(audit.TCP, "eno1", 0, 2)}},
		{"tables of UCX", `
[1737024667.122978] [n1:9:0]   +---------------------------+----------------------------+--------------------+
[1737024667.122982] [n1:9:0]   | perftest inter-node cfg#0 | active message by ucp_am_send*(fast-completion) from host memory |
[1737024667.122817] [n1:9:0]   |                   0..2038 | short                                     | rc_mlx5/mlx5_0:1                                    |
[1737024667.122825] [n1:9:0]   |                29421..inf | (?) rendezvous zero-copy read from remote | 50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_2:1 |
[1645019897.519924] [n1:9:0]     proto_debug.c:406  UCX  INFO  |    2008..8246 | eager zero-copy copy-out                  | rc_mlx5/mlx5_0:1 |
[1767930429.284906] [n1:9:0]   |                          0..2K | short                              | rc_mlx5/mlx5_1:1/path0                         |
[1767930429.284907] [n1:9:0]   |                      9384..inf | zero-copy                          | cuda_ipc/cuda |
`, []audit.Use{ucx(audit.RDMA, "mlx5_0", 1, 3), ucx(audit.RDMA, "mlx5_1", 1, 1), ucx(audit.RDMA, "mlx5_2", 1, 1)}},
		{"other text", "hello\n[x] y\nNCCL INFO Channel via NET/IB/0\n[1.2] [n1:9:0] | a | rc_mlx5/mlx5_0:1 |\n", nil},
	} {
		var got []audit.Use
		for _, h := range audit.Parse([]byte(tt.log)).Hosts {
			got = append(got, h.Uses...)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestHosts(t *testing.T) {
	log := audit.Parse([]byte("a:1:1 [0] NCCL INFO Channel 0 : 0 -> 1 via NET/X/0\nb:1:1 [0] NCCL INFO Channel 0 : 1 -> 0 via NET/X/0\na:2:2 [0] NCCL INFO Channel 0 : 0 -> 1 via NET/X/0\n"))
	if len(log.Hosts) != 2 || log.Hosts[0].Name != "a" || len(log.Hosts[0].Uses) != 2 || log.Hosts[1].Name != "b" {
		t.Errorf("%+v", log.Hosts)
	}
}

// What NCCL says of GPUDirect RDMA, in the forms of its versions 2.4, 2.7, 2.13, 2.18, 2.26 and 2.30.
func TestEnginelogGPUDirect(t *testing.T) {
	const using = "n1:7:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:1.1.1.1<0>\n"
	off := func(device, said string) []audit.Disabled {
		return []audit.Disabled{{Device: device, Said: said}}
	}
	for said, want := range map[string]audit.Host{
		"NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 1 'mlx5_1' (no module or not supported by GPU)": {
			Disabled: off("mlx5_1", "Disabled for GPU 0[0] / HCA 1 'mlx5_1' (no module or not supported by GPU)")},
		"NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 1 (distance 4 >= 2)":         {Far: off("", "Disabled for GPU 0[0] / HCA 1 (distance 4 >= 2)")},
		"GPU Direct RDMA Disabled for GPU 1a000 / HCA 1 (distance 5 > 4)":                  {Far: off("", "Disabled for GPU 1a000 / HCA 1 (distance 5 > 4)")},
		"GPU Direct RDMA Disabled for GPU 3 / HCA a (distance 5 > 4)":                      {Far: off("", "Disabled for GPU 3 / HCA a (distance 5 > 4)")},
		"NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)":                 {Disabled: off("mlx5_0", "Disabled for HCA 0 'mlx5_0' (no module)")},
		"NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'":                             {Disabled: off("mlx5_0", "Disabled for HCA 0 'mlx5_0'")},
		"NET/IBext_v8 : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'":                        {},
		"GPU Direct RDMA Enabled for GPU 3 / HCA 0 (distance 3 <= 4), read 1 mode Default": {},
		"NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'":                           {},
		"Connected all rings, use ring PXN 0 GDR 0":                                        {NoGDR: true},
		"Connected all rings, use ring PXN 0 GDR 1":                                        {},
		"Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0":                                  {Channels: 1},
		"Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA(PCI)":                      {Channels: 1, Direct: 1},
		"Channel 00/0 : 0[0] -> 8[0] [send] via NET/FasTrak/0(1)/Shared":                   {Channels: 1},
		"Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0":                              {},
	} {
		hosts := audit.Parse([]byte(using + "n1:7:301 [0] NCCL INFO " + said + "\n")).Hosts
		if len(hosts) != 1 {
			t.Errorf("%s: %+v", said, hosts)
			continue
		}
		want.Name, want.Listed, want.Uses = "n1", []string{"mlx5_0", "mlx5_1"}, hosts[0].Uses
		if diff := cmp.Diff(want, hosts[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", said, diff)
		}
	}
	// Two devices that NCCL merged are one channel.
	h := audit.Parse([]byte(using + "n1:7:289 [2] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2\n" +
		"n1:7:289 [2] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2\n")).Hosts[0]
	if h.Channels != 1 || len(h.Uses) != 2 {
		t.Errorf("%+v", h)
	}
}

// A log of any size keeps a bounded number of devices and says what is left out.
func TestBounds(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		b.WriteString("h:" + strings.Repeat("1", i%7+1) + ":1 [0] NCCL INFO Channel 0 : 0 -> 1 via NET/X/" + strings.Repeat("7", i/100) + "\n")
	}
	log := audit.Parse([]byte(b.String()))
	if uses := log.Hosts[0].Uses; len(uses) > 4096 || log.Left == 0 {
		t.Errorf("%d devices, %d left out", len(uses), log.Left)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("n1:7:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]x; OOB ib0:1<0>\nn1:7:2 [0] NCCL INFO Channel 00/0 : 0 -> 1 via NET/IB/0/GDRDMA\n"))
	f.Add([]byte("n1:7:289 [0] NCCL INFO NET/IB : Made virtual device [2] name=a+b\n"))
	f.Add([]byte("[1.2] [n1:9:0] x.c:1 UCX INFO ep_cfg[0]: tag(tcp/eno1) stream(rc_mlx5/mlx5_0:1);\n[1.2] [n1:9:0] | 0..inf | x | 50% on tcp/a |\n"))
	f.Add([]byte("n1:7:289 [0] NCCL INFO NET/X : GPU Direct RDMA Disabled for HCA 0 'a+b' (no module)\nn1:7:2 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		log := audit.Parse(data)
		for _, h := range log.Hosts {
			if h.Name == "" || len(h.Name) > 64 || h.Direct > h.Channels || len(h.Disabled)+len(h.Far) > 512 || len(h.Listed) > 1024 {
				t.Errorf("%+v", h)
			}
			for _, u := range h.Uses {
				if u.Device == "" || len(u.Device) > 64 || u.Channels < 1 || u.Direct > u.Channels || u.Port < 0 || u.PID < 0 {
					t.Errorf("%+v", u)
				}
			}
		}
	})
}
