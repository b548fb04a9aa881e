package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// A port's partition keys are read up to the end of the table or so many
// unused entries in a row. A subnet manager fills the lowest free entry; on
// InfiniBand a table has 128 entries, on Ethernet one.
// Source: opensm/osm_pkey_mgr.c.
const (
	pkeyMost = 128
	pkeyGap  = 8
)

// readPKeys reads the used entries of a port's partition key table. It asks
// for each by its number: listing the table would cost more.
// Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (f files) readPKeys(p *topo.Port) {
	gap := 0
	for i := 0; i < pkeyMost && gap < pkeyGap; i++ {
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
			gap = 0
		}
	}
}

// readTrafficClass reads what NVIDIA's driver package (MLNX_OFED, DOCA) puts
// into the packets of a port's connections. f are the files of the device. A
// file that sets nothing is empty, and the fact says that it was read.
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
		text := strings.TrimSpace(string(line))
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
