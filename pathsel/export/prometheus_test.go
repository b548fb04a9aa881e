package export_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// point is one sample as a strict reader has it: metric, labels, value.
type point struct {
	name   string
	labels map[string]string
	value  float64
}

// readMetrics reads the text exposition format and refuses what Prometheus
// refuses, and what its conventions forbid for gauges.
// Source: prometheus.io/docs/instrumenting/exposition_formats and /practices/naming.
func readMetrics(data []byte) ([]point, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	if !bytes.HasSuffix(data, []byte("\n")) {
		return nil, errors.New("the last line has no end")
	}
	var out []point
	current, helped := "", ""
	done, seen := map[string]bool{}, map[string]bool{}
	for n, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		fault := func(format string, args ...any) error {
			return fmt.Errorf("line %d: %s: %q", n+1, fmt.Sprintf(format, args...), line)
		}
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if done[name] || help == "" {
				return nil, fault("help twice, or none")
			}
			helped = name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != helped || kind != "gauge" || done[name] {
				return nil, fault("type of another metric, or no gauge")
			}
			current, done[name] = name, true
			continue
		}
		p, err := readSample(line)
		if err != nil {
			return nil, fault("%v", err)
		}
		if p.name != current {
			return nil, fault("sample of another metric than %s", current)
		}
		key := line[:strings.LastIndexByte(line, ' ')]
		if seen[key] {
			return nil, fault("sample twice")
		}
		seen[key] = true
		out = append(out, p)
	}
	return out, nil
}

// The forms of a sample and of one of its labels.
var (
	sampleForm = regexp.MustCompile(`^(topoctl_[a-z0-9_]+)(?:\{(.+)\})? (-?[0-9]+)$`)
	labelForm  = regexp.MustCompile(`^([a-z0-9_]+)="((?:[^"\\]|\\[\\n"])+)"(,|$)`)
)

// readSample reads one line: name{label="value",...} number.
func readSample(line string) (point, error) {
	p := point{labels: map[string]string{}}
	m := sampleForm.FindStringSubmatch(line)
	if m == nil {
		return p, errors.New("no sample of ours")
	}
	p.name = m[1]
	for rest := m[2]; rest != ""; {
		l := labelForm.FindStringSubmatch(rest)
		if l == nil || p.labels[l[1]] != "" || l[3] == "," && len(l[0]) == len(rest) {
			return p, fmt.Errorf("labels %q", rest)
		}
		p.labels[l[1]], rest = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\"`, `"`).Replace(l[2]), rest[len(l[0]):]
	}
	v, err := strconv.ParseInt(m[3], 10, 64)
	p.value = float64(v)
	return p, err
}

func strictly(t testing.TB, data []byte) []point {
	t.Helper()
	points, err := readMetrics(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return points
}

// find gives the values of a metric's samples that have some labels.
func find(points []point, name string, pairs ...string) []float64 {
	var out []float64
next:
	for _, p := range points {
		if p.name != name {
			continue
		}
		for i := 0; i < len(pairs); i += 2 {
			if p.labels[pairs[i]] != pairs[i+1] {
				continue next
			}
		}
		out = append(out, p.value)
	}
	return out
}

func TestPrometheusOfFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			h := prepare(t, fixturetest.Topology(t, name))
			some := strictly(t, metrics(t, h, export.PrometheusOptions{}))
			all := metrics(t, h, export.PrometheusOptions{AllPairs: true})
			gpus, ports := len(h.GPUs()), len(h.Ports())
			if got := len(find(strictly(t, all), "topoctl_path_class")); got > gpus*ports || got < len(find(some, "topoctl_path_class")) {
				t.Errorf("%d pairs of %d GPUs and %d ports", got, gpus, ports)
			}
			classes := map[string]int{} // of each GPU
			for _, p := range some {
				if p.name == "topoctl_path_class" {
					classes[p.labels["gpu"]]++
				}
			}
			for _, l := range h.GPUs() {
				a, err := h.Affinity(l, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := classes[l.Node().Name()]; got > len(a.Preferred()) {
					t.Errorf("%d ports of %s, which prefers %d", got, l, len(a.Preferred()))
				}
			}
			for _, metric := range []string{"topoctl_port_info", "topoctl_port_usable"} {
				if got := len(find(some, metric)); got != ports {
					t.Errorf("%d samples of %s, want %d", got, metric, ports)
				}
			}
			promtool(t, all)
		})
	}
	for _, name := range []string{"dgx-h100-gpu2-x8", "sriov-pf-vf", "lab-softrdma", "vm-flat"} {
		golden.Check(t, "testdata/prometheus/"+name+".prom", metrics(t, prepare(t, fixturetest.Topology(t, name)), export.PrometheusOptions{}))
	}
}

// promtool is Prometheus' own check, where it is installed.
func promtool(t *testing.T, data []byte) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed: only our own reader has checked the format")
		return
	}
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(data)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// The reader must find faults, or the tests above say nothing.
func TestMetricsReaderIsStrict(t *testing.T) {
	const head = "# HELP topoctl_x x\n# TYPE topoctl_x gauge\n"
	for _, text := range []string{
		"", head + "topoctl_x 1", head + "topoctl_x{} 1\n", head + "topoctl_x{a=\"\"} 1\n", head + "topoctl_x NaN\n", head + "topoctl_x 1.5\n",
		head + "topoctl_x{a=\"b\"} 1\ntopoctl_x{a=\"b\"} 2\n", head + "topoctl_x{a=\"b\",a=\"c\"} 1\n", head + "topoctl_y 1\n", "topoctl_x 1\n",
		head + "topoctl_x{a=\"\\t\"} 1\n", head + "topoctl_x{a=\"\xff\"} 1\n", head + "topoctl_x 1\n" + head, head + "topoctl_x{a=\"b} 1\n",
		"# HELP topoctl_x x\n# TYPE topoctl_x counter\ntopoctl_x 1\n",
	} {
		if points, err := readMetrics([]byte(text)); err == nil {
			t.Errorf("%q was taken: %v", text, points)
		}
	}
}

func TestPrometheusValues(t *testing.T) {
	for _, c := range []struct {
		about, fixture, metric string
		labels                 []string
		want                   []float64
	}{
		{"a GPU with half its lanes", "dgx-h100-gpu2-x8", "topoctl_pcie_link_width", []string{"name", "gpu:2"}, []float64{8}},
		{"which could have all", "dgx-h100-gpu2-x8", "topoctl_pcie_link_width_max", []string{"name", "gpu:2"}, []float64{16}},
		{"a NIC at 2.5 GT/s", "dgx-h100-nic-gen1", "topoctl_pcie_link_transfers_per_second", []string{"name", "mlx5_4"}, []float64{2.5e9}},
		{"its maximum", "dgx-h100-nic-gen1", "topoctl_pcie_link_transfers_per_second_max", []string{"name", "mlx5_4"}, []float64{32e9}},
		{"a port that is down", "dgx-h100-port-down", "topoctl_port_up", []string{"port", "mlx5_6"}, []float64{0}},
		{"carries nothing", "dgx-h100-port-down", "topoctl_port_bytes_per_second", []string{"port", "mlx5_6"}, []float64{0}},
		{"is no choice", "dgx-h100-port-down", "topoctl_port_usable", []string{"port", "mlx5_6"}, []float64{0}},
		{"with the reason", "dgx-h100-port-down", "topoctl_port_info", []string{"port", "mlx5_6", "rejected", "port-down"}, []float64{1}},
		{"its neighbour is up", "dgx-h100-port-down", "topoctl_port_up", []string{"port", "mlx5_9"}, []float64{1}},
		{"at 400 Gb/s", "dgx-h100-port-down", "topoctl_port_bytes_per_second", []string{"port", "mlx5_9"}, []float64{50e9}},
		{"a decoy", "b200", "topoctl_port_info", []string{"port", "mlx5_1", "role", "decoy"}, []float64{1}},
		{"the preferred port", "b200", "topoctl_path_class", []string{"gpu", "1", "port", "mlx5_3", "class", "PIX"}, []float64{1}},
		{"no other", "b200", "topoctl_path_class", []string{"gpu", "1"}, []float64{1}},
		{"what it carries", "b200", "topoctl_path_expected_bytes_per_second", []string{"gpu", "1", "basis", "read"}, []float64{50e9}},
		{"GPUs in the same NUMA node that is not known", "dgx-h100-numa-unknown", "topoctl_gpu_info", []string{"numa_node", ""}, nil},
		{"a class that is not known has no sample", "lab-softrdma", "topoctl_path_class", nil, nil},
		{"a link that a hypervisor invented", "vm-flat", "topoctl_pcie_link_width", []string{"kind", "switch"}, nil},
		{"virtual functions have no link", "sriov-pf-vf", "topoctl_pcie_link_width", []string{"name", "mlx5_2"}, nil},
		{"everything was read", "dgx-h100", "topoctl_complete", nil, []float64{1}},
		{"not everything", "dgx-h100-missing-files", "topoctl_complete", nil, []float64{0}},
	} {
		points := strictly(t, metrics(t, prepare(t, fixturetest.Topology(t, c.fixture)), export.PrometheusOptions{}))
		if got := find(points, c.metric, c.labels...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s %s%v: %v, want %v", c.about, c.fixture, c.metric, c.labels, got, c.want)
		}
	}
}

// What is not known is absent, neither 0 nor NaN.
func TestPrometheusUnknown(t *testing.T) {
	top := fixturetest.Topology(t, "b200")
	for i := range top.PCIDevices {
		if l := top.PCIDevices[i].Link; l != nil {
			l.Width, l.MaxSpeedMTs = nil, nil
		}
	}
	for i := range top.Ports {
		top.Ports[i].State, top.Ports[i].BytesPerSec = "", nil
	}
	for i := range top.Netdevs {
		top.Netdevs[i].State, top.Netdevs[i].BytesPerSec = "unknown", nil
	}
	top.Host.Fingerprint = ""
	points := strictly(t, metrics(t, prepare(t, top), export.PrometheusOptions{}))
	for _, name := range []string{"topoctl_pcie_link_width", "topoctl_pcie_link_transfers_per_second_max", "topoctl_port_up", "topoctl_port_bytes_per_second"} {
		if got := find(points, name); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"topoctl_pcie_link_width_max", "topoctl_pcie_link_transfers_per_second", "topoctl_host_info"} {
		if find(points, name) == nil {
			t.Errorf("%s is gone", name)
		}
	}
}

func TestPrometheusChecks(t *testing.T) {
	points := strictly(t, metrics(t, prepare(t, fixturetest.Topology(t, "a10-2nic")), export.PrometheusOptions{Checks: []export.Check{
		{Code: "link-degraded", Severity: "warning", Findings: 3}, {Code: "acs-redirect", Unknown: true}, {Code: "memlock", Severity: "error"},
	}}))
	for _, c := range []struct {
		metric, code string
		want         []float64
	}{
		{"topoctl_findings", "link-degraded", []float64{3}}, {"topoctl_findings", "memlock", []float64{0}}, {"topoctl_findings", "acs-redirect", nil},
		{"topoctl_check_unknown", "acs-redirect", []float64{1}}, {"topoctl_check_unknown", "memlock", nil},
	} {
		if got := find(points, c.metric, "code", c.code); !slices.Equal(got, c.want) {
			t.Errorf("%s of %s: %v, want %v", c.metric, c.code, got, c.want)
		}
	}
}

// The order of a document's lists changes nothing.
func TestOrderOfInput(t *testing.T) {
	for _, name := range []string{"dgx-h100-port-down", "sriov-pf-vf", "h20-4ib-1roce", "bonds"} {
		texts := func(top *topo.Topology) string {
			h := prepare(t, top)
			v := export.AllGPUs(top)
			data, notes := mooncake(t, h, v)
			out := string(metrics(t, h, export.PrometheusOptions{AllPairs: true})) + string(data) + fmt.Sprint(notes)
			for _, e := range export.Engines() {
				out += environment(t, h, export.EnvOptions{For: e, Visible: v, Rank: -1})
			}
			return out
		}
		want := texts(fixturetest.Topology(t, name))
		for seed := range uint64(5) {
			top := fixturetest.Topology(t, name)
			r := rand.New(rand.NewPCG(seed, 1))
			for _, list := range []struct {
				n    int
				swap func(i, j int)
			}{
				{len(top.PCIDevices), func(i, j int) { top.PCIDevices[i], top.PCIDevices[j] = top.PCIDevices[j], top.PCIDevices[i] }},
				{len(top.RDMADevices), func(i, j int) { top.RDMADevices[i], top.RDMADevices[j] = top.RDMADevices[j], top.RDMADevices[i] }},
				{len(top.Ports), func(i, j int) { top.Ports[i], top.Ports[j] = top.Ports[j], top.Ports[i] }},
				{len(top.Netdevs), func(i, j int) { top.Netdevs[i], top.Netdevs[j] = top.Netdevs[j], top.Netdevs[i] }},
			} {
				r.Shuffle(list.n, list.swap)
			}
			top.Derive()
			if got := texts(top); got != want {
				t.Errorf("%s, seed %d: another result", name, seed)
			}
		}
	}
}

// Names from a host's files cannot break the format.
func FuzzPrometheus(f *testing.F) {
	for _, name := range []string{"mlx5_0", "a\"b", "a\\", "x\n# HELP y", "\xff", "{", "} 1", ",", "\r\n", "\u2028", ""} {
		f.Add(name, name+"2")
	}
	tree := fixturetest.Topology(f, "a10-2nic")
	data, err := tree.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		top, err := topo.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		top.RDMADevices[0].Name, top.RDMADevices[1].Name = first, second
		top.GPUs[0].Model, top.Host.Product, top.Netdevs[0].Name = second, first, second
		points := strictly(t, metrics(t, prepare(t, top), export.PrometheusOptions{AllPairs: true}))
		for _, name := range []string{first, second} {
			lines := strings.Split(strings.ToValidUTF8(name, "\uFFFD"), "\n")
			for i, line := range lines {
				lines[i] = text.Printable(line)
			}
			if name = strings.Join(lines, "\n"); name != "" && len(find(points, "topoctl_port_info", "port", name)) == 0 {
				t.Errorf("the port %q is lost", name)
			}
		}
	})
}
