package mooncake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/document"
)

// Range is memory by its absolute address.
type Range struct{ Address, Length uint64 }

// valid says whether a range has bytes and an end.
func (r Range) valid() bool { return r.Length > 0 && r.Address <= r.Address+r.Length-1 }

// join sorts ranges, leaves out what is not valid, and makes one of those that touch or overlap.
func join(ranges []Range) []Range {
	sorted := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return !r.valid() })
	slices.SortFunc(sorted, func(a, b Range) int { return cmp.Compare(a.Address, b.Address) })
	out := sorted[:0]
	for _, r := range sorted {
		if n := len(out); n > 0 && r.Address-out[n-1].Address <= out[n-1].Length {
			out[n-1].Length = max(out[n-1].Length, r.Address-out[n-1].Address+r.Length)
			continue
		}
		out = append(out, r)
	}
	return out
}

// descriptor is what is known of a segment. Peers know of more fields, and skip those that they do
// not know.
type descriptor struct {
	Name         string   `json:"name"`
	Protocol     string   `json:"protocol"`
	DataPort     int      `json:"tcp_data_port"`
	ProtoVersion int      `json:"tcp_proto_version"`
	Buffers      []buffer `json:"buffers"`
	// Topoctl is there where the port of the handshake speaks topoctl's own protocol as well.
	Topoctl *topoctlKey `json:"topoctl,omitempty"`
}

// buffer is a range of a descriptor. Its name is the segment's again, over TCP.
type buffer struct {
	Name    string `json:"name"`
	Address uint64 `json:"addr"`
	Length  uint64 `json:"length"`
}

// topoctlKey says who is there.
type topoctlKey struct {
	Name string `json:"name"`
}

const (
	protocolTCP = "tcp"
	maxText     = 1024
	maxBuffers  = 1 << 18
)

// descriptorLimits bound what is decoded of a peer's descriptor: RDMA's have more lists.
var descriptorLimits = document.Limits{
	Bytes: maxReply, Text: maxText, Elements: maxBuffers, Depth: 8,
	CheapLists: map[string]bool{"rkey": true, "lkey": true}, CheapElements: 1 << 22,
}

// smallLimits are those of all other messages.
var smallLimits = document.Limits{Bytes: maxRequest, Text: maxRequest, Elements: 1 << 12, Depth: 8}

// parse decodes JSON within limits. It is refused whole where a type is wrong.
func parse(data []byte, l *document.Limits, into any) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	if err := l.Check(data); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// encode makes JSON as peers write it: compact, with a newline at its end.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("mooncake: %T is not JSON: %v", v, err)) // our own types are
	}
	return b.Bytes()
}

// parseDescriptor reads a peer's descriptor. The error of one for another protocol than TCP names
// the protocol.
func parseDescriptor(data []byte) (*descriptor, error) {
	d := &descriptor{ProtoVersion: 1}
	var protocol struct {
		Protocol json.RawMessage `json:"protocol"`
	}
	if err := parse(data, &descriptorLimits, &protocol); err != nil {
		return nil, err
	}
	// Builds with several protocols write a list.
	if p := bytes.TrimSpace(protocol.Protocol); string(p) != `"`+protocolTCP+`"` {
		return nil, fmt.Errorf("%w: the peer's protocol is %.64s, only %q is spoken here", ErrNoPeer, p, protocolTCP)
	}
	if err := parse(data, &descriptorLimits, d); err != nil {
		return nil, err
	}
	switch {
	case d.Name == "":
		return nil, fmt.Errorf("%w: a descriptor without a name", ErrMalformed)
	case d.DataPort < 1 || d.DataPort > 65535:
		return nil, fmt.Errorf("%w: tcp_data_port %d", ErrMalformed, d.DataPort)
	case d.ProtoVersion < 1:
		return nil, fmt.Errorf("%w: tcp_proto_version %d", ErrMalformed, d.ProtoVersion)
	}
	for _, b := range d.Buffers {
		if !(Range{b.Address, b.Length}).valid() {
			return nil, fmt.Errorf("%w: a buffer of %d bytes at %#x", ErrMalformed, b.Length, b.Address)
		}
	}
	return d, nil
}

// ranges are the buffers, in the order of their addresses.
func (d *descriptor) ranges() []Range {
	out := make([]Range, len(d.Buffers))
	for i, b := range d.Buffers {
		out[i] = Range{b.Address, b.Length}
	}
	slices.SortFunc(out, func(a, b Range) int { return cmp.Compare(a.Address, b.Address) })
	return out
}

// rpcMeta is where the handshake port of a segment is, for peers that find it by a server.
type rpcMeta struct {
	Host string `json:"ip_or_host_name"`
	Port int    `json:"rpc_port"`
}

func parseRPCMeta(data []byte) (rpcMeta, error) {
	var m rpcMeta
	if err := parse(data, &smallLimits, &m); err != nil {
		return m, err
	}
	if m.Host == "" || len(m.Host) > maxText || m.Port < 1 || m.Port > 65535 {
		return m, fmt.Errorf("%w: rpc_meta of host %.64q, port %d", ErrMalformed, m.Host, m.Port)
	}
	return m, nil
}

func (m rpcMeta) address() string { return net.JoinHostPort(m.Host, strconv.Itoa(m.Port)) }

// notifyRequest is a notification; its answer has the same fields, with notifyTaken as the message.
type notifyRequest struct {
	Name    string `json:"name"`
	Message string `json:"notify_msg"`
}

const notifyTaken = "success"

// probeAnswer is what a peer that is alive says.
type probeAnswer struct {
	Status string `json:"status"`
}

// connectionAnswer refuses queue pairs: the message is the reason.
type connectionAnswer struct {
	Message string `json:"reply_msg"`
}
