package shm

import (
	"slices"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// TestCut checks that pieces cover every byte of a job once, in order.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 3<<20)), 0, 20).Draw(t, "spans")
		r := &transport.Request{}
		for _, n := range sizes {
			r.Spans = append(r.Spans, transport.Span{Bytes: n})
			r.Bytes += n
		}
		j := &job{request: r}
		k := &copier{workers: rapid.IntRange(1, 8).Draw(t, "workers")}
		got := make([]int64, len(sizes))
		for n := 0; !j.drained; n++ {
			p := j.cut(k.pieceSize(j))
			if p.bytes > maxPiece || n > int(r.Bytes/minPiece)+1 {
				t.Fatalf("piece %d has %d bytes", n, p.bytes)
			}
			for i, offset := p.span, p.offset; p.bytes > 0; i, offset = i+1, 0 {
				if offset != got[i] {
					t.Fatalf("span %d goes on at %d, want %d", i, offset, got[i])
				}
				n := min(sizes[i]-offset, p.bytes)
				got[i] += n
				p.bytes -= n
			}
		}
		if !slices.Equal(got, sizes) {
			t.Fatalf("%v of %v was given out", got, sizes)
		}
	})
}

// TestNodesFirst checks who takes what with two nodes, without workers.
func TestNodesFirst(t *testing.T) {
	k := newCopier(0, []node{{location: "cpu:0"}, {location: "cpu:1"}})
	k.workers = 1
	on := func(location string) *job {
		return &job{node: k.queueOf(location), request: &transport.Request{}}
	}
	far, any, near := on("cpu:1"), on("gpu:7"), on("cpu:0")
	far.next, any.next = any, near
	k.add(far)
	for i, want := range []*job{near, any, far, nil} {
		if got, _ := k.take(k.queueOf("cpu:0")); got != want {
			t.Errorf("%d: another job", i)
		}
	}
	k.close()
	if one := newCopier(0, []node{{location: "cpu:0"}}); len(one.queues) != 1 || one.queueOf("cpu:0") != anyNode {
		t.Error("a host with one node has queues for nodes")
	}
}

func TestDrop(t *testing.T) {
	k := newCopier(0, nil)
	a, b := &conn{}, &conn{}
	list := []*job{{c: a}, {c: b}, {c: a}, {c: a}}
	for i, j := range list {
		j.request = &transport.Request{Bytes: 10, Spans: []transport.Span{{Bytes: 10}}}
		if i > 0 {
			list[i-1].next = j
		}
	}
	list[0].request = &transport.Request{Bytes: 4 << 20, Spans: []transport.Span{{Bytes: 4 << 20}}}
	k.workers = 1
	k.add(list[0])
	if j, _ := k.take(anyNode); j != list[0] {
		t.Fatal("not the first")
	}
	dropped := k.drop(a, errLeft)
	if dropped == nil || dropped.next == nil || dropped.next.next != nil {
		t.Error("not the two that nobody copies")
	}
	if !list[0].drained || list[0].running != 1 {
		t.Error("the one that is being copied goes on, or was given back")
	}
	if j, _ := k.take(anyNode); j != list[1] {
		t.Error("the other connection's job is gone")
	}
	if q := k.queues[anyNode]; q.first != nil || q.last != nil {
		t.Error("the queue is not empty")
	}
	k.close()
}

func TestReadNodes(t *testing.T) {
	sys := fstest.MapFS{
		"online":        {Data: []byte("0-2,4\n")},
		"node0/cpulist": {Data: []byte("0-3\n")},
		"node1/cpulist": {Data: []byte("4-7\n")},
		"node2/cpulist": {Data: []byte("\n")}, // memory alone
	}
	got := readNodes(sys, func(cpu int) bool { return cpu != 5 })
	if len(got) != 2 || got[0].location != "cpu:0" || got[1].cpus.String() != "4,6-7" {
		t.Errorf("%+v", got)
	}
	if got := readNodes(fstest.MapFS{}, nil); got != nil {
		t.Errorf("nothing to read: %+v", got)
	}
}
