//go:build cgo && linux && (amd64 || arm64)

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

/*
 * Verbs give 0, an errno, its negative, or -1 with the errno where errnos go. Callers set
 * errno to 0 before the verb.
 */
static int code(int rc)
{
	if (rc == 0)
		return 0;
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

/* made is for verbs that give a pointer. */
static int made(const void *p)
{
	if (p)
		return 0;
	return errno ? errno : EIO;
}

int tv_list(struct tv_lib *l, struct tv_device ***out, int *n)
{
	errno = 0;
	*n = 0;
	*out = l->list(l->owner, n);
	return made(*out);
}

void tv_free_list(struct tv_lib *l, struct tv_device **list) { l->free_device_list(list); }

const char *tv_name(struct tv_lib *l, struct tv_device *dev) { return l->get_device_name(dev); }

uint64_t tv_guid(struct tv_lib *l, struct tv_device *dev)
{
	return __builtin_bswap64(l->get_device_guid(dev)); /* amd64 and arm64 are little-endian */
}

int tv_open(struct tv_lib *l, struct tv_device *dev, struct tv_context **out)
{
	errno = 0;
	*out = l->open_device(dev);
	return made(*out);
}

/* Whether the context is laid out as abi.h says. */
const char *tv_check_context(struct tv_context *ctx, struct tv_device *dev)
{
	if (ctx->device != dev)
		return "ibv_context.device is another device";
	if (!ctx->ops.poll_cq || !ctx->ops.req_notify_cq || !ctx->ops.post_send)
		return "ibv_context.ops lacks poll_cq, req_notify_cq or post_send";
	if (ctx->cmd_fd < 0 || fcntl(ctx->cmd_fd, F_GETFD) < 0)
		return "ibv_context.cmd_fd is no descriptor";
	if (ctx->async_fd < 0 || fcntl(ctx->async_fd, F_GETFD) < 0)
		return "ibv_context.async_fd is no descriptor";
	if (ctx->num_comp_vectors < 1 || ctx->num_comp_vectors > 65536)
		return "ibv_context.num_comp_vectors is out of range";
	return NULL;
}

int tv_close(struct tv_lib *l, struct tv_context *ctx)
{
	errno = 0;
	return code(l->close_device(ctx));
}

int tv_query_device(struct tv_lib *l, struct tv_context *ctx, struct tv_device_attr *out)
{
	errno = 0;
	memset(out, 0, sizeof *out);
	return code(l->query_device(ctx, out));
}

int tv_query_port(struct tv_lib *l, struct tv_context *ctx, int port, struct tv_port_attr *out)
{
	errno = 0;
	memset(out, 0, sizeof *out);
	return code(l->query_port(ctx, (uint8_t)port, out));
}

int tv_query_gid(struct tv_lib *l, struct tv_context *ctx, int port, int index, uint8_t *gid)
{
	errno = 0;
	return code(l->query_gid(ctx, (uint8_t)port, index, gid));
}

/* Entries of all ports, or -errno. */
int64_t tv_gid_table(struct tv_lib *l, struct tv_context *ctx, struct tv_gid_entry *out, size_t max)
{
	if (!l->query_gid_table)
		return -ENOSYS;
	errno = 0;
	ssize_t n = l->query_gid_table(ctx, out, max, 0, sizeof *out);
	return n == -1 ? -code(-1) : n;
}

int tv_query_pkey(struct tv_lib *l, struct tv_context *ctx, int port, int index, uint16_t *out)
{
	uint16_t key = 0;
	errno = 0;
	int rc = code(l->query_pkey(ctx, (uint8_t)port, index, &key));
	*out = __builtin_bswap16(key);
	return rc;
}

int tv_alloc_pd(struct tv_lib *l, struct tv_context *ctx, struct tv_pd **out)
{
	errno = 0;
	*out = l->alloc_pd(ctx);
	return made(*out);
}

int tv_dealloc_pd(struct tv_lib *l, struct tv_pd *pd)
{
	errno = 0;
	return code(l->dealloc_pd(pd));
}

int tv_reg_mr(struct tv_lib *l, struct tv_pd *pd, uintptr_t addr, size_t length, uint64_t iova,
	      unsigned access, struct tv_mr **out)
{
	errno = 0;
	if (l->reg_mr_iova) {
		*out = l->reg_mr_iova(pd, (void *)addr, length, iova, (int)access);
	} else if (iova == addr) {
		*out = l->reg_mr(pd, (void *)addr, length, (int)access);
	} else {
		*out = NULL;
		return ENOSYS;
	}
	return made(*out);
}

int tv_reg_dmabuf(struct tv_lib *l, struct tv_pd *pd, int fd, uint64_t offset, size_t length,
		  uint64_t iova, unsigned access, struct tv_mr **out)
{
	*out = NULL;
	if (!l->reg_dmabuf_mr)
		return ENOSYS;
	errno = 0;
	*out = l->reg_dmabuf_mr(pd, offset, length, iova, fd, (int)access);
	return made(*out);
}

int tv_dereg_mr(struct tv_lib *l, struct tv_mr *mr)
{
	errno = 0;
	return code(l->dereg_mr(mr));
}

int tv_create_channel(struct tv_lib *l, struct tv_context *ctx, struct tv_channel **out)
{
	errno = 0;
	*out = l->create_channel(ctx);
	return made(*out);
}

int tv_destroy_channel(struct tv_lib *l, struct tv_channel *ch)
{
	errno = 0;
	return code(l->destroy_channel(ch));
}

void tv_drop_channel(struct tv_channel *ch) { close(ch->fd); }

int tv_create_cq(struct tv_lib *l, struct tv_context *ctx, int cqe, struct tv_channel *ch,
		 int vector, struct tv_cq **out)
{
	errno = 0;
	*out = l->create_cq(ctx, cqe, NULL, ch, vector);
	return made(*out);
}

int tv_destroy_cq(struct tv_lib *l, struct tv_cq *cq)
{
	errno = 0;
	return code(l->destroy_cq(cq));
}

/* Acknowledged at once: ibv_destroy_cq waits for that. */
int tv_take_cq_event(struct tv_lib *l, struct tv_channel *ch)
{
	struct tv_cq *cq = NULL;
	void *context = NULL;
	errno = 0;
	if (l->get_cq_event(ch, &cq, &context))
		return code(-1);
	l->ack_cq_events(cq, 1);
	return 0;
}

/*
 * Sleeps until the channel or wake, an eventfd, can be read, and takes the channel's event.
 * EAGAIN: it was wake, or a signal.
 */
int tv_wait_cq_event(struct tv_lib *l, struct tv_channel *ch, int wake)
{
	struct pollfd p[2] = {{.fd = ch->fd, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
	uint64_t count;
	if (poll(p, 2, -1) < 0)
		return errno == EINTR ? EAGAIN : errno;
	if (p[1].revents && read(wake, &count, sizeof count) < 0 && !p[0].revents)
		return errno;
	return p[0].revents ? tv_take_cq_event(l, ch) : EAGAIN;
}

int tv_create_qp(struct tv_lib *l, struct tv_pd *pd, struct tv_qp_init_attr *attr,
		 struct tv_qp **out)
{
	errno = 0;
	*out = l->create_qp(pd, attr);
	return made(*out);
}

int tv_modify_qp(struct tv_lib *l, struct tv_qp *qp, struct tv_qp_attr *attr, int mask)
{
	errno = 0;
	return code(l->modify_qp(qp, attr, mask));
}

int tv_query_qp(struct tv_lib *l, struct tv_qp *qp, struct tv_qp_attr *out,
		struct tv_qp_init_attr *init)
{
	errno = 0;
	return code(l->query_qp(qp, out, TV_QP_STATE, init));
}

int tv_destroy_qp(struct tv_lib *l, struct tv_qp *qp)
{
	errno = 0;
	return code(l->destroy_qp(qp));
}

/* Types as the ABI numbers them: of queue pairs 1 to 7 and 16, of ports 9 to 13, 17, 18. */
static int of_qp(int type) { return (type >= 1 && type <= 7) || type == 16; }
static int of_port(int type) { return (type >= 9 && type <= 13) || type == 17 || type == 18; }

/*
 * The queue pair is alive until its events are acknowledged: ibv_destroy_qp waits. So its
 * number is read before.
 */
int tv_take_async_event(struct tv_lib *l, struct tv_context *ctx, struct tv_taken_event *out)
{
	struct tv_event ev;
	memset(&ev, 0, sizeof ev);
	memset(out, 0, sizeof *out);
	errno = 0;
	if (l->get_async_event(ctx, &ev))
		return code(-1);
	out->type = ev.event_type;
	if (of_qp(ev.event_type))
		out->qp_num = ev.element.qp->qp_num;
	else if (of_port(ev.event_type))
		out->port = ev.element.port_num;
	l->ack_async_event(&ev);
	return 0;
}

/*
 * wr is an array whose sg_lists are set; the chain is made here. A provider that fails
 * without naming the bad request may have queued all of them: they count as taken.
 */
struct tv_posted tv_post_send(struct tv_qp *qp, struct tv_send_wr *wr, int n)
{
	struct tv_send_wr *bad = NULL;
	for (int i = 0; i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	wr[n - 1].next = NULL;
	errno = 0;
	int err = code(qp->context->ops.post_send(qp, wr, &bad));
	if (err == 0)
		return (struct tv_posted){n, 0};
	if (bad < wr || bad >= wr + n)
		return (struct tv_posted){n, err};
	return (struct tv_posted){(int)(bad - wr), err};
}

int tv_poll_cq(struct tv_cq *cq, int n, struct tv_wc *wc)
{
	errno = 0;
	int got = cq->context->ops.poll_cq(cq, n, wc);
	return got >= 0 ? got : -code(got);
}

int tv_req_notify_cq(struct tv_cq *cq)
{
	errno = 0;
	return code(cq->context->ops.req_notify_cq(cq, 0));
}
