/*
 * A library of verbs without hardware: devices of one fabric in one process. One lock
 * guards a fabric, one thread of it moves bytes. See doc.go for how it behaves.
 *
 * abi.h is another package's: the build cache does not see when it changes alone.
 */
#ifndef TOPOCTL_VERBSFAKE_H
#define TOPOCTL_VERBSFAKE_H

#include <pthread.h>
#include <stdint.h>

#include "../abi.h"

enum { MAX_DEVICES = 32, MAX_PORTS = 4, MAX_GIDS = 256, MAX_PKEYS = 128, MAX_NAME = 64 };

/* The verbs that can be made to fail; names in knobs.c, in this order. */
enum verb {
	V_LIST, V_OPEN, V_CLOSE, V_QUERY_DEVICE, V_QUERY_PORT, V_QUERY_GID, V_QUERY_GID_TABLE,
	V_QUERY_PKEY, V_ALLOC_PD, V_DEALLOC_PD, V_REG_MR, V_REG_DMABUF, V_DEREG_MR,
	V_CREATE_CHANNEL, V_DESTROY_CHANNEL, V_CREATE_CQ, V_DESTROY_CQ, V_POLL_CQ, V_NOTIFY_CQ,
	V_GET_CQ_EVENT, V_CREATE_QP, V_MODIFY_QP, V_QUERY_QP, V_DESTROY_QP, V_POST_SEND,
	V_POST_SEND_UNNAMED, V_GET_ASYNC_EVENT, V_COUNT
};

/* What can be laid out wrong, for the checks of verbs. */
enum lie {
	LIE_NONE, LIE_DEVICE, LIE_OPS, LIE_CMD_FD, LIE_ASYNC_FD, LIE_VECTORS, LIE_PD, LIE_MR,
	LIE_CHANNEL, LIE_CQ, LIE_QP
};

struct failing {
	int nth, err; /* the nth call from now gives err; 0: none; below 0: all */
};

struct port {
	int state, link_layer, max_mtu, active_mtu, width, speed;
	uint16_t lid, sm_lid;
	uint32_t max_msg;
	int ngids, npkeys;
	struct tv_gid_entry gids[MAX_GIDS];
	uint16_t pkeys[MAX_PKEYS];
};

struct counts {
	int contexts, pds, mrs, channels, cqs, qps;
};

struct fabric;

struct tv_device {
	struct fabric *f;
	int index;
	char name[MAX_NAME];
	uint64_t guid;
	struct tv_device_attr attr;
	int vectors, max_inline, dmabuf;
	uint64_t memlock; /* bytes that may be registered, 0: any number */
	uint64_t locked;
	int nports;
	struct port ports[MAX_PORTS]; /* port 1 is ports[0] */
	struct counts live;

	int hold, stall, silent, fatal, lie;
	int removed; /* 1: verbs say so, 2: and the kernel has ended all objects */
	int drop; /* so many work requests from now are lost */
	int inject_nth, inject_status, inject_vendor;
	int64_t destroy_ns;
	struct failing fails[V_COUNT];
	struct ctx *contexts;
};

struct event {
	struct event *next;
	struct tv_event ev;
};

struct ctx {
	struct tv_context c;
	struct tv_device *dev;
	struct ctx *next;
	struct event *events, **last;
};

struct pd {
	struct tv_pd p;
	struct tv_device *dev;
	int users;
};

struct mr {
	struct tv_mr m;
	struct tv_device *dev;
	struct pd *pd;
	unsigned char *mem;
	uint64_t iova, length;
	unsigned access;
	void *map; /* of a dma-buf */
	size_t map_len;
};

struct chan {
	struct tv_channel c;
	struct tv_device *dev;
	int users;
	struct cq *pending[1024]; /* queues with an event, oldest first */
	int npending;
};

struct cq {
	struct tv_cq c;
	struct tv_device *dev;
	struct chan *ch;
	int users, armed, dead;
	unsigned delivered, acked;
	struct tv_wc *ring;
	struct qp **ring_qp; /* whose each is, NULL: of one that is destroyed */
	int head, count;
};

struct wqe {
	uint64_t id, raddr, len;
	int opcode, nsge, done, status, vendor, npsn;
	unsigned flags;
	uint32_t rkey;
	int64_t deadline; /* it is lost, and known to be at that time; 0: no */
	unsigned char *inlined;
	struct tv_sge *sge;
};

struct qp {
	struct tv_qp q;
	struct qp *next;
	struct tv_device *dev;
	struct pd *pd;
	struct cq *cq;
	uint64_t serial;
	struct tv_qp_cap cap;
	struct tv_qp_attr at; /* what modify_qp set */
	struct wqe *ring;
	uint64_t head, sent, tail; /* oldest not completed, next to send, next to post */
	int in_cq;                 /* completed and not polled: their slots are not free yet */
	int reads, broken;
	int unacked; /* asynchronous events that were read */
};

/* What is in the network. */
struct packet {
	struct packet *next;
	struct tv_device *src, *dst;
	int src_port, dst_port;
	uint64_t serial, wqe; /* of the sender */
	uint32_t src_qpn, dst_qpn, psn, rkey;
	int npsn, opcode, mtu, reads, held;
	uint16_t pkey;
	uint8_t sgid[16];
	uint32_t gid_type;
	int global;
	uint64_t raddr, len;
	unsigned char *data; /* of a WRITE whose sender may be gone at arrival */
};

struct fabric {
	pthread_mutex_t mu;
	pthread_cond_t work, acked;
	pthread_t thread;
	int stop;
	int keep_completions;
	int64_t retry_ns;
	int ndevices;
	struct tv_device *devices[MAX_DEVICES];
	uint8_t cut[MAX_DEVICES][MAX_DEVICES];
	struct failing list_fails;
	struct mr **mrs; /* by key >> 8 */
	uint8_t *gens;
	int nmrs;
	struct qp *qps;
	uint64_t serials;
	uint32_t qpns;
	struct packet *net, **net_last;
};

/* A library that sees some of the devices. */
struct view {
	struct tv_lib lib;
	struct fabric *f;
	uint64_t devices; /* bits */
};

/* verbs.c, qp.c: the functions of the library, filled in by these. */
void fill_objects(struct tv_lib *l);
void fill_memory(struct tv_lib *l);
void fill_cqs(struct tv_lib *l);
void fill_qps(struct tv_lib *l);
extern int fake_post_send(struct tv_qp *, struct tv_send_wr *, struct tv_send_wr **);
extern int fake_poll_cq(struct tv_cq *, int, struct tv_wc *);
extern int fake_req_notify_cq(struct tv_cq *, int);

/* A verb takes the fabric's lock: enter gives 0 or the code of this call, leave sets errno. */
int enter(struct tv_device *d, enum verb v);
int leave(struct tv_device *d, int err);

/* With the lock held. */
int fails(struct tv_device *d, enum verb v); /* 0 or the code of this call */
void push_event(struct tv_device *d, int type, void *element);
void forget_events(struct tv_device *d, struct qp *q);
void complete(struct qp *q, struct wqe *w, int status, int vendor);
void settle(struct qp *q);
void to_error(struct qp *q);
void cq_push(struct cq *cq, struct qp *q, struct wqe *w);
void cq_forget(struct cq *cq, struct qp *q);
struct mr *mr_find(struct fabric *f, uint32_t key, int remote);
void kick(struct fabric *f);
int64_t now_ns(void);
void *net_thread(void *fabric);
void drop_packets(struct fabric *f, struct tv_device *src, int held_only);
int64_t net_step(struct fabric *f);

/* knobs.c: what Go calls. */
struct fabric *fake_new(int64_t retry_ns, int keep_completions);
void fake_close(struct fabric *f);
int fake_add_device(struct fabric *f, const char *name, uint64_t guid, struct tv_device_attr *attr,
		    int vectors, int max_inline, int dmabuf, uint64_t memlock);
void fake_set_port(struct fabric *f, int dev, int port, int state, int link_layer, int max_mtu,
		   int active_mtu, int width, int speed, uint32_t max_msg);
void fake_set_lid(struct fabric *f, int dev, int port, uint16_t lid, uint16_t sm_lid);
void fake_set_state(struct fabric *f, int dev, int port, int state);
int fake_state(struct fabric *f, int dev, int port);
void fake_set_gid(struct fabric *f, int dev, int port, int index, void *gid, int type, int ndev);
void fake_clear_gids(struct fabric *f, int dev, int port);
void fake_set_pkey(struct fabric *f, int dev, int port, int index, uint16_t key);
struct view *fake_view(struct fabric *f, uint64_t devices, int old);
int fake_fail(struct fabric *f, int dev, const char *verb, int nth, int err);
enum knob { K_HOLD, K_STALL, K_SILENT, K_FATAL, K_LIE, K_DROP, K_REMOVED };
void fake_knob(struct fabric *f, int dev, int knob, int value);
void fake_inject(struct fabric *f, int dev, int nth, int status, int vendor);
void fake_destroy_delay(struct fabric *f, int dev, int64_t ns);
void fake_memlock(struct fabric *f, int dev, uint64_t bytes);
void fake_cut(struct fabric *f, int a, int b, int cut);
void fake_release(struct fabric *f, int dev);
void fake_drop_held(struct fabric *f, int dev);
int fake_held(struct fabric *f, int dev);
void fake_event(struct fabric *f, int dev, int type, int port);
int fake_qp_event(struct fabric *f, int dev, uint32_t qpn, int type);
struct counts fake_live(struct fabric *f, int dev);

#endif
