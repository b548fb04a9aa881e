package lane

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
)

// Links reads the state of links, and their error counters.
type Links struct {
	sysfs string
	of    map[probe.LinkKey]*topo.Link
	t     *topo.Topology
}

// NewLinks prepares to read the links of a host, whose name in keys is host; sysfs is where /sys is.
func NewLinks(t *topo.Topology, host, sysfs string) *Links {
	l := &Links{sysfs: sysfs, of: map[probe.LinkKey]*topo.Link{}, t: t}
	for i := range t.Links {
		for _, direction := range []string{"up", "down", "both"} {
			l.of[probe.Key(host, t.Links[i].ID, direction)] = &t.Links[i]
		}
	}
	return l
}

// Look is the state of links at one moment.
type Look struct {
	links  *Links
	keys   []probe.LinkKey
	before []map[string]int64
}

// Look reads the links of a path. It leaves out those of other hosts, and those of which the kernel says
// nothing.
func (l *Links) Look(path []probe.LinkKey) *Look {
	out := &Look{links: l}
	seen := map[topo.LinkID]bool{}
	for _, key := range path {
		link := l.of[key]
		if link == nil || seen[link.ID] {
			continue
		}
		seen[link.ID] = true
		if state, counters := l.read(link); state != "" || len(counters) > 0 {
			out.keys, out.before = append(out.keys, key), append(out.before, counters)
		}
	}
	return out
}

// Since reads the links again: the state that they have now, and what was counted since Look. A counter
// that went back was reset, and counts from 0.
func (k *Look) Since() []probe.LinkState {
	out := []probe.LinkState{}
	for i, key := range k.keys {
		state, after := k.links.read(k.links.of[key])
		s := probe.LinkState{Link: key, State: state}
		for name, n := range after {
			was, known := k.before[i][name]
			if n < was {
				was = 0
			}
			if known && n > was {
				if s.Counters == nil {
					s.Counters = map[string]int64{}
				}
				s.Counters[name] = n - was
			}
		}
		out = append(out, s)
	}
	return out
}

// read reads one link. Sources: Documentation/ABI/stable/sysfs-class-infiniband,
// testing/sysfs-class-net, testing/sysfs-class-net-statistics, testing/sysfs-bus-pci and
// testing/sysfs-bus-pci-devices-aer_stats.
func (l *Links) read(link *topo.Link) (state string, counters map[string]int64) {
	counters = map[string]int64{}
	switch link.Kind {
	case topo.LinkPCIe:
		dir := l.sysfs + "/bus/pci/devices/" + link.B.Name()
		state = pcieState(FileText(dir+"/current_link_speed"), FileText(dir+"/current_link_width"))
		for _, file := range []string{"aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"} {
			addAER(counters, file, FileText(dir+"/"+file))
		}
	case topo.LinkPort:
		if device, number, ok := l.rdmaPort(link.B); ok {
			dir := l.sysfs + "/class/infiniband/" + device + "/ports/" + strconv.Itoa(number)
			_, state, _ = strings.Cut(FileText(dir+"/state"), ": ") // "4: ACTIVE"
			addCounters(counters, dir+"/counters")
			addCounters(counters, dir+"/hw_counters")
			break
		}
		dir := l.sysfs + "/class/net/" + link.B.Name()
		state = FileText(dir + "/operstate")
		addCounters(counters, dir+"/statistics")
	}
	return state, counters
}

func (l *Links) rdmaPort(id topo.ID) (device string, number int, ok bool) {
	k := slices.IndexFunc(l.t.Ports, func(p topo.Port) bool { return p.ID == id })
	if k < 0 {
		return "", 0, false
	}
	return l.t.Ports[k].RDMA.Name(), l.t.Ports[k].Number, true
}

// generations are PCIe's by the speed of a lane, as the kernel writes it.
var generations = map[string]string{"2.5": "gen1", "5.0": "gen2", "8.0": "gen3", "16.0": "gen4", "32.0": "gen5", "64.0": "gen6"}

// pcieState is "gen5 x16" of "32.0 GT/s PCIe" and "16"; "" not known.
func pcieState(speed, width string) string {
	number, _, _ := strings.Cut(speed, " ")
	if n, err := strconv.Atoi(width); err != nil || n < 1 || n > 32 || number == "" || number == "Unknown" {
		return ""
	}
	generation, ok := generations[number]
	if !ok {
		generation = number + " GT/s"
	}
	return generation + " x" + width
}

// addAER adds the lines "RxErr 0" of a file; their sum is left out.
func addAER(to map[string]int64, file, lines string) {
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) != 2 || strings.HasPrefix(f[0], "TOTAL_") {
			continue
		}
		if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			to[file+"/"+f[0]] = n
		}
	}
}

// errorWords are in the names of counters of what should not happen: errors, losses, repetitions, and
// signs of congestion.
var errorWords = []string{"err", "drop", "discard", "downed", "recovery", "missed", "overrun", "collisions", "nak", "retry", "retrans",
	"timeout", "out_of_", "duplicate", "cnp", "ecn", "xmit_wait", "integrity"}

// maxCounters bounds the files of one folder.
const maxCounters = 512

// addCounters takes the counters of troubles in a folder, one a file.
func addCounters(to map[string]int64, dir string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return // not every device has this folder
	}
	for _, f := range files[:min(len(files), maxCounters)] {
		name := strings.ToLower(f.Name())
		if !slices.ContainsFunc(errorWords, func(t string) bool { return strings.Contains(name, t) }) {
			continue
		}
		if n, err := strconv.ParseInt(FileText(filepath.Join(dir, f.Name())), 10, 64); err == nil {
			to[f.Name()] = n
		}
	}
}

// maxFile bounds what is read of a file of the system: smaps is the longest.
const maxFile = 4 << 20

// FileText is what a file of the system holds, without white space around; "" where it cannot be read.
func FileText(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
