// Package nvml asks the NVIDIA Management Library for what only it knows: GPU
// names and UUIDs, NVLink, C2C, MIG, peer access, and the load of GPUs. Its
// Source is a discover.GPUSource and a discover.GPULoadSource. Package discover
// does not import it, so only programs that import it contain NVML.
//
// The library is loaded when it is first asked, so a program also runs on
// machines without it. The package needs cgo: without cgo, on other systems than
// Linux, or with the build tag nonvml, the source reports that NVML is absent.
//
// go-nvml leaves NVML's functions undefined until they are called. A program
// that binds all symbols at start (LD_BIND_NOW=1, or linked with -z now, as
// hardened distributions do) cannot start: link it with
// -ldflags '-extldflags=-Wl,-z,lazy', or build it with -tags nonvml.
package nvml

// New returns the system's NVML, as the dynamic linker finds it.
func New() *Source { return &Source{} }

// absentError says that there is no NVML to ask, which is not a failure.
type absentError string

// Error is the reason.
func (e absentError) Error() string { return "nvml: " + string(e) }

// Absent tells package discover that this is not a failure.
func (absentError) Absent() bool { return true }
