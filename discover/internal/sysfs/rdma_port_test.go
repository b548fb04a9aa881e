package sysfs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestPKeys(t *testing.T) {
	const table = nic0 + "/infiniband/mlx5_0/ports/1/pkeys"
	zeros := func(m *machine, from, to int) {
		for i := from; i < to; i++ {
			m.dir(table, fmt.Sprint(i), "0x0000")
		}
	}
	tests := []struct {
		name   string
		change func(*machine)
		want   []topo.HexID
		warn   topo.Code
	}{
		{"whole and limited membership, in the order of the table", func(m *machine) {
			m.dir(table, "0", "0x7fff", "1", "0x8001", "2", "0x0000", "3", "0x0002")
		}, []topo.HexID{"0x7fff", "0x8001", "0x0002"}, ""},
		{"behind a gap", func(m *machine) { zeros(m, 1, 128); m.dir(table, fmt.Sprint(pkeyGap), "0x8001") }, []topo.HexID{"0xffff", "0x8001"}, ""},
		{"behind too long a gap", func(m *machine) { zeros(m, 1, 128); m.dir(table, fmt.Sprint(pkeyGap+1), "0x8001") }, []topo.HexID{"0xffff"}, ""},
		{"all unused", func(m *machine) { zeros(m, 0, 128) }, nil, ""},
		{"no table", func(m *machine) { m.remove(table) }, nil, ""},
		{"more than anybody has", func(m *machine) {
			for i := range 300 {
				m.dir(table, fmt.Sprint(i), fmt.Sprintf("0x8%03x", i))
			}
		}, make([]topo.HexID, maxPKeys), ""},
		{"garbled", func(m *machine) { m.dir(table, "0", "ffff0000", "1", "0x8001") }, []topo.HexID{"0x8001"}, topo.CodeMalformed},
		{"denied", func(m *machine) { m.errors[table+"/0"] = syscall.EACCES }, nil, topo.CodeUnreadable},
		{"without a prefix", func(m *machine) { m.dir(table, "0", "8001") }, []topo.HexID{"0x8001"}, ""},
	}
	for _, tt := range tests {
		m := newMachine()
		tt.change(m)
		top := m.read(t)
		p := portOf(t, top, "mlx5_0", 1)
		_, told := p.Facts.Get("pkeys")
		if len(tt.want) == maxPKeys && len(p.PKeys) == maxPKeys {
			tt.want = p.PKeys
		}
		if diff := cmp.Diff(tt.want, p.PKeys); diff != "" || told != (tt.want != nil) {
			t.Errorf("%s: fact %v (-want +got):\n%s", tt.name, told, diff)
		}
		if tt.warn == "" && len(top.Warnings) > 0 || tt.warn != "" &&
			(len(top.Warnings) != 1 || !warned(top, tt.warn, "port:mlx5_0/1: pkeys/0: ") || !strings.HasSuffix(top.Warnings[0].Evidence, "/mlx5_0/ports/1/pkeys/0")) {
			t.Errorf("%s: %q", tt.name, texts(top.Warnings))
		}
	}
}

func TestTrafficClass(t *testing.T) {
	const file = nic0 + "/infiniband/mlx5_0/tc/1/traffic_class"
	tests := []struct {
		name   string
		change func(*machine)
		want   *int
		told   bool
		warn   topo.Code
	}{
		{"set", func(m *machine) { m.file(file, "Global tclass=96\n") }, new(96), true, ""},
		{"set, with rules for addresses", func(m *machine) { m.file(file, "src_ip=10.0.0.1,tclass=3\nGlobal tclass=0\n") }, new(0), true, ""},
		{"rules alone", func(m *machine) { m.file(file, "src_ip=10.0.0.1,tclass=3\n") }, nil, true, ""},
		{"sets nothing", func(m *machine) { m.file(file, "") }, nil, true, ""},
		{"sets nothing, with a line end", func(m *machine) { m.file(file, "\n") }, nil, true, ""},
		{"another driver", func(m *machine) { m.remove(nic0 + "/infiniband/mlx5_0/tc") }, nil, false, ""},
		{"too large", func(m *machine) { m.file(file, "Global tclass=256\n") }, nil, false, topo.CodeMalformed},
		{"no number", func(m *machine) { m.file(file, "Global tclass=-1\n") }, nil, false, topo.CodeMalformed},
		{"garbled", func(m *machine) { m.file(file, "106\n") }, nil, false, topo.CodeMalformed},
		{"long", func(m *machine) { m.file(file, strings.Repeat("\n", 70000)) }, nil, false, topo.CodeMalformed},
		{"denied", func(m *machine) { m.errors[file] = syscall.EACCES }, nil, false, topo.CodeUnreadable},
	}
	for _, tt := range tests {
		m := newMachine()
		tt.change(m)
		top := m.read(t)
		p := portOf(t, top, "mlx5_0", 1)
		f, told := p.Facts.Get("traffic_class")
		if diff := cmp.Diff(tt.want, p.TrafficClass); diff != "" || told != tt.told || told && f.Where != "../../tc/{number}/traffic_class" {
			t.Errorf("%s: fact %v %+v (-want +got):\n%s", tt.name, told, f, diff)
		}
		if tt.warn == "" && len(top.Warnings) > 0 || tt.warn != "" &&
			(len(top.Warnings) != 1 || !warned(top, tt.warn, "port:mlx5_0/1: tc/1/traffic_class: ") || top.Warnings[0].Evidence != "/sys/class/infiniband/mlx5_0/tc/1/traffic_class") {
			t.Errorf("%s: %q", tt.name, texts(top.Warnings))
		}
	}
}
