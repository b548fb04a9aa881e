//go:build cgo && linux && (amd64 || arm64)

/* Devices, contexts, events, protection domains. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake.h"

static struct tv_device **list(void *owner, int *n)
{
	struct view *v = owner;
	struct fabric *f = v->f;
	pthread_mutex_lock(&f->mu);
	if (f->list_fails.nth > 0 && --f->list_fails.nth == 0) {
		errno = f->list_fails.err;
		pthread_mutex_unlock(&f->mu);
		return NULL;
	}
	struct tv_device **out = calloc(MAX_DEVICES + 1, sizeof *out);
	*n = 0;
	for (int i = 0; i < f->ndevices; i++)
		if (v->devices >> i & 1)
			out[(*n)++] = f->devices[i];
	pthread_mutex_unlock(&f->mu);
	return out;
}

static void free_list(struct tv_device **l) { free(l); }
static const char *name(struct tv_device *d) { return d->name; }
static uint64_t guid(struct tv_device *d) { return __builtin_bswap64(d->guid); }

static struct tv_context *open_device(struct tv_device *d)
{
	int err = enter(d, V_OPEN);
	if (err) {
		leave(d, err);
		return NULL;
	}
	struct ctx *c = calloc(1, sizeof *c);
	c->dev = d;
	c->last = &c->events;
	c->c.device = d;
	c->c.ops.poll_cq = fake_poll_cq;
	c->c.ops.req_notify_cq = fake_req_notify_cq;
	c->c.ops.post_send = fake_post_send;
	c->c.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	c->c.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->c.num_comp_vectors = d->vectors;
	switch (d->lie) {
	case LIE_DEVICE: c->c.device = NULL; break;
	case LIE_OPS: c->c.ops.post_send = NULL; break;
	case LIE_CMD_FD: c->c.cmd_fd = -1; break;
	case LIE_ASYNC_FD: c->c.async_fd = 1 << 20; break;
	case LIE_VECTORS: c->c.num_comp_vectors = 0; break;
	}
	c->next = d->contexts;
	d->contexts = c;
	d->live.contexts++;
	leave(d, 0);
	return &c->c;
}

static int close_device(struct tv_context *tc)
{
	struct ctx *c = (struct ctx *)tc;
	struct tv_device *d = c->dev;
	int err = enter(d, V_CLOSE);
	if (err)
		return leave(d, err);
	for (struct ctx **at = &d->contexts; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	while (c->events) {
		struct event *e = c->events;
		c->events = e->next;
		free(e);
	}
	close(c->c.cmd_fd);
	close(c->c.async_fd);
	free(c);
	d->live.contexts--;
	return leave(d, 0);
}

void push_event(struct tv_device *d, int type, void *element)
{
	for (struct ctx *c = d->contexts; c; c = c->next) {
		/* an object's events are for the context that it was made with */
		if (type <= 7 || type == 16) {
			struct tv_context *owner = type == 0 ? ((struct tv_cq *)element)->context
							     : ((struct tv_qp *)element)->context;
			if (owner != &c->c)
				continue;
		}
		struct event *e = calloc(1, sizeof *e);
		e->ev.event_type = type;
		e->ev.element.qp = element;
		*c->last = e;
		c->last = &e->next;
		uint64_t one = 1;
		if (write(c->c.async_fd, &one, sizeof one) < 0)
			abort();
	}
}

/* Events of a queue pair that nobody read go with it. */
void forget_events(struct tv_device *d, struct qp *q)
{
	for (struct ctx *c = d->contexts; c; c = c->next) {
		struct event **at = &c->events;
		while (*at) {
			struct event *e = *at;
			if ((void *)e->ev.element.qp == (void *)q) {
				*at = e->next;
				free(e);
			} else {
				at = &e->next;
			}
		}
		c->last = at;
	}
}

static int get_async_event(struct tv_context *tc, struct tv_event *out)
{
	struct ctx *c = (struct ctx *)tc;
	uint64_t one;
	if (read(tc->async_fd, &one, sizeof one) != sizeof one)
		return -1;
	int err = enter(c->dev, V_GET_ASYNC_EVENT);
	struct event *e = c->events;
	if (err || !e) {
		leave(c->dev, err ? err : EAGAIN);
		return -1;
	}
	c->events = e->next;
	if (!c->events)
		c->last = &c->events;
	*out = e->ev;
	int type = e->ev.event_type;
	if ((type >= 1 && type <= 7) || type == 16)
		((struct qp *)e->ev.element.qp)->unacked++;
	free(e);
	return leave(c->dev, 0);
}

static void ack_async_event(struct tv_event *ev)
{
	int type = ev->event_type;
	if (!((type >= 1 && type <= 7) || type == 16))
		return;
	struct qp *q = (struct qp *)ev->element.qp;
	struct fabric *f = q->dev->f;
	pthread_mutex_lock(&f->mu);
	q->unacked--;
	pthread_cond_broadcast(&f->acked);
	pthread_mutex_unlock(&f->mu);
}

static int query_device(struct tv_context *tc, struct tv_device_attr *out)
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	int err = enter(d, V_QUERY_DEVICE);
	if (!err)
		*out = d->attr;
	return leave(d, err);
}

static int query_port(struct tv_context *tc, uint8_t n, struct tv_port_attr *out)
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	int err = enter(d, V_QUERY_PORT);
	if (!err && (n < 1 || n > d->nports))
		err = EINVAL;
	if (!err) {
		struct port *p = &d->ports[n - 1];
		memset(out, 0, sizeof *out);
		out->state = p->state;
		out->max_mtu = p->max_mtu;
		out->active_mtu = p->active_mtu;
		out->gid_tbl_len = p->ngids;
		out->max_msg_sz = p->max_msg;
		out->pkey_tbl_len = (uint16_t)p->npkeys;
		out->lid = p->lid;
		out->sm_lid = p->sm_lid;
		out->active_width = (uint8_t)p->width;
		out->active_speed = (uint8_t)p->speed;
		out->link_layer = (uint8_t)p->link_layer;
	}
	return leave(d, err);
}

static int query_gid(struct tv_context *tc, uint8_t n, int index, uint8_t gid[16])
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	int err = enter(d, V_QUERY_GID);
	if (!err && (n < 1 || n > d->nports || index < 0 || index >= d->ports[n - 1].ngids))
		err = EINVAL;
	if (!err)
		memcpy(gid, d->ports[n - 1].gids[index].gid, 16);
	return leave(d, err);
}

static ssize_t query_gid_table(struct tv_context *tc, struct tv_gid_entry *out, size_t max,
			       uint32_t flags, size_t entry_size)
{
	static const uint8_t none[16];
	struct tv_device *d = ((struct ctx *)tc)->dev;
	ssize_t n = 0;
	if (flags || entry_size != sizeof *out)
		return -EINVAL;
	int err = enter(d, V_QUERY_GID_TABLE);
	for (int p = 0; p < d->nports && !err; p++)
		for (int i = 0; i < d->ports[p].ngids; i++) {
			struct tv_gid_entry *e = &d->ports[p].gids[i];
			if (!memcmp(e->gid, none, 16))
				continue;
			if ((size_t)n == max) {
				err = EINVAL;
				break;
			}
			out[n] = *e;
			out[n].gid_index = (uint32_t)i;
			out[n++].port_num = (uint32_t)(p + 1);
		}
	return leave(d, err) ? -err : n;
}

static int query_pkey(struct tv_context *tc, uint8_t n, int index, uint16_t *key)
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	int err = enter(d, V_QUERY_PKEY);
	if (!err && (n < 1 || n > d->nports || index < 0 || index >= d->ports[n - 1].npkeys))
		err = EINVAL;
	if (!err)
		*key = __builtin_bswap16(d->ports[n - 1].pkeys[index]);
	return leave(d, err) ? -1 : 0; /* this verb has its errno apart */
}

void fill_objects(struct tv_lib *l)
{
	l->list = list;
	l->free_device_list = free_list;
	l->get_device_name = name;
	l->get_device_guid = guid;
	l->open_device = open_device;
	l->close_device = close_device;
	l->query_device = query_device;
	l->query_port = query_port;
	l->query_gid = query_gid;
	l->query_gid_table = query_gid_table;
	l->query_pkey = query_pkey;
	l->get_async_event = get_async_event;
	l->ack_async_event = ack_async_event;
}
