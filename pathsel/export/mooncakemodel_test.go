package export_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// numbered is a priority matrix with the numbers that a Mooncake engine gives to NICs: the place of
// a NIC is that in the order in which NICs are first met, and that order is the one in which a C++
// hash map holds the locations.
// Source: Mooncake 3b5a594, mooncake-transfer-engine/src/topology.cpp.
type numbered struct {
	lists   map[string][][]int // preferred and available, by location
	devices []string           // by number
}

// number numbers the NICs of locations that were put into the table in this order.
func number(entries []matrixEntry) *numbered {
	n := &numbered{lists: map[string][][]int{}}
	by := map[string][][]string{}
	var keys []string
	for _, e := range entries {
		keys, by[e.key] = append(keys, e.key), e.lists
	}
	for _, key := range mapOrder(keys) {
		lists := make([][]int, 2)
		for i, names := range by[key] {
			for _, name := range names {
				at := slices.Index(n.devices, name)
				if at < 0 {
					at, n.devices = len(n.devices), append(n.devices, name)
				}
				lists[i] = append(lists[i], at)
			}
		}
		n.lists[key] = lists
	}
	return n
}

// misrouted is the largest part of a peer's picks for a location that end on a NIC which the host
// does not prefer for it. The peer numbers the NICs of the published matrix for itself, in the byte
// order of locations, and uses its numbers as places in the host's own list.
func (n *numbered) misrouted() float64 {
	published := make([]matrixEntry, 0, len(n.lists))
	for _, key := range slices.Sorted(maps.Keys(n.lists)) {
		e := matrixEntry{key: key, lists: make([][]string, 2)}
		for i, list := range n.lists[key] {
			for _, at := range list {
				e.lists[i] = append(e.lists[i], n.devices[at])
			}
		}
		published = append(published, e)
	}
	peer, worst := number(published), 0.0
	for key, meant := range n.lists {
		picks, want := peer.lists[key][0], meant[0]
		if len(picks) == 0 {
			picks, want = peer.lists[key][1], meant[1]
		}
		wrong := 0.0
		for _, at := range picks {
			if !slices.Contains(want, at) {
				wrong += 1 / float64(len(picks))
			}
		}
		worst = max(worst, wrong)
	}
	return worst
}

// mapOrder returns the order in which a std::unordered_map of GNU's C++ library
// goes through string keys that were put in one after the other. Mooncake
// numbers NICs in that order, so the model has to know it.
//
// The library keeps all keys in one list, those of a bucket side by side. A key
// goes to the front of its bucket, and a bucket that was empty to the front of
// the list. When there are more keys than buckets, the list is gone through
// and put together anew with more buckets.
// Source: libstdc++ bits/hashtable.h (_M_insert_bucket_begin, _M_rehash).
func mapOrder(keys []string) []string {
	var m stdMap
	m.grow()
	for _, key := range keys {
		if m.size == m.buckets {
			m.grow()
		}
		m.insert(key)
	}
	return m.list()
}

type stdMap struct {
	buckets int
	size    int
	used    []int            // buckets that hold keys, front of the list first
	keys    map[int][]string // of each bucket, front first
}

// bucketCounts are the sizes that a map of the library takes as it grows: the
// first of its primes that is at least twice the one before.
// Source: libstdc++ src/shared/hashtable-aux.cc.
var bucketCounts = []int{13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273}

// grow gives the map its next size. Beyond the last one, buckets hold more
// keys than in the library, which no host comes near.
func (m *stdMap) grow() {
	old := m.list()
	for _, n := range bucketCounts {
		if n > m.buckets {
			m.buckets = n
			break
		}
	}
	m.size, m.used, m.keys = 0, nil, map[int][]string{}
	for _, key := range old {
		m.insert(key)
	}
}

func (m *stdMap) insert(key string) {
	b := int(stdHash(key) % uint64(m.buckets))
	if len(m.keys[b]) == 0 {
		m.used = append([]int{b}, m.used...)
	}
	m.keys[b] = append([]string{key}, m.keys[b]...)
	m.size++
}

func (m *stdMap) list() []string {
	var out []string
	for _, b := range m.used {
		out = append(out, m.keys[b]...)
	}
	return out
}

// stdHash is std::hash<std::string> of that library on 64-bit machines:
// MurmurHash64A, which is in the public domain, with a seed of its own.
func stdHash(s string) uint64 {
	const seed, mul = 0xc70f6907, 0xc6a4a7935bd1e995
	mix := func(v uint64) uint64 { return v ^ v>>47 }
	data := []byte(s)
	hash := seed ^ uint64(len(data))*mul
	for ; len(data) >= 8; data = data[8:] {
		hash = (hash ^ mix(binary.LittleEndian.Uint64(data)*mul)*mul) * mul
	}
	if len(data) > 0 {
		var tail [8]byte
		copy(tail[:], data)
		hash = (hash ^ binary.LittleEndian.Uint64(tail[:])) * mul
	}
	return mix(mix(hash) * mul)
}

// The orders are those of std::unordered_map<std::string, int> of g++ 12 on
// x86-64, with as many buckets as hold the keys, and after it has grown.
func TestMapOrder(t *testing.T) {
	for n, want := range map[int]string{
		2:  "cpu:1 cpu:0",
		10: "cuda:7 cuda:6 cuda:4 cuda:3 cuda:2 cuda:5 cuda:1 cuda:0 cpu:1 cpu:0",
		13: "cuda:9 cuda:8 cuda:7 cuda:6 cuda:4 cuda:3 cuda:2 cuda:10 cuda:5 cuda:1 cuda:0 cpu:1 cpu:0",
		14: "cpu:1 cuda:0 cuda:11 cuda:1 cuda:5 cuda:10 cpu:0 cuda:2 cuda:3 cuda:4 cuda:6 cuda:7 cuda:8 cuda:9",
		18: "cuda:15 cuda:13 cuda:12 cpu:1 cuda:0 cuda:11 cuda:1 cuda:5 cuda:10 cpu:0 cuda:2 cuda:3 cuda:4 cuda:6 cuda:14 cuda:7 cuda:8 cuda:9",
		34: "cuda:29 cuda:28 cuda:23 cuda:22 cuda:7 cuda:25 cuda:4 cuda:26 cuda:16 cuda:2 cpu:0 cuda:5 cuda:17 cuda:30 cuda:20 cuda:18 cuda:1 cuda:9 cuda:0 cuda:27 cuda:14 cuda:6 cpu:1 cuda:12 cuda:31 cuda:11 cuda:13 cuda:3 cuda:10 cuda:19 cuda:15 cuda:21 cuda:8 cuda:24",
		74: "cuda:70 cuda:68 cuda:67 cuda:66 cuda:64 cuda:65 cuda:62 cuda:60 cuda:57 cuda:24 cuda:40 cuda:61 cuda:15 cuda:10 cuda:3 cuda:36 cuda:11 cuda:12 cuda:34 cuda:69 cuda:53 cpu:1 cuda:6 cuda:14 cuda:27 cuda:43 cuda:9 cuda:56 cuda:18 cuda:71 cuda:20 cuda:30 cuda:17 cuda:42 cuda:35 cuda:59 cuda:13 cuda:5 cuda:2 cuda:16 cuda:26 cuda:4 cuda:25 cuda:7 cuda:21 cuda:22 cuda:63 cuda:23 cuda:28 cpu:0 cuda:29 cuda:0 cuda:44 cuda:32 cuda:33 cuda:58 cuda:39 cuda:1 cuda:48 cuda:8 cuda:37 cuda:38 cuda:47 cuda:50 cuda:41 cuda:31 cuda:45 cuda:52 cuda:19 cuda:49 cuda:46 cuda:51 cuda:54 cuda:55",
	} {
		keys := []string{}
		for i := range n {
			if i < 2 {
				keys = append(keys, fmt.Sprintf("cpu:%d", i))
			} else {
				keys = append(keys, fmt.Sprintf("cuda:%d", i-2))
			}
		}
		if got := strings.Join(mapOrder(keys), " "); got != want {
			t.Errorf("%d keys:\n got %s\nwant %s", n, got, want)
		}
	}
	for key, want := range map[string]uint64{"": 6142509188972423790, "cuda:10": 15517449982504376741, "12345678": 10113836418918046885, "0123456789abcdefXYZ": 3947215215395305647} {
		if got := stdHash(key); got != want {
			t.Errorf("hash of %q is %d, want %d", key, got, want)
		}
	}
}
