// Package audit decides whether the network ports of a host carried what a plan says they should:
// from counters of ports and interfaces, what processes hold, and what engines log. It reads
// nothing and knows no clock: readings come in with their times.
package audit

import (
	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/pathsel"
)

// Schema is the name and major version of a report as a document.
const Schema = "topoctl.audit/v1"

// Answer is what an audit comes to.
type Answer string

// The answers.
const (
	AsPlanned   Answer = "as planned"
	NoGPUDirect Answer = "no GPUDirect RDMA"
	Missed      Answer = "plan missed"
	Fallback    Answer = "TCP fallback"
	NothingSeen Answer = "nothing moved"
	Unchecked   Answer = "could not check"
)

// Verdict is what an audit says of a port.
type Verdict string

// The verdicts. NotPlanned is a port that the plan leaves out and that carried next to nothing, or an
// interface that carried what no plan is about.
const (
	OK            Verdict = "OK"
	Idle          Verdict = "IDLE"
	Above         Verdict = "ABOVE"
	Below         Verdict = "BELOW"
	TCPFallback   Verdict = "TCP FALLBACK"
	CouldNotCheck Verdict = "COULD NOT CHECK"
	NotPlanned    Verdict = "NOT PLANNED"
)

// Unit is what shares are counted in.
type Unit string

// The units. Packets are counted where ports do not keep bytes (rxe), and channels where there is
// a log and no counters.
const (
	Bytes    Unit = "bytes"
	Packets  Unit = "packets"
	Channels Unit = "channels"
)

// Report is the result of an audit.
type Report struct {
	Schema string `json:"schema"`
	Host   string `json:"host"`
	Answer Answer `json:"answer"`
	// Text is the answer in a sentence.
	Text      string            `json:"text"`
	Plan      string            `json:"plan"` // "topoctl path --plan", or the file
	Engine    string            `json:"engine,omitempty"`
	Transport pathsel.Transport `json:"transport"` // that the plan is for
	Unit      Unit              `json:"unit"`
	// WindowNS is the time between the first and the last reading of counters, Readings how many.
	WindowNS int64 `json:"window_ns"`
	Readings int   `json:"readings"`
	// Tolerance is how far a share may be from the plan's, as a part of that.
	Tolerance float64 `json:"tolerance"`
	// Carried is what all ports carried, in Unit, both ways; null where nothing is known.
	Carried *uint64 `json:"carried"`
	Ports   []Port  `json:"ports"`
	// Interfaces carried TCP beside a plan for RDMA.
	Interfaces []Interface `json:"interfaces"`
	Processes  []Process   `json:"processes"`
	// Log is what the engines' logs say.
	Log []Use `json:"log"`
	// GPUDirect is what NCCL's logs say of GPUDirect RDMA; null where they say nothing.
	GPUDirect *GPUDirect `json:"gpudirect"`
	Command   *Command   `json:"command,omitempty"`
	Notes     []string   `json:"notes"`
}

// GPUDirect is how much of a job went by GPUDirect RDMA, and why not all.
type GPUDirect struct {
	Channels int      `json:"channels"` // over a network other than sockets
	Without  int      `json:"without"`  // those of them whose data is copied through host memory
	Disabled []string `json:"disabled"` // devices that the log says it is disabled for
	Said     []string `json:"said"`     // the log's own words for why
}

// Traffic is what a port or an interface carried; null is not known.
type Traffic struct {
	SentBytes       *uint64 `json:"sent_bytes"`
	ReceivedBytes   *uint64 `json:"received_bytes"`
	SentPackets     *uint64 `json:"sent_packets"`
	ReceivedPackets *uint64 `json:"received_packets"`
}

// Port is a port of the host that data could leave by.
type Port struct {
	ID      topo.ID `json:"id"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Reasons say why, the most telling first.
	Reasons []string `json:"reasons"`
	// For are the consumers that the plan gives it to.
	For []string `json:"for"`
	// PlannedShare is its part of all traffic by the plan, 0 where the plan leaves it out; CarriedShare
	// what it was. null: not known.
	PlannedShare *float64 `json:"planned_share"`
	CarriedShare *float64 `json:"carried_share"`
	Traffic
	Channels *int `json:"channels,omitempty"` // of engines' logs, where there is one
	// LineBytesPerSec is the rate of the port, and Used the part of it that the fuller direction had on
	// average.
	LineBytesPerSec *topo.Rate `json:"line_bytes_per_sec"`
	Used            *float64   `json:"used"`
	Users           []User     `json:"users"`
}

// Interface is a network interface with TCP traffic.
type Interface struct {
	ID      topo.ID  `json:"id"`
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons"`
	Traffic
	// TCP is what it carried beside RDMA at least, in the report's unit; null where it is not known.
	TCP   *uint64 `json:"tcp"`
	Users []User  `json:"users"`
}

// User is a process that holds something of a port.
type User struct {
	PID        int    `json:"pid"`
	Name       string `json:"name"`
	QueuePairs int    `json:"queue_pairs"`
	// TCPBytes are what its connections moved during the audit.
	TCPBytes uint64 `json:"tcp_bytes"`
}

// Process is a process and what its variables say.
type Process struct {
	PID       int        `json:"pid"`
	Name      string     `json:"name"`
	Variables []Variable `json:"variables"`
}

// Variable is one that chooses ports or transports.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Command is the command that was run and watched.
type Command struct {
	Args     []string `json:"args"`
	ExitCode int      `json:"exit_code"`        // 128 and the signal's number where one ended it
	Signal   string   `json:"signal,omitempty"` // that ended it
}
