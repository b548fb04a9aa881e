package nettext

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

var (
	caLine   = regexp.MustCompile(`^CA:? '([^']{1,64})'$`)
	portLine = regexp.MustCompile(`^Port ([0-9]{1,3}):$`)
	mapLine  = regexp.MustCompile(`^(?:([0-9a-f:]+\.[0-7]) +)?([^ ]{1,64}) +(?:\(([^ ]+) - .* fw ([^ ]+) )?port ([0-9]{1,3}) (?:\(([A-Z]+) *\) )?==> ([^ ]{1,64}) \((Up|Down|NA)\)`)
	rdmaLine = regexp.MustCompile(`^(?:link |[0-9]+/[0-9]+: )([^ /]{1,64})/([0-9]{1,3}):? (.*\bstate .*)$`)
	ipLine   = regexp.MustCompile(`^([0-9]{1,9}): ([^ @]{1,64})(?:@[^ ]*)?: <([A-Z_,0-9-]*)> mtu ([0-9]{1,9}) (.*)$`)
)

// Parse reads a text. file is its name, for messages.
func Parse(file string, data []byte) (*Report, error) {
	r := &Report{file: file}
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && (trimmed[0] == '[' || trimmed[0] == '{') {
		if err := r.parseJSON(data); err != nil {
			return nil, err
		}
	} else if err := r.parseText(data); err != nil {
		return nil, err
	}
	if len(r.devices)+len(r.interfaces) == 0 {
		return nil, pkgerr.Errorf("nettext", "none of the texts that are known: %s", strings.Join(Formats, ", "))
	}
	return r, nil
}

// parseText reads the lines of all tools. Those that belong to none are passed over.
func (r *Report) parseText(data []byte) error {
	var ca *device // what the lines below are about
	var at *port
	var n *iface
	line := 0
	for raw := range bytes.Lines(data) {
		line++
		text := strings.TrimSpace(string(raw))
		began := true
		if m := caLine.FindStringSubmatch(text); m != nil {
			ca, at, n = r.ibstat(m[1], line), nil, nil
		} else if m := portLine.FindStringSubmatch(text); m != nil && ca != nil {
			at = ca.port(m[1], r.at(line))
		} else if m := mapLine.FindStringSubmatch(text); m != nil {
			r.mapping(m, line)
			ca, at, n = nil, nil, nil
		} else if m := rdmaLine.FindStringSubmatch(text); m != nil {
			r.rdmaLink(m, line)
			ca, at, n = nil, nil, nil
		} else if m := ipLine.FindStringSubmatch(text); m != nil && deviceName.MatchString(m[2]) {
			n = r.ipHead(m, line)
			ca, at = nil, nil
		} else {
			began = false
		}
		switch {
		case began:
			if why := r.tooMany(); why != "" {
				return pkgerr.Errorf("nettext", "line %d: %s", line, why)
			}
		case at != nil:
			at.detail(text)
		case ca != nil:
			ca.detail(text)
		case n != nil:
			n.detail(strings.Fields(text))
		}
	}
	return nil
}

func (r *Report) ibstat(name string, line int) *device {
	if !deviceName.MatchString(name) {
		return nil
	}
	return r.add(sourceIBStat, name, line)
}

// detail reads a line of ibstat's about the device.
func (d *device) detail(text string) {
	key, value, _ := strings.Cut(text, ": ")
	switch key {
	case "CA type":
		d.HCAType = word(value)
	case "Firmware version":
		d.Firmware = word(value)
	case "Node GUID":
		d.NodeGUID = guid(value)
	case "System image GUID":
		d.SysImageGUID = guid(value)
	}
}

// detail reads a line of ibstat's about a port.
func (p *port) detail(text string) {
	key, value, _ := strings.Cut(text, ": ")
	switch key {
	case "State":
		p.setState(value)
	case "Physical state":
		p.PhysState = word(value)
	case "Rate":
		number, _, _ := strings.Cut(value, " ")
		if gbps, err := strconv.ParseFloat(number, 64); err == nil && gbps > 0 && gbps <= 1e5 {
			p.BytesPerSec = new(topo.Rate(gbps*1e9/8 + 0.5))
		}
	case "Base lid":
		p.setLID(value)
	case "SM lid":
		p.SMLID = number(value, 0xffff)
	case "Port GUID":
		p.guid = guid(value)
	case "Link layer":
		if value == "InfiniBand" || value == "Ethernet" {
			p.LinkLayer = value
		}
	}
}

// mapping reads "0000:17:00.0 mlx5_0 (MT4129 - PART) NAME fw 28.39.1002 port 1 (ACTIVE) ==> ib0 (Up)",
// of which the short form has "mlx5_0 port 1 ==> ib0 (Up)". Up means that there is a carrier, Down that there
// is no carrier or that the interface is switched off.
func (r *Report) mapping(m []string, line int) {
	if !deviceName.MatchString(m[2]) || !deviceName.MatchString(m[7]) {
		return
	}
	d := r.add(sourceMap, m[2], line)
	if bdf, err := topo.ParseBDF(m[1]); err == nil {
		d.BDF = &bdf
	}
	d.HCAType, d.Firmware = word(m[3]), word(m[4])
	p := d.port(m[5], r.at(line))
	if p == nil {
		return
	}
	p.setState(m[6])
	p.setNetdev(m[7])
	n := r.addInterface(sourceMap, m[7], line)
	switch m[8] {
	case "Up":
		n.Carrier = new(true)
	case "Down":
		n.State = "down"
	}
}

// rdmaLink reads "link mlx5_0/1 subnet_prefix fe80:... lid 12 state ACTIVE physical_state LINK_UP netdev ib0";
// before iproute2 5.0 a line began with "0/1: mlx5_0/1: ".
func (r *Report) rdmaLink(m []string, line int) {
	if !deviceName.MatchString(m[1]) {
		return
	}
	p := r.add(sourceRDMA, m[1], line).port(m[2], r.at(line))
	if p == nil {
		return
	}
	words := strings.Fields(m[3])
	for i := 0; i+1 < len(words); i += 2 {
		switch value := words[i+1]; words[i] {
		case "state":
			p.setState(value)
		case "physical_state":
			p.setPhysState(value)
		case "lid":
			p.setLID(value)
		case "sm_lid":
			p.SMLID = number(value, 0xffff)
		case "netdev":
			p.setNetdev(value)
		}
	}
}

// ipHead reads "3: ib0@if5: <BROADCAST,UP,LOWER_UP> mtu 2044 qdisc mq master bond0 state UP ...".
func (r *Report) ipHead(m []string, line int) *iface {
	n := r.addInterface(sourceIP, m[2], line)
	n.Index, n.MTU = number(m[1], 1<<30), number(m[4], 1<<30)
	n.setFlags(strings.Split(m[3], ","))
	words := strings.Fields(m[5])
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "state":
			n.setState(words[i+1])
		case "master":
			if deviceName.MatchString(words[i+1]) {
				n.Master = words[i+1]
			}
		}
	}
	return n
}

// detail reads a line below an interface: "link/ether 02:...", "inet 10.0.0.1/24 ...", and with -d what
// kind it is and what it is of.
func (n *iface) detail(words []string) {
	if len(words) == 0 {
		return
	}
	if kind, ok := strings.CutPrefix(words[0], "link/"); ok && len(words) > 1 {
		n.Type = word(kind)
		n.setMAC(words[1])
	}
	switch {
	case len(words) < 2:
	case words[0] == "inet", words[0] == "inet6":
		n.addAddress(words[1])
	case words[0] == "bond" && words[1] == "mode", words[0] == "vlan" && words[1] == "protocol":
		n.LinkKind = words[0]
	}
	for i := 0; i+3 < len(words); i++ {
		if words[i] == "parentbus" && words[i+2] == "parentdev" {
			n.setParent(words[i+1], words[i+3])
		}
	}
}

// entry is an element of what rdma -j link and ip -j addr print.
type entry struct {
	Name string `json:"ifname"`
	// rdma
	Port      *int   `json:"port"`
	State     string `json:"state"`
	PhysState string `json:"physical_state"`
	LID       *int   `json:"lid"`
	SMLID     *int   `json:"sm_lid"`
	Netdev    string `json:"netdev"`
	// ip
	Index     *int     `json:"ifindex"`
	Flags     []string `json:"flags"`
	MTU       *int     `json:"mtu"`
	Master    string   `json:"master"`
	OperState string   `json:"operstate"`
	Type      string   `json:"link_type"`
	MAC       string   `json:"address"`
	ParentBus string   `json:"parentbus"`
	Parent    string   `json:"parentdev"`
	Info      struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
	Addresses []struct {
		Local  string `json:"local"`
		Length *int   `json:"prefixlen"`
	} `json:"addr_info"`
}

// limits bound a document before it is decoded.
var limits = document.Limits{Bytes: 64 << 20, Text: 4096, Elements: 1 << 17, Depth: 16}

func (r *Report) parseJSON(data []byte) error {
	if err := limits.Check(data); err != nil {
		return pkgerr.Errorf("nettext", "%w", err)
	}
	in := document.NewReader(data)
	var list []entry
	err := document.ReadList(in, &list, maxInterfaces, 0, nil)
	if err == nil {
		err = in.End()
	}
	if err != nil {
		return pkgerr.Errorf("nettext", "%w", in.Locate(err))
	}
	for i := range list {
		e := &list[i]
		switch {
		case !deviceName.MatchString(e.Name):
			// ip prints empty objects for what a filter left out.
		case e.Port != nil:
			r.rdmaEntry(e, i)
		default:
			r.ipEntry(e, i)
		}
	}
	if why := r.tooMany(); why != "" {
		return pkgerr.New("nettext", why)
	}
	return nil
}

func (r *Report) element(i int) string { return fmt.Sprintf("%s element %d", r.file, i) }

func (r *Report) rdmaEntry(e *entry, i int) {
	d := r.add(sourceRDMA, e.Name, 0)
	d.Evidence = r.element(i)
	p := d.port(strconv.Itoa(*e.Port), r.element(i))
	if p == nil {
		return
	}
	p.setState(e.State)
	p.setPhysState(e.PhysState)
	p.setNetdev(e.Netdev)
	if e.LID != nil {
		p.setLID(strconv.Itoa(*e.LID))
	}
	if e.SMLID != nil {
		p.SMLID = number(strconv.Itoa(*e.SMLID), 0xffff)
	}
}

func (r *Report) ipEntry(e *entry, i int) {
	n := r.addInterface(sourceIP, e.Name, 0)
	n.Evidence = r.element(i)
	if e.Index != nil && *e.Index > 0 {
		n.Index = e.Index
	}
	if e.MTU != nil && *e.MTU > 0 {
		n.MTU = e.MTU
	}
	if e.Flags != nil {
		n.setFlags(e.Flags)
	}
	n.setState(e.OperState)
	n.setMAC(e.MAC)
	n.setParent(e.ParentBus, e.Parent)
	n.Type, n.LinkKind = word(e.Type), word(e.Info.Kind)
	if deviceName.MatchString(e.Master) {
		n.Master = e.Master
	}
	for _, a := range e.Addresses {
		if a.Length != nil {
			n.addAddress(fmt.Sprintf("%s/%d", a.Local, *a.Length))
		}
	}
}
