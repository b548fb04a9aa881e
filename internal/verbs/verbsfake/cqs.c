//go:build cgo && linux && (amd64 || arm64)

/* Completion channels and queues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake.h"

static struct tv_channel *create_channel(struct tv_context *tc)
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	struct chan *ch = NULL;
	int err = enter(d, V_CREATE_CHANNEL);
	if (!err) {
		ch = calloc(1, sizeof *ch);
		ch->c.context = d->lie == LIE_CHANNEL ? NULL : tc;
		ch->c.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
		ch->dev = d;
		d->live.channels++;
	}
	leave(d, err);
	return ch ? &ch->c : NULL;
}

static int destroy_channel(struct tv_channel *tc)
{
	struct chan *ch = (struct chan *)tc;
	struct tv_device *d = ch->dev;
	int err = enter(d, V_DESTROY_CHANNEL);
	if (!err && ch->users)
		err = EBUSY;
	if (!err) {
		close(ch->c.fd);
		free(ch);
		d->live.channels--;
	}
	return leave(d, err);
}

static struct tv_cq *create_cq(struct tv_context *tc, int cqe, void *context, struct tv_channel *ch,
			       int vector)
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	struct cq *cq = NULL;
	int err = enter(d, V_CREATE_CQ);
	if (!err && (cqe < 1 || cqe > d->attr.max_cqe || vector < 0 || vector >= d->vectors))
		err = EINVAL;
	if (!err && d->live.cqs >= d->attr.max_cq)
		err = ENOMEM;
	if (!err) {
		cq = calloc(1, sizeof *cq);
		cq->c.context = tc;
		cq->c.channel = ch;
		cq->c.cq_context = context;
		cq->c.cqe = d->lie == LIE_CQ ? 0 : cqe;
		cq->dev = d;
		cq->ch = (struct chan *)ch;
		cq->ch->users++;
		cq->ring = calloc((size_t)cqe, sizeof *cq->ring);
		cq->ring_qp = calloc((size_t)cqe, sizeof *cq->ring_qp);
		d->live.cqs++;
	}
	leave(d, err);
	return cq ? &cq->c : NULL;
}

/* As the real one: events that were taken are waited for until they are acknowledged. */
static int destroy_cq(struct tv_cq *tc)
{
	struct cq *cq = (struct cq *)tc;
	struct tv_device *d = cq->dev;
	int err = enter(d, V_DESTROY_CQ);
	if (!err && cq->users)
		err = EBUSY;
	if (!err) {
		struct chan *ch = cq->ch;
		int kept = 0;
		for (int i = 0; i < ch->npending; i++)
			if (ch->pending[i] != cq)
				ch->pending[kept++] = ch->pending[i];
		ch->npending = kept;
		while (cq->delivered != cq->acked)
			pthread_cond_wait(&d->f->acked, &d->f->mu);
		ch->users--;
		d->live.cqs--;
		free(cq->ring);
		free(cq->ring_qp);
		free(cq);
	}
	return leave(d, err);
}

static int get_cq_event(struct tv_channel *tc, struct tv_cq **out, void **context)
{
	struct chan *ch = (struct chan *)tc;
	uint64_t one;
	if (read(tc->fd, &one, sizeof one) != sizeof one)
		return -1;
	int err = enter(ch->dev, V_GET_CQ_EVENT);
	if (!err && ch->npending == 0)
		err = EAGAIN;
	if (err) {
		leave(ch->dev, err);
		return -1;
	}
	struct cq *cq = ch->pending[0];
	memmove(ch->pending, ch->pending + 1, (size_t)--ch->npending * sizeof *ch->pending);
	cq->delivered++;
	*out = &cq->c;
	*context = cq->c.cq_context;
	return leave(ch->dev, 0);
}

static void ack_cq_events(struct tv_cq *tc, unsigned n)
{
	struct cq *cq = (struct cq *)tc;
	struct fabric *f = cq->dev->f;
	pthread_mutex_lock(&f->mu);
	cq->acked += n;
	pthread_cond_broadcast(&f->acked);
	pthread_mutex_unlock(&f->mu);
}

/* A completion without a place to go kills the queue, and whoever completes there. */
void cq_push(struct cq *cq, struct qp *q, struct wqe *w)
{
	if (cq->dead)
		return;
	if (cq->count == cq->c.cqe) {
		cq->dead = 1;
		push_event(cq->dev, 0, &cq->c);
		for (struct qp *other = cq->dev->f->qps; other; other = other->next)
			if (other->cq == cq)
				to_error(other);
		return;
	}
	int at = (cq->head + cq->count) % cq->c.cqe;
	struct tv_wc *wc = &cq->ring[at];
	/* what failed completions do not define is rubbish */
	memset(wc, w->status ? 0xa5 : 0, sizeof *wc);
	wc->wr_id = w->id;
	wc->status = w->status;
	wc->vendor_err = (uint32_t)w->vendor;
	wc->qp_num = q->q.qp_num;
	if (!w->status)
		wc->opcode = w->opcode == TV_WR_RDMA_READ ? 2 : 1;
	cq->ring_qp[at] = q;
	cq->count++;
	q->in_cq++;
	if (!cq->armed || cq->ch->npending == (int)(sizeof cq->ch->pending / sizeof *cq->ch->pending))
		return;
	cq->armed = 0;
	cq->ch->pending[cq->ch->npending++] = cq;
	uint64_t one = 1;
	if (write(cq->ch->c.fd, &one, sizeof one) < 0)
		abort();
}

/* A queue pair is destroyed: its completions go with it, or stay without an owner. */
void cq_forget(struct cq *cq, struct qp *q)
{
	int keep = cq->dev->f->keep_completions, n = cq->count, to = 0;
	for (int i = 0; i < n; i++) {
		int from = (cq->head + i) % cq->c.cqe, at = (cq->head + to) % cq->c.cqe;
		if (cq->ring_qp[from] == q) {
			if (!keep) {
				cq->count--;
				continue;
			}
			cq->ring_qp[from] = NULL;
		}
		cq->ring[at] = cq->ring[from];
		cq->ring_qp[at] = cq->ring_qp[from];
		to++;
	}
}

int fake_poll_cq(struct tv_cq *tc, int n, struct tv_wc *out)
{
	struct cq *cq = (struct cq *)tc;
	int err = enter(cq->dev, V_POLL_CQ), got = 0;
	if (cq->dead)
		err = EIO;
	while (!err && got < n && cq->count) {
		out[got++] = cq->ring[cq->head];
		if (cq->ring_qp[cq->head])
			cq->ring_qp[cq->head]->in_cq--;
		cq->head = (cq->head + 1) % cq->c.cqe;
		cq->count--;
	}
	return leave(cq->dev, err) ? -err : got;
}

int fake_req_notify_cq(struct tv_cq *tc, int solicited_only)
{
	struct cq *cq = (struct cq *)tc;
	int err = enter(cq->dev, V_NOTIFY_CQ);
	if (!err && solicited_only)
		err = EINVAL;
	if (!err)
		cq->armed = 1;
	return leave(cq->dev, err);
}

void fill_cqs(struct tv_lib *l)
{
	l->create_channel = create_channel;
	l->destroy_channel = destroy_channel;
	l->create_cq = create_cq;
	l->destroy_cq = destroy_cq;
	l->get_cq_event = get_cq_event;
	l->ack_cq_events = ack_cq_events;
}
