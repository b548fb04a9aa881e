//go:build cgo && linux && (amd64 || arm64)

package rdma

import "github.com/topoctl/topoctl/engine/internal/transport"

// Soft-RoCE may complete a READ as good of which nothing has landed. Where a queue or a link
// that is down refuses the first packet of an answer, the answering end goes on with the
// second one when it is asked again (read_reply in rxe_resp.c: the state is already the next).
// The asking end cannot make sense of that, ends the READ with a status that nobody has set,
// which is "success", and only then takes the queue pair to ERR (check_ack and COMPST_ERROR in
// rxe_comp.c, of Linux 6.1 and later). So what such a device says of a READ is believed when
// something behind it on the same queue pair ended in another way than flushed.

// proveRead puts a probe behind a READ that has nothing behind it: at once where it is
// alone, so that both are one round trip, else when the last of several is done.
func (s *slot) proveRead() {
	if !s.c.dev.unprovenReads || s.probing {
		return
	}
	switch s.tail - s.head {
	case 0:
		if s.unproven.first == nil {
			return
		}
	case 1:
		if o := s.flights[s.place(s.head)].op; o == nil || o.req.Op != transport.Read {
			return
		}
	default:
		return
	}
	s.addProbe()
}

// settleUnproven ends the READs that wait for what is behind them, or has them sent again.
func (s *slot) settleUnproven(good bool) {
	for o := s.unproven.pop(); o != nil; o = s.unproven.pop() {
		if good {
			s.c.finish(o, nil, false)
			continue
		}
		o.again = true
		s.settle(o)
	}
}
