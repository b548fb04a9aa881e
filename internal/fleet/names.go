package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// shortNames makes names from identities, so that a name does not depend on the rest of the fleet: a prefix and the
// beginning of a digest, with more digits if two names would be the same.
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

// Of names the place that some switches form. A single switch gives its own name. Several give a digest of the first ID,
// which is a GUID if the fabric has GUIDs. The hosts there have no influence.
func (n PlaceNames) Of(prefix string, switches []string) string {
	if len(switches) == 1 {
		return n.name[switches[0]]
	}
	return prefix + "-" + n.short[slices.Min(switches)]
}
