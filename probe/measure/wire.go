package measure

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/hostlist"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// callSchema is the name and major version of the messages between controllers and agents, which are calls of
// engines (engine.Peer.Call).
const callSchema = "topoctl.probe-agent/v1"

// What a controller may ask for.
const (
	doDescribe = "describe" // what the agent is, and its topology
	doCPU      = "cpu"      // its processor time; initiators ask their targets
	// The others are for the controller that has the lease.
	doLease   = "lease"   // take it, or keep it
	doPrepare = "prepare" // a round begins: memory for others to write to
	doConnect = "connect" // to where this agent writes
	doPoll    = "poll"    // how it goes
	doStart   = "start"   // all that are connected begin
	doStop    = "stop"
	doEnd     = "end"     // the round is over: memory is freed
	doRelease = "release" // the lease, too
)

// Limits of a request; an agent's own (ServerOptions) come on top.
const (
	maxJobs      = 4096    // of one agent in a round; also regions and looks
	maxPath      = 128     // links of a pair
	maxLinks     = 1 << 16 // of all pairs of a host
	maxAddresses = 16
	maxText      = 512       // bytes of a name, an ID, a link key
	maxOp        = 1 << 30   // bytes of one op
	maxSamples   = 1 << 16   // of all sizes of a pair
	maxRTTs      = 1 << 16   // round trips of a pair
	maxRate      = 1e15      // bytes/s of requests and claims
	maxPollBytes = 1 << 20   // of results in the answer to one poll, about
	maxPause     = time.Hour // of warm-up, and of one sample
	maxPairTime  = 24 * time.Hour
	maxSizes     = 64
	minGiveUp    = 100 * time.Millisecond
	maxGiveUp    = 10 * time.Minute
)

// request is a call of a controller.
type request struct {
	Schema     string    `json:"schema"`
	Do         string    `json:"do"`
	Lease      string    `json:"lease,omitempty"`
	Controller string    `json:"controller,omitempty"` // lease: its name, for people
	Round      int64     `json:"round,omitempty"`      // prepare to end: it grows
	Regions    []region  `json:"regions,omitempty"`    // prepare
	Looks      []look    `json:"looks,omitempty"`      // prepare: what end reports
	Jobs       []jobWant `json:"jobs,omitempty"`       // connect
	Seen       []seen    `json:"seen,omitempty"`       // poll
}

// region is memory of the target of a pair; ID is the pair's place in the round. Asked
// for without a name, answered with one.
type region struct {
	ID       int              `json:"id"`
	Bytes    int64            `json:"bytes"`
	Location pathsel.Location `json:"location,omitempty"`
	Name     string           `json:"name,omitempty"`
	Node     *int             `json:"numa_node,omitempty"` // that it is bound to
	Note     string           `json:"note,omitempty"`
	Error    string           `json:"error,omitempty"` // why there is no memory
}

// look asks what the links of a pair are like that are this host's.
type look struct {
	ID   int             `json:"id"`
	Host string          `json:"host"` // as the controller calls this agent's
	Path []probe.LinkKey `json:"path"`
}

// jobWant is a pair of which this agent is the initiator.
type jobWant struct {
	ID         int              `json:"id"`
	Transport  string           `json:"transport"`
	BothWays   bool             `json:"both_ways,omitempty"`
	LocalPort  topo.ID          `json:"local_port,omitempty"`  // "" any
	RemotePort topo.ID          `json:"remote_port,omitempty"` // of the target's topology
	Location   pathsel.Location `json:"location,omitempty"`
	Bytes      int64            `json:"bytes"` // of memory here
	Host       string           `json:"host"`  // the target, for people
	Addresses  []string         `json:"addresses"`
	Epoch      uint64           `json:"epoch,string"` // of the target
	Region     string           `json:"region"`       // of the target
	// GiveUp is how long the target may be unreachable before the pair is over.
	GiveUp time.Duration `json:"give_up_ns"`
	// Alone: no other pair of the round has its processor time in these two processes.
	Alone bool       `json:"alone,omitempty"`
	Spec  probe.Spec `json:"spec"`
}

// seen says what the controller has of a job.
type seen struct {
	ID      int  `json:"id"`
	Samples int  `json:"samples"`
	Result  bool `json:"result,omitempty"`
}

// answer is the reply of an agent; which fields it has depends on the request.
type answer struct {
	Schema  string       `json:"schema"`
	Epoch   uint64       `json:"epoch,string"`
	LeaseNS int64        `json:"lease_ns,omitempty"` // lease: how long the controller may be silent
	Agent   *description `json:"agent,omitempty"`
	CPUNS   *int64       `json:"cpu_ns,omitempty"`
	Load    *lane.Load   `json:"load,omitempty"` // start and end
	Regions []region     `json:"regions,omitempty"`
	Served  *served      `json:"served,omitempty"` // prepare and end
	Jobs    []jobState   `json:"jobs,omitempty"`
	Links   []linkStates `json:"links,omitempty"` // end
}

// description is what an agent is, and what it may do.
type description struct {
	Name     string          `json:"name"`
	Topology json.RawMessage `json:"topology,omitempty"` // topoctl.topology/v1
	// Transports are those that it can measure, and Unavailable says why others are missing.
	Transports  []string   `json:"transports"`
	Unavailable []string   `json:"unavailable,omitempty"`
	Endpoints   []endpoint `json:"endpoints"` // that peers can open it at
	Limits      Limits     `json:"limits"`
}

// endpoint is an address of an agent's engine.
type endpoint struct {
	Port    topo.ID `json:"port,omitempty"` // "" none, or not known
	Address string  `json:"address"`
}

// Limits are what an agent lets controllers do.
type Limits struct {
	// BytesPerSec is what all pairs together may move that it initiates; 0 no limit.
	BytesPerSec int64 `json:"max_bytes_per_sec"`
	// Duration is how long one pair may take.
	Duration time.Duration `json:"max_duration_ns"`
	// MemoryBytes is for a round: targets and initiators together.
	MemoryBytes int64 `json:"max_memory_bytes"`
}

// served is what an agent's engine has moved for peers since it started.
type served struct {
	ReadBytes    int64    `json:"read_bytes"`
	WrittenBytes int64    `json:"written_bytes"`
	Uncounted    []string `json:"uncounted_transports"`
}

// The states of a job.
const (
	stateConnecting = "connecting"
	stateReady      = "ready"
	stateRunning    = "running"
	stateDone       = "done" // the result says how
)

type jobState struct {
	ID    int    `json:"id"`
	State string `json:"state"`
	// Samples are those after the ones that the controller has seen.
	Samples []probe.Sample `json:"samples,omitempty"`
	Result  *result        `json:"result,omitempty"` // of a job that is done, until it was seen
}

// result is a Measurement with the fields that its JSON leaves out.
type result struct {
	probe.Measurement
	Waived string `json:"waived,omitempty"`
	Error  string `json:"error,omitempty"`
	// Cause is what Error is about.
	Cause probe.Cause `json:"error_cause,omitempty"`
}

type linkStates struct {
	ID    int               `json:"id"`
	Links []probe.LinkState `json:"link_states"`
}

// Bounds of what is decoded: `{},` has three bytes, and what becomes of it hundreds.
const (
	maxEntries       = 4 * maxJobs // of all lists of a request
	maxAnswerEntries = 1 << 16     // of those of an answer
	maxPlainEntries  = 1 << 18     // of plain lists
	maxDepth         = 63
)

// plainLists are lists of numbers, texts and samples, whose entries are small here. They are the
// keys of such lists alone.
var plainLists = map[string]bool{
	"samples": true, "samples_bytes_per_sec": true, "sizes_bytes": true, "path": true, "addresses": true, "notes": true,
}

// undecoded stays JSON here: a topology has a decoder with limits of its own.
var undecoded = map[string]bool{"topology": true}

// decode reads JSON of a peer whose lists have at most most entries, not counting plain lists.
func decode(data []byte, most int, to any) error {
	if err := decodeLimits(most).Check(data); err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

func decodeLimits(most int) *document.Limits {
	return &document.Limits{Elements: most, CheapLists: plainLists, CheapElements: maxPlainEntries, Opaque: undecoded, Depth: maxDepth}
}

// parseRequest reads a request; everything but the server's own limits is checked here.
func parseRequest(data []byte) (*request, error) {
	var r request
	if err := decode(data, maxEntries, &r); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if r.Schema != callSchema {
		return nil, fmt.Errorf("request of schema %.40q: this agent speaks %s", r.Schema, callSchema)
	}
	if n := max(len(r.Regions), len(r.Looks), len(r.Jobs), len(r.Seen)); n > maxJobs {
		return nil, fmt.Errorf("%s: %d entries: want at most %d", clip(r.Do, 40), n, maxJobs)
	}
	err := cmp.Or(checkText("lease", r.Lease), checkText("controller", r.Controller))
	ids := map[int]bool{}
	for i := range r.Regions {
		err = cmp.Or(err, checkID(ids, r.Regions[i].ID), checkLocation(r.Regions[i].Location))
		if r.Regions[i].Bytes < 1 {
			err = cmp.Or(err, fmt.Errorf("region of %d bytes: want 1 or more", r.Regions[i].Bytes))
		}
	}
	clear(ids)
	links := 0
	for i := range r.Looks {
		links += len(r.Looks[i].Path)
		err = cmp.Or(err, checkID(ids, r.Looks[i].ID), checkText("host", r.Looks[i].Host))
		if len(r.Looks[i].Path) > maxPath || links > maxLinks {
			err = cmp.Or(err, fmt.Errorf("%d links on a path, %d in all so far: want at most %d and %d", len(r.Looks[i].Path), links, maxPath, maxLinks))
		}
	}
	clear(ids)
	for i := range r.Jobs {
		err = cmp.Or(err, checkID(ids, r.Jobs[i].ID), r.Jobs[i].check())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", clip(r.Do, 40), err)
	}
	return &r, nil
}

func (j *jobWant) check() error {
	err := cmp.Or(checkText("transport", j.Transport), checkText("local port", string(j.LocalPort)), checkText("remote port", string(j.RemotePort)),
		checkText("host", j.Host), checkText("region", j.Region), checkLocation(j.Location), CheckSpec(&j.Spec))
	if j.GiveUp < minGiveUp || j.GiveUp > maxGiveUp {
		err = cmp.Or(err, fmt.Errorf("unreachable for %v: want %v to %v", j.GiveUp, minGiveUp, maxGiveUp))
	}
	if j.Bytes < 1 {
		err = cmp.Or(err, fmt.Errorf("memory of %d bytes: want 1 or more", j.Bytes))
	}
	if len(j.Addresses) < 1 || len(j.Addresses) > maxAddresses {
		err = cmp.Or(err, fmt.Errorf("%d addresses: want 1 to %d", len(j.Addresses), maxAddresses))
	}
	for _, a := range j.Addresses {
		if _, bad := hostlist.WithPort(a, defaultPort); bad != nil {
			err = cmp.Or(err, bad)
		}
	}
	return err
}

// CheckSpec says what in a Spec agents do not measure: what makes no sense, and what another host may not
// ask for.
func CheckSpec(s *probe.Spec) error {
	for _, d := range []struct {
		name        string
		value, most time.Duration
	}{{"warm-up", s.Warmup, maxPause}, {"samples", s.SampleTime, maxPause}, {"time for a pair", s.PairTime, maxPairTime}} {
		if d.value < 0 || d.value > d.most {
			return fmt.Errorf("%s of %v: want 0 to %v", d.name, d.value, d.most)
		}
	}
	switch n := len(s.SizesBytes); {
	case n == 0 && s.LatencySamples == 0:
		return errors.New("neither sizes nor round trips to measure")
	case n > 0 && s.SampleTime < time.Millisecond:
		return fmt.Errorf("samples of %v: want 1ms or more", s.SampleTime)
	case n > maxSizes:
		return fmt.Errorf("%d sizes: want at most %d", n, maxSizes)
	case n > 0 && (s.SizesBytes[0] < 1 || !slices.IsSorted(s.SizesBytes) || len(slices.Compact(slices.Clone(s.SizesBytes))) < n):
		return fmt.Errorf("sizes %v: want 1 byte or more, ascending", s.SizesBytes)
	case n > 0 && s.SizesBytes[n-1] > maxOp:
		return fmt.Errorf("ops of %d bytes: want at most %d", s.SizesBytes[n-1], maxOp)
	case n > 0 && (s.MaxSamples < 1 || s.MinSamples < 0 || s.MinSamples > s.MaxSamples):
		return fmt.Errorf("%d to %d samples: want 1 or more, and a minimum that is not above the maximum", s.MinSamples, s.MaxSamples)
	case n > 0 && s.MaxSamples > maxSamples/n:
		return fmt.Errorf("%d samples of %d sizes: want at most %d in all", s.MaxSamples, n, maxSamples)
	case s.LatencySamples < 0 || s.LatencySamples > maxRTTs:
		return fmt.Errorf("%d samples of latency: want 0 to %d", s.LatencySamples, maxRTTs)
	case !(s.CI >= 0 && s.CI <= 1): // also NaN
		return fmt.Errorf("confidence interval of %v: want 0 to 1, a part of the mean", s.CI)
	case s.RateLimit < 0 || s.RateLimit > maxRate:
		return fmt.Errorf("rate limit of %d bytes/s: want 0 to %d", s.RateLimit, int64(maxRate))
	}
	return nil
}

func checkID(have map[int]bool, id int) error {
	if id < 0 || id >= 1<<20 || have[id] {
		return fmt.Errorf("pair %d: want different numbers from 0 on", id)
	}
	have[id] = true
	return nil
}

func checkText(what, s string) error {
	if len(s) > maxText || !isPrintable(s) {
		return fmt.Errorf("%s %.40q: want at most %d printable bytes", what, s, maxText)
	}
	return nil
}

// checkLocation refuses what is not a memory location: "", "cpu:N" or "gpu:N".
func checkLocation(l pathsel.Location) error {
	kind, number, ok := strings.Cut(string(l), ":")
	if n, err := strconv.ParseUint(number, 10, 16); l != "" && (!ok || kind != "cpu" && kind != "gpu" || err != nil || strconv.FormatUint(n, 10) != number) {
		return fmt.Errorf("memory location %.40q: want cpu:N or gpu:N", l)
	}
	return nil
}

// encodeRequest makes the bytes of a call.
func encodeRequest(r *request) ([]byte, error) {
	r.Schema = callSchema
	data, err := json.Marshal(r)
	if err == nil && len(data) > engine.MaxCallBytes {
		err = fmt.Errorf("%s: a request of %d bytes: want at most %d: measure fewer pairs at a time", r.Do, len(data), engine.MaxCallBytes)
	}
	return data, err
}

// clip makes a text of another host one printable line of at most most bytes.
func clip(s string, most int) string {
	return text.Clip(text.Printable(strings.Join(strings.Fields(s), " ")), most)
}

// isPrintable says whether a name can be used as it is. Invalid UTF-8 is read as a replacement character.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}
