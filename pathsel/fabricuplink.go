package pathsel

import (
	"encoding/json"
	"fmt"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
)

// FabricUplink are the links between a leaf and a spine switch, all of one rate.
type FabricUplink struct {
	Leaf  string `json:"leaf"` // as FabricPort.Leaf
	Spine string `json:"spine"`
	Count int    `json:"count,omitempty"` // of parallel links; 0 is 1
	// BytesPerSec is what each of them carries in one direction; nil not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec,omitempty"`
}

// Links is how many parallel links there are.
func (u *FabricUplink) Links() int { return max(u.Count, 1) }

// Bounds of uplinks: what the links of a leaf carry together has to fit.
const (
	maxUplinks              = 1 << 16 // entries of a file
	maxLeafLinks            = 1 << 16 // of one leaf
	maxUplinkRate topo.Rate = 1e12    // bytes/s of one link
)

// parseUplinks reads the uplinks of a file, one by one so that errors name them.
func parseUplinks(raw []json.RawMessage) ([]FabricUplink, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > maxUplinks {
		return nil, tooManyUplinks(len(raw))
	}
	list := make([]FabricUplink, len(raw))
	for i, data := range raw {
		var u struct {
			Leaf        string     `json:"leaf"`
			Spine       string     `json:"spine"`
			Count       *int       `json:"count"`
			BytesPerSec *topo.Rate `json:"bytes_per_sec"`
		}
		if err := wrongType(json.Unmarshal(data, &u)); err != nil {
			return nil, fmt.Errorf("fabric: uplinks[%d]: %w", i, err)
		}
		list[i] = FabricUplink{Leaf: u.Leaf, Spine: u.Spine, BytesPerSec: u.BytesPerSec}
		if u.Count == nil {
			continue
		}
		if list[i].Count = *u.Count; *u.Count == 0 {
			return nil, fmt.Errorf("fabric: uplinks[%d]: count 0: want 1 to %d, or no entry at all", i, maxLeafLinks)
		}
	}
	if err := CheckUplinks(list); err != nil {
		return nil, err
	}
	return list, nil
}

func tooManyUplinks(n int) error {
	return fmt.Errorf("fabric: %d uplinks: at most %d are read: links between the same two switches are one entry with a count", n, maxUplinks)
}

// CheckUplinks says what is wrong with uplinks, of a file or of a program.
func CheckUplinks(list []FabricUplink) error {
	if len(list) > maxUplinks {
		return tooManyUplinks(len(list))
	}
	seen := make(map[[2]string]bool, len(list))
	links := map[string]int{}
	for i := range list {
		u := &list[i]
		if err := u.check(); err != nil {
			return fmt.Errorf("fabric: uplinks[%d]: %w", i, err)
		}
		at := [2]string{u.Leaf, u.Spine}
		if seen[at] {
			return fmt.Errorf("fabric: uplinks[%d]: leaf %q and spine %q are listed twice: say with \"count\" how many links there are", i, u.Leaf, u.Spine)
		}
		seen[at] = true
		if links[u.Leaf] += u.Links(); links[u.Leaf] > maxLeafLinks {
			return fmt.Errorf("fabric: uplinks[%d]: leaf %q has more than %d uplinks", i, u.Leaf, maxLeafLinks)
		}
	}
	return nil
}

func (u *FabricUplink) check() error {
	for _, n := range []struct{ what, name string }{{"leaf", u.Leaf}, {"spine", u.Spine}} {
		if err := checkSwitchName(n.name); err != nil {
			return fmt.Errorf("%s %w", n.what, err)
		}
	}
	switch {
	case u.Leaf == u.Spine:
		return fmt.Errorf("leaf and spine are both %q: want two switches", u.Leaf)
	case u.Count < 0 || u.Count > maxLeafLinks:
		return fmt.Errorf("count %d: want 1 to %d", u.Count, maxLeafLinks)
	case u.BytesPerSec != nil && (*u.BytesPerSec < 1 || *u.BytesPerSec > maxUplinkRate):
		return fmt.Errorf("bytes_per_sec %d: want 1 to %d, or null for unknown", *u.BytesPerSec, maxUplinkRate)
	}
	return nil
}

// checkSwitchName refuses names that reports cannot show.
func checkSwitchName(name string) error {
	if err := checkFabricName(name); err != nil {
		return err
	}
	for _, c := range name {
		if !unicode.IsPrint(c) || c == ' ' || c == '>' || c == unicode.ReplacementChar {
			return fmt.Errorf("%q: want printable characters without space and >", name)
		}
	}
	return nil
}
