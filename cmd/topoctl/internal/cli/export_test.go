package cli

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// On this machine the GPUs are numbered by what the process was given; AMD's
// driver library counts first, HIP counts what that leaves.
func TestJobGPUs(t *testing.T) {
	host := func(vendor string) *topo.Topology {
		top := &topo.Topology{}
		for i := range 4 {
			id := topo.GPUID(i)
			top.GPUs = append(top.GPUs, topo.GPU{Node: topo.Node{ID: id, Kind: topo.KindGPU}, Index: i, Vendor: vendor})
		}
		top.Derive()
		return top
	}
	for _, c := range []struct {
		about, vendor string
		env           map[string]string
		edit          func(*exportOptions)
		want, fault   string
	}{
		{"nothing set", "nvidia", nil, nil, "gpu:0 gpu:1 gpu:2 gpu:3", ""},
		{"CUDA's", "nvidia", map[string]string{"CUDA_VISIBLE_DEVICES": "3,1"}, nil, "gpu:3 gpu:1", ""},
		{"not AMD's on NVIDIA", "nvidia", map[string]string{"ROCR_VISIBLE_DEVICES": "3"}, nil, "gpu:0 gpu:1 gpu:2 gpu:3", ""},
		{"the flag wins", "nvidia", map[string]string{"CUDA_VISIBLE_DEVICES": "3,1"}, func(o *exportOptions) { o.visible = "2" }, "gpu:2", ""},
		{"not for a fixture", "nvidia", map[string]string{"CUDA_VISIBLE_DEVICES": "3,1"}, func(o *exportOptions) { o.Globals.Fixture = "x" }, "gpu:0 gpu:1 gpu:2 gpu:3", ""},
		{"nor for a file", "nvidia", map[string]string{"CUDA_VISIBLE_DEVICES": "3,1"}, func(o *exportOptions) { o.Globals.From = "x" }, "gpu:0 gpu:1 gpu:2 gpu:3", ""},
		{"a host's container is on the host", "nvidia", map[string]string{"CUDA_VISIBLE_DEVICES": "3"}, func(o *exportOptions) { o.Globals.HostRoot = "/host" }, "gpu:3", ""},
		{"hidden from this process", "nvidia", map[string]string{"CUDA_VISIBLE_DEVICES": "-1"}, nil, "", `CUDA_VISIBLE_DEVICES: visible device "-1"`},
		{"ROCr, then HIP", "amd", map[string]string{"ROCR_VISIBLE_DEVICES": "3,2,1", "HIP_VISIBLE_DEVICES": "2,0"}, nil, "gpu:1 gpu:3", ""},
		{"ROCr, then CUDA's name", "amd", map[string]string{"ROCR_VISIBLE_DEVICES": "3,2", "CUDA_VISIBLE_DEVICES": "1"}, nil, "gpu:2", ""},
		{"HIP before CUDA's name", "amd", map[string]string{"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, nil, "gpu:0", ""},
	} {
		f := newStreams()
		f.Environ = c.env
		o := &exportOptions{Host: &Host{Streams: f.Streams}}
		if c.edit != nil {
			c.edit(o)
		}
		_, v, err := o.host(host(c.vendor))
		var got []string
		for _, g := range v.GPUs {
			got = append(got, string(g.Location))
		}
		switch {
		case c.fault != "" && (err == nil || !strings.HasPrefix(err.Error(), c.fault)):
			t.Errorf("%s: %v, want %q", c.about, err, c.fault)
		case c.fault == "" && (err != nil || strings.Join(got, " ") != c.want):
			t.Errorf("%s: %v, %v; want %s", c.about, got, err, c.want)
		}
		noted := len(v.Notes) > 0 && strings.Contains(strings.Join(v.Notes, " "), "from the environment")
		if applied := c.env != nil && c.want != "gpu:0 gpu:1 gpu:2 gpu:3" && o.visible == "" && c.fault == ""; noted != applied {
			t.Errorf("%s: notes %q", c.about, v.Notes)
		}
	}
}
