package bind

import "math"

// list is ranges that are kept, from which batches pick.
type list struct {
	peer    string // "" is this engine
	entries []entry
}

// entry is address and length side by side: those of a long list are read from memory in any order.
type entry struct{ address, length uint64 }

// maxListed bounds the entries of one list.
const maxListed = 1 << 26

// List keeps ranges. Entry i is addresses[i*stride], lengths[i*stride].
func (e *Engine) List(peer string, n int64, addresses, lengths []uint64, stride int64) (int64, error) {
	switch {
	case n < 0 || n > maxListed:
		return 0, fail(Limit, "list of %d entries: want 0 to %d", n, maxListed)
	case stride < 1 || n > 0 && (n-1) > (math.MaxInt64-1)/stride:
		return 0, fail(Invalid, "stride %d: want 1 or more", stride)
	case n > 0 && ((n-1)*stride >= int64(len(addresses)) || (n-1)*stride >= int64(len(lengths))):
		return 0, fail(Invalid, "list of %d entries, %d apart: there are %d addresses and %d lengths", n, stride, len(addresses), len(lengths))
	}
	l := &list{peer, make([]entry, n)}
	for i := range n {
		l.entries[i] = entry{addresses[i*stride], lengths[i*stride]}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, errClosed
	}
	return e.lists.Add(l), nil
}

// FreeList forgets a list. Batches that were made of it go on.
func (e *Engine) FreeList(n int64) error {
	if _, ok := e.lists.Remove(n); !ok {
		return fail(NoHandle, "no list %d", n)
	}
	return nil
}

// Pick is a batch of entries of two lists: LocalIndex[k] goes with RemoteIndex[k]; nil is 0 to N-1.
type Pick struct {
	Op                      int32
	Local, Remote           int64
	LocalIndex, RemoteIndex []int64
	N                       int64
	Notify                  []byte
	TimeoutNS               int64
}

// SubmitLists starts a batch of what it picks.
func (e *Engine) SubmitLists(p Pick) (int64, error) {
	local, ok := e.lists.Get(p.Local)
	remote, there := e.lists.Get(p.Remote)
	switch {
	case !ok || !there:
		missing := p.Local
		if ok {
			missing = p.Remote
		}
		return 0, fail(NoHandle, "no list %d", missing)
	case local.peer != "" || remote.peer == "":
		return 0, fail(Invalid, "lists %d and %d: want one of this engine and one of a peer", p.Local, p.Remote)
	case p.N < 0 || p.N > maxListed || p.LocalIndex != nil && int64(len(p.LocalIndex)) < p.N || p.RemoteIndex != nil && int64(len(p.RemoteIndex)) < p.N:
		return 0, fail(Invalid, "%d entries of %d and %d indices", p.N, len(p.LocalIndex), len(p.RemoteIndex))
	}
	return e.submit(&request{peer: remote.peer, op: p.Op, n: int(p.N), notify: p.Notify, timeout: p.TimeoutNS, at: func(i int) (move, error) {
		k, err := indexOf(p.LocalIndex, i, len(local.entries))
		if err != nil {
			return move{}, err
		}
		r, err := indexOf(p.RemoteIndex, i, len(remote.entries))
		if err != nil {
			return move{}, err
		}
		here, there := local.entries[k], remote.entries[r]
		if here.length != there.length {
			return move{}, fail(Invalid, "op %d: local entry %d has %d bytes, remote entry %d has %d", i, k, here.length, r, there.length)
		}
		return move{here.address, there.address, here.length}, nil
	}})
}

// indexOf is the i-th index, checked against how many entries there are.
func indexOf(index []int64, i, entries int) (int64, error) {
	k := int64(i)
	if index != nil {
		k = index[i]
	}
	if k < 0 || k >= int64(entries) {
		return 0, fail(Invalid, "op %d: entry %d of a list of %d", i, k, entries)
	}
	return k, nil
}
