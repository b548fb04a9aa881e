//go:build cgo && linux && (amd64 || arm64)

/* The wire: what sends, arrives, is answered, and is lost. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

enum { OK = 0, LOST = -1, LOC_LEN = 1, LOC_QP_OP = 2, LOC_PROT = 4, FLUSHED = 5, REM_INV = 9,
       REM_ACCESS = 10, RETRY_EXC = 12 };
enum { ACTIVE = 4, ETHERNET = 2 };

int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void kick(struct fabric *f) { pthread_cond_signal(&f->work); }

static struct wqe *slot(struct qp *q, uint64_t i) { return &q->ring[i % q->cap.max_send_wr]; }

/* Completions are in the order of posting; the first failure ends the queue pair. */
void settle(struct qp *q)
{
	if (q->dev->silent)
		return;
	while (q->head < q->tail) {
		struct wqe *w = slot(q, q->head);
		if (!w->done)
			return;
		q->head++;
		cq_push(q->cq, q, w);
		if (w->status) {
			to_error(q);
			return;
		}
	}
}

void to_error(struct qp *q)
{
	q->q.state = TV_QPS_ERR;
	if (q->dev->silent)
		return;
	while (q->head < q->tail) {
		struct wqe *w = slot(q, q->head++);
		w->done = 1;
		w->status = FLUSHED;
		w->vendor = 0xf5;
		cq_push(q->cq, q, w);
	}
	q->sent = q->tail;
	q->reads = 0;
}

void complete(struct qp *q, struct wqe *w, int status, int vendor)
{
	if (w->opcode == TV_WR_RDMA_READ && q->reads > 0 && status != LOC_QP_OP)
		q->reads--;
	w->done = 1;
	w->status = status;
	w->vendor = vendor;
	if (status)
		q->broken = 1; /* nothing is sent any more, though earlier ones may still end */
	settle(q);
}

/* It goes unanswered: the sender knows when all its retries have passed. */
static void lose(struct qp *q, struct wqe *w)
{
	int64_t ns = q->dev->f->retry_ns;
	if (ns == 0) {
		if (q->at.retry_cnt == 7 || q->at.timeout == 0)
			return; /* for ever */
		ns = ((int64_t)4096 << q->at.timeout) * (q->at.retry_cnt + 1);
	}
	w->deadline = now_ns() + ns;
}

static struct qp *by_serial(struct fabric *f, uint64_t serial)
{
	for (struct qp *q = f->qps; q; q = q->next)
		if (q->serial == serial)
			return q;
	return NULL;
}

/* Where an address leads: the port, NULL if nowhere. */
static struct port *route(struct qp *q, struct tv_device **dst, int *dst_port)
{
	struct fabric *f = q->dev->f;
	struct tv_ah_attr *h = &q->at.ah_attr;
	struct port *from = &q->dev->ports[q->at.port_num - 1];
	if (from->state != ACTIVE || q->dev->fatal)
		return NULL;
	struct tv_gid_entry *s = &from->gids[h->sgid_index];
	for (int d = 0; d < f->ndevices; d++)
		for (int n = 0; n < f->devices[d]->nports; n++) {
			struct port *to = &f->devices[d]->ports[n];
			int near = !memcmp(from->gids[0].gid, to->gids[0].gid, 8); /* same subnet */
			int found = !h->is_global && near && to->lid == h->dlid;
			if (h->is_global && (to->link_layer == ETHERNET || near || h->hop_limit > 1))
				for (int g = 0; g < to->ngids; g++)
					found |= !memcmp(to->gids[g].gid, h->dgid, 16) &&
						 to->gids[g].gid_type == s->gid_type;
			if (!found || to->link_layer != from->link_layer)
				continue;
			*dst = f->devices[d];
			*dst_port = n + 1;
			return to;
		}
	return NULL;
}

static int reachable(struct tv_device *a, struct tv_device *b, int port)
{
	return !a->f->cut[a->index][b->index] && !b->fatal && !b->silent &&
	       b->ports[port - 1].state == ACTIVE;
}

static int check_local(struct qp *q, struct wqe *w)
{
	if (w->inlined)
		return OK;
	for (int i = 0; i < w->nsge; i++) {
		struct tv_sge *s = &w->sge[i];
		struct mr *m = mr_find(q->dev->f, s->lkey, 0);
		if (s->length == 0)
			continue;
		if (!m || m->pd != q->pd || s->addr < m->iova || s->length > m->length ||
		    s->addr - m->iova > m->length - s->length)
			return LOC_PROT;
		if (w->opcode == TV_WR_RDMA_READ && !(m->access & TV_ACCESS_LOCAL_WRITE))
			return LOC_PROT;
	}
	return OK;
}

/* Between a work request's pieces and one run of bytes. */
static void copy(struct qp *q, struct wqe *w, unsigned char *flat, int into)
{
	if (w->inlined) {
		memcpy(flat, w->inlined, w->len);
		return;
	}
	for (int i = 0; i < w->nsge; i++) {
		struct tv_sge *s = &w->sge[i];
		if (s->length == 0)
			continue;
		struct mr *m = mr_find(q->dev->f, s->lkey, 0);
		unsigned char *at = m->mem + (s->addr - m->iova);
		memmove(into ? at : flat, into ? flat : at, s->length);
		flat += s->length;
	}
}

static int any_held(struct fabric *f, uint64_t serial)
{
	for (struct packet *p = f->net; p; p = p->next)
		if (p->held && p->serial == serial)
			return 1;
	return 0;
}

static void start(struct qp *q, struct wqe *w, uint64_t index)
{
	struct tv_device *d = q->dev;
	struct port *from = &d->ports[q->at.port_num - 1];
	uint32_t mtu = 128u << q->at.path_mtu;
	if (w->opcode == TV_WR_RDMA_READ) {
		if (!q->at.max_rd_atomic) {
			complete(q, w, LOC_QP_OP, 0);
			return;
		}
		q->reads++;
	}
	if (d->inject_nth > 0 && --d->inject_nth == 0) {
		complete(q, w, d->inject_status, d->inject_vendor);
		if (!d->inject_status)
			to_error(q); /* rxe completes a READ as good when its answer makes no sense */
		return;
	}
	int status = w->len > from->max_msg ? LOC_LEN : check_local(q, w);
	if (status) {
		complete(q, w, status, 0x32);
		return;
	}
	struct packet *p = calloc(1, sizeof *p);
	*p = (struct packet){.src = d, .src_port = q->at.port_num, .serial = q->serial, .wqe = index,
		.src_qpn = q->q.qp_num, .dst_qpn = q->at.dest_qp_num, .psn = q->at.sq_psn, .rkey = w->rkey,
		.opcode = w->opcode, .mtu = q->at.path_mtu, .reads = q->reads, .held = d->hold,
		.pkey = from->pkeys[q->at.pkey_index], .global = q->at.ah_attr.is_global,
		.raddr = w->raddr, .len = w->len};
	p->npsn = w->len ? (int)((w->len + mtu - 1) / mtu) : 1;
	memcpy(p->sgid, from->gids[q->at.ah_attr.sgid_index].gid, 16);
	p->gid_type = from->gids[q->at.ah_attr.sgid_index].gid_type;
	q->at.sq_psn = (q->at.sq_psn + (uint32_t)p->npsn) & 0xffffff;
	int gone = d->drop > 0 && d->drop--;
	if (gone || !route(q, &p->dst, &p->dst_port) || !reachable(d, p->dst, p->dst_port)) {
		free(p);
		lose(q, w);
		return;
	}
	if (w->opcode == TV_WR_RDMA_WRITE && (d->hold || any_held(d->f, q->serial))) {
		p->data = malloc(w->len + 1);
		copy(q, w, p->data, 0);
	}
	*d->f->net_last = p;
	d->f->net_last = &p->next;
}

static void send_posted(struct qp *q)
{
	if (q->dev->stall || q->dev->silent || q->dev->fatal)
		return;
	while (q->q.state == TV_QPS_RTS && !q->broken && q->sent < q->tail) {
		struct wqe *w = slot(q, q->sent);
		int read = w->opcode == TV_WR_RDMA_READ;
		if (read && q->reads && q->reads >= q->at.max_rd_atomic)
			return;
		start(q, w, q->sent++);
	}
}

/* The queue pair that a packet is for, if it takes packets of this sender. */
static struct qp *receiver(struct fabric *f, struct packet *p)
{
	if (!reachable(p->src, p->dst, p->dst_port))
		return NULL;
	struct port *from = &p->src->ports[p->src_port - 1];
	for (struct qp *q = f->qps; q; q = q->next) {
		if (q->dev != p->dst || q->q.qp_num != p->dst_qpn)
			continue;
		struct tv_ah_attr *h = &q->at.ah_attr;
		uint16_t key = q->dev->ports[p->dst_port - 1].pkeys[q->at.pkey_index];
		if ((q->q.state != TV_QPS_RTR && q->q.state != TV_QPS_RTS) ||
		    q->at.port_num != p->dst_port || q->at.dest_qp_num != p->src_qpn || q->at.rq_psn != p->psn)
			return NULL;
		uint32_t type = q->dev->ports[p->dst_port - 1].gids[h->sgid_index].gid_type;
		if (h->is_global != p->global || (!p->global && h->dlid != from->lid) ||
		    (p->global && (memcmp(h->dgid, p->sgid, 16) || type != p->gid_type)))
			return NULL;
		if (((key ^ p->pkey) & 0x7fff) || !((key | p->pkey) & 0x8000))
			return NULL;
		return q;
	}
	return NULL;
}

/* What the responder makes of a packet; data is where its memory is then. */
static int judge(struct qp *r, struct packet *p, unsigned char **data)
{
	unsigned need = p->opcode == TV_WR_RDMA_READ ? TV_ACCESS_REMOTE_READ : TV_ACCESS_REMOTE_WRITE;
	uint64_t small = 128ull << (p->mtu < r->at.path_mtu ? p->mtu : r->at.path_mtu);
	if (p->mtu != r->at.path_mtu && p->len > small)
		return REM_INV;
	if (!(r->at.qp_access_flags & need))
		return REM_INV;
	if (p->opcode == TV_WR_RDMA_READ && p->reads > r->at.max_dest_rd_atomic)
		return REM_INV;
	if (p->len == 0)
		return OK;
	struct mr *m = mr_find(r->dev->f, p->rkey, 1);
	if (!m || m->pd != r->pd || !(m->access & need) || p->raddr < m->iova || p->len > m->length ||
	    p->raddr - m->iova > m->length - p->len)
		return REM_ACCESS;
	*data = m->mem + (p->raddr - m->iova);
	return OK;
}

static void arrive(struct fabric *f, struct packet *p)
{
	struct qp *q = by_serial(f, p->serial);
	struct wqe *w = q ? slot(q, p->wqe) : NULL;
	int waits = q && q->q.state == TV_QPS_RTS && p->wqe >= q->head;
	struct qp *r = receiver(f, p);
	if (!r) {
		if (waits)
			lose(q, w);
		return;
	}
	unsigned char *data = NULL;
	int status = judge(r, p, &data);
	r->at.rq_psn = (r->at.rq_psn + (uint32_t)p->npsn) & 0xffffff;
	if (status == OK && p->len && p->opcode == TV_WR_RDMA_WRITE) {
		if (p->data)
			memcpy(data, p->data, p->len);
		else if (q) /* it was sent just now */
			copy(q, w, data, 0);
	}
	if (status == OK && p->len && p->opcode == TV_WR_RDMA_READ && waits) {
		status = check_local(q, w); /* it may have been deregistered since */
		if (status == OK)
			copy(q, w, data, 1);
	} else if (status != OK) {
		push_event(r->dev, status == REM_ACCESS ? 3 : 2, &r->q);
		to_error(r);
	}
	if (waits)
		complete(q, w, status, status ? 0x88 : 0);
}

static int blocked(struct fabric *f, struct packet *p)
{
	for (struct packet *o = f->net; o != p; o = o->next)
		if (o->held && o->serial == p->serial)
			return 1;
	return p->held;
}

static void unlink_packet(struct fabric *f, struct packet **at)
{
	struct packet *p = *at;
	*at = p->next;
	if (!p->next)
		f->net_last = at;
	free(p->data);
	free(p);
}

/* Takes what is held, or all, of a device out of the network: it is lost. */
void drop_packets(struct fabric *f, struct tv_device *src, int held_only)
{
	struct packet **at = &f->net;
	while (*at) {
		struct packet *p = *at;
		if (p->src != src || (held_only && !p->held)) {
			at = &p->next;
			continue;
		}
		struct qp *q = by_serial(f, p->serial);
		if (q && p->wqe >= q->head)
			lose(q, slot(q, p->wqe));
		unlink_packet(f, at);
	}
}

/* Everything that can happen now; the time of what happens next, 0 if nothing will. */
int64_t net_step(struct fabric *f)
{
	int64_t next = 0, now = now_ns();
	for (struct qp *q = f->qps; q; q = q->next)
		send_posted(q);
	struct packet **at = &f->net;
	while (*at) {
		if (blocked(f, *at)) {
			at = &(*at)->next;
			continue;
		}
		arrive(f, *at);
		unlink_packet(f, at);
	}
	for (struct qp *q = f->qps; q; q = q->next) {
		settle(q);
		if (q->q.state == TV_QPS_ERR && q->head < q->tail)
			to_error(q); /* its device was silent */
		if (q->q.state != TV_QPS_RTS || q->head == q->tail)
			continue;
		struct wqe *w = slot(q, q->head);
		if (w->deadline && w->deadline <= now)
			complete(q, w, RETRY_EXC, 0x81);
		else if (w->deadline && (!next || w->deadline < next))
			next = w->deadline;
		if (q->sent < q->tail && q->q.state == TV_QPS_RTS && !q->broken && !q->reads && !q->dev->stall &&
		    !q->dev->silent && !q->dev->fatal)
			next = now; /* a READ can go on */
	}
	return next;
}

void *net_thread(void *arg)
{
	struct fabric *f = arg;
	pthread_mutex_lock(&f->mu);
	while (!f->stop) {
		int64_t next = net_step(f);
		if (f->stop)
			break;
		if (next == 0) {
			pthread_cond_wait(&f->work, &f->mu);
			continue;
		}
		struct timespec t = {next / 1000000000, next % 1000000000};
		pthread_cond_timedwait(&f->work, &f->mu, &t);
	}
	pthread_mutex_unlock(&f->mu);
	return NULL;
}
