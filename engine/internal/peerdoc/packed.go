package peerdoc

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/document"
)

// Programs register memory tensor by tensor, 10^5 of them. Regions that are alike are sent
// packed: a few bytes for each, and once what they have in common. docs/wire.md specifies it.

// packFrom is how many regions that are alike are packed.
const packFrom = 32

// madeUpName is how names begin that an engine has made up: a number follows. Only regions of
// such names are packed.
const madeUpName = "region-"

// pack is regions that are alike.
type pack struct {
	Location string   `json:"location,omitempty"`
	Read     bool     `json:"read"`
	Write    bool     `json:"write"`
	Keys     packKeys `json:"keys,omitempty"`
	Rows     []byte   `json:"rows"`
}

// packKeys are the keys of a pack's regions by transport: one for all of them, or, for one
// transport at most, one for each: each region has a map of its own then, and a key takes three
// bytes of a document.
type packKeys map[string][]string

// likeness is what the regions of a pack have in common.
type likeness struct {
	location    string
	read, write bool
	transports  string
}

// packRegions takes the regions out that are sent packed. Packs are in the order of their first
// regions.
func packRegions(regions []Region) (plain []Region, packs []pack, err error) {
	if len(regions) < packFrom {
		return regions, nil, nil
	}
	alike := map[likeness][]numbered{}
	var order []likeness
	plain = []Region{}
	for i := range regions {
		r := &regions[i]
		number, ok := madeUp(r.Name)
		if !ok {
			plain = append(plain, *r)
			continue
		}
		k := likeness{location: r.Location, read: r.Read, write: r.Write, transports: strings.Join(r.Keys.transports(), "\x00")}
		if alike[k] == nil {
			order = append(order, k)
		}
		alike[k] = append(alike[k], numbered{r, number})
	}
	few := false
	for _, k := range order {
		if p, ok := packAlike(alike[k]); ok {
			packs = append(packs, p)
			continue
		}
		few = true
		for _, n := range alike[k] {
			plain = append(plain, *n.r)
		}
	}
	if few {
		slices.SortFunc(plain, byID)
	}
	if len(plain) > maxListed {
		return nil, nil, fmt.Errorf("%d regions with names that were given, or unlike others: want at most %d", len(plain), maxListed)
	}
	return plain, packs, nil
}

func byID(a, b Region) int { return cmp.Compare(a.ID, b.ID) }

// numbered is a region and the number in its name.
type numbered struct {
	r      *Region
	number uint64
}

// madeUp is the number in a name that an engine has made up.
func madeUp(name string) (number uint64, ok bool) {
	text, ok := strings.CutPrefix(name, madeUpName)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, err == nil && text[0] != '+' && (text[0] != '0' || text == "0")
}

// transports are those that have a key, in order.
func (k Keys) transports() []string {
	if len(k) == 0 {
		return nil
	}
	out := make([]string, 0, len(k))
	for name := range k {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// packAlike packs regions that have the same in common; false where that saves nothing, or is not
// what can be sent.
func packAlike(list []numbered) (p pack, ok bool) {
	if len(list) < packFrom {
		return pack{}, false
	}
	first := list[0].r
	differing := 0
	p = pack{Location: first.Location, Read: first.Read, Write: first.Write, Rows: make([]byte, 0, 8*len(list))}
	var before row
	for _, n := range list {
		next := row{id: uint64(n.r.ID), number: n.number, address: n.r.Address, bytes: uint64(n.r.Bytes)}
		p.Rows = next.append(p.Rows, &before)
		before = next
	}
	for _, transport := range first.Keys.transports() {
		keys, same := make([]string, len(list)), true
		for i, n := range list {
			keys[i] = n.r.Keys[transport]
			same = same && keys[i] == keys[0]
		}
		if same {
			keys = keys[:1]
		} else {
			differing++
		}
		if p.Keys == nil {
			p.Keys = packKeys{}
		}
		p.Keys[transport] = keys
	}
	return p, differing <= 1
}

// row is one region of a pack. It is sent as differences to the row before it, the first to
// zeros; they are taken modulo 2^64.
type row struct{ id, number, address, bytes uint64 }

func (r *row) append(b []byte, before *row) []byte {
	b = binary.AppendUvarint(b, r.id-before.id)
	b = binary.AppendVarint(b, int64(r.number-before.number-1))
	b = binary.AppendVarint(b, int64(r.address-before.address-before.bytes))
	return binary.AppendUvarint(b, r.bytes)
}

var errRows = errors.New("rows: want four numbers for each region")

// read takes the row after before off the front of b.
func (r *row) read(b []byte, before *row) ([]byte, error) {
	var parts [4]uint64
	for i := range parts {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errRows
		}
		parts[i], b = v, b[n:]
	}
	r.id = before.id + parts[0]
	r.number = before.number + 1 + unzigzag(parts[1])
	r.address = before.address + before.bytes + unzigzag(parts[2])
	r.bytes = parts[3]
	return b, nil
}

// unzigzag gives a number with a sign, modulo 2^64.
func unzigzag(v uint64) uint64 { return v>>1 ^ -(v & 1) }

// unpack adds the regions of packs to the others.
func unpack(plain []Region, packs []pack) ([]Region, error) {
	if len(packs) == 0 {
		return plain, nil
	}
	for i := range packs {
		var err error
		if plain, err = packs[i].unpack(plain); err != nil {
			return nil, fmt.Errorf("packed regions %d: %w", i, err)
		}
	}
	slices.SortStableFunc(plain, byID)
	return plain, nil
}

func (p *pack) unpack(out []Region) ([]Region, error) {
	numbers := 0
	for _, b := range p.Rows {
		if b < 0x80 { // the last byte of one
			numbers++
		}
	}
	if numbers/4 > MaxRegions-len(out) {
		return nil, fmt.Errorf("more than %d regions", MaxRegions)
	}
	out = slices.Grow(out, numbers/4)
	before, first := row{}, len(out)
	for rows := p.Rows; len(rows) > 0; {
		var r row
		var err error
		if rows, err = r.read(rows, &before); err != nil {
			return nil, err
		}
		out = append(out, Region{
			ID: memory.ID(r.id), Name: madeUpName + strconv.FormatUint(r.number, 10), Bytes: int64(r.bytes), Address: r.address,
			Location: p.Location, Read: p.Read, Write: p.Write,
		})
		before = r
	}
	return out, p.Keys.unpack(out[first:])
}

// unpack gives regions their keys. Those that have all keys in common share them.
func (k packKeys) unpack(regions []Region) error {
	if len(k) == 0 {
		return nil
	}
	differing := 0
	for transport, keys := range k {
		if len(keys) != 1 && len(keys) != len(regions) {
			return fmt.Errorf("%d keys of transport %q for %d regions: want one, or one for each", len(keys), Clip(transport), len(regions))
		}
		if len(keys) != 1 {
			differing++
		}
	}
	if differing > 1 {
		return fmt.Errorf("keys for each region of %d transports: want at most one", differing)
	}
	var shared Keys
	for i := range regions {
		if shared == nil || differing > 0 {
			shared = make(Keys, len(k))
			for transport, keys := range k {
				shared[transport] = keys[min(i, len(keys)-1)]
			}
		}
		regions[i].Keys = shared
	}
	return nil
}

// UnmarshalJSON reads an object of at most maxKeys lists of at most MaxRegions keys.
func (k *packKeys) UnmarshalJSON(data []byte) error {
	*k = nil
	if isNull(data) {
		return nil
	}
	out := packKeys{}
	r := document.NewReader(data)
	err := r.Object(maxKeys, func(name string) error {
		var keys []string
		err := document.ReadList(r, &keys, MaxRegions, 0, nil)
		out[name] = keys
		return err
	})
	*k = out
	return err
}

// MostBytes is how much longer a region can make a descriptor, or a delta: by itself, or packed,
// where the row that follows it changes too.
func (r *Region) MostBytes() int {
	const inRows = 128 // two rows of four numbers of ten bytes, in base64
	data, err := json.Marshal(r)
	if err != nil {
		return MaxBytes
	}
	return len(data) + inRows
}
