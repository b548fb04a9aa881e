//go:build vmlab && linux && cgo

#include "baseline.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "abi.h"

static struct {
	struct tv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct tv_device **list);
	const char *(*get_device_name)(struct tv_device *dev);
	struct tv_context *(*open_device)(struct tv_device *dev);
	int (*close_device)(struct tv_context *ctx);
	int (*query_gid)(struct tv_context *ctx, uint8_t port, int index, uint8_t gid[16]);
	struct tv_pd *(*alloc_pd)(struct tv_context *ctx);
	int (*dealloc_pd)(struct tv_pd *pd);
	struct tv_mr *(*reg_mr)(struct tv_pd *pd, void *addr, size_t length, int access);
	int (*dereg_mr)(struct tv_mr *mr);
	struct tv_channel *(*create_channel)(struct tv_context *ctx);
	int (*destroy_channel)(struct tv_channel *ch);
	struct tv_cq *(*create_cq)(struct tv_context *ctx, int cqe, void *context, struct tv_channel *ch, int vector);
	int (*destroy_cq)(struct tv_cq *cq);
	int (*get_cq_event)(struct tv_channel *ch, struct tv_cq **cq, void **context);
	void (*ack_cq_events)(struct tv_cq *cq, unsigned n);
	struct tv_qp *(*create_qp)(struct tv_pd *pd, struct tv_qp_init_attr *attr);
	int (*modify_qp)(struct tv_qp *qp, struct tv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct tv_qp *qp);
} v;

static const struct {
	const char *name;
	void **at;
} symbols[] = {
	{"ibv_get_device_list", (void **)&v.get_device_list},
	{"ibv_free_device_list", (void **)&v.free_device_list},
	{"ibv_get_device_name", (void **)&v.get_device_name},
	{"ibv_open_device", (void **)&v.open_device},
	{"ibv_close_device", (void **)&v.close_device},
	{"ibv_query_gid", (void **)&v.query_gid},
	{"ibv_alloc_pd", (void **)&v.alloc_pd},
	{"ibv_dealloc_pd", (void **)&v.dealloc_pd},
	{"ibv_reg_mr", (void **)&v.reg_mr},
	{"ibv_dereg_mr", (void **)&v.dereg_mr},
	{"ibv_create_comp_channel", (void **)&v.create_channel},
	{"ibv_destroy_comp_channel", (void **)&v.destroy_channel},
	{"ibv_create_cq", (void **)&v.create_cq},
	{"ibv_destroy_cq", (void **)&v.destroy_cq},
	{"ibv_get_cq_event", (void **)&v.get_cq_event},
	{"ibv_ack_cq_events", (void **)&v.ack_cq_events},
	{"ibv_create_qp", (void **)&v.create_qp},
	{"ibv_modify_qp", (void **)&v.modify_qp},
	{"ibv_destroy_qp", (void **)&v.destroy_qp},
};

static struct {
	struct tv_context *ctx;
	struct tv_pd *pd;
	struct tv_mr *mr;
	struct tv_channel *channel;
	struct tv_cq *cq;
	struct tv_qp *qp;
	void *memory;
	size_t size;
	int gid_index;
	struct bl_end mine, theirs;
} b;

enum { PORT = 1, READS = 16 };

static const char *load(void)
{
	void *dl = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	size_t i;

	if (!dl)
		return "no libibverbs.so.1";
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].at = dlsym(dl, symbols[i].name);
		if (!*symbols[i].at)
			return symbols[i].name;
	}
	return NULL;
}

static const char *open_device(const char *name)
{
	int n = 0, i;
	struct tv_device **list = v.get_device_list(&n);

	if (!list)
		return "no list of devices";
	for (i = 0; i < n; i++)
		if (!strcmp(v.get_device_name(list[i]), name))
			b.ctx = v.open_device(list[i]);
	v.free_device_list(list);
	return b.ctx ? NULL : "the device cannot be opened";
}

static const char *make_qp(int depth)
{
	struct tv_qp_init_attr attr;
	struct tv_qp_attr init;

	memset(&attr, 0, sizeof(attr));
	attr.send_cq = attr.recv_cq = b.cq;
	attr.cap.max_send_wr = depth;
	attr.cap.max_recv_wr = 1;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	attr.qp_type = TV_QPT_RC;
	b.qp = v.create_qp(b.pd, &attr);
	if (!b.qp)
		return "no queue pair";
	memset(&init, 0, sizeof(init));
	init.qp_state = TV_QPS_INIT;
	init.port_num = PORT;
	init.qp_access_flags = TV_ACCESS_REMOTE_WRITE | TV_ACCESS_REMOTE_READ;
	if (v.modify_qp(b.qp, &init, TV_QP_STATE | TV_QP_PKEY_INDEX | TV_QP_PORT | TV_QP_ACCESS_FLAGS))
		return "the queue pair does not become INIT";
	return NULL;
}

const char *bl_open(const char *device, int gid_index, size_t size, int depth, struct bl_end *mine)
{
	const char *wrong = load();

	if (wrong || (wrong = open_device(device)))
		return wrong;
	b.size = size;
	b.gid_index = gid_index;
	b.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b.memory == MAP_FAILED)
		return "no memory";
	if (!(b.pd = v.alloc_pd(b.ctx)))
		return "no protection domain";
	b.mr = v.reg_mr(b.pd, b.memory, size, TV_ACCESS_LOCAL_WRITE | TV_ACCESS_REMOTE_WRITE | TV_ACCESS_REMOTE_READ);
	if (!b.mr)
		return "no memory region";
	if (!(b.channel = v.create_channel(b.ctx)))
		return "no completion channel";
	if (!(b.cq = v.create_cq(b.ctx, depth + 1, NULL, b.channel, 0)))
		return "no completion queue";
	if ((wrong = make_qp(depth)))
		return wrong;
	memset(mine, 0, sizeof(*mine));
	mine->addr = (uintptr_t)b.memory;
	mine->qpn = b.qp->qp_num;
	mine->psn = b.qp->qp_num * 77 & 0xffffff;
	mine->rkey = b.mr->rkey;
	if (v.query_gid(b.ctx, PORT, gid_index, mine->gid))
		return "no GID";
	b.mine = *mine;
	return NULL;
}

const char *bl_connect(const struct bl_end *theirs, int mtu, int timeout)
{
	struct tv_qp_attr a;

	b.theirs = *theirs;
	memset(&a, 0, sizeof(a));
	a.qp_state = TV_QPS_RTR;
	a.path_mtu = mtu;
	a.dest_qp_num = theirs->qpn;
	a.rq_psn = theirs->psn;
	a.max_dest_rd_atomic = READS;
	a.min_rnr_timer = 12;
	memcpy(a.ah_attr.dgid, theirs->gid, sizeof(theirs->gid));
	a.ah_attr.sgid_index = b.gid_index;
	a.ah_attr.hop_limit = 64;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = PORT;
	if (v.modify_qp(b.qp, &a, TV_QP_STATE | TV_QP_AV | TV_QP_PATH_MTU | TV_QP_DEST_QPN | TV_QP_RQ_PSN |
				  TV_QP_MAX_DEST_RD_ATOMIC | TV_QP_MIN_RNR_TIMER))
		return "the queue pair does not become RTR";
	a.qp_state = TV_QPS_RTS;
	a.timeout = timeout;
	a.retry_cnt = a.rnr_retry = 6;
	a.sq_psn = b.mine.psn;
	a.max_rd_atomic = READS;
	if (v.modify_qp(b.qp, &a, TV_QP_STATE | TV_QP_TIMEOUT | TV_QP_RETRY_CNT | TV_QP_RNR_RETRY | TV_QP_SQ_PSN |
				  TV_QP_MAX_QP_RD_ATOMIC))
		return "the queue pair does not become RTS";
	return NULL;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int post(int read, uint32_t bytes, int at)
{
	struct tv_send_wr wr, *bad;
	struct tv_sge sge;
	uint64_t offset = (uint64_t)at * bytes % (b.size - bytes + 1);

	memset(&wr, 0, sizeof(wr));
	sge.addr = (uintptr_t)b.memory + offset;
	sge.length = bytes;
	sge.lkey = b.mr->lkey;
	wr.wr_id = at;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = read ? TV_WR_RDMA_READ : TV_WR_RDMA_WRITE;
	wr.send_flags = TV_SEND_SIGNALED;
	wr.remote_addr = b.theirs.addr + offset;
	wr.rkey = b.theirs.rkey;
	return b.ctx->ops.post_send(b.qp, &wr, &bad);
}

/* Waits for one completion: polls, and sleeps while there is nothing. */
static int take(struct tv_wc *wc)
{
	struct pollfd p = {.events = POLLIN};
	struct tv_cq *cq;
	void *context;
	int n;

	for (;;) {
		if ((n = b.ctx->ops.poll_cq(b.cq, 1, wc)))
			return n;
		if (b.ctx->ops.req_notify_cq(b.cq, 0))
			return -1;
		if ((n = b.ctx->ops.poll_cq(b.cq, 1, wc)))
			return n;
		p.fd = b.channel->fd;
		while ((n = poll(&p, 1, 10000)) < 0 && errno == EINTR)
			; /* a signal of Go's */
		if (n != 1 || v.get_cq_event(b.channel, &cq, &context))
			return -1;
		v.ack_cq_events(cq, 1);
	}
}

const char *bl_run(int read, uint32_t bytes, int depth, int count, uint64_t *total_ns, uint32_t *ns)
{
	uint64_t start = now(), last = start, t;
	struct tv_wc wc;
	int posted = 0, done;

	for (done = 0; done < count; done++) {
		for (; posted < count && posted - done < depth; posted++)
			if (post(read, bytes, posted))
				return "a work request was not taken";
		if (take(&wc) < 0)
			return "no completion came";
		if (wc.status)
			return "a work request failed";
		t = now();
		if (ns)
			ns[done] = t - last;
		last = t;
	}
	*total_ns = last - start;
	return NULL;
}

const char *bl_close(void)
{
	const char *wrong = NULL;

	if (b.qp && v.destroy_qp(b.qp))
		wrong = "the queue pair is not destroyed";
	if (b.cq && v.destroy_cq(b.cq))
		wrong = "the completion queue is not destroyed";
	if (b.channel && v.destroy_channel(b.channel))
		wrong = "the completion channel is not destroyed";
	if (b.mr && v.dereg_mr(b.mr))
		wrong = "the memory region is not deregistered";
	if (b.pd && v.dealloc_pd(b.pd))
		wrong = "the protection domain is not given back";
	if (b.ctx && v.close_device(b.ctx))
		wrong = "the device is not closed";
	if (b.memory && b.memory != MAP_FAILED)
		munmap(b.memory, b.size);
	memset(&b, 0, sizeof(b));
	return wrong;
}
