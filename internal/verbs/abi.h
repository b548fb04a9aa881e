/*
 * What topoctl relies on of libibverbs' binary interface, said in our own words so that
 * no header of rdma-core is needed to build. docs/verbs-abi.md has the offsets and where
 * they come from; testdata/abi.c holds this file against the real header where there is
 * one. Only fields that are used have names. 64-bit Linux only.
 */
#ifndef TOPOCTL_VERBS_ABI_H
#define TOPOCTL_VERBS_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

_Static_assert(sizeof(void *) == 8 && sizeof(int) == 4, "LP64 only");

struct tv_device; /* ibv_device: opaque, its name is asked for */
struct tv_cq;
struct tv_qp;
struct tv_wc;
struct tv_send_wr;

/* ibv_context_ops: slots of functions; those that moved to the library are unused. */
struct tv_ops {
	void *slots_0_10[11];
	int (*poll_cq)(struct tv_cq *cq, int n, struct tv_wc *wc);
	int (*req_notify_cq)(struct tv_cq *cq, int solicited_only);
	void *slots_13_24[12];
	int (*post_send)(struct tv_qp *qp, struct tv_send_wr *wr, struct tv_send_wr **bad);
	void *slots_26_31[6];
};

/* ibv_context, as far as async_fd and the number of completion vectors */
struct tv_context {
	struct tv_device *device;
	struct tv_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
};

/* ibv_device_attr */
struct tv_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int unused[16];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

/* ibv_port_attr; the library writes up to flags */
struct tv_port_attr {
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint8_t room[32]; /* newer libraries' fields */
};

/* ibv_gid_entry */
struct tv_gid_entry {
	_Alignas(8) uint8_t gid[16];
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

/* ibv_pd */
struct tv_pd {
	struct tv_context *context;
	uint32_t handle;
};

/* ibv_mr */
struct tv_mr {
	struct tv_context *context;
	struct tv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

/* ibv_comp_channel */
struct tv_channel {
	struct tv_context *context;
	int fd;
	int refcnt;
};

/* ibv_cq, as far as its size */
struct tv_cq {
	struct tv_context *context;
	struct tv_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

/* ibv_qp, as far as its type */
struct tv_qp {
	struct tv_context *context;
	void *qp_context;
	struct tv_pd *pd;
	struct tv_cq *send_cq;
	struct tv_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
	int state;
	int qp_type;
};

/* ibv_qp_cap */
struct tv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

/* ibv_qp_init_attr */
struct tv_qp_init_attr {
	void *qp_context;
	struct tv_cq *send_cq;
	struct tv_cq *recv_cq;
	void *srq;
	struct tv_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

/* ibv_ah_attr with its ibv_global_route; a GID is aligned as two 64-bit words */
struct tv_ah_attr {
	_Alignas(8) uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

/* ibv_qp_attr */
struct tv_qp_attr {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned qp_access_flags;
	struct tv_qp_cap cap;
	struct tv_ah_attr ah_attr;
	struct tv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

/* ibv_sge */
struct tv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

/* ibv_send_wr, its unions laid out for RDMA */
struct tv_send_wr {
	uint64_t wr_id;
	struct tv_send_wr *next;
	struct tv_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned send_flags;
	uint32_t imm_data;
	uint64_t remote_addr;
	uint32_t rkey;
	uint8_t unused[76];
};

/* ibv_wc */
struct tv_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

/* ibv_async_event: which member of the union counts depends on the type */
struct tv_event {
	union {
		struct tv_cq *cq;
		struct tv_qp *qp;
		int port_num;
	} element;
	int event_type;
};

enum {
	TV_QPT_RC = 2,

	TV_QPS_RESET = 0,
	TV_QPS_INIT = 1,
	TV_QPS_RTR = 2,
	TV_QPS_RTS = 3,
	TV_QPS_ERR = 6,

	TV_QP_STATE = 1 << 0,
	TV_QP_ACCESS_FLAGS = 1 << 3,
	TV_QP_PKEY_INDEX = 1 << 4,
	TV_QP_PORT = 1 << 5,
	TV_QP_AV = 1 << 7,
	TV_QP_PATH_MTU = 1 << 8,
	TV_QP_TIMEOUT = 1 << 9,
	TV_QP_RETRY_CNT = 1 << 10,
	TV_QP_RNR_RETRY = 1 << 11,
	TV_QP_RQ_PSN = 1 << 12,
	TV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	TV_QP_MIN_RNR_TIMER = 1 << 15,
	TV_QP_SQ_PSN = 1 << 16,
	TV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	TV_QP_DEST_QPN = 1 << 20,

	TV_SEND_SIGNALED = 1 << 1,
	TV_SEND_INLINE = 1 << 3,

	TV_WR_RDMA_WRITE = 0,
	TV_WR_RDMA_READ = 4,

	TV_ACCESS_LOCAL_WRITE = 1 << 0,
	TV_ACCESS_REMOTE_WRITE = 1 << 1,
	TV_ACCESS_REMOTE_READ = 1 << 2,
};

/*
 * The library's functions. list gets owner, so that a library made for tests knows which
 * one it is; for the real one owner is the table. Those marked optional may be NULL.
 */
struct tv_lib {
	void *owner;
	struct tv_device **(*list)(void *owner, int *n);
	struct tv_device **(*get_device_list)(int *n); /* the real library's alone */
	void (*free_device_list)(struct tv_device **list);
	const char *(*get_device_name)(struct tv_device *dev);
	uint64_t (*get_device_guid)(struct tv_device *dev); /* big-endian */
	struct tv_context *(*open_device)(struct tv_device *dev);
	int (*close_device)(struct tv_context *ctx);
	int (*query_device)(struct tv_context *ctx, struct tv_device_attr *attr);
	int (*query_port)(struct tv_context *ctx, uint8_t port, struct tv_port_attr *attr);
	int (*query_gid)(struct tv_context *ctx, uint8_t port, int index, uint8_t gid[16]);
	int (*query_pkey)(struct tv_context *ctx, uint8_t port, int index, uint16_t *pkey);
	struct tv_pd *(*alloc_pd)(struct tv_context *ctx);
	int (*dealloc_pd)(struct tv_pd *pd);
	struct tv_mr *(*reg_mr)(struct tv_pd *pd, void *addr, size_t length, int access);
	int (*dereg_mr)(struct tv_mr *mr);
	struct tv_channel *(*create_channel)(struct tv_context *ctx);
	int (*destroy_channel)(struct tv_channel *ch);
	struct tv_cq *(*create_cq)(struct tv_context *ctx, int cqe, void *cq_context,
				   struct tv_channel *ch, int vector);
	int (*destroy_cq)(struct tv_cq *cq);
	int (*get_cq_event)(struct tv_channel *ch, struct tv_cq **cq, void **cq_context);
	void (*ack_cq_events)(struct tv_cq *cq, unsigned n);
	struct tv_qp *(*create_qp)(struct tv_pd *pd, struct tv_qp_init_attr *attr);
	int (*modify_qp)(struct tv_qp *qp, struct tv_qp_attr *attr, int mask);
	int (*query_qp)(struct tv_qp *qp, struct tv_qp_attr *attr, int mask,
			struct tv_qp_init_attr *init);
	int (*destroy_qp)(struct tv_qp *qp);
	int (*get_async_event)(struct tv_context *ctx, struct tv_event *ev);
	void (*ack_async_event)(struct tv_event *ev);
	/* optional */
	struct tv_mr *(*reg_mr_iova)(struct tv_pd *pd, void *addr, size_t length, uint64_t iova,
				     int access);
	struct tv_mr *(*reg_dmabuf_mr)(struct tv_pd *pd, uint64_t offset, size_t length,
				       uint64_t iova, int fd, int access);
	ssize_t (*query_gid_table)(struct tv_context *ctx, struct tv_gid_entry *entries, size_t max,
				   uint32_t flags, size_t entry_size);
};

#endif
