// Package verbs is libibverbs, loaded at run time.
package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// What stands in the way.
var (
	// ErrUnavailable: there is no libibverbs, no RDMA in the kernel, or this program was
	// built without cgo. The error that wraps it says which, and what to do.
	ErrUnavailable = errors.New("RDMA verbs are not available")
	// ErrClosed: the object was closed before, or while it was waited for.
	ErrClosed = pkgerr.New("verbs", "it is closed")
	// ErrABI: libibverbs gave something that docs/verbs-abi.md does not describe. Nothing
	// of it may be used.
	ErrABI = errors.New("libibverbs is not laid out as expected")
)

// MaxBatch is how many work requests one Post, and completions one Poll, handle at most.
const MaxBatch = 64

// Error is a verb that failed.
type Error struct {
	Verb   string // "ibv_reg_mr"
	Device string
	What   string // what was asked for: "4096 bytes, remote write"
	Errno  syscall.Errno
	Advice string // what to do about it, "" where nothing is known
}

func (e *Error) Error() string {
	text := "verbs: " + e.Device + ": " + e.Verb
	if e.What != "" {
		text += " (" + e.What + ")"
	}
	text += ": " + e.Errno.Error()
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

// Unwrap gives the errno, for errors.Is(err, syscall.ENOMEM).
func (e *Error) Unwrap() error { return e.Errno }

// DeviceInfo is a device before it is opened.
type DeviceInfo struct {
	Name string // "mlx5_0"
	GUID uint64 // node GUID, host byte order
}

// DeviceLimits are what ibv_query_device says, as far as it is used.
type DeviceLimits struct {
	Firmware         string
	VendorID         uint32 // IEEE OUI of the maker; SoftRoCE for Linux's rxe
	Ports            int
	MaxQP            int
	MaxQPWR          int
	MaxSGE           int
	MaxCQ            int
	MaxCQE           int
	MaxMR            int
	MaxMRBytes       uint64
	MaxPD            int
	MaxQPReadAtomic  int // READs that a QP answers at a time (responder)
	MaxInitReadDepth int // READs that a QP asks for at a time (initiator)
	MaxPKeys         int
	CompVectors      int // interrupts that completion channels are spread over
	AckDelayLog2     int // the device's own delay of ACKs: 4.096 µs times 2 to this
}

// SoftRoCE is the VendorID of Linux's rxe (drivers/infiniband/sw/rxe/rxe_param.h).
const SoftRoCE = 0xffffff

// LinkLayer of a port.
type LinkLayer uint8

// The link layers, as in the ABI.
const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// PortState of a port, as in the ABI.
type PortState uint8

// The port states.
const (
	PortDown   PortState = 1
	PortInit   PortState = 2
	PortArmed  PortState = 3
	PortActive PortState = 4
)

// PortAttr is what ibv_query_port says.
type PortAttr struct {
	State       PortState
	LinkLayer   LinkLayer
	MaxMTU      int // bytes
	ActiveMTU   int // bytes
	LID, SMLID  uint16
	GIDs, PKeys int
	MaxMsgBytes uint32
	BytesPerSec int64 // active width times active speed after coding; 0 unknown
}

// GIDType is the wire protocol of a GID.
type GIDType uint8

// The GID types.
const (
	GIDInfiniBand GIDType = 0
	GIDRoCEv1     GIDType = 1
	GIDRoCEv2     GIDType = 2
)

// GID is one entry of a port's table.
type GID struct {
	Index     int
	Raw       [16]byte
	Type      GIDType
	Interface int // the netdev's index, 0 none
}

// Access are the rights of a memory region or queue pair, as in the ABI.
type Access uint32

// The rights.
const (
	LocalWrite  Access = 1 << 0
	RemoteWrite Access = 1 << 1
	RemoteRead  Access = 1 << 2
)

func (a Access) String() string {
	text := "local read"
	for _, r := range []struct {
		bit  Access
		name string
	}{
		{LocalWrite, "local write"}, {RemoteWrite, "remote write"}, {RemoteRead, "remote read"},
	} {
		if a&r.bit != 0 {
			text += ", " + r.name
		}
		a &^= r.bit
	}
	if a != 0 {
		text += fmt.Sprintf(", %#x", uint32(a))
	}
	return text
}

// Opcode of a work request, as in the ABI.
type Opcode uint32

// The opcodes that are used.
const (
	OpRDMAWrite Opcode = 0
	OpRDMARead  Opcode = 4
)

// SendWR is one work request. All of them are signalled.
type SendWR struct {
	ID     uint64
	Opcode Opcode
	// Inline: the bytes are copied while it is posted, at most the QP's MaxInline. The
	// SGEs then have addresses of the process, and their keys do not count.
	Inline     bool
	RemoteAddr uint64
	RKey       uint32
	SGE        []SGE // at most the QP's MaxSGE
}

// SGE is one local piece.
type SGE struct {
	Addr   uint64 // as the MR counts: its iova + offset
	Length uint32
	LKey   uint32
}

// WCStatus is how a work request ended, as in the ABI.
type WCStatus uint32

// The statuses.
const (
	WCSuccess         WCStatus = 0
	WCLocalLength     WCStatus = 1
	WCLocalQPOp       WCStatus = 2
	WCLocalProt       WCStatus = 4
	WCFlushed         WCStatus = 5
	WCBadResponse     WCStatus = 7
	WCLocalAccess     WCStatus = 8
	WCRemoteInvalid   WCStatus = 9
	WCRemoteAccess    WCStatus = 10
	WCRemoteOp        WCStatus = 11
	WCRetryExceeded   WCStatus = 12
	WCRNRExceeded     WCStatus = 13
	WCRemoteAborted   WCStatus = 16
	WCFatal           WCStatus = 19
	WCResponseTimeout WCStatus = 20
	WCGeneral         WCStatus = 21
)

// WC is one completion. Of one that failed only these fields are defined.
type WC struct {
	ID        uint64
	Status    WCStatus
	VendorErr uint32
	QPNum     uint32
}

// QPOptions are what a reliable-connected queue pair is made with, or got.
type QPOptions struct {
	MaxSend   int // work requests
	MaxSGE    int
	MaxInline int // bytes
}

// Path is how to reach the other end: what RTR needs beside the number.
type Path struct {
	Port         int
	GIDIndex     int
	Global       bool // use the GID: always on Ethernet, between subnets on InfiniBand
	GID          [16]byte
	LID          uint16
	HopLimit     uint8
	TClass       uint8
	ServiceLevel uint8
	FlowLabel    uint32
	MTU          int // bytes: 256, 512, 1024, 2048, 4096
}

// Connect is what takes a QP from INIT to RTS.
type Connect struct {
	Path        Path
	PeerQP      uint32
	SendPSN     uint32 // 24 bits
	ReceivePSN  uint32 // 24 bits: the peer's SendPSN
	ReadsOut    int    // READs that we have open at a time
	ReadsIn     int    // READs of the peer that we answer at a time
	TimeoutLog2 uint8  // 4.096 µs times 2 to this
	RetryCount  uint8  // 7 is for ever in rxe: use at most 6
	RNRRetry    uint8
	MinRNRTimer uint8
}

// QPState as in the ABI.
type QPState uint32

// The states.
const (
	QPReset QPState = 0
	QPInit  QPState = 1
	QPRTR   QPState = 2
	QPRTS   QPState = 3
	QPError QPState = 6
)

func (s QPState) String() string {
	switch s {
	case QPReset:
		return "RESET"
	case QPInit:
		return "INIT"
	case QPRTR:
		return "RTR"
	case QPRTS:
		return "RTS"
	case QPError:
		return "ERR"
	}
	return fmt.Sprintf("QP state %d", uint32(s))
}

// EventType of an asynchronous event, as in the ABI.
type EventType uint32

// The events.
const (
	EventCQErr        EventType = 0
	EventQPFatal      EventType = 1
	EventQPRequestErr EventType = 2
	EventQPAccessErr  EventType = 3
	EventCommEst      EventType = 4
	EventSQDrained    EventType = 5
	EventPathMig      EventType = 6
	EventPathMigErr   EventType = 7
	EventDeviceFatal  EventType = 8
	EventPortActive   EventType = 9
	EventPortErr      EventType = 10
	EventLIDChange    EventType = 11
	EventPKeyChange   EventType = 12
	EventSMChange     EventType = 13
	EventQPLastWQE    EventType = 16
	EventClientRereg  EventType = 17
	EventGIDChange    EventType = 18
)

// Event is an asynchronous event of a device.
type Event struct {
	Type  EventType
	Port  int    // of port events: 1 and up
	QPNum uint32 // of QP events
}
