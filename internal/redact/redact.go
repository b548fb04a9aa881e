// Package redact replaces what identifies a machine, its owner or its network in a
// topology, in what its libraries said and in the text of its files, and knows the stand-ins again.
package redact

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// Redactor replaces what identifies a machine, its owner or its network by
// placeholders of the same shape:
//
//	host name                        host-1
//	machine id hash                  64 digits, 00...01
//	MAC address                      02:00:00:00:00:01
//	GUID, port GUID                  0200:0000:0000:0001
//	UUID of a GPU or MIG device      GPU-00000000-0000-0000-0000-000000000001
//	unique ID of an AMD GPU          GPU-0000000000000001
//	serial number                    SN00000001
//	LVM physical volume              000000-0000-0000-0000-0000-0000-000001
//	switch id                        same length, 000...01
//	IPv4 address, route              192.0.2.0/24 and other documentation and test ranges
//	IPv6 address, GID                2001:db8:0:1::/64, link-local stays link-local
//
// Equal values get equal placeholders, and a GID or GUID that is made from a
// MAC address or GUID is made from its placeholder. IPv4 addresses of one
// subnet stay in one subnet (of at most 256 addresses) with their last byte
// where it is free. Loopback, multicast, unspecified and IPv4 link-local addresses
// stay, as do device and interface names (but for a MAC, GUID or host name within
// them), PCI addresses and models.
//
// Placeholders are numbered in document order, so that what is redacted already
// stays as it is. A value that only looks like a placeholder, as the MAC addresses of
// Slingshot NICs do, gets one like any other.
//
// A Redactor learns new values from what it is shown. It is not for several
// goroutines at once.
type Redactor struct {
	hosts, digests, serials pool[string]
	volumes                 pool[string] // of LVM
	uuids                   pool[[16]byte]
	macs                    pool[[6]byte]
	guids                   pool[uint64]
	uniqueIDs               pool[uint64] // of AMD GPUs
	switchIDs               pool[string]
	net6                    pool[uint64]       // by the first half of the address
	net4                    pool[netip.Prefix] // by the subnet
	octets                  map[netip.Prefix]map[byte]netip.Addr
	known4                  map[netip.Addr]netip.Addr
	onLink                  []netip.Prefix // subnets of the machine's own addresses

	words    map[string]bool // of models, drivers and names: never replaced in text
	literals []literal       // replaced in text wherever they stand alone

	next *Redactor // redacts again what this one gives, nil for the last
}

// New learns the values of a topology.
//
// Names can hold values, and lists are sorted by names: after redaction the document's order,
// and so the numbers, may be others. Then it is redacted again, until nothing changes.
func New(t *topo.Topology) *Redactor {
	first := learn(t)
	last, redacted := first, first.topology(t)
	for range maxRounds {
		next := learn(redacted)
		again := next.topology(redacted)
		if reflect.DeepEqual(redacted, again) {
			break
		}
		last.next = next
		last, redacted = next, again
	}
	return first
}

// maxRounds bounds how often a document is redacted again. Only one that was made for it needs more.
const maxRounds = 4

// learn makes a Redactor that knows the values of a topology.
func learn(t *topo.Topology) *Redactor {
	r := &Redactor{
		octets: make(map[netip.Prefix]map[byte]netip.Addr),
		known4: make(map[netip.Addr]netip.Addr),
		words:  make(map[string]bool),
	}
	for _, n := range t.Netdevs {
		for _, cidr := range n.Addresses {
			r.learnSubnet(cidr)
		}
	}
	redacted(r, t)
	r.learnLiterals()
	return r
}

// Topology gives a redacted copy.
func (r *Redactor) Topology(t *topo.Topology) *topo.Topology {
	for ; r != nil; r = r.next {
		t = r.topology(t)
	}
	return t
}

func (r *Redactor) topology(t *topo.Topology) *topo.Topology {
	c := redacted(r, t)
	if c.Derived != nil {
		c.Derive() // lists and matrices are ordered by name
	}
	return c
}

// GPUReport gives a redacted copy.
func (r *Redactor) GPUReport(rep *replies.GPUReport) *replies.GPUReport {
	for ; r != nil; r = r.next {
		rep = redacted(r, rep)
	}
	return rep
}

// NetlinkReport gives a redacted copy, nil of nil.
func (r *Redactor) NetlinkReport(rep *replies.NetlinkReport) *replies.NetlinkReport {
	for ; r != nil && rep != nil; r = r.next {
		for _, a := range rep.Addresses {
			r.learnSubnet(a.CIDR)
		}
		rep = redacted(r, rep)
	}
	return rep
}

// secret says what a string may give away.
type secret int

const (
	plain    secret = iota // a name, a model: its words are not taken for a host's name elsewhere
	freeText               // a sentence or path
	hostName
	digest
	uuid
	serial
	mac
	guid
	address // or CIDR, or "default"
	switchID
)

// secrets are the fields that are more than plain, by type and name. Of types of one
// name in topo and replies, fields of one name hold the same.
var secrets = map[string]secret{
	"Host.Name": hostName, "Host.MachineIDSHA256": digest, "Host.Lacks": freeText,
	"Node.Evidence": freeText, "Fact.Where": freeText, "Link.Note": freeText,
	"Warning.Detail": freeText, "Warning.Evidence": freeText, "SourceReport.Detail": freeText,
	"GPU.UUID": uuid, "NVLinkFabric.ClusterUUID": uuid, "GPU.Serial": serial, "MIGInstance.UUID": uuid, "NVMe.Serial": serial,
	"RDMADevice.NodeGUID": guid, "RDMADevice.SysImageGUID": guid, "GID.GID": address,
	"Netdev.MAC": mac, "Netdev.PhysSwitch": switchID, "Netdev.Addresses": address,
	"Route.Dst": address, "Route.Gateway": address,
	"Link.MAC": mac, "Link.PermMAC": mac, "VF.MAC": mac, "Address.CIDR": address,
	"RDMA.NodeGUID": guid, "RDMA.SysImageGUID": guid,
}

func redacted[T any](r *Redactor, v *T) *T {
	if v == nil {
		return nil
	}
	return r.copyOf(reflect.ValueOf(v), plain).Interface().(*T)
}

// copyOf is a deep copy with every string redacted. It knows the types of topo
// and replies: no cycles, no interfaces.
func (r *Redactor) copyOf(v reflect.Value, kind secret) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		c.SetString(r.replace(kind, v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(r.copyOf(v.Elem(), kind))
		}
	case reflect.Slice:
		if !v.IsNil() {
			c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				c.Index(i).Set(r.copyOf(v.Index(i), kind))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			c.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for iter := v.MapRange(); iter.Next(); {
				c.SetMapIndex(r.copyOf(iter.Key(), kind), r.copyOf(iter.Value(), kind))
			}
		}
	case reflect.Struct:
		c.Set(v)
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				c.Field(i).Set(r.copyOf(v.Field(i), secrets[v.Type().Name()+"."+f.Name]))
			}
		}
	default:
		c.Set(v)
	}
	return c
}

// replace gives a string's placeholder.
func (r *Redactor) replace(kind secret, s string) string {
	if s == "" {
		return s
	}
	switch kind {
	case plain:
		r.learnWords(s)
	case freeText:
		return r.text(s)
	case hostName:
		return r.host(s)
	case digest:
		return fmt.Sprintf("%064x", r.digests.number(s))
	case serial:
		return r.serial(s)
	case uuid:
		if id, ok := parseUniqueID(s); ok {
			return fmt.Sprintf("GPU-%016x", r.uniqueID(id))
		}
		if c := r.text(s); c != s || uuidPattern.MatchString(s) {
			return c
		}
		return r.serial(s) // some other form of name for the device
	case switchID:
		return r.switchID(s)
	case address:
		if c, ok := r.cidr(s); ok {
			return c
		}
	}
	return r.text(s)
}

// pool numbers values from 1 in the order in which they are first seen.
type pool[K comparable] struct {
	given map[K]uint64
}

func (p *pool[K]) number(k K) uint64 {
	if n, ok := p.given[k]; ok {
		return n
	}
	if p.given == nil {
		p.given = make(map[K]uint64)
	}
	p.given[k] = uint64(len(p.given)) + 1
	return p.given[k]
}

func (r *Redactor) host(s string) string {
	if s == "localhost" || s == "(none)" {
		return s
	}
	return fmt.Sprintf("host-%d", r.hosts.number(s))
}

// serial keeps what stands for "no serial number": a real one has a digit
// other than zero.
func (r *Redactor) serial(s string) string {
	if !strings.ContainsAny(s, "123456789") {
		return s
	}
	return fmt.Sprintf("SN%08d", r.serials.number(s))
}

// switchID gives a number of the same length in hexadecimal. What is no such
// number is treated as any other text.
func (r *Redactor) switchID(s string) string {
	if !isHex(s) {
		return r.text(s)
	}
	s = strings.ToLower(s)
	return switchIDPlaceholder(s, r.switchIDs.number(s))
}

func switchIDPlaceholder(s string, n uint64) string { return fmt.Sprintf("%0*x", len(s), n) }

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}
