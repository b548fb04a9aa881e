//go:build cgo && linux && (amd64 || arm64)

/* Queue pairs: making, states, posting. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

static struct tv_qp *create_qp(struct tv_pd *tp, struct tv_qp_init_attr *a)
{
	struct pd *p = (struct pd *)tp;
	struct tv_device *d = p->dev;
	struct fabric *f = d->f;
	struct qp *q = NULL;
	int err = enter(d, V_CREATE_QP);
	if (!err && (a->qp_type != TV_QPT_RC || !a->send_cq || !a->recv_cq ||
		     a->cap.max_send_wr > (unsigned)d->attr.max_qp_wr ||
		     a->cap.max_send_sge > (unsigned)d->attr.max_sge ||
		     a->cap.max_inline_data > (unsigned)d->max_inline))
		err = EINVAL;
	if (!err && d->live.qps >= d->attr.max_qp)
		err = ENOMEM;
	if (!err) {
		q = calloc(1, sizeof *q);
		q->dev = d;
		q->pd = p;
		q->cq = (struct cq *)a->send_cq;
		q->cap = a->cap;
		q->serial = ++f->serials;
		q->q.context = p->p.context;
		q->q.pd = tp;
		q->q.send_cq = a->send_cq;
		q->q.recv_cq = a->recv_cq;
		q->q.qp_type = d->lie == LIE_QP ? 0 : TV_QPT_RC;
		q->q.qp_num = f->qpns = f->qpns % 0xfffffe + 1;
		q->ring = calloc(q->cap.max_send_wr, sizeof *q->ring);
		for (uint32_t i = 0; i < q->cap.max_send_wr; i++)
			q->ring[i].sge = calloc(q->cap.max_send_sge, sizeof *q->ring[i].sge);
		q->next = f->qps;
		f->qps = q;
		p->users++;
		q->cq->users++;
		d->live.qps++;
	}
	leave(d, err);
	return q ? &q->q : NULL;
}

/* What the states take; with the lock held. */
static int check_init(struct qp *q, struct tv_qp_attr *a)
{
	struct tv_device *d = q->dev;
	if (q->q.state != TV_QPS_RESET || a->port_num < 1 || a->port_num > d->nports)
		return EINVAL;
	struct port *p = &d->ports[a->port_num - 1];
	return a->pkey_index >= p->npkeys || !p->pkeys[a->pkey_index] ? EINVAL : 0;
}

static int check_rtr(struct qp *q, struct tv_qp_attr *a)
{
	static const uint8_t none[16];
	struct tv_ah_attr *h = &a->ah_attr;
	if (q->q.state != TV_QPS_INIT || h->port_num != q->at.port_num)
		return EINVAL;
	struct port *p = &q->dev->ports[h->port_num - 1];
	if (a->path_mtu < 1 || a->path_mtu > p->active_mtu || a->rq_psn >> 24 || a->dest_qp_num >> 24)
		return EINVAL;
	if (a->max_dest_rd_atomic > q->dev->attr.max_qp_rd_atom)
		return EINVAL;
	if (!h->is_global)
		return p->link_layer == 2 || !h->dlid ? EINVAL : 0;
	if (h->sgid_index >= p->ngids || !memcmp(p->gids[h->sgid_index].gid, none, 16))
		return EINVAL;
	return memcmp(h->dgid, none, 16) ? 0 : EINVAL;
}

static int check_rts(struct qp *q, struct tv_qp_attr *a)
{
	if (q->q.state != TV_QPS_RTR || a->sq_psn >> 24 || a->retry_cnt > 7 || a->rnr_retry > 7)
		return EINVAL;
	return a->timeout > 31 || a->max_rd_atomic > q->dev->attr.max_qp_init_rd_atom ? EINVAL : 0;
}

static int modify(struct qp *q, struct tv_qp_attr *a, int mask)
{
	const int init = TV_QP_STATE | TV_QP_PKEY_INDEX | TV_QP_PORT | TV_QP_ACCESS_FLAGS;
	const int rtr = TV_QP_STATE | TV_QP_AV | TV_QP_PATH_MTU | TV_QP_DEST_QPN | TV_QP_RQ_PSN |
			TV_QP_MAX_DEST_RD_ATOMIC | TV_QP_MIN_RNR_TIMER;
	const int rts = TV_QP_STATE | TV_QP_TIMEOUT | TV_QP_RETRY_CNT | TV_QP_RNR_RETRY | TV_QP_SQ_PSN |
			TV_QP_MAX_QP_RD_ATOMIC;
	int err = EINVAL;
	if (a->qp_state == TV_QPS_ERR && mask == TV_QP_STATE) {
		to_error(q);
		return 0;
	}
	if (a->qp_state == TV_QPS_INIT && mask == init && !(err = check_init(q, a))) {
		q->at.port_num = a->port_num;
		q->at.pkey_index = a->pkey_index;
		q->at.qp_access_flags = a->qp_access_flags;
	} else if (a->qp_state == TV_QPS_RTR && mask == rtr && !(err = check_rtr(q, a))) {
		q->at.ah_attr = a->ah_attr;
		q->at.path_mtu = a->path_mtu;
		q->at.dest_qp_num = a->dest_qp_num;
		q->at.rq_psn = a->rq_psn;
		q->at.max_dest_rd_atomic = a->max_dest_rd_atomic;
	} else if (a->qp_state == TV_QPS_RTS && mask == rts && !(err = check_rts(q, a))) {
		q->at.timeout = a->timeout;
		q->at.retry_cnt = a->retry_cnt;
		q->at.sq_psn = a->sq_psn;
		q->at.max_rd_atomic = a->max_rd_atomic;
	}
	if (!err)
		q->q.state = a->qp_state;
	return err;
}

static int modify_qp(struct tv_qp *tq, struct tv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)tq;
	int err = enter(q->dev, V_MODIFY_QP);
	if (!err)
		err = modify(q, a, mask);
	return leave(q->dev, err);
}

static int query_qp(struct tv_qp *tq, struct tv_qp_attr *a, int mask, struct tv_qp_init_attr *init)
{
	struct qp *q = (struct qp *)tq;
	(void)mask;
	int err = enter(q->dev, V_QUERY_QP);
	if (!err) {
		*a = q->at;
		a->qp_state = q->q.state;
		init->cap = q->cap;
		init->qp_type = q->q.qp_type;
	}
	return leave(q->dev, err);
}

/* The delay comes first, so that the queue pair works on while its owner waits. */
static int destroy_qp(struct tv_qp *tq)
{
	struct qp *q = (struct qp *)tq;
	struct tv_device *d = q->dev;
	struct fabric *f = d->f;
	pthread_mutex_lock(&f->mu);
	int64_t delay = d->destroy_ns;
	if (delay) {
		pthread_mutex_unlock(&f->mu);
		struct timespec t = {delay / 1000000000, delay % 1000000000};
		nanosleep(&t, NULL);
		pthread_mutex_lock(&f->mu);
	}
	int err = fails(d, V_DESTROY_QP);
	if (err == EIO && d->fatal && !d->removed)
		err = 0; /* objects of a dead device end all the same */
	if (!err) {
		for (struct qp **at = &f->qps; *at; at = &(*at)->next)
			if (*at == q) {
				*at = q->next;
				break;
			}
		forget_events(d, q);
		while (q->unacked)
			pthread_cond_wait(&f->acked, &f->mu);
		cq_forget(q->cq, q);
		for (uint32_t i = 0; i < q->cap.max_send_wr; i++) {
			free(q->ring[i].sge);
			free(q->ring[i].inlined);
		}
		free(q->ring);
		q->pd->users--;
		q->cq->users--;
		d->live.qps--;
		free(q);
	}
	return leave(d, err);
}

/* Inline bytes are taken while the request is posted. */
static int take_inline(struct qp *q, struct wqe *w)
{
	if (w->opcode != TV_WR_RDMA_WRITE || w->len > q->cap.max_inline_data)
		return EINVAL;
	w->inlined = malloc(w->len + 1);
	uint64_t at = 0;
	for (int i = 0; i < w->nsge; i++) {
		memcpy(w->inlined + at, (void *)(uintptr_t)w->sge[i].addr, w->sge[i].length);
		at += w->sge[i].length;
	}
	return 0;
}

static int post(struct qp *q, struct tv_send_wr *r)
{
	if (q->q.state != TV_QPS_RTS && q->q.state != TV_QPS_ERR)
		return EINVAL;
	if (r->num_sge < 0 || (uint32_t)r->num_sge > q->cap.max_send_sge ||
	    (r->opcode != TV_WR_RDMA_WRITE && r->opcode != TV_WR_RDMA_READ) ||
	    !(r->send_flags & TV_SEND_SIGNALED))
		return EINVAL;
	if (q->tail - q->head + (uint64_t)q->in_cq >= q->cap.max_send_wr)
		return ENOMEM;
	struct wqe *w = &q->ring[q->tail % q->cap.max_send_wr];
	struct tv_sge *sge = w->sge;
	free(w->inlined);
	*w = (struct wqe){.id = r->wr_id, .raddr = r->remote_addr, .rkey = r->rkey, .opcode = r->opcode,
			  .nsge = r->num_sge, .flags = r->send_flags, .sge = sge};
	for (int i = 0; i < r->num_sge; i++) {
		sge[i] = r->sg_list[i];
		w->len += sge[i].length;
	}
	if (r->send_flags & TV_SEND_INLINE) {
		int err = take_inline(q, w);
		if (err)
			return err;
	}
	q->tail++;
	return 0;
}

int fake_post_send(struct tv_qp *tq, struct tv_send_wr *r, struct tv_send_wr **bad)
{
	struct qp *q = (struct qp *)tq;
	int err = enter(q->dev, V_POST_SEND);
	for (; !err && r; r = r->next) {
		err = post(q, r);
		if (err)
			break;
	}
	if (err)
		*bad = r;
	else
		err = fails(q->dev, V_POST_SEND_UNNAMED);
	if (q->q.state == TV_QPS_ERR)
		to_error(q);
	kick(q->dev->f);
	return leave(q->dev, err);
}

void fill_qps(struct tv_lib *l)
{
	l->create_qp = create_qp;
	l->modify_qp = modify_qp;
	l->query_qp = query_qp;
	l->destroy_qp = destroy_qp;
}
