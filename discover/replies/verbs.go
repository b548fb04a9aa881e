package replies

// VerbsReport is what libibverbs said when each RDMA device of the running
// host was tried: opened, asked for its limits and ports, and given memory to
// register. It is no part of a topology, for trying is more than looking.
type VerbsReport struct {
	// Unavailable says why no device could be tried; empty where they were.
	Unavailable string
	Devices     []VerbsDevice // by name
}

// VerbsDevice is how the trial of one device went. Where a step fails, those
// that need it are left out.
type VerbsDevice struct {
	Name string
	// Silent: the device did not answer in time, Step says what it was asked.
	Silent bool
	Step   string
	Open   *VerbsError
	// MaxMRBytes is the largest region that the device takes; nil unknown.
	MaxMRBytes *int64
	Ports      []VerbsPort
	Domain     *VerbsError // making a protection domain failed
	// Registrations are the tries to register memory, the smallest first; the
	// first that is refused is the last.
	Registrations []VerbsRegistration
	// DMABuf says whether the driver registers dma-bufs; nil where the answer
	// tells neither.
	DMABuf *bool
}

// VerbsPort is a port as the library sees it.
type VerbsPort struct {
	Number         int
	ActiveMTUBytes int // of RDMA packets; 0 unknown
	MaxMTUBytes    int // that the device can do; 0 unknown
	GIDs           int // used entries of its table; -1 unknown
	Failed         *VerbsError
}

// VerbsRegistration is one try to register host memory for remote access.
type VerbsRegistration struct {
	Bytes  int64
	Failed *VerbsError // nil: the device took it
}

// VerbsError is a verb that failed.
type VerbsError struct {
	Verb  string // "ibv_reg_mr"
	Errno string // "ENOMEM", "" where there was none
	Text  string
}
