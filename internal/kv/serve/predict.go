package serve

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/pathsel"
)

// Run runs a serving system (kv/serve) over the simulator (internal/sim): the same
// requests on any hosts and fabric, with any choice of ports, in virtual time. The lanes are
// pathsel's and the slices internal/sched's, as in a real transfer; compute is a model.
//
// Each pair of ranks of a transfer is one job of the scheduler of the host that starts it: the
// prefill side's that pushes, the decode side's that pulls. Between ranks of one host it is a
// flow along the host's own links. Spec.SliceBytes says how fine jobs are cut. What coarse
// slices cost: a lane ends up to a slice later than the others, and a fault is noticed a slice
// later.

// Rank is where a tensor rank has its memory.
type Rank struct {
	Host     int // of Spec.Hosts
	Location pathsel.Location
}

// Instance is where the ranks of an instance are, in the order of the layout.
type Instance []Rank

// Spec is what is predicted.
type Spec struct {
	Hosts  []sim.HostSpec
	Fabric *sim.Fabric
	// Prefill and Decode are where instances run; their lengths replace the numbers of
	// instances in Serve. Without Decode, those of Prefill do both and nothing moves.
	Prefill, Decode []Instance
	Serve           Config
	Workload        *kv.Workload
	Network         Network
	Seed            uint64
	Engine          sim.EngineOptions
	// SetupNS is the time that the starting rank of a transfer needs before bytes move, and
	// PieceNS the time that it needs for each piece that is contiguous on both sides.
	SetupNS, PieceNS int64
	// SliceBytes is the largest slice; 0: as small as possible with two million slices in all.
	SliceBytes int64
	// TransferNS is the timeout of a transfer between two ranks; 0: 10 minutes.
	TransferNS int64
}

// Choice is how lanes are chosen.
type Choice string

// Choices.
const (
	Ours     Choice = "pathsel"  // by pathsel
	Infinite Choice = "infinite" // moving takes no time
	BestNIC  Choice = "best-nic" // the best lane of each pair of ranks, alone
	// RandomNIC is a random lane of the two hosts' data ports for each transfer between two
	// ranks.
	RandomNIC Choice = "random-nic"
)

// Network is a variation of a Spec's network.
type Network struct {
	Name   string // for people
	Choice Choice // "" is Ours
	// Ports are those that may be used, by host; hosts that are not listed use all.
	Ports map[int][]topo.ID
	Down  []Port
	// Fabric replaces Spec.Fabric: other leaves, for instance.
	Fabric *sim.Fabric
}

// Port is one that goes down.
type Port struct {
	Host            int
	Port            topo.ID
	FromNS, UntilNS int64 // UntilNS 0: for the rest of the run
}

// Result is the outcome of a prediction.
type Result struct {
	Network               string
	Times                 []kv.Times // in the workload's order
	EndNS                 int64      // when the last request finished
	PrefillUse, DecodeUse []Use
	Lanes                 []Lane // that carried something, by name
	SliceBytes            int64  // the largest slice
	Transfers, Pieces     int64  // between two ranks, and what is contiguous in them
}

// Lane is what went over a lane.
type Lane struct {
	Name            string  // for people: "n0:mlx5_0 > n1:mlx5_0"
	From, To        sim.End // host and port; From is the one that starts transfers
	Bytes           int64
	Slices, Retries int64
}

// Run predicts. It fails if something does not fit together or two ranks cannot reach each
// other; a request that cannot be answered says so in its times.
func Run(s Spec) (*Result, error) {
	s.Network.Choice = cmp.Or(s.Network.Choice, Ours)
	if err := s.check(); err != nil {
		return nil, err
	}
	c, err := sim.New(sim.Spec{Hosts: s.Hosts, Fabric: cmp.Or(s.Network.Fabric, s.Fabric), Seed: s.Seed})
	if err != nil {
		return nil, pkgerr.Errorf("predict", "%w", err)
	}
	if err := checkRanks(c, s.Prefill, s.Decode); err != nil {
		return nil, err
	}
	for _, p := range s.Network.Down {
		if err := c.PortDown(p.Host, p.Port, p.FromNS, p.UntilNS); err != nil {
			return nil, pkgerr.Errorf("predict", "%w", err)
		}
	}
	s.Serve.Prefill.Instances, s.Serve.Decode.Instances = len(s.Prefill), len(s.Decode)
	m := &mover{c: c, s: &s, engines: map[int]*sim.Engine{}, ways: map[[2]Rank][]pathsel.LaneOptions{}, posted: map[Rank]int64{}, lanes: map[[2]sim.End]*Lane{},
		rng: rand.New(rand.NewPCG(s.Seed, 0x6b76))}
	if err := m.prepare(); err != nil {
		return nil, err
	}
	system, err := New(s.Serve, s.Workload, predictClock{c}, m)
	if err != nil {
		return nil, pkgerr.Errorf("predict", "%w", err)
	}
	system.Start(nil)
	if !c.RunUntil(sim.Never, system.Ended) {
		return nil, pkgerr.New("predict", "nothing is left to happen, but not every request has finished") // a defect
	}
	r := &Result{Network: s.Network.Name, Times: system.Times(), EndNS: c.Now(), PrefillUse: system.PrefillUse(), DecodeUse: system.DecodeUse(),
		SliceBytes: s.Engine.Sched.SliceMaxBytes, Transfers: m.transfers, Pieces: m.pieces}
	for _, l := range m.lanes {
		r.Lanes = append(r.Lanes, *l)
	}
	slices.SortFunc(r.Lanes, func(a, b Lane) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.From.Port, b.From.Port), cmp.Compare(a.To.Port, b.To.Port))
	})
	return r, nil
}

// Compare predicts the same with other networks, and calls begin before each; nil: no call.
func Compare(s Spec, networks []Network, begin func(which int)) ([]*Result, error) {
	var out []*Result
	for i, n := range networks {
		if begin != nil {
			begin(i)
		}
		s.Network = n
		r, err := Run(s)
		if err != nil {
			return nil, fmt.Errorf("%w (network %q)", err, n.Name)
		}
		out = append(out, r)
	}
	return out, nil
}

// predictClock is the simulator's clock.
type predictClock struct{ *sim.Cluster }

func (c predictClock) NowNS() int64              { return c.Now() }
func (c predictClock) At(atNS int64, run func()) { c.Cluster.At(atNS, run) }

// Bounds of slices.
const (
	maxSlices = 2_000_000
	minSlice  = 1 << 20
	maxSlice  = 64 << 20
)

func (s *Spec) check() error {
	switch s.Network.Choice {
	case Ours, Infinite, BestNIC, RandomNIC:
	default:
		return pkgerr.Errorf("predict", "choice of lanes %q: want %s, %s, %s or %s", s.Network.Choice, Ours, Infinite, BestNIC, RandomNIC)
	}
	if s.SetupNS < 0 || s.PieceNS < 0 || s.SliceBytes < 0 || s.TransferNS < 0 {
		return pkgerr.New("predict", "a time or size below 0")
	}
	if s.Workload == nil {
		return pkgerr.New("predict", "no workload")
	}
	if len(s.Decode) == 0 {
		return nil
	}
	if s.Serve.Cache == nil {
		return pkgerr.New("predict", "no KV layout from prefill to decode")
	}
	for _, side := range []struct {
		name string
		of   []Instance
		tp   int
	}{{"prefill", s.Prefill, s.Serve.Cache.Prefill.TP}, {"decode", s.Decode, s.Serve.Cache.Decode.TP}} {
		for i, x := range side.of {
			if len(x) != side.tp {
				return pkgerr.Errorf("predict", "%s instance %d has %d ranks: the KV layout has %d", side.name, i, len(x), side.tp)
			}
		}
	}
	s.slice()
	return nil
}

// slice is the size of slices.
func (s *Spec) slice() {
	size := s.SliceBytes
	if size == 0 {
		total := int64(0)
		for i := range s.Workload.Requests {
			total += int64(max(s.Workload.Requests[i].Input, 0)) * s.Serve.Cache.Model.BytesPerToken()
		}
		size = min(max(total/maxSlices, minSlice), maxSlice)
	}
	s.Engine.Sched.SliceMaxBytes = size
	s.Engine.Sched.SliceMinBytes = max(size/16, 64<<10)
	s.Engine.Limits.MaxBytes = max(s.Engine.Limits.MaxBytes, size)
}

// checkRanks checks that every rank has a host and a location.
func checkRanks(c *sim.Cluster, sides ...[]Instance) error {
	for _, r := range slices.Concat(slices.Concat(sides...)...) {
		if r.Host < 0 || r.Host >= len(c.Names()) {
			return pkgerr.Errorf("predict", "no host %d: there are %d", r.Host, len(c.Names()))
		}
		if known := c.Kind(r.Host).Host().Locations(); !slices.Contains(known, r.Location) {
			return pkgerr.Errorf("predict", "host %q has no memory %q: it has %v", c.Names()[r.Host], r.Location, known)
		}
	}
	return nil
}
