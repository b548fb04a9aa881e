package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// shortNames names things by what they are, so that a name stays what it is whatever else is in the fleet: a prefix
// and the beginning of a digest, of more digits only where two would be one.
func shortNames(prefix string, identities []string) map[string]string {
	const digits = 8
	name := func(identity string, digits int) string {
		digest, is := strings.CutPrefix(identity, "sha256:")
		if !is || len(digest) < 2*digits {
			sum := sha256.Sum256([]byte(identity))
			digest = hex.EncodeToString(sum[:])
		}
		return prefix + digest[:digits]
	}
	count := map[string]int{}
	out := map[string]string{}
	for _, id := range identities {
		if out[id] == "" {
			out[id] = name(id, digits)
			count[out[id]]++
		}
	}
	for id, short := range out {
		if count[short] > 1 {
			out[id] = name(id, 2*digits)
		}
	}
	return out
}

// PlaceNames names places of the fabric by the switches that make them.
type PlaceNames struct {
	name  map[string]string // of a switch that no other has
	short map[string]string
}

// PlaceNames are the names of places of this fabric.
func (f *Fleet) PlaceNames() PlaceNames {
	count := map[string]int{}
	var ids []string
	for i := range f.Switches {
		s := &f.Switches[i]
		ids = append(ids, s.ID)
		count[f.SwitchName(s.ID)]++
	}
	for _, p := range f.Ports() { // a fabric file need not list its switches
		ids = append(ids, p.Leaf)
	}
	n := PlaceNames{map[string]string{}, shortNames("", ids)}
	for _, id := range ids {
		if n.name[id] = f.SwitchName(id); count[n.name[id]] > 1 {
			n.name[id] = id
		}
	}
	return n
}

// Of names the place that some switches make: one switch by its own name, several by a digest of the first of them in
// the order of IDs, which are GUIDs where the fabric has such. What hosts are there says nothing.
func (n PlaceNames) Of(prefix string, switches []string) string {
	if len(switches) == 1 {
		return n.name[switches[0]]
	}
	return prefix + "-" + n.short[slices.Min(switches)]
}
