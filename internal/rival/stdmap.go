package rival

import "encoding/binary"

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
