package topo

import "fmt"

// Code names what a warning is about. Codes are stable: scripts match on them.
type Code string

// The warning codes. Those that partial() lists make a topology incomplete:
// something that is there could not be read.
const (
	CodeUnreadable    Code = "unreadable"       // a file exists but cannot be read
	CodeMissing       Code = "missing"          // a file that every such device has is not there
	CodeMalformed     Code = "malformed"        // a file's content makes no sense
	CodeVanished      Code = "vanished"         // a device went away while it was read
	CodeSourceFailed  Code = "source-failed"    // a whole source gave nothing though there was something to ask
	CodeConflict      Code = "conflict"         // two sources disagree; the detail says what is taken
	CodeNUMAUnknown   Code = "numa-unknown"     // numa_node is -1 and nothing else tells
	CodeNUMAGuessed   Code = "numa-guessed"     // numa_node is -1; taken from elsewhere, the detail says where
	CodeNoPCIParent   Code = "no-pci-parent"    // an RDMA device without PCI device (software, or the link is missing)
	CodeImplausible   Code = "implausible-link" // a link that cannot be true, ignored as a bottleneck
	CodeLinkDisagrees Code = "link-disagrees"   // the two ends of a link report different states
	CodePartialView   Code = "partial-view"     // a container, cpuset or permission hides part of the host
	CodeDriverOnly    Code = "driver-missing"   // a GPU is known from PCI alone: no driver to ask
	CodeLossyImport   Code = "lossy-import"     // the imported format lacks something
	CodeSkipped       Code = "skipped"          // a part was left out on purpose (too large, too many)
)

// Warning is something a reader of the topology should know: its kind (Code), the node concerned
// (Subject, may be empty), a sentence, and the file or call that shows it.
type Warning struct {
	Code     Code   `json:"code"`
	Subject  ID     `json:"subject,omitempty"`
	Detail   string `json:"detail"`
	Evidence string `json:"evidence,omitempty"`
	Source   Source `json:"source,omitempty"`
}

// String is the warning as one line.
func (w Warning) String() string {
	s := string(w.Code) + ": "
	if w.Subject != "" {
		s += string(w.Subject) + ": "
	}
	s += w.Detail
	if w.Evidence != "" {
		s += fmt.Sprintf(" (%s)", w.Evidence)
	}
	return s
}

// Partial says whether the warning means that something which is there could
// not be read, so that the topology is incomplete.
func (w Warning) Partial() bool {
	switch w.Code {
	case CodeUnreadable, CodeMissing, CodeMalformed, CodeVanished, CodeSourceFailed, CodeSkipped:
		return true
	}
	return false
}
