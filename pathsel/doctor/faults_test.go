package doctor_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/golden"
)

// fault is a host that was well until one thing broke.
type fault struct {
	on   machine
	with func(testing.TB, *topo.Topology) doctor.Options
	want []doctor.Code // the checks with errors and warnings, all others have none
}

// faults break what RDMA needs, one thing each, on a host without any finding worse than
// info. What people read of it is in testdata/faults.
var faults = map[string]fault{
	"none":                   {on: named(ethernet), with: tries(nil)},
	"gid-index-empty":        {on: told(named(ethernet), "NCCL_IB_GID_INDEX", "7", "/proc/self/environ"), with: tries(nil), want: []doctor.Code{"gid-index-wrong"}},
	"gid-index-v1":           {on: told(named(ethernet), "MC_GID_INDEX", "2", "/proc/self/environ"), with: tries(nil), want: []doctor.Code{"gid-index-wrong"}},
	"gid-address-gone":       {on: withoutAddress, with: tries(nil), want: []doctor.Code{"gid-none-routable"}},
	"port-switched-off":      {on: variant(ethernet, "{change: 0000:1a:00.0, state: down}", "{set: sys/class/net/ens1f0np0/flags, to: 0x1002}"), with: tries(nil), want: []doctor.Code{"port-down"}},
	"port-no-carrier":        {on: variant(ethernet, "{change: 0000:1a:00.0, state: down}"), with: tries(nil), want: []doctor.Code{"port-down"}},
	"port-no-subnet-manager": {on: variant(healthy, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "2: INIT"}`), with: tries(nil), want: []doctor.Code{"port-down"}},
	"mtu-one-port": {on: variant(ethernet, "{change: 0000:1a:00.0, mtu: 1500}"), with: tries(func(v *replies.VerbsReport) { v.Devices[0].Ports[0].ActiveMTUBytes = 1024 }),
		want: []doctor.Code{"mtu-mismatch"}},
	"mtu-not-followed": {on: named(ethernet), with: tries(func(v *replies.VerbsReport) { v.Devices[0].Ports[0].ActiveMTUBytes = 1024 }), want: []doctor.Code{"mtu-active"}},
	"mtu-peer": {on: named(ethernet), with: func(tb testing.TB, t *topo.Topology) doctor.Options {
		o := tries(nil)(tb, t)
		o.Peer = variant(ethernet, "{change: 0000:1a:00.0, mtu: 1500}", "{change: 0000:9b:00.0, mtu: 1500}")(tb)
		return o
	}, want: []doctor.Code{"mtu-peer"}},
	"memlock-tiny":   {on: limited(named(ethernet), 64<<10, 64<<10, new(false)), with: tries(nil), want: []doctor.Code{"memlock"}},
	"memlock-small":  {on: limited(named(ethernet), 8<<30, -1, new(false)), with: tries(nil), want: []doctor.Code{"memlock"}},
	"refused":        {on: named(ethernet), with: tries(refuses(16<<20, "ENOMEM")), want: []doctor.Code{"registration-refused"}},
	"refused-cgroup": {on: named(ethernet), with: tries(refuses(4096, "EAGAIN")), want: []doctor.Code{"registration-refused"}},
	"silent": {on: named(ethernet), with: tries(func(v *replies.VerbsReport) {
		v.Devices[0] = replies.VerbsDevice{Name: "mlx5_0", Silent: true, Step: "ibv_reg_mr of 4096 bytes", Ports: v.Devices[0].Ports}
	}), want: []doctor.Code{"registration-refused"}},
}

// One fault is one finding, and nothing else is blamed.
func TestOneFault(t *testing.T) {
	files := map[string]bool{}
	for name, f := range faults {
		files[name+".txt"] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := f.on(t)
			r, err := doctor.Run(host, f.with(t, host))
			if err != nil {
				t.Fatal(err)
			}
			var got []doctor.Code
			for _, x := range r.Findings() {
				if x.Severity != doctor.Info && !slices.Contains(got, x.Code) {
					got = append(got, x.Code)
				}
			}
			if !slices.Equal(got, f.want) {
				t.Errorf("%v are blamed, want %v", got, f.want)
			}
			golden.Check(t, filepath.Join("testdata", "faults", name+".txt"), r.Text(doctor.TextOptions{}))
		})
	}
	found, err := filepath.Glob(filepath.Join("testdata", "faults", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !files[filepath.Base(path)] {
			t.Errorf("%s belongs to no fault", path)
		}
	}
}
