//go:build !(cgo && linux && (amd64 || arm64))

package verbs

import "fmt"

// errBuilt is what everything says in a program that cannot load C libraries.
var errBuilt = fmt.Errorf("%w: this program was built without cgo, or not for 64-bit Linux: build with CGO_ENABLED=1", ErrUnavailable)

// Lib is libibverbs.
type Lib struct{}

// Load finds libibverbs.
func Load() (*Lib, error) { return nil, errBuilt }

// Devices lists the RDMA devices.
func (*Lib) Devices() ([]DeviceInfo, error) { return nil, errBuilt }

// Open opens a device.
func (*Lib) Open(string) (*Device, error) { return nil, errBuilt }

// Device is an open RDMA device.
type Device struct{}

// Name of the device.
func (*Device) Name() string { return "" }

// Limits of the device.
func (*Device) Limits() DeviceLimits { return DeviceLimits{} }

// QueryPort asks for a port's state.
func (*Device) QueryPort(int) (PortAttr, error) { return PortAttr{}, errBuilt }

// GIDs are a port's addresses.
func (*Device) GIDs(int) ([]GID, error) { return nil, errBuilt }

// PKeys are a port's partition keys.
func (*Device) PKeys(int) ([]uint16, error) { return nil, errBuilt }

// AllocPD makes a protection domain.
func (*Device) AllocPD() (*PD, error) { return nil, errBuilt }

// NewCQ makes a completion queue.
func (*Device) NewCQ(int) (*CQ, error) { return nil, errBuilt }

// NextEvent waits for an asynchronous event.
func (*Device) NextEvent() (Event, error) { return Event{}, errBuilt }

// CloseEvents ends NextEvent.
func (*Device) CloseEvents() error { return errBuilt }

// Close closes the device.
func (*Device) Close() error { return errBuilt }

// PD is a protection domain.
type PD struct{}

// Register registers memory.
func (*PD) Register(uintptr, uint64, uint64, Access) (*MR, error) { return nil, errBuilt }

// RegisterDMABuf registers memory of another device.
func (*PD) RegisterDMABuf(int, uint64, uint64, uint64, Access) (*MR, error) { return nil, errBuilt }

// NewQP makes a queue pair.
func (*PD) NewQP(*CQ, QPOptions) (*QP, error) { return nil, errBuilt }

// Close ends the domain.
func (*PD) Close() error { return errBuilt }

// MR is registered memory.
type MR struct{}

// LKey is the local key.
func (*MR) LKey() uint32 { return 0 }

// RKey is the remote key.
func (*MR) RKey() uint32 { return 0 }

// Close deregisters it.
func (*MR) Close() error { return errBuilt }

// CQ is a completion queue.
type CQ struct{}

// Poll takes completions.
func (*CQ) Poll([]WC) (int, error) { return 0, errBuilt }

// Arm asks for an event.
func (*CQ) Arm() error { return errBuilt }

// Wait waits for it.
func (*CQ) Wait() error { return errBuilt }

// Wake ends a Wait.
func (*CQ) Wake() {}

// Lead has events wake LeaderWait.
func (*CQ) Lead() error { return errBuilt }

// Unlead ends Lead.
func (*CQ) Unlead() error { return errBuilt }

// LeaderWait sleeps until an event has come.
func (*CQ) LeaderWait() error { return errBuilt }

// LeaderWake ends a LeaderWait.
func (*CQ) LeaderWake() {}

// Close ends the queue.
func (*CQ) Close() error { return errBuilt }

// QP is a queue pair.
type QP struct{}

// Num is its number.
func (*QP) Num() uint32 { return 0 }

// Options are what it got.
func (*QP) Options() QPOptions { return QPOptions{} }

// Init takes it to INIT.
func (*QP) Init(int, uint16, Access) error { return errBuilt }

// Connect takes it to RTS.
func (*QP) Connect(Connect) error { return errBuilt }

// SetError takes it to ERR.
func (*QP) SetError() error { return errBuilt }

// State asks for its state.
func (*QP) State() (QPState, error) { return 0, errBuilt }

// Post posts work requests.
func (*QP) Post([]SendWR) (int, error) { return 0, errBuilt }

// Destroy ends it.
func (*QP) Destroy() error { return errBuilt }
