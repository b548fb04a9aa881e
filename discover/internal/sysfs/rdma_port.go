package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// readPorts reads the ports of an RDMA device.
func (r *reader) readPorts(f files, d *topo.RDMADevice) {
	var numbers []int
	for _, e := range r.list(f.dir + "/ports") {
		n, err := parseUint(e.Name(), 255)
		if err != nil {
			f.warn(topo.CodeMalformed, "ports/"+clip(e.Name()), "want a port number")
			continue
		}
		numbers = append(numbers, n)
	}
	if len(numbers) == 0 && !r.exists(f.dir+"/ports") {
		f.warn(topo.CodeMissing, "ports", "no such directory")
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		r.readPort(f, d, n)
	}
}

func (r *reader) readPort(dev files, d *topo.RDMADevice, n int) {
	sub := "/ports/" + strconv.Itoa(n)
	p := topo.Port{RDMA: d.ID, Number: n}
	p.Facts = make(topo.Facts, 0, 13)
	p.Node = topo.Node{ID: topo.PortID(d.Name, n), Kind: topo.KindPort, Evidence: "/" + dev.dir + sub}
	f := files{r: r, dir: dev.dir + sub, show: dev.show + sub, subject: p.ID, facts: &p.Facts}
	p.State = attribute(f, "state", "state", required, parseNumbered)
	p.PhysState = attribute(f, "phys_state", "phys_state", required, parseNumbered)
	p.LinkLayer = attribute(f, "link_layer", "link_layer", required, parseLinkLayer)
	rate := required
	if d.Driver == "efa" || p.LinkLayer == "Unspecified" {
		rate = quiet // EFA has no rate file
	}
	if s, ok := f.text("rate", rate); ok {
		p.RateRaw = clip(s)
		f.fact(s != "", "rate", "rate")
		bytesPerSec, err := parseRate(s)
		if err != nil {
			f.warn(topo.CodeMalformed, "rate", err.Error())
		} else if bytesPerSec > 0 {
			p.BytesPerSec = &bytesPerSec
			f.fact(true, "bytes_per_sec", "rate")
		}
	}
	p.LID = optionalAttribute(f, "lid", "lid", optional, parseLID)
	p.SMLID = optionalAttribute(f, "sm_lid", "sm_lid", optional, parseLID)
	r.readGIDs(f, &p)
	f.readPKeys(&p)
	dev.readTrafficClass(&p)
	r.t.Ports = append(r.t.Ports, p)
}

// gidGap is how many unused entries in a row end the reading of a GID table.
// The kernel puts a new GID into the lowest free entry, so that used ones stand
// at the beginning, two for each address; a table has 256 entries on common
// adapters.
// Source: drivers/infiniband/core/cache.c (find_gid).
const gidGap = 16

// readGIDs reads a port's GID table. An unused entry costs one read; types and
// interfaces are read for used entries only, as the kernel refuses the others.
// Port.GIDsRead says where the reading stopped.
func (r *reader) readGIDs(f files, p *topo.Port) {
	var indices []int
	for _, e := range r.list(f.dir + "/gids") {
		if n, err := parseUint(e.Name(), 1<<16-1); err == nil {
			indices = append(indices, n)
		}
	}
	if len(indices) == 0 {
		return
	}
	slices.Sort(indices)
	// The kernel leaves no index out, and a capture keeps the last one.
	p.GIDTable = new(indices[len(indices)-1] + 1)
	f.fact(true, "gid_table_size", "gids")
	prefix := f.dir + "/gids/"
	gap := 0
	for i, n := range indices {
		if gap == gidGap {
			p.GIDsRead = &i
			f.fact(true, "gids_read", "gids")
			break
		}
		name := strconv.Itoa(n)
		data, err := r.tree.ReadFile(prefix + name)
		if err != nil {
			f.readError("gids/"+name, optional, err)
			continue
		}
		if unusedGID(data, p.LinkLayer) {
			gap++
			continue
		}
		gap = 0
		gid, err := parseGID(data)
		if err != nil {
			f.warn(topo.CodeMalformed, "gids/"+name, err.Error())
			continue
		}
		g := topo.GID{Index: n, GID: gid}
		g.Type, _ = value(f, "gid_attrs/types/"+name, quiet, parseGIDType)
		g.Netdev, _ = value(f, "gid_attrs/ndevs/"+name, quiet, parseOptionalName)
		if g.Netdev != "" && !slices.Contains(p.Netdevs, g.Netdev) {
			p.Netdevs = append(p.Netdevs, g.Netdev)
		}
		p.GIDs = append(p.GIDs, g)
	}
	f.fact(len(p.GIDs) > 0, "gids", "gids gid_attrs")
	f.fact(len(p.Netdevs) > 0, "netdevs", "gid_attrs/ndevs")
}

// SpareGIDs are the files of GID table entries that a capture can leave out: they
// were not read, and they are not the last entry, which gives the table's size.
// ports were read from recorded.
func SpareGIDs(recorded hosttree.Tree, ports []topo.Port) map[string]bool {
	spare := map[string]bool{}
	for i := range ports {
		p := &ports[i]
		if p.GIDsRead == nil {
			continue
		}
		for n := range *p.GIDTable - 1 {
			name := strings.TrimPrefix(p.Evidence, "/") + "/gids/" + strconv.Itoa(n)
			if _, err := recorded.ReadFile(name); errors.Is(err, hosttree.ErrNotCaptured) {
				spare[name] = true
			}
		}
	}
	return spare
}

var (
	zeroGID  = []byte("0000:0000:0000:0000:0000:0000:0000:0000")
	zeroGUID = zeroGID[20:]
)

// unusedGID says whether a table entry is free: all zero, or on InfiniBand a
// subnet prefix without a port's GUID.
func unusedGID(data []byte, linkLayer string) bool {
	data = bytes.TrimRight(data, "\n")
	return bytes.Equal(data, zeroGID) ||
		linkLayer == "InfiniBand" && len(data) == len(zeroGID) && bytes.HasSuffix(data, zeroGUID)
}

// parseGID wants eight groups of four hexadecimal digits.
func parseGID(data []byte) (string, error) {
	s, err := oneLine(data)
	if err != nil {
		return "", err
	}
	return hexGroups(s, 8)
}

// parseGUID wants four groups of four hexadecimal digits.
func parseGUID(s string) (string, error) { return hexGroups(s, 4) }

func hexGroups(s string, n int) (string, error) {
	ok := len(s) == 5*n-1
	for i := 0; ok && i < len(s); i++ {
		if i%5 == 4 {
			ok = s[i] == ':'
		} else {
			ok = strings.IndexByte("0123456789abcdefABCDEF", s[i]) >= 0
		}
	}
	if !ok {
		return "", fmt.Errorf("%q: want %d groups of 4 hexadecimal digits", clip(s), n)
	}
	return strings.ToLower(s), nil
}

// parseGIDType reads how a GID's packets travel.
func parseGIDType(s string) (string, error) {
	switch s {
	case "", "IB/RoCE v1", "RoCE v1", "RoCE v2":
		return s, nil
	}
	return "", fmt.Errorf("%q: not a GID type", clip(s))
}

// parseNumbered reads the name of "4: ACTIVE".
func parseNumbered(s string) (string, error) {
	number, name, ok := strings.Cut(s, ":")
	name = strings.TrimSpace(name)
	if _, err := parseUint(number, 255); !ok || err != nil || name == "" {
		return "", fmt.Errorf("%q: want a number and a name like 4: ACTIVE", clip(s))
	}
	return name, nil
}

func parseLinkLayer(s string) (string, error) {
	switch s {
	case "InfiniBand", "Ethernet", "Unspecified", "Unknown":
		return s, nil
	}
	return "", fmt.Errorf("%q: not a link layer", clip(s))
}

// parseLID reads a local identifier: "0x3a4".
func parseLID(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
	if err != nil || !strings.HasPrefix(s, "0x") {
		return 0, fmt.Errorf("%q: want a hexadecimal number like 0x3a4", clip(s))
	}
	return int(n), nil
}

// parseRate reads "400 Gb/sec (4X NDR)" and gives bytes per second, 0 where
// the port says none.
func parseRate(s string) (topo.Rate, error) {
	number, rest, _ := strings.Cut(s, " ")
	unit, _, _ := strings.Cut(rest, " ")
	gbps, err := strconv.ParseFloat(number, 64)
	if err != nil || unit != "Gb/sec" || !(gbps >= 0 && gbps <= 1e6) {
		return 0, fmt.Errorf("%q: want a rate like 400 Gb/sec (4X NDR)", clip(s))
	}
	return topo.Rate(gbps*1e9/8 + 0.5), nil
}

// A port's partition keys are read up to the end of the table or to pkeyGap
// unused entries in a row. A subnet manager fills the lowest free entry; on
// InfiniBand a table has 128 entries, on Ethernet one.
// Source: opensm/osm_pkey_mgr.c.
const (
	maxPKeys = 128
	pkeyGap  = 8
)

// readPKeys reads the used entries of a port's partition key table. It asks
// for each by its number: listing the table would cost more.
// Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (f files) readPKeys(p *topo.Port) {
	gap := 0
	for i := 0; i < maxPKeys && gap < pkeyGap; i++ {
		name := "pkeys/" + strconv.Itoa(i)
		s, there, ok := f.lookup(name, optional)
		if !there {
			return
		}
		gap++
		if !ok {
			continue
		}
		key, err := parseHex(s, 4)
		if err != nil {
			f.warn(topo.CodeMalformed, name, err.Error())
			continue
		}
		if key.Uint() != 0 {
			p.PKeys = append(p.PKeys, key)
			f.fact(true, "pkeys", "pkeys")
			gap = 0
		}
	}
}

// readTrafficClass reads what NVIDIA's driver package (MLNX_OFED, DOCA) puts
// into the packets of a port's connections. f are the files of the device. An
// empty file sets nothing; the fact says that it was read.
func (f files) readTrafficClass(p *topo.Port) {
	f.subject = p.ID
	name := "tc/" + strconv.Itoa(p.Number) + "/traffic_class"
	data, err := f.r.tree.ReadFile(f.dir + "/" + name)
	if err != nil {
		f.readError(name, optional, err)
		return
	}
	if p.TrafficClass, err = parseTrafficClass(data); err != nil {
		f.warn(topo.CodeMalformed, name, err.Error())
		return
	}
	p.Facts.Set("traffic_class", topo.SourceSysfs, "../../tc/{number}/traffic_class")
}

const globalClass = "Global tclass="

// parseTrafficClass reads "Global tclass=106". Other lines with a tclass are
// rules for single addresses.
func parseTrafficClass(data []byte) (*int, error) {
	if len(data) > maxAttr {
		return nil, errors.New("too long for an attribute")
	}
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line), " \t\r\n") // not before it: captures keep a line by how it begins
		number, global := strings.CutPrefix(text, globalClass)
		switch {
		case global:
			n, err := parseCount(number, 255)
			if err != nil {
				return nil, err
			}
			return &n, nil
		case text != "" && !strings.Contains(text, "tclass="):
			return nil, fmt.Errorf("%q: want Global tclass=N", clip(text))
		}
	}
	return nil, nil
}
