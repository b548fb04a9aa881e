package record

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// What single things of a record may be at most.
const (
	maxNS       = math.MaxInt64 / 2
	maxName     = 512
	maxSource   = 4096 // an URL
	maxDetail   = 1 << 16
	maxPorts    = 1 << 14
	maxSpeedMTs = 1_000_000 // of a PCIe lane; 128 GT/s is the most that any specification has
	maxLanes    = 32
	maxRate     = topo.Rate(1e15) // bytes/s
)

// check says what is wrong with a record. Topology, probe and engine are checked where they
// are decoded.
func (r *Record) check() error {
	if r.AtNS < 0 || r.AtNS > maxNS {
		return fmt.Errorf("at_ns %d: want 0 or more", r.AtNS)
	}
	if r.Source == "" && r.Start == nil || len(r.Source) > maxSource {
		return fmt.Errorf("source of %d bytes: want 1 to %d", len(r.Source), maxSource)
	}
	n := 0
	for _, there := range []bool{r.Start != nil, r.Topology != nil, r.Counters != nil, r.Engine != nil, r.Probe != nil, r.State != nil} {
		if there {
			n++
		}
	}
	if n > 1 {
		return fmt.Errorf("%d pieces of news in one record: want one", n)
	}
	return errors.Join(r.State.check(), checkSample(r.Counters))
}

// empty says that a record brings nothing that is known: a newer writer's.
func (r *Record) empty() bool {
	return r.Start == nil && r.Topology == nil && r.Counters == nil && r.Engine == nil && r.Probe == nil && r.State == nil
}

func (s *SourceState) check() error {
	if s == nil || slices.Contains([]string{StatusOK, StatusWaiting, StatusFailed, StatusEnded}, s.Status) {
		return nil
	}
	return fmt.Errorf("state: status %.40q: want %s, %s, %s or %s", s.Status, StatusOK, StatusWaiting, StatusFailed, StatusEnded)
}

func checkSample(s *counters.Sample) error {
	if s == nil {
		return nil
	}
	if len(s.Ports) > maxPorts || len(s.Links) > maxPorts || len(s.GPUs) > maxPorts {
		return fmt.Errorf("counters: %d ports, %d links, %d GPUs: at most %d are read", len(s.Ports), len(s.Links), len(s.GPUs), maxPorts)
	}
	if err := walk(reflect.ValueOf(s), "", "", func(reflect.Value, string) {}); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	ports, links, gpus := map[topo.ID]bool{}, map[topo.ID]bool{}, map[topo.ID]bool{}
	for i := range s.Ports {
		if err := checkID(s.Ports[i].ID, ports); err != nil {
			return fmt.Errorf("counters: ports[%d]: %w", i, err)
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		if err := errors.Join(checkID(l.ID, links), checkAtMost("speed_mts", l.SpeedMTs, maxSpeedMTs), checkAtMost("width", l.Width, maxLanes)); err != nil {
			return fmt.Errorf("counters: pcie_links[%d]: %w", i, err)
		}
	}
	for i := range s.GPUs {
		if err := checkID(s.GPUs[i].ID, gpus); err != nil {
			return fmt.Errorf("counters: gpus[%d]: %w", i, err)
		}
	}
	return nil
}

// checkID refuses devices without name, and two of one name.
func checkID(id topo.ID, seen map[topo.ID]bool) error {
	switch {
	case id == "" || len(id) > maxName:
		return fmt.Errorf("id of %d bytes: want 1 to %d", len(id), maxName)
	case seen[id]:
		return fmt.Errorf("id %q: there is one of that name already", id)
	}
	seen[id] = true
	return nil
}

func checkAtMost(what string, v *int, most int) error {
	if v != nil && *v > most {
		return fmt.Errorf("%s %d: want 0 to %d, or null", what, *v, most)
	}
	return nil
}
