/* The calls that Go makes: a verb each, with its errno in the result. */
#ifndef TOPOCTL_VERBS_CALLS_H
#define TOPOCTL_VERBS_CALLS_H

#include "abi.h"

enum { TV_BATCH = 64 }; /* work requests or completions of one call */

/* Loading: NULL or the reason in text, which holds len bytes. */
const char *tv_load(struct tv_lib *lib, char *text, size_t len);

/* Verbs that make something give it in *out, and an errno; the others an errno. */
int tv_list(struct tv_lib *l, struct tv_device ***out, int *n);
void tv_free_list(struct tv_lib *l, struct tv_device **list);
const char *tv_name(struct tv_lib *l, struct tv_device *dev);
uint64_t tv_guid(struct tv_lib *l, struct tv_device *dev);
int tv_open(struct tv_lib *l, struct tv_device *dev, struct tv_context **out);
const char *tv_check_context(struct tv_context *ctx, struct tv_device *dev);
int tv_close(struct tv_lib *l, struct tv_context *ctx);
int tv_query_device(struct tv_lib *l, struct tv_context *ctx, struct tv_device_attr *out);
int tv_query_port(struct tv_lib *l, struct tv_context *ctx, int port, struct tv_port_attr *out);
int tv_query_gid(struct tv_lib *l, struct tv_context *ctx, int port, int index, uint8_t *gid);
int64_t tv_gid_table(struct tv_lib *l, struct tv_context *ctx, struct tv_gid_entry *out, size_t max);
int tv_query_pkey(struct tv_lib *l, struct tv_context *ctx, int port, int index, uint16_t *out);

int tv_alloc_pd(struct tv_lib *l, struct tv_context *ctx, struct tv_pd **out);
int tv_dealloc_pd(struct tv_lib *l, struct tv_pd *pd);
int tv_reg_mr(struct tv_lib *l, struct tv_pd *pd, uintptr_t addr, size_t length, uint64_t iova,
	      unsigned access, struct tv_mr **out);
int tv_reg_dmabuf(struct tv_lib *l, struct tv_pd *pd, int fd, uint64_t offset, size_t length,
		  uint64_t iova, unsigned access, struct tv_mr **out);
int tv_dereg_mr(struct tv_lib *l, struct tv_mr *mr);

int tv_create_channel(struct tv_lib *l, struct tv_context *ctx, struct tv_channel **out);
int tv_destroy_channel(struct tv_lib *l, struct tv_channel *ch);
void tv_drop_channel(struct tv_channel *ch); /* that the library does not let go */
int tv_create_cq(struct tv_lib *l, struct tv_context *ctx, int cqe, struct tv_channel *ch,
		 int vector, struct tv_cq **out);
int tv_destroy_cq(struct tv_lib *l, struct tv_cq *cq);
int tv_take_cq_event(struct tv_lib *l, struct tv_channel *ch); /* and acknowledges it */
int tv_wait_cq_event(struct tv_lib *l, struct tv_channel *ch, int wake);

int tv_create_qp(struct tv_lib *l, struct tv_pd *pd, struct tv_qp_init_attr *attr,
		 struct tv_qp **out);
int tv_modify_qp(struct tv_lib *l, struct tv_qp *qp, struct tv_qp_attr *attr, int mask);
int tv_query_qp(struct tv_lib *l, struct tv_qp *qp, struct tv_qp_attr *out,
		struct tv_qp_init_attr *init);
int tv_destroy_qp(struct tv_lib *l, struct tv_qp *qp);

/* An asynchronous event, acknowledged already. */
struct tv_taken_event {
	int type;
	int port;
	uint32_t qp_num;
};
int tv_take_async_event(struct tv_lib *l, struct tv_context *ctx, struct tv_taken_event *out);

/* The hot calls. They go through the context's table, as the header's inlines do. */
struct tv_posted {
	int taken;
	int err;
};
struct tv_posted tv_post_send(struct tv_qp *qp, struct tv_send_wr *wr, int n);
int tv_poll_cq(struct tv_cq *cq, int n, struct tv_wc *wc); /* below 0: -errno */
int tv_req_notify_cq(struct tv_cq *cq);

#endif
