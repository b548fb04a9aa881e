//go:build cgo && linux && (amd64 || arm64)

package verbs

// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// QP is a reliable-connected queue pair. It receives nothing: peers only read and write.
type QP struct {
	pd  *PD
	cq  *CQ
	num uint32
	got QPOptions

	ctl sync.Mutex // verbs that change or ask for its state, one at a time
	mu  sync.Mutex // the hot call: qp, wr and sge
	qp  *C.struct_tv_qp
	wr  *[MaxBatch]C.struct_tv_send_wr // C memory, each with room for got.MaxSGE in sge
	sge []SGE                          // C memory
}

// NewQP makes a queue pair that completes at cq, in state RESET. It may get more than it
// asks for: Options tells.
func (p *PD) NewQP(cq *CQ, o QPOptions) (*QP, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	cq.end.RLock()
	defer cq.end.RUnlock()
	if p.pd == nil || cq.cq == nil {
		return nil, ErrClosed
	}
	what := fmt.Sprintf("%d work requests of %d pieces, %d bytes inline", o.MaxSend, o.MaxSGE, o.MaxInline)
	if o.MaxSend < 1 || o.MaxSGE < 1 || o.MaxInline < 0 || o.MaxSend > p.dev.limits.MaxQPWR || o.MaxSGE > p.dev.limits.MaxSGE {
		return nil, &Error{Verb: "ibv_create_qp", Device: p.dev.name, What: what, Errno: syscall.EINVAL,
			Advice: fmt.Sprintf("this device takes 1 to %d of 1 to %d", p.dev.limits.MaxQPWR, p.dev.limits.MaxSGE)}
	}
	// The attributes hold pointers of C: they must be in C memory while C writes there.
	attr := (*C.struct_tv_qp_init_attr)(C.calloc(1, C.sizeof_struct_tv_qp_init_attr))
	defer C.free(unsafe.Pointer(attr))
	attr.send_cq, attr.recv_cq, attr.qp_type = cq.cq, cq.cq, C.TV_QPT_RC
	attr.cap.max_send_wr, attr.cap.max_send_sge = C.uint32_t(o.MaxSend), C.uint32_t(o.MaxSGE)
	attr.cap.max_inline_data = C.uint32_t(o.MaxInline)
	q := &QP{pd: p, cq: cq}
	if rc := C.tv_create_qp(p.dev.lib.c, p.pd, attr, &q.qp); rc != 0 {
		return nil, p.dev.failed(rc, "ibv_create_qp", what)
	}
	q.num = uint32(q.qp.qp_num)
	if q.qp.context != p.pd.context || q.qp.pd != p.pd || q.qp.send_cq != cq.cq ||
		q.qp.qp_type != C.TV_QPT_RC || q.num == 0 || q.num >= 1<<24 {
		return nil, p.dev.wrong("ibv_qp.context, .pd, .send_cq, .qp_type or .qp_num is not what was asked for")
	}
	// Room is for what was asked for: providers round up, sometimes to a great deal.
	q.got = QPOptions{MaxSend: int(attr.cap.max_send_wr), MaxSGE: o.MaxSGE, MaxInline: int(attr.cap.max_inline_data)}
	q.makeRoom()
	p.uses.Add(1)
	cq.uses.Add(1)
	return q, nil
}

// makeRoom allocates what Post fills.
func (q *QP) makeRoom() {
	q.wr = (*[MaxBatch]C.struct_tv_send_wr)(C.calloc(MaxBatch, C.sizeof_struct_tv_send_wr))
	sge := C.calloc(C.size_t(MaxBatch*q.got.MaxSGE), C.sizeof_struct_tv_sge)
	q.sge = unsafe.Slice((*SGE)(sge), MaxBatch*q.got.MaxSGE)
	for i := range q.wr {
		q.wr[i].sg_list = (*C.struct_tv_sge)(unsafe.Pointer(&q.sge[i*q.got.MaxSGE]))
	}
}

// Num is the queue pair's number, 24 bits.
func (q *QP) Num() uint32 { return q.num }

// Options are what it got: MaxSend and MaxInline may be more than was asked for.
func (q *QP) Options() QPOptions { return q.got }

// modify takes it to another state.
func (q *QP) modify(attr *C.struct_tv_qp_attr, mask C.int, what string) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.qp == nil {
		return ErrClosed
	}
	if rc := C.tv_modify_qp(q.pd.dev.lib.c, q.qp, attr, mask); rc != 0 {
		return q.pd.dev.failed(rc, "ibv_modify_qp", fmt.Sprintf("QP %d, %s", q.num, what))
	}
	return nil
}

// Init takes a new QP to INIT: its port, partition, and what its peer may do.
func (q *QP) Init(port int, pkeyIndex uint16, peer Access) error {
	var a C.struct_tv_qp_attr
	a.qp_state = C.TV_QPS_INIT
	a.pkey_index = C.uint16_t(pkeyIndex)
	a.port_num = C.uint8_t(port)
	a.qp_access_flags = C.uint(peer)
	return q.modify(&a, C.TV_QP_STATE|C.TV_QP_PKEY_INDEX|C.TV_QP_PORT|C.TV_QP_ACCESS_FLAGS,
		fmt.Sprintf("to INIT: port %d, partition key %d, %s", port, pkeyIndex, peer))
}

// Connect takes a QP from INIT to RTR, ready for what the peer asks, and to RTS.
func (q *QP) Connect(c Connect) error {
	mtu, ok := mtuNumber(c.Path.MTU)
	if !ok || uint(c.Path.GIDIndex) > 255 || uint(c.ReadsOut) > 255 || uint(c.ReadsIn) > 255 {
		return &Error{Verb: "ibv_modify_qp", Device: q.pd.dev.name, Errno: syscall.EINVAL,
			What:   fmt.Sprintf("MTU %d, GID index %d, %d reads out, %d in", c.Path.MTU, c.Path.GIDIndex, c.ReadsOut, c.ReadsIn),
			Advice: "an MTU is 256, 512, 1024, 2048 or 4096, the others are at most 255"}
	}
	var a C.struct_tv_qp_attr
	a.qp_state = C.TV_QPS_RTR
	a.path_mtu = C.int(mtu)
	a.dest_qp_num = C.uint32_t(c.PeerQP)
	a.rq_psn = C.uint32_t(c.ReceivePSN)
	a.max_dest_rd_atomic = C.uint8_t(c.ReadsIn)
	a.min_rnr_timer = C.uint8_t(c.MinRNRTimer)
	h := &a.ah_attr
	h.port_num, h.sl, h.dlid = C.uint8_t(c.Path.Port), C.uint8_t(c.Path.ServiceLevel), C.uint16_t(c.Path.LID)
	if c.Path.Global {
		h.is_global = 1
		for i, b := range c.Path.GID {
			h.dgid[i] = C.uint8_t(b)
		}
		h.sgid_index, h.hop_limit = C.uint8_t(c.Path.GIDIndex), C.uint8_t(c.Path.HopLimit)
		h.traffic_class, h.flow_label = C.uint8_t(c.Path.TClass), C.uint32_t(c.Path.FlowLabel)
	}
	err := q.modify(&a, C.TV_QP_STATE|C.TV_QP_AV|C.TV_QP_PATH_MTU|C.TV_QP_DEST_QPN|C.TV_QP_RQ_PSN|
		C.TV_QP_MAX_DEST_RD_ATOMIC|C.TV_QP_MIN_RNR_TIMER,
		fmt.Sprintf("to RTR: MTU %d, GID index %d, to QP %d", c.Path.MTU, c.Path.GIDIndex, c.PeerQP))
	if err != nil {
		return err
	}
	a = C.struct_tv_qp_attr{}
	a.qp_state = C.TV_QPS_RTS
	a.timeout, a.retry_cnt, a.rnr_retry = C.uint8_t(c.TimeoutLog2), C.uint8_t(c.RetryCount), C.uint8_t(c.RNRRetry)
	a.sq_psn = C.uint32_t(c.SendPSN)
	a.max_rd_atomic = C.uint8_t(c.ReadsOut)
	return q.modify(&a, C.TV_QP_STATE|C.TV_QP_TIMEOUT|C.TV_QP_RETRY_CNT|C.TV_QP_RNR_RETRY|
		C.TV_QP_SQ_PSN|C.TV_QP_MAX_QP_RD_ATOMIC,
		fmt.Sprintf("to RTS: timeout %d, retries %d, %d reads", c.TimeoutLog2, c.RetryCount, c.ReadsOut))
}

// SetError takes it to ERR: what is posted completes as flushed, mostly. The peer's
// requests are refused from then on, but what it does not wait for.
func (q *QP) SetError() error {
	var a C.struct_tv_qp_attr
	a.qp_state = C.TV_QPS_ERR
	return q.modify(&a, C.TV_QP_STATE, "to ERR")
}

// State asks the device for the state.
func (q *QP) State() (QPState, error) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.qp == nil {
		return 0, ErrClosed
	}
	attr := (*C.struct_tv_qp_attr)(C.calloc(1, C.sizeof_struct_tv_qp_attr))
	defer C.free(unsafe.Pointer(attr))
	init := (*C.struct_tv_qp_init_attr)(C.calloc(1, C.sizeof_struct_tv_qp_init_attr))
	defer C.free(unsafe.Pointer(init))
	if rc := C.tv_query_qp(q.pd.dev.lib.c, q.qp, attr, init); rc != 0 {
		return 0, q.pd.dev.failed(rc, "ibv_query_qp", fmt.Sprintf("QP %d", q.num))
	}
	return QPState(attr.qp_state), nil
}

// Post posts up to MaxBatch work requests, with one call into C, and says how many were
// taken; fewer without an error: the send queue is full. With an error the queue pair is
// of no use any more: those that were taken may still complete until it is destroyed.
func (q *QP) Post(wrs []SendWR) (taken int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.qp == nil {
		return 0, ErrClosed
	}
	n := min(len(wrs), MaxBatch)
	if n == 0 {
		return 0, nil
	}
	for i := range n {
		w := &wrs[i]
		if len(w.SGE) > q.got.MaxSGE {
			return 0, &Error{Verb: "ibv_post_send", Device: q.pd.dev.name, Errno: syscall.EINVAL,
				What: fmt.Sprintf("%d pieces in a work request, at most %d", len(w.SGE), q.got.MaxSGE)}
		}
		c := &q.wr[i]
		c.wr_id = C.uint64_t(w.ID)
		c.opcode = C.int(w.Opcode)
		c.num_sge = C.int(len(w.SGE))
		c.remote_addr = C.uint64_t(w.RemoteAddr)
		c.rkey = C.uint32_t(w.RKey)
		flags := C.uint(C.TV_SEND_SIGNALED)
		if w.Inline {
			flags |= C.TV_SEND_INLINE
		}
		c.send_flags = flags
		copy(q.sge[i*q.got.MaxSGE:], w.SGE)
	}
	r := C.tv_post_send(q.qp, &q.wr[0], C.int(n))
	if r.err == 0 || r.err == C.int(syscall.ENOMEM) && r.taken < C.int(n) {
		return int(r.taken), nil
	}
	return int(r.taken), q.pd.dev.failed(r.err, "ibv_post_send", fmt.Sprintf("QP %d", q.num))
}

// Destroy ends the queue pair, and may block in the kernel. Once it has returned nil,
// nothing that the peer posted to it lands here, and what we posted touches our memory no
// more. Post fails from the start of it. What was posted may complete afterwards, or never.
func (q *QP) Destroy() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	qp := q.stop()
	if qp == nil {
		return nil
	}
	if rc := C.tv_destroy_qp(q.pd.dev.lib.c, qp); !q.pd.dev.ended(rc) {
		q.mu.Lock()
		q.qp = qp
		q.mu.Unlock()
		return q.pd.dev.failed(rc, "ibv_destroy_qp", fmt.Sprintf("QP %d", q.num))
	}
	C.free(unsafe.Pointer(&q.sge[0]))
	C.free(unsafe.Pointer(q.wr))
	q.pd.uses.Add(-1)
	q.cq.uses.Add(-1)
	return nil
}

// stop keeps Post from the queue pair.
func (q *QP) stop() *C.struct_tv_qp {
	q.mu.Lock()
	defer q.mu.Unlock()
	qp := q.qp
	q.qp = nil
	return qp
}
