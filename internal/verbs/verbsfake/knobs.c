//go:build cgo && linux && (amd64 || arm64)

/* What tests set, and ask for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const char *const names[V_COUNT] = {
	"ibv_get_device_list", "ibv_open_device", "ibv_close_device", "ibv_query_device",
	"ibv_query_port", "ibv_query_gid", "ibv_query_gid_table", "ibv_query_pkey", "ibv_alloc_pd",
	"ibv_dealloc_pd", "ibv_reg_mr", "ibv_reg_dmabuf_mr", "ibv_dereg_mr", "ibv_create_comp_channel",
	"ibv_destroy_comp_channel", "ibv_create_cq", "ibv_destroy_cq", "ibv_poll_cq",
	"ibv_req_notify_cq", "ibv_get_cq_event", "ibv_create_qp", "ibv_modify_qp", "ibv_query_qp",
	"ibv_destroy_qp", "ibv_post_send", "ibv_post_send without bad_wr", "ibv_get_async_event",
};

int fails(struct tv_device *d, enum verb v)
{
	if (d->fails[v].nth < 0 || (d->fails[v].nth > 0 && --d->fails[v].nth == 0))
		return d->fails[v].err;
	/* of a removed device works what needs no kernel; ending things does need it */
	if (d->removed && v != V_CLOSE && v != V_DESTROY_CHANNEL && v != V_POLL_CQ && v != V_NOTIFY_CQ &&
	    v != V_GET_CQ_EVENT && v != V_POST_SEND && v != V_POST_SEND_UNNAMED && v != V_GET_ASYNC_EVENT)
		return EIO;
	/* of a dead device what was made can be ended, and what completed be seen */
	if (d->fatal && v != V_CLOSE && v != V_DEALLOC_PD && v != V_DEREG_MR && v != V_DESTROY_CHANNEL &&
	    v != V_DESTROY_CQ && v != V_POLL_CQ && v != V_NOTIFY_CQ && v != V_GET_CQ_EVENT &&
	    v != V_GET_ASYNC_EVENT && v != V_POST_SEND_UNNAMED)
		return EIO;
	return 0;
}

int enter(struct tv_device *d, enum verb v)
{
	pthread_mutex_lock(&d->f->mu);
	return fails(d, v);
}

int leave(struct tv_device *d, int err)
{
	pthread_mutex_unlock(&d->f->mu);
	errno = err;
	return err;
}

struct fabric *fake_new(int64_t retry_ns, int keep_completions)
{
	struct fabric *f = calloc(1, sizeof *f);
	pthread_condattr_t monotonic;
	pthread_mutex_init(&f->mu, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&f->work, &monotonic);
	pthread_cond_init(&f->acked, NULL);
	f->net_last = &f->net;
	f->retry_ns = retry_ns;
	f->keep_completions = keep_completions;
	if (pthread_create(&f->thread, NULL, net_thread, f))
		abort();
	return f;
}

/* Nothing moves any more. The tables stay: whoever still has a library gets errors. */
void fake_close(struct fabric *f)
{
	pthread_mutex_lock(&f->mu);
	int was = f->stop;
	f->stop = 1;
	for (int i = 0; i < f->ndevices; i++)
		f->devices[i]->fatal = 1;
	pthread_cond_signal(&f->work);
	pthread_mutex_unlock(&f->mu);
	if (!was)
		pthread_join(f->thread, NULL);
}

int fake_add_device(struct fabric *f, const char *name, uint64_t guid, struct tv_device_attr *attr,
		    int vectors, int max_inline, int dmabuf, uint64_t memlock)
{
	struct tv_device *d = calloc(1, sizeof *d);
	d->f = f;
	strncpy(d->name, name, sizeof d->name - 1);
	d->guid = guid;
	d->attr = *attr;
	d->attr.node_guid = __builtin_bswap64(guid);
	d->nports = attr->phys_port_cnt;
	d->vectors = vectors;
	d->max_inline = max_inline;
	d->dmabuf = dmabuf;
	d->memlock = memlock;
	pthread_mutex_lock(&f->mu);
	d->index = f->ndevices;
	f->devices[f->ndevices++] = d;
	pthread_mutex_unlock(&f->mu);
	return d->index;
}

void fake_set_port(struct fabric *f, int dev, int port, int state, int link_layer, int max_mtu,
		   int active_mtu, int width, int speed, uint32_t max_msg)
{
	pthread_mutex_lock(&f->mu);
	struct port *p = &f->devices[dev]->ports[port - 1];
	p->state = state;
	p->link_layer = link_layer;
	p->max_mtu = max_mtu;
	p->active_mtu = active_mtu;
	p->width = width;
	p->speed = speed;
	p->max_msg = max_msg;
	pthread_mutex_unlock(&f->mu);
}

void fake_set_lid(struct fabric *f, int dev, int port, uint16_t lid, uint16_t sm_lid)
{
	pthread_mutex_lock(&f->mu);
	f->devices[dev]->ports[port - 1].lid = lid;
	f->devices[dev]->ports[port - 1].sm_lid = sm_lid;
	pthread_mutex_unlock(&f->mu);
}

void fake_set_state(struct fabric *f, int dev, int port, int state)
{
	pthread_mutex_lock(&f->mu);
	f->devices[dev]->ports[port - 1].state = state;
	pthread_mutex_unlock(&f->mu);
}

void fake_set_gid(struct fabric *f, int dev, int port, int index, void *gid, int type, int ndev)
{
	pthread_mutex_lock(&f->mu);
	struct port *p = &f->devices[dev]->ports[port - 1];
	struct tv_gid_entry *e = &p->gids[index];
	memcpy(e->gid, gid, 16);
	e->gid_type = (uint32_t)type;
	e->ndev_ifindex = (uint32_t)ndev;
	if (p->ngids <= index)
		p->ngids = index + 1;
	pthread_mutex_unlock(&f->mu);
}

void fake_clear_gids(struct fabric *f, int dev, int port)
{
	pthread_mutex_lock(&f->mu);
	struct port *p = &f->devices[dev]->ports[port - 1];
	memset(p->gids, 0, sizeof p->gids);
	pthread_mutex_unlock(&f->mu);
}

void fake_set_pkey(struct fabric *f, int dev, int port, int index, uint16_t key)
{
	pthread_mutex_lock(&f->mu);
	struct port *p = &f->devices[dev]->ports[port - 1];
	p->pkeys[index] = key;
	if (p->npkeys <= index)
		p->npkeys = index + 1;
	pthread_mutex_unlock(&f->mu);
}

/* old leaves out: 1 dma-bufs, 2 GID tables too, 3 iova too. */
struct view *fake_view(struct fabric *f, uint64_t devices, int old)
{
	struct view *v = calloc(1, sizeof *v);
	v->f = f;
	v->devices = devices;
	v->lib.owner = v;
	fill_objects(&v->lib);
	fill_memory(&v->lib);
	fill_cqs(&v->lib);
	fill_qps(&v->lib);
	if (old >= 1)
		v->lib.reg_dmabuf_mr = NULL;
	if (old >= 2)
		v->lib.query_gid_table = NULL;
	if (old >= 3)
		v->lib.reg_mr_iova = NULL;
	return v;
}

int fake_fail(struct fabric *f, int dev, const char *verb, int nth, int err)
{
	for (int v = 0; v < V_COUNT; v++) {
		if (strcmp(names[v], verb))
			continue;
		pthread_mutex_lock(&f->mu);
		struct failing *at = v == V_LIST ? &f->list_fails : &f->devices[dev]->fails[v];
		*at = (struct failing){nth, err};
		pthread_mutex_unlock(&f->mu);
		return 1;
	}
	return 0;
}

/* As ib_uverbs does it: all objects end, and DEVICE_FATAL is the last event. */
static void remove_objects(struct tv_device *d)
{
	struct fabric *f = d->f;
	d->fatal = 1;
	for (struct qp **at = &f->qps; *at;) {
		if ((*at)->dev == d)
			*at = (*at)->next; /* the library's memory of it is never freed */
		else
			at = &(*at)->next;
	}
	for (int i = 0; i < f->nmrs; i++)
		if (f->mrs[i] && f->mrs[i]->dev == d)
			f->mrs[i] = NULL;
	d->live = (struct counts){.contexts = d->live.contexts};
	push_event(d, 8, NULL);
}

void fake_knob(struct fabric *f, int dev, int knob, int value)
{
	pthread_mutex_lock(&f->mu);
	struct tv_device *d = f->devices[dev];
	switch (knob) {
	case K_HOLD: d->hold = value; break;
	case K_STALL: d->stall = value; break;
	case K_SILENT: d->silent = value; break;
	case K_LIE: d->lie = value; break;
	case K_DROP: d->drop = value; break;
	case K_REMOVED:
		d->removed = value;
		if (value == 2)
			remove_objects(d);
		break;
	case K_FATAL:
		d->fatal = 1;
		push_event(d, 8, NULL);
		for (struct qp *q = f->qps; q; q = q->next)
			if (q->dev == d)
				to_error(q);
		break;
	}
	kick(f);
	pthread_mutex_unlock(&f->mu);
}

void fake_inject(struct fabric *f, int dev, int nth, int status, int vendor)
{
	pthread_mutex_lock(&f->mu);
	f->devices[dev]->inject_nth = nth;
	f->devices[dev]->inject_status = status;
	f->devices[dev]->inject_vendor = vendor;
	pthread_mutex_unlock(&f->mu);
}

void fake_destroy_delay(struct fabric *f, int dev, int64_t ns)
{
	pthread_mutex_lock(&f->mu);
	f->devices[dev]->destroy_ns = ns;
	pthread_mutex_unlock(&f->mu);
}

void fake_memlock(struct fabric *f, int dev, uint64_t bytes)
{
	pthread_mutex_lock(&f->mu);
	f->devices[dev]->memlock = bytes;
	pthread_mutex_unlock(&f->mu);
}

void fake_cut(struct fabric *f, int a, int b, int cut)
{
	pthread_mutex_lock(&f->mu);
	f->cut[a][b] = f->cut[b][a] = (uint8_t)cut;
	pthread_mutex_unlock(&f->mu);
}

void fake_release(struct fabric *f, int dev)
{
	pthread_mutex_lock(&f->mu);
	for (struct packet *p = f->net; p; p = p->next)
		if (p->src == f->devices[dev])
			p->held = 0;
	net_step(f); /* it has arrived when this returns, however busy the thread's processor is */
	kick(f);
	pthread_mutex_unlock(&f->mu);
}

void fake_drop_held(struct fabric *f, int dev)
{
	pthread_mutex_lock(&f->mu);
	drop_packets(f, f->devices[dev], 1);
	kick(f);
	pthread_mutex_unlock(&f->mu);
}

int fake_held(struct fabric *f, int dev)
{
	int n = 0;
	pthread_mutex_lock(&f->mu);
	for (struct packet *p = f->net; p; p = p->next)
		n += p->src == f->devices[dev] && p->held;
	pthread_mutex_unlock(&f->mu);
	return n;
}

void fake_event(struct fabric *f, int dev, int type, int port)
{
	pthread_mutex_lock(&f->mu);
	push_event(f->devices[dev], type, (void *)(intptr_t)port);
	pthread_mutex_unlock(&f->mu);
}

int fake_qp_event(struct fabric *f, int dev, uint32_t qpn, int type)
{
	int found = 0;
	pthread_mutex_lock(&f->mu);
	for (struct qp *q = f->qps; q && !found; q = q->next)
		if (q->dev == f->devices[dev] && q->q.qp_num == qpn) {
			push_event(q->dev, type, &q->q);
			found = 1;
		}
	pthread_mutex_unlock(&f->mu);
	return found;
}

struct counts fake_live(struct fabric *f, int dev)
{
	pthread_mutex_lock(&f->mu);
	struct counts c = f->devices[dev]->live;
	pthread_mutex_unlock(&f->mu);
	return c;
}
