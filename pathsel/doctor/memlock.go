package doctor

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

var memlockCheck = Check{
	Code: "memlock", Family: "NICs and GPU memory", Severity: Error,
	Title: "programs may lock as much memory as they register with RDMA devices",
	Judged: "The soft limit on locked memory of the process that looked, on hosts with RDMA devices. Registered memory is locked, queues too. " +
		"Less than 16 MiB is an error: that does not hold the queues of a few connections and one small region. Other limits below the memory of the host are a warning. " +
		"A process with CAP_IPC_LOCK outside of user namespaces (root) has no limit: info, because programs of other users do. Services have limits of their own.",
	Facts: "Max locked memory in /proc/self/limits, CapEff in /proc/self/status, /proc/self/uid_map",
	Fix:   "ulimit -l unlimited; for good: memlock in /etc/security/limits.d, LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1 for containers.",
	run:   checkMemlock,
}

// leastLocked is the smallest limit on locked memory that some RDMA program can
// live with, in bytes: what the devices are tried with.
const leastLocked = 16 << 20

func checkMemlock(h *host) outcome {
	if len(h.t.RDMADevices) == 0 {
		return notApplicable("no RDMA device")
	}
	var o outcome
	s := h.t.Host.Software
	if s == nil || s.Memlock == nil {
		o.lack("the limit on locked memory is not told", h.onHost())
		return o
	}
	m := s.Memlock
	switch limit := m.SoftBytes; {
	case limit == nil:
		o.note = "unlimited"
	case h.t.Host.MemoryBytes != nil && *limit >= *h.t.Host.MemoryBytes:
		o.note = units.Bytes(*limit) + ", no less than the host's memory"
	default:
		o.find(h.smallMemlock(m))
	}
	return o
}

// smallMemlock is the finding about a limit that is below the host's memory.
func (h *host) smallMemlock(m *topo.Memlock) Finding {
	limit := *m.SoftBytes
	hard := "unlimited"
	if m.HardBytes != nil {
		hard = fmt.Sprint(*m.HardBytes)
	}
	f := Finding{Severity: Warning, Evidence: []string{saying("/proc/self/limits Max locked memory", fmt.Sprintf("%d, at most %s", limit, hard))}, Fix: h.memlockFix(m)}
	if m.Exempt != nil && *m.Exempt {
		f.Severity = Info
		f.Evidence = append(f.Evidence, "/proc/self/status CapEff has CAP_IPC_LOCK")
		f.Text = fmt.Sprintf("the limit on locked memory is %s, which does not hold for the process that looked (CAP_IPC_LOCK): a program of another user may register no more than that", units.Bytes(limit))
		return f
	}
	f.Text = fmt.Sprintf("the process that looked may lock %s: registering more than that with an RDMA device fails", units.Bytes(limit))
	switch {
	case m.Exempt == nil:
		f.Text += ", unless the program has CAP_IPC_LOCK"
	case limit < leastLocked:
		f.Severity = Error
		f.Text += fmt.Sprintf("; less than %s do not hold the queues of a few connections and one small region", units.Bytes(leastLocked))
	}
	return f
}

// memlockFix says how to raise the limit.
func (h *host) memlockFix(m *topo.Memlock) string {
	now := ""
	if m.HardBytes == nil {
		now = "ulimit -l unlimited before the program starts (the hard limit allows it); "
	} else if *m.HardBytes > *m.SoftBytes {
		now = fmt.Sprintf("ulimit -l %d before the program starts is as far as the hard limit allows; ", *m.HardBytes>>10)
	}
	if c := h.t.Host.Container; c != nil && *c {
		return now + "the container's runtime sets it: --ulimit memlock=-1 (docker, podman), LimitMEMLOCK=infinity in the unit of containerd or CRI-O on the node; or give it CAP_IPC_LOCK"
	}
	return now + "for good: memlock in /etc/security/limits.d and log in again, LimitMEMLOCK=infinity in the service's unit, --ulimit memlock=-1 for a container"
}
