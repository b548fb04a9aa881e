package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/hosttree"
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
	p.Node = topo.Node{ID: topo.PortID(d.Name, n), Kind: topo.KindPort, Evidence: "/" + dev.dir + sub}
	f := files{r: r, dir: dev.dir + sub, show: dev.show + sub, subject: p.ID}
	p.State, _ = value(f, "state", required, parseNumbered)
	p.PhysState, _ = value(f, "phys_state", required, parseNumbered)
	p.LinkLayer, _ = value(f, "link_layer", required, parseLinkLayer)
	rate := required
	if d.Driver == "efa" || p.LinkLayer == "Unspecified" {
		rate = quiet // EFA has no rate file
	}
	if s, ok := f.text("rate", rate); ok {
		v, err := parseRate(s)
		if err != nil {
			f.warn(topo.CodeMalformed, "rate", err.Error())
		} else if v > 0 {
			p.BytesPerSec = &v
		}
		p.RateRaw = clip(s)
	}
	p.LID = pointer(f, "lid", optional, parseLID)
	p.SMLID = pointer(f, "sm_lid", optional, parseLID)
	r.readGIDs(f, &p)
	f.readPKeys(&p)
	p.Facts = portFacts(&p)
	dev.readTrafficClass(&p)
	r.t.Ports = append(r.t.Ports, p)
}

// portFacts names the file of each attribute that was read, ordered by name.
func portFacts(p *topo.Port) topo.Facts {
	facts := make(topo.Facts, 0, 13)
	add := func(set bool, name, where string) {
		if set {
			facts = append(facts, fact(name, where))
		}
	}
	add(p.BytesPerSec != nil, "bytes_per_sec", "rate")
	add(p.GIDTable != nil, "gid_table_size", "gids")
	add(len(p.GIDs) > 0, "gids", "gids gid_attrs")
	add(p.GIDsRead != nil, "gids_read", "gids")
	add(p.LID != nil, "lid", "lid")
	add(p.LinkLayer != "", "link_layer", "link_layer")
	add(len(p.Netdevs) > 0, "netdevs", "gid_attrs/ndevs")
	add(p.PhysState != "", "phys_state", "phys_state")
	add(len(p.PKeys) > 0, "pkeys", "pkeys")
	add(p.RateRaw != "", "rate", "rate")
	add(p.SMLID != nil, "sm_lid", "sm_lid")
	add(p.State != "", "state", "state")
	return facts
}

// gidGap is how many unused entries in a row end the reading of a GID table.
// The kernel puts a new GID into the lowest free entry, so that used ones stand
// at the beginning, two for each address; a table has 256 entries on common
// adapters.
// Source: drivers/infiniband/core/cache.c (find_gid).
const gidGap = 16

// readGIDs reads a port's GID table. An unused entry costs one read, and only
// used ones are asked for their type and interface (the kernel refuses that
// for the others). Port.GIDsRead says where the reading stopped.
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
	prefix := f.dir + "/gids/"
	gap := 0
	for i, n := range indices {
		if gap == gidGap {
			p.GIDsRead = &i
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
}

// SpareGIDs are the files of GID table entries that a capture can do without:
// nobody read them, and they are not the last of their table, which tells its
// size. ports were read from recorded.
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
	return "", fmt.Errorf("%q: no GID type", clip(s))
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
	return "", fmt.Errorf("%q: no link layer", clip(s))
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
