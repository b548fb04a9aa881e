package doctor

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/internal/base/units"
)

var registrationCheck = Check{
	Code: "registration-refused", Family: "NICs and GPU memory", Severity: Error,
	Title: "every RDMA device that can be opened takes memory to register",
	Judged: "On the running host each device is opened by libibverbs and given one page, then 16 MiB of host memory, for a moment. A refusal or no answer is an error; the finding says what the error number means. " +
		"Devices that this process may not open are left to uverbs-inaccessible.",
	Facts: "ibv_open_device, ibv_query_device, ibv_alloc_pd and ibv_reg_mr, on the running host only; they need libibverbs and a topoctl built with cgo",
	Fix:   "ENOMEM: the limit on locked memory (memlock). EPERM: no memory may be locked, or the device file's permissions. ENODEV, EIO: the device is gone or broken, dmesg. EAGAIN: the rdma cgroup. EOPNOTSUPP: the driver.",
	run:   checkRegistration,
}

// Tried are the checks that use Options.Verbs.
func Tried() []Code { return []Code{activeMTUCheck.Code, gdrCode, registrationCheck.Code} }

func checkRegistration(h *host) outcome {
	if len(h.t.RDMADevices) == 0 {
		return notApplicable("no RDMA device")
	}
	var o outcome
	switch {
	case h.verbs == nil:
		o.lack("registering memory can be tried on the running host only", h.onHost())
		return o
	case h.verbs.Unavailable != "":
		o.lack("registering memory was not tried: "+h.verbs.Unavailable, h.withVerbs())
		return o
	}
	tried := 0
	var untold, shut []topo.ID
	for i := range h.t.RDMADevices {
		r := &h.t.RDMADevices[i]
		a := h.answer(r.Name)
		switch {
		case a == nil:
			untold = append(untold, r.ID)
		case a.Open != nil && (shutOut(a.Open.Errno) || r.Uverbs != "rw" && r.Uverbs != "" && r.Uverbs != "unknown"):
			shut = append(shut, r.ID)
		default:
			if f := h.refused(r, a); f != nil {
				o.find(*f)
			} else if len(a.Registrations) == 0 {
				untold = append(untold, r.ID)
			}
			tried++
		}
	}
	if len(shut) > 0 {
		o.lack("this process may not open the device, so nothing was tried", "see uverbs-inaccessible", shut...)
	}
	if len(untold) > 0 {
		o.lack("libibverbs does not list the device, or could not try it", "ibv_devices lists what libibverbs knows: install the device's provider (ibverbs-providers, rdma-core)", untold...)
	}
	o.note = count(tried, "device")
	return o
}

// withVerbs says how to have the library of RDMA devices.
func (h *host) withVerbs() string {
	return "install libibverbs (libibverbs1 and ibverbs-providers, or rdma-core), and use a topoctl that was built with cgo"
}

// answer is how the trial of a device went, nil if it was not tried.
func (h *host) answer(name string) *replies.VerbsDevice {
	if h.verbs == nil {
		return nil
	}
	i := slices.IndexFunc(h.verbs.Devices, func(a replies.VerbsDevice) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &h.verbs.Devices[i]
}

// shutOut says whether an error number means that this process may not.
func shutOut(errno string) bool { return errno == "EACCES" || errno == "EPERM" || errno == "ENOENT" }

// refused is the finding about a device that fails, nil if it does not.
func (h *host) refused(r *topo.RDMADevice, a *replies.VerbsDevice) *Finding {
	f := &Finding{Severity: Error, Subjects: []topo.ID{r.ID}}
	step := func(e *replies.VerbsError, what string) {
		f.Evidence = []string{saying(e.Verb, word(e))}
		cause, fix := h.meaning(e.Errno, 0)
		f.Text, f.Fix = what+" failed with "+word(e)+": "+cause, fix
	}
	switch {
	case a.Silent:
		f.Text = "the device did not answer in time when it was asked for " + a.Step + ": programs that use it hang"
		f.Evidence = []string{a.Step}
		f.Fix = "dmesg says what its driver waits for; the device may need a reset or the host a reboot"
		return f
	case a.Open != nil:
		step(a.Open, "opening the device")
		return f
	case a.Domain != nil:
		step(a.Domain, "making a protection domain")
		return f
	}
	i := slices.IndexFunc(a.Registrations, func(x replies.VerbsRegistration) bool { return x.Failed != nil })
	if i < 0 {
		return nil
	}
	x := a.Registrations[i]
	cause, fix := h.meaning(x.Failed.Errno, x.Bytes)
	f.Text = fmt.Sprintf("the device refuses to register %s with %s: %s", units.Bytes(x.Bytes), word(x.Failed), cause)
	if i > 0 {
		f.Text += fmt.Sprintf(" (it takes %s)", units.Bytes(a.Registrations[i-1].Bytes))
	}
	f.Evidence, f.Fix = []string{saying(fmt.Sprintf("%s of %s", x.Failed.Verb, units.Bytes(x.Bytes)), word(x.Failed))}, fix
	if a.MaxMRBytes != nil && *a.MaxMRBytes < x.Bytes {
		f.Text = fmt.Sprintf("the device refuses to register %s: the largest region that it takes is %s", units.Bytes(x.Bytes), units.Bytes(*a.MaxMRBytes))
		f.Fix = "make regions no larger than that"
		f.Evidence = append(f.Evidence, "ibv_query_device max_mr_size = "+fmt.Sprint(*a.MaxMRBytes))
	}
	return f
}

// meaning says what an error number of a verb means here and what to do. bytes
// is the size of what was to be registered, 0 for other steps.
func (h *host) meaning(errno string, bytes int64) (cause, fix string) {
	limit, limited := h.lockLimit()
	const see = "raise the limit on locked memory: see memlock"
	switch {
	case errno == "EPERM" && limited && limit == 0 || errno == "EPERM" && bytes > 0 && limited:
		return "this process may not lock any memory", see
	case errno == "ENOMEM" && limited && limit < max(bytes, leastLocked):
		return "the limit on locked memory, " + units.Bytes(limit) + " with all that is locked already, does not hold it", see
	case errno == "ENOMEM" && h.lockLimitUnknown():
		return "the limit on locked memory, which is not told, does not hold it, or the device has no room for it", "ulimit -l in the program's place; " + see
	case errno == "ENOMEM":
		return "the device or the kernel has no room for it: no free memory regions or pages", "look at what else is registered (rdma resource show mr), at free memory and huge pages, and at dmesg"
	case errno == "EPERM", errno == "EACCES":
		return "this process may not use the device", "permissions of /dev/infiniband (rdma-core's udev rules); in a container the device cgroup: --device /dev/infiniband"
	case errno == "ENODEV", errno == "ENXIO", errno == "EIO", errno == "ENOENT":
		return "the device is gone, or its driver has given it up", "dmesg; load the driver again or reset the device, and restart the programs that use it"
	case errno == "EAGAIN":
		return "the rdma cgroup allows no more objects", "look at rdma.max and rdma.current of the process's cgroup"
	case errno == "EOPNOTSUPP", errno == "ENOSYS", errno == "EPROTONOSUPPORT":
		return "the driver cannot do it", "update kernel, driver and rdma-core; libibverbs and the driver must know each other"
	case errno == "EINVAL":
		return "the driver does not accept what was asked for", "update kernel, driver and rdma-core together: they seem not to fit; dmesg may say more"
	case errno == "EFAULT":
		return "the memory cannot be pinned", "dmesg; report it together with the kernel's version"
	}
	return "the driver gives no better reason", "dmesg may say more"
}

// lockLimit is the limit on locked memory that holds for the process that
// looked; limited is false where there is none or it is not known.
func (h *host) lockLimit() (bytes int64, limited bool) {
	s := h.t.Host.Software
	if s == nil || s.Memlock == nil || s.Memlock.SoftBytes == nil || s.Memlock.Exempt != nil && *s.Memlock.Exempt {
		return 0, false
	}
	return *s.Memlock.SoftBytes, true
}

// lockLimitUnknown says that nothing tells the limit on locked memory, or whether it
// holds.
func (h *host) lockLimitUnknown() bool {
	s := h.t.Host.Software
	return s == nil || s.Memlock == nil
}

// word is an error number's name, with what the system says where it has none.
func word(e *replies.VerbsError) string {
	if e.Errno == "" {
		return e.Text
	}
	return e.Errno
}
