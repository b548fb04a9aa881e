package sched

import (
	"cmp"
	"errors"
	"slices"
)

func (s *sim) finish(j *Job) {
	tr := s.tracks[j]
	switch {
	case tr.finished:
		s.t.Fatal("a job finished twice")
	case tr.inflight > 0:
		s.t.Fatalf("a job finished with %d slices in flight", tr.inflight)
	}
	tr.finished = true
	for conn := range tr.may {
		if !slices.Contains(j.Result.Unsafe, conn) {
			s.t.Fatalf("a job finished while bytes on conn %d may land: %v", conn, j.Result.Err)
		}
	}
	for _, conn := range j.Result.Unsafe {
		if !s.asked[conn] {
			s.t.Fatalf("bytes on conn %d may land, and nobody was asked to leave it", conn)
		}
	}
	if (len(j.Result.Unsafe) > 0) != errors.Is(j.Result.Err, ErrUnsafe) {
		s.t.Fatalf("unsafe %v but error %v", j.Result.Unsafe, j.Result.Err)
	}
	got := int64(0)
	for _, x := range tr.spans {
		got += x.bytes
	}
	if got != j.Result.Bytes {
		s.t.Fatalf("result says %d bytes, %d arrived", j.Result.Bytes, got)
	}
	want := piecesOf(j.Ops)
	if j.Result.Err == nil || errors.Is(j.Result.Err, ErrUnsafe) && got == totalBytes(j.Ops) {
		if have := merge(tr.spans); !slices.Equal(have, want) {
			s.t.Fatalf("arrived %v, want %v", have, want)
		}
		if len(tr.spoiled) > 0 && j.Result.Err == nil {
			s.t.Fatalf("a job finished, and what failed last at %v was not sent again", tr.spoiled)
		}
	} else if have := merge(tr.spans); !within(have, want) {
		s.t.Fatalf("arrived %v, not within %v", have, want)
	}
	lanes := int64(0)
	for _, u := range j.Result.Lanes {
		lanes += u.Bytes
	}
	if lanes != got {
		s.t.Fatalf("lanes carried %d bytes of %d", lanes, got)
	}
	s.logf("finish  %d bytes: %v", j.Result.Bytes, j.Result.Err)
	s.done = append(s.done, j)
	if s.onDone != nil {
		s.onDone(j)
	}
}

// piecesOf is what the ops of a job move, as runs in order.
func piecesOf(ops []Op) []piece {
	var out []piece
	for _, o := range ops {
		for k := range o.Count {
			if o.Bytes <= 0 {
				break
			}
			here, there := int64(k), int64(k)
			if o.LocalPages != nil {
				here = int64(o.LocalPages[k])
			}
			if o.RemotePages != nil {
				there = int64(o.RemotePages[k])
			}
			out = append(out, piece{o.Kind, o.Local, o.Remote, o.LocalOffset + here*o.LocalStride, o.RemoteOffset + there*o.RemoteStride, o.Bytes})
		}
	}
	return merge(out)
}

func merge(in []piece) []piece {
	in = slices.Clone(in)
	slices.SortFunc(in, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.local, b.local), cmp.Compare(a.lo, b.lo), cmp.Compare(a.remote, b.remote), cmp.Compare(a.ro, b.ro))
	})
	var out []piece
	for _, x := range in {
		if n := len(out); n > 0 {
			if l := &out[n-1]; l.kind == x.kind && l.local == x.local && l.remote == x.remote && l.lo+l.bytes == x.lo && l.ro+l.bytes == x.ro {
				l.bytes += x.bytes
				continue
			}
		}
		out = append(out, x)
	}
	return out
}

// within says whether every run lies in one that is wanted, none of them twice.
func within(have, want []piece) bool {
	for i, x := range have {
		if i > 0 && have[i-1].local == x.local && have[i-1].lo+have[i-1].bytes > x.lo {
			return false
		}
		if !slices.ContainsFunc(want, func(w piece) bool {
			return w.kind == x.kind && w.local == x.local && w.remote == x.remote && x.lo >= w.lo && x.lo+x.bytes <= w.lo+w.bytes && x.ro-x.lo == w.ro-w.lo
		}) {
			return false
		}
	}
	return true
}
