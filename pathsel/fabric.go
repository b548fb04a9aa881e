package pathsel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/text"
)

// SchemaFabric is the name and major version of a fabric file.
const SchemaFabric = "topoctl.fabric/v1"

// Fabric describes what hosts cannot see of the network: which rail, leaf switch and
// plane each port is cabled to, and the links between the switches. Ports are named within their
// host; equal names on two hosts mean nothing.
type Fabric struct {
	Schema string `json:"schema"`
	// RailOnly says that ports of different rails cannot reach each other: there
	// is no spine between the rails.
	RailOnly bool         `json:"rail_only,omitempty"`
	Hosts    []FabricHost `json:"hosts"`
	// Uplinks join the leaves, and these the switches above them; none: not known.
	Uplinks []FabricUplink `json:"uplinks,omitempty"`
	// Switches says more of the switches that Leaf and Spine name.
	Switches []FabricSwitch `json:"switches,omitempty"`
	// Unjoined is what a discovery of the network found and no host is known for.
	Unjoined []FabricUnjoined `json:"unjoined,omitempty"`
}

// anyHost stands for every host without an entry of its own.
const anyHost = "*"

// FabricHost are the ports of one host.
type FabricHost struct {
	Host  string       `json:"host"` // as the topology calls it, or "*" for every host without an entry of its own
	Ports []FabricPort `json:"ports"`
}

// FabricPort says where one port is cabled to; nil and "" mean unknown.
type FabricPort struct {
	Port  string `json:"port"`           // "mlx5_0/1", "mlx5_0" for each port of the device, or an interface
	Rail  *int   `json:"rail,omitempty"` // the plane of switches that NICs of one place in each host share
	Leaf  string `json:"leaf,omitempty"` // the switch at the other end of the cable
	Plane *int   `json:"plane,omitempty"`
	// LeafPort is the leaf's end of the cable as the leaf calls it, Known by what the cable is known:
	// "ibnetdiscover", "lldp", "fabric file".
	LeafPort string `json:"leaf_port,omitempty"`
	Known    string `json:"known,omitempty"`
}

// FabricSwitch is what is known of a switch.
type FabricSwitch struct {
	Switch string `json:"switch"`          // as FabricPort.Leaf
	ID     string `json:"id,omitempty"`    // what it keeps when its name changes: "sw:2c5eab0300b87b40"
	Kind   string `json:"kind,omitempty"`  // "ib", "ethernet"
	Model  string `json:"model,omitempty"` // as it says itself
	Tier   *int   `json:"tier,omitempty"`  // 0 has hosts
}

// FabricUnjoined is one end of a cable that no host's port is known for.
type FabricUnjoined struct {
	What     string `json:"what"` // "adapter 0xe09d7303007a4bd8", "interface 06:d0:00:c2:75:a1"
	Leaf     string `json:"leaf,omitempty"`
	LeafPort string `json:"leaf_port,omitempty"`
	Reason   string `json:"reason"`
	Known    string `json:"known,omitempty"`
}

// Bounds of a fabric file: the largest clusters have some ten thousand hosts.
const (
	maxFabricBytes = 64 << 20
	maxFabricHosts = 1 << 16
	maxFabricPorts = 512 // of one host
	maxFabricName  = 255
	maxFabricIndex = 1 << 20 // rails and planes
)

// ParseFabric reads a topoctl.fabric/v1 document. Unknown keys are ignored.
func ParseFabric(data []byte) (*Fabric, error) {
	if len(data) > maxFabricBytes {
		return nil, fmt.Errorf("fabric: %d bytes: at most %d are read", len(data), maxFabricBytes)
	}
	var doc struct {
		Schema   string `json:"schema"`
		RailOnly bool   `json:"rail_only"`
		Hosts    []struct {
			Host  string            `json:"host"`
			Ports []json.RawMessage `json:"ports"`
		} `json:"hosts"`
		Uplinks  []json.RawMessage `json:"uplinks"`
		Switches []FabricSwitch    `json:"switches"`
		Unjoined []FabricUnjoined  `json:"unjoined"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fabricSyntax(data, err)
	}
	if err := checkFabricSchema(doc.Schema); err != nil {
		return nil, err
	}
	if len(doc.Hosts) == 0 {
		return nil, errors.New("fabric: no hosts: want a host and its ports, or \"*\" for every host")
	}
	if len(doc.Hosts) > maxFabricHosts {
		return nil, fmt.Errorf("fabric: %d hosts: at most %d are read", len(doc.Hosts), maxFabricHosts)
	}
	f := &Fabric{Schema: SchemaFabric, RailOnly: doc.RailOnly, Hosts: make([]FabricHost, 0, len(doc.Hosts))}
	seen := make(map[string]bool, len(doc.Hosts))
	for i, h := range doc.Hosts {
		if err := checkFabricName(h.Host); err != nil {
			return nil, fmt.Errorf("fabric: hosts[%d]: host %w", i, err)
		}
		if seen[h.Host] {
			return nil, fmt.Errorf("fabric: host %q is listed twice", h.Host)
		}
		seen[h.Host] = true
		ports, err := parseFabricPorts(h.Ports)
		if err != nil {
			return nil, fmt.Errorf("fabric: host %q: %w", h.Host, err)
		}
		f.Hosts = append(f.Hosts, FabricHost{Host: h.Host, Ports: ports})
	}
	uplinks, err := parseUplinks(doc.Uplinks)
	if err != nil {
		return nil, err
	}
	f.Uplinks, f.Switches, f.Unjoined = uplinks, doc.Switches, doc.Unjoined
	if err := checkSwitches(f.Switches); err != nil {
		return nil, err
	}
	if len(f.Unjoined) > maxUplinks {
		return nil, fmt.Errorf("fabric: %d entries of unjoined: at most %d are read", len(f.Unjoined), maxUplinks)
	}
	return f, nil
}

// Encode writes the document, a host and a switch a line.
func (f *Fabric) Encode() ([]byte, error) {
	w := document.NewWriter()
	w.Field("schema", SchemaFabric)
	if f.RailOnly {
		w.Field("rail_only", true)
	}
	document.WriteList(w, "hosts", f.Hosts)
	document.WriteList(w, "uplinks", f.Uplinks)
	document.WriteList(w, "switches", f.Switches)
	document.WriteList(w, "unjoined", f.Unjoined)
	data, err := w.Bytes()
	if err != nil {
		return nil, fmt.Errorf("fabric: encode: %w", err)
	}
	return data, nil
}

// checkSwitches refuses switches without a name, and two of one name or ID.
func checkSwitches(list []FabricSwitch) error {
	if len(list) > maxUplinks {
		return fmt.Errorf("fabric: %d switches: at most %d are read", len(list), maxUplinks)
	}
	seen := make(map[string]bool, len(list))
	for i, s := range list {
		if err := checkSwitchName(s.Switch); err != nil {
			return fmt.Errorf("fabric: switches[%d]: switch %w", i, err)
		}
		if seen[s.Switch] || s.ID != s.Switch && seen[s.ID] {
			return fmt.Errorf("fabric: switches[%d]: switch %q with ID %q is listed twice", i, s.Switch, s.ID)
		}
		seen[s.Switch] = true
		if s.ID != "" {
			seen[s.ID] = true
		}
		if s.Tier != nil && (*s.Tier < 0 || *s.Tier > maxTier) {
			return fmt.Errorf("fabric: switches[%d]: switch %q: tier %d: want 0 to %d", i, s.Switch, *s.Tier, maxTier)
		}
	}
	return nil
}

// maxTier is more than any network has.
const maxTier = 31

// fabricSyntax says where a document is broken.
func fabricSyntax(data []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte{'\n'})
		return fmt.Errorf("fabric: line %d: %w", line, err)
	}
	var odd *json.UnmarshalTypeError
	if errors.As(err, &odd) && odd.Field == "" {
		return fmt.Errorf("fabric: found %s: want an object with \"schema\": %q and \"hosts\"", jsonKind(odd.Value), SchemaFabric)
	}
	return fmt.Errorf("fabric: %w", wrongType(err))
}

// wrongType says what was found and what is wanted where a value is of another
// kind, by the key that it stands at.
func wrongType(err error) error {
	var odd *json.UnmarshalTypeError
	if !errors.As(err, &odd) {
		return err
	}
	want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "a whole number without quotes, or null for unknown",
		reflect.Int64: "a whole number without quotes, or null for unknown",
		reflect.Slice: "an array", reflect.Struct: "an object", reflect.String: "text in quotes"}[odd.Type.Kind()]
	at := ""
	if odd.Field != "" {
		at = odd.Field + ": "
	}
	return fmt.Errorf("%sfound %s: want %s", at, jsonKind(odd.Value), want)
}

// jsonKind is what encoding/json calls a value, in words. A number comes with
// its digits, which are as many as the file has.
func jsonKind(value string) string {
	const most = 40
	switch value {
	case "string":
		return "text"
	case "bool":
		return "true or false"
	case "array", "object":
		return "an " + value
	case "number":
		return "a number"
	}
	if len(value) > most {
		return value[:most] + "..."
	}
	return value
}

func checkFabricSchema(name string) error {
	switch {
	case name == SchemaFabric:
		return nil
	case name == "":
		return fmt.Errorf("fabric: no \"schema\" key: want %q", SchemaFabric)
	case strings.HasPrefix(name, "topoctl.fabric/"):
		return fmt.Errorf("fabric: schema %q is not one that this program reads (%q): use a newer topoctl", name, SchemaFabric)
	}
	return fmt.Errorf("fabric: schema %q is no fabric file (want %q)", name, SchemaFabric)
}

func checkFabricName(name string) error {
	switch {
	case name == "":
		return errors.New("\"\": want a name")
	case len(name) > maxFabricName:
		return fmt.Errorf("%.32q...: %d bytes long, at most %d are read", name, len(name), maxFabricName)
	}
	return nil
}

// parseFabricPorts reads the ports of one host, one by one so that errors name
// them.
func parseFabricPorts(raw []json.RawMessage) ([]FabricPort, error) {
	if len(raw) > maxFabricPorts {
		return nil, fmt.Errorf("%d ports: at most %d are read", len(raw), maxFabricPorts)
	}
	ports := make([]FabricPort, 0, len(raw))
	seen := make(map[string]bool, len(raw))
	for i, data := range raw {
		var p FabricPort
		err := wrongType(json.Unmarshal(data, &p))
		if err == nil {
			err = checkFabricName(p.Port)
		}
		if err != nil {
			return nil, fmt.Errorf("ports[%d]: port %q: %w", i, p.Port[:min(len(p.Port), 32)], err)
		}
		if seen[p.Port] {
			return nil, fmt.Errorf("port %q is listed twice", p.Port)
		}
		seen[p.Port] = true
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("port %q: %w", p.Port, err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func (p *FabricPort) check() error {
	for _, n := range []struct {
		name  string
		value *int
	}{{"rail", p.Rail}, {"plane", p.Plane}} {
		if n.value != nil && (*n.value < 0 || *n.value > maxFabricIndex) {
			return fmt.Errorf("%s %d: want 0 to %d, or null for unknown", n.name, *n.value, maxFabricIndex)
		}
	}
	for _, n := range []struct{ name, value string }{{"leaf", p.Leaf}, {"leaf_port", p.LeafPort}, {"known", p.Known}} {
		if len(n.value) > maxFabricName {
			return fmt.Errorf("%s: %d bytes long, at most %d are read", n.name, len(n.value), maxFabricName)
		}
	}
	return nil
}

// cabling is what the fabric file says of one port: -1 and "" are unknown.
type cabling struct {
	rail, plane int
	leaf        string
	evidence    string
}

var cabledNowhere = cabling{rail: -1, plane: -1}

// cable gives the cabling of each port of a host, by Port.Index. A port that
// the host's own entry names and the host lacks is an error; in the entry for
// every host it is a problem to tell, because not every host has the same ports.
func (f *Fabric) cable(name string, h *Host) ([]cabling, []Reason, error) {
	out := make([]cabling, len(h.ports))
	for i := range out {
		out[i] = cabledNowhere
	}
	if f == nil {
		return out, nil, nil
	}
	entry := f.entry(name)
	if entry == nil {
		return out, []Reason{{codeFabricGap, fmt.Sprintf("the fabric file has no entry for host %q: its rails, leaves and planes are unknown", name), ""}}, nil
	}
	var problems []Reason
	by := make([]string, len(h.ports))
	for _, p := range entry.Ports {
		found := h.named(p.Port)
		evidence := fmt.Sprintf("fabric file, host %q, port %q", entry.Host, p.Port)
		if len(found) == 0 {
			if entry.Host != anyHost {
				return nil, nil, fmt.Errorf("fabric: host %q, port %q: the host has no such port: want one of %s", entry.Host, p.Port, text.Join(h.portNames(), len(h.ports)))
			}
			problems = append(problems, Reason{codeFabricGap, fmt.Sprintf("host %q has no port %q, which the fabric file gives to every host", name, p.Port), evidence})
		}
		for _, i := range found {
			if by[i] != "" {
				return nil, nil, fmt.Errorf("fabric: host %q: ports %q and %q are one port, %s", entry.Host, by[i], p.Port, h.ports[i].Name)
			}
			by[i], out[i] = p.Port, p.cabling(evidence)
		}
	}
	return out, problems, nil
}

// Cabling returns what the file says about each port of a host, by Port.Index; nil and "" mean
// unknown, and with a nil f everything is unknown. name is the host's name in the file.
func (f *Fabric) Cabling(name string, h *Host) ([]FabricPort, error) {
	cabled, _, err := f.cable(name, h)
	if err != nil {
		return nil, err
	}
	out := make([]FabricPort, len(cabled))
	for i, c := range cabled {
		out[i] = FabricPort{Port: h.ports[i].ID.Name(), Leaf: c.leaf}
		if c.rail >= 0 {
			out[i].Rail = &c.rail
		}
		if c.plane >= 0 {
			out[i].Plane = &c.plane
		}
	}
	return out, nil
}

// entry is what the file has for a host: its own, else that for every host.
func (f *Fabric) entry(name string) *FabricHost {
	var any *FabricHost
	for i := range f.Hosts {
		switch f.Hosts[i].Host {
		case name:
			return &f.Hosts[i]
		case anyHost:
			any = &f.Hosts[i]
		}
	}
	return any
}

// unused says that the file has no entry for either host, and which it has.
func (f *Fabric) unused(local, remote string) (Reason, bool) {
	if f == nil || f.entry(local) != nil || f.entry(remote) != nil {
		return Reason{}, false
	}
	names := make([]string, len(f.Hosts))
	for i := range f.Hosts {
		names[i] = fmt.Sprintf("%q", f.Hosts[i].Host)
	}
	hosts := fmt.Sprintf("host %q", local)
	if remote != local {
		hosts = fmt.Sprintf("hosts %q and %q", local, remote)
	}
	effect := "it has no effect"
	if f.RailOnly {
		effect = "their rails, leaves and planes are unknown"
	}
	return Reason{codeFabricGap, fmt.Sprintf("the fabric file has no entry for %s: %s (it has %s)", hosts, effect, several(names)), ""}, true
}

func (p *FabricPort) cabling(evidence string) cabling {
	c := cabling{rail: -1, plane: -1, leaf: p.Leaf, evidence: evidence}
	if p.Rail != nil {
		c.rail = *p.Rail
	}
	if p.Plane != nil {
		c.plane = *p.Plane
	}
	return c
}

// named finds the ports that a name of the fabric file means, the first that
// fits of: "mlx5_0/1", the RDMA device, the interface.
func (h *Host) named(name string) []int {
	for _, fits := range []func(p *Port) bool{
		func(p *Port) bool { return p.ID.Name() == name },
		func(p *Port) bool { return p.Device == name },
		func(p *Port) bool { return p.Netdev == name },
	} {
		var out []int
		for i := range h.ports {
			if fits(&h.ports[i]) {
				out = append(out, i)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

func (h *Host) portNames() []string {
	out := make([]string, 0, len(h.ports))
	for i := range h.ports {
		out = append(out, h.ports[i].Name)
	}
	return out
}

// FabricUplink are the links between a leaf and a spine switch, all of one rate.
type FabricUplink struct {
	Leaf  string `json:"leaf"` // as FabricPort.Leaf
	Spine string `json:"spine"`
	Count int    `json:"count,omitempty"` // of parallel links; 0 is 1
	// BytesPerSec is what each of them carries in one direction; nil not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec,omitempty"`
	Known       string     `json:"known,omitempty"` // by what, as FabricPort.Known
	// Ports are the ends of the links, the leaf's and the spine's, as each calls them; none: not known.
	Ports [][2]string `json:"ports,omitempty"`
}

// Links is how many parallel links there are.
func (u *FabricUplink) Links() int { return max(u.Count, 1) }

// Bounds of uplinks: what the links of a leaf carry together has to fit.
const (
	maxUplinks              = 1 << 16 // entries of a file
	maxLeafLinks            = 1 << 16 // of one leaf
	maxUplinkRate topo.Rate = 1e12    // bytes/s of one link
)

// parseUplinks reads the uplinks of a file, one by one so that errors name them.
func parseUplinks(raw []json.RawMessage) ([]FabricUplink, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > maxUplinks {
		return nil, tooManyUplinks(len(raw))
	}
	list := make([]FabricUplink, len(raw))
	for i, data := range raw {
		var u struct {
			Leaf        string     `json:"leaf"`
			Spine       string     `json:"spine"`
			Count       *int       `json:"count"`
			BytesPerSec *topo.Rate `json:"bytes_per_sec"`
			Known       string     `json:"known"`
			Ports       [][]string `json:"ports"`
		}
		if err := wrongType(json.Unmarshal(data, &u)); err != nil {
			return nil, fmt.Errorf("fabric: uplinks[%d]: %w", i, err)
		}
		list[i] = FabricUplink{Leaf: u.Leaf, Spine: u.Spine, BytesPerSec: u.BytesPerSec, Known: u.Known}
		for _, ends := range u.Ports {
			if len(ends) != 2 {
				return nil, fmt.Errorf("fabric: uplinks[%d]: ports: %d names: want two, the leaf's port and the spine's", i, len(ends))
			}
			list[i].Ports = append(list[i].Ports, [2]string{ends[0], ends[1]})
		}
		if u.Count == nil {
			continue
		}
		if list[i].Count = *u.Count; *u.Count == 0 {
			return nil, fmt.Errorf("fabric: uplinks[%d]: count 0: want 1 to %d, or no entry at all", i, maxLeafLinks)
		}
	}
	if err := CheckUplinks(list); err != nil {
		return nil, err
	}
	return list, nil
}

func tooManyUplinks(n int) error {
	return fmt.Errorf("fabric: %d uplinks: at most %d are read: links between the same two switches are one entry with a count", n, maxUplinks)
}

// CheckUplinks reports what is wrong with a list of uplinks, from a file or made by a program.
func CheckUplinks(list []FabricUplink) error {
	if len(list) > maxUplinks {
		return tooManyUplinks(len(list))
	}
	seen := make(map[[2]string]bool, len(list))
	links := map[string]int{}
	for i := range list {
		u := &list[i]
		if err := u.check(); err != nil {
			return fmt.Errorf("fabric: uplinks[%d]: %w", i, err)
		}
		at := [2]string{u.Leaf, u.Spine}
		if seen[at] {
			return fmt.Errorf("fabric: uplinks[%d]: leaf %q and spine %q are listed twice: say with \"count\" how many links there are", i, u.Leaf, u.Spine)
		}
		seen[at] = true
		if links[u.Leaf] += u.Links(); links[u.Leaf] > maxLeafLinks {
			return fmt.Errorf("fabric: uplinks[%d]: leaf %q has more than %d uplinks", i, u.Leaf, maxLeafLinks)
		}
	}
	return nil
}

func (u *FabricUplink) check() error {
	for _, n := range []struct{ what, name string }{{"leaf", u.Leaf}, {"spine", u.Spine}} {
		if err := checkSwitchName(n.name); err != nil {
			return fmt.Errorf("%s %w", n.what, err)
		}
	}
	switch {
	case u.Leaf == u.Spine:
		return fmt.Errorf("leaf and spine are both %q: want two switches", u.Leaf)
	case u.Count < 0 || u.Count > maxLeafLinks:
		return fmt.Errorf("count %d: want 1 to %d", u.Count, maxLeafLinks)
	case len(u.Ports) != 0 && len(u.Ports) != u.Links():
		return fmt.Errorf("ports of %d links, count %d: want the ports of each link, or none", len(u.Ports), u.Links())
	case u.BytesPerSec != nil && (*u.BytesPerSec < 1 || *u.BytesPerSec > maxUplinkRate):
		return fmt.Errorf("bytes_per_sec %d: want 1 to %d, or null for unknown", *u.BytesPerSec, maxUplinkRate)
	}
	return nil
}

// checkSwitchName refuses names that reports cannot show.
func checkSwitchName(name string) error {
	if err := checkFabricName(name); err != nil {
		return err
	}
	for _, c := range name {
		if !unicode.IsPrint(c) || c == ' ' || c == '>' || c == unicode.ReplacementChar {
			return fmt.Errorf("%q: want printable characters without space and >", name)
		}
	}
	return nil
}

// several names one port, or the first of several and how many more there are.
func several(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	case 2:
		return names[0] + ", " + names[1]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
