package bench

import "encoding/binary"

// pattern is a sequence of bytes that are told apart by seed and offset: byte i is
// part of a hash of i/8.
type pattern uint64

// word is SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", 2014.
func (p pattern) word(i uint64) uint64 {
	x := uint64(p) + (i+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes the bytes from offset on.
func (p pattern) fill(b []byte, offset int64) {
	var word [8]byte
	i := uint64(offset)
	if skip := i % 8; skip != 0 && len(b) > 0 {
		binary.LittleEndian.PutUint64(word[:], p.word(i/8))
		n := copy(b, word[skip:])
		b, i = b[n:], i+uint64(n)
	}
	for ; len(b) >= 8; b, i = b[8:], i+8 {
		binary.LittleEndian.PutUint64(b, p.word(i/8))
	}
	binary.LittleEndian.PutUint64(word[:], p.word(i/8))
	copy(b, word[:])
}

// differs counts the bytes that are not those from offset on, and says where the
// first one is in b.
func (p pattern) differs(b []byte, offset int64) (count int64, first int) {
	var want [512]byte
	for at := 0; at < len(b); at += len(want) {
		piece := b[at:min(at+len(want), len(b))]
		p.fill(want[:len(piece)], offset+int64(at))
		if string(piece) == string(want[:len(piece)]) {
			continue
		}
		for i := range piece {
			if piece[i] != want[i] {
				if count == 0 {
					first = at + i
				}
				count++
			}
		}
	}
	return count, first
}
