package rdma

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/verbs"
)

// ErrUnavailable is that there is no libibverbs, no RDMA device that can be opened, or this
// program was built without cgo.
var ErrUnavailable = verbs.ErrUnavailable

// ErrBudget is that all queue pairs that the options allow are in use.
var ErrBudget = errors.New("the queue pairs are used up")

// unavailable is why there is no RDMA here. It is transport.ErrUnavailable and
// ErrUnavailable, whose words come once.
type unavailable struct{ why error }

func (u unavailable) Error() string {
	if errors.Is(u.why, ErrUnavailable) || errors.As(u.why, &unknownDevice{}) {
		return u.why.Error()
	}
	return fmt.Sprintf("%v: %v", ErrUnavailable, u.why)
}

func (u unavailable) Unwrap() []error {
	return []error{transport.ErrUnavailable, ErrUnavailable, u.why}
}

// unknownDevice is that none of the wanted devices is there, and others are.
type unknownDevice struct{ wanted, known []string }

func (u unknownDevice) Error() string {
	return fmt.Sprintf("no RDMA device named %s: this host has %s", strings.Join(u.wanted, ", "), strings.Join(u.known, ", "))
}

// PortError is what went wrong between two ports, with what may be behind it.
type PortError struct {
	Local  string // "mlx5_0/1"
	Remote string // the peer's port as it calls it, "" where none is concerned
	What   string // what happened
	Advice string // what to look at
	Err    error  // below, may be nil
}

func (e *PortError) Error() string {
	s := "rdma: " + e.Local
	if e.Remote != "" {
		s += " to the peer's " + e.Remote
	}
	s += ": " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Advice != "" {
		s += " (" + e.Advice + ")"
	}
	return s
}

// Unwrap gives the verb's error, for errors.Is(err, syscall.ENOMEM).
func (e *PortError) Unwrap() error { return e.Err }

// saying is a cause and its advice.
type saying struct{ what, advice string }

// statusSayings are the ways in which a work request ends badly (ibv_wc_status in
// the ABI; InfiniBand Architecture Specification, 10.10.3).
var statusSayings = map[verbs.WCStatus]saying{
	verbs.WCLocalLength: {"local length error", "a message is longer than the port carries: an error of this program or its device"},
	verbs.WCLocalQPOp:   {"local queue pair error", "our port, its address or its device went away, or the device does not work: see the kernel log"},
	verbs.WCLocalProt:   {"local memory is not registered any more", "the region was closed while it was in use"},
	verbs.WCFlushed:     {"flushed", "the queue pair had failed before"},
	verbs.WCBadResponse: {"bad answer from the peer", "the peer's device answered with an unexpected packet: compare driver and firmware of both devices"},
	verbs.WCLocalAccess: {"local access error", "the region was closed while it was in use"},
	verbs.WCRemoteInvalid: {"the peer's device calls the request invalid",
		"too many READs at a time, a message that is too long, or a queue that held packets for longer than the timeout: raise the timeout"},
	verbs.WCRemoteAccess: {"the peer's device refused access", "the peer closed the region or does not grant this"},
	verbs.WCRemoteOp:     {"the peer's device could not finish the request", "see the peer's kernel log"},
	verbs.WCRetryExceeded: {"no answer from the peer's port after all retries",
		"the peer's port or a link on the way is down, the peer ended, the GID leads nowhere, the network drops packets of this MTU, or it is congested without PFC or ECN: look at the peer's port state, ping with its MTU, raise the timeout"},
	verbs.WCRNRExceeded:     {"the peer was not ready after all retries", "one-sided requests do not need its readiness: compare the versions of both ends"},
	verbs.WCRemoteAborted:   {"the peer aborted the request", "see the peer's log"},
	verbs.WCFatal:           {"the device failed", "see the kernel log; it may need a reset"},
	verbs.WCResponseTimeout: {"the answer timed out", "look at the peer's port and the links on the way"},
	verbs.WCGeneral:         {"the device reports an error of its own", "see the kernel log"},
}

// statusError says what a completion's status means.
func statusError(wc verbs.WC, local, remote string) error {
	s, ok := statusSayings[wc.Status]
	if !ok {
		s = saying{"an error that is not known", "see the device's documentation for the vendor error"}
	}
	what := fmt.Sprintf("%s (completion status %d", s.what, wc.Status)
	if wc.VendorErr != 0 {
		what += fmt.Sprintf(", vendor error %#x", wc.VendorErr)
	}
	return &PortError{Local: local, Remote: remote, What: what + ")", Advice: s.advice}
}

// eventSayings are the asynchronous events that end connections.
var eventSayings = map[verbs.EventType]saying{
	verbs.EventCQErr:        {"completion queue error", "completions were lost: the device is opened again"},
	verbs.EventQPFatal:      {"fatal error of a queue pair", "see the kernel log"},
	verbs.EventQPRequestErr: {"the peer sent an invalid request", "compare the versions of both ends"},
	verbs.EventQPAccessErr:  {"the peer broke access rights", "the peer asked for memory that it may not touch"},
	verbs.EventDeviceFatal:  {"the device failed", "see the kernel log; it is opened again when it is back"},
	verbs.EventPortErr:      {"our port went down", "check its cable and its switch, and whether the interface was taken down"},
	verbs.EventLIDChange:    {"our LID changed", "the subnet manager gave out new ones"},
	verbs.EventPKeyChange:   {"our partition keys changed", "the subnet manager gave out new ones"},
	verbs.EventGIDChange:    {"our GID is gone", "the interface lost that address"},
	verbs.EventClientRereg:  {"the subnet manager wants everything registered again", "it was restarted"},
}

func eventError(e verbs.EventType, local, remote string) error {
	s := eventSayings[e]
	return &PortError{Local: local, Remote: remote, What: s.what, Advice: s.advice}
}

// connectError says why two queue pairs could not be joined.
func connectError(err error, local, remote string, w *way) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EINVAL):
		advice = fmt.Sprintf("the device refuses the path: GID index %d may be wrong or gone, or MTU %d, or the partition key", w.local.index, w.mtu)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		advice = fmt.Sprintf("no route from GID %s to %s: look at addresses and routes of both interfaces", w.local.addr.Unmap(), w.remote.addr.Unmap())
	case errors.Is(err, syscall.ETIMEDOUT):
		advice = fmt.Sprintf("no answer for the address %s: is the peer's interface up and on this network?", w.remote.addr.Unmap())
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EIO):
		advice = "the device is gone or has failed: see the kernel log"
	default:
		advice = resourceAdvice(err)
	}
	return &PortError{Local: local, Remote: remote, What: "the queue pairs could not be joined", Advice: advice, Err: err}
}

// resourceError says why something could not be made on a device.
func resourceError(err error, device, what string) error {
	return &PortError{Local: device, What: what, Advice: resourceAdvice(err), Err: err}
}

func resourceAdvice(err error) string {
	var verb *verbs.Error
	if errors.As(err, &verb) && verb.Advice != "" {
		return "" // it is in the error's text
	}
	switch {
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EAGAIN):
		return "the device or the kernel has no room: use fewer queue pairs and connections, see rdma resource show"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return "not permitted: check the rights of /dev/infiniband/uverbs*"
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EIO):
		return "the device is gone or has failed: see the kernel log"
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EPROTONOSUPPORT):
		return "the device or its driver cannot do that"
	case errors.Is(err, syscall.EFAULT):
		return "the memory is not mapped, or is of a kind that devices cannot use"
	case errors.Is(err, syscall.EINVAL):
		return "the device does not take these sizes or rights"
	}
	return ""
}
