// Package nvml asks the NVIDIA Management Library for what only it knows: GPU
// names and UUIDs, NVLink, C2C, MIG and peer access, and how busy the GPUs are.
// It is a source of package discover that the program hands over, so that
// importing it decides whether NVML is in the program.
//
// The library itself is loaded when it is asked, so the program runs where
// there is none. It needs cgo; without cgo, off Linux, or with the build tag
// nonvml the source says that it is absent.
//
// go-nvml leaves NVML's functions undefined until they are called. A program
// that binds all of them at its start (LD_BIND_NOW=1, or linked with -z now as
// hardened distributions do) cannot start: link with
// -ldflags '-extldflags=-Wl,-z,lazy', or build with -tags nonvml.
package nvml

// New is the system's NVML, as the dynamic linker finds it.
func New() *Source { return &Source{} }

// NewFrom is the NVML of a library file.
func NewFrom(path string) *Source { return &Source{path: path} }

// absentError says that there is no NVML to ask, which is no failure.
type absentError string

// Error is the reason.
func (e absentError) Error() string { return "nvml: " + string(e) }

// Absent tells package discover that this is no failure.
func (absentError) Absent() bool { return true }
