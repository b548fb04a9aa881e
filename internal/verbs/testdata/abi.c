/*
 * Prints what abi.h says and what the real header says: a line each,
 * "name real ours" or "struct.field real-offset our-offset real-size our-size". abi_test.go
 * compiles and reads it where <infiniband/verbs.h> is installed.
 */
#include <infiniband/verbs.h>
#include <stdio.h>

#include "abi.h"

#define SIZE(real, our) printf("sizeof(%s) %zu %zu\n", #real, sizeof(struct real), sizeof(struct our))
#define FIELD2(real, rf, our, of)                                                                      \
	printf("%s.%s %zu %zu %zu %zu\n", #real, #rf, offsetof(struct real, rf),                       \
	       offsetof(struct our, of), sizeof(((struct real *)0)->rf), sizeof(((struct our *)0)->of))
#define FIELD(real, our, f) FIELD2(real, f, our, f)
#define VALUE(real, our) printf("%s %lld %lld\n", #real, (long long)(real), (long long)(our))

static void contexts(void)
{
	FIELD(ibv_context, tv_context, device);
	FIELD2(ibv_context, ops.poll_cq, tv_context, ops.poll_cq);
	FIELD2(ibv_context, ops.req_notify_cq, tv_context, ops.req_notify_cq);
	FIELD2(ibv_context, ops.post_send, tv_context, ops.post_send);
	FIELD(ibv_context, tv_context, cmd_fd);
	FIELD(ibv_context, tv_context, async_fd);
	FIELD(ibv_context, tv_context, num_comp_vectors);
	SIZE(ibv_context_ops, tv_ops);
	SIZE(ibv_device_attr, tv_device_attr);
	FIELD(ibv_device_attr, tv_device_attr, fw_ver);
	FIELD(ibv_device_attr, tv_device_attr, node_guid);
	FIELD(ibv_device_attr, tv_device_attr, max_mr_size);
	FIELD(ibv_device_attr, tv_device_attr, vendor_id);
	FIELD(ibv_device_attr, tv_device_attr, max_qp);
	FIELD(ibv_device_attr, tv_device_attr, max_qp_wr);
	FIELD(ibv_device_attr, tv_device_attr, max_sge);
	FIELD(ibv_device_attr, tv_device_attr, max_cq);
	FIELD(ibv_device_attr, tv_device_attr, max_cqe);
	FIELD(ibv_device_attr, tv_device_attr, max_mr);
	FIELD(ibv_device_attr, tv_device_attr, max_pd);
	FIELD(ibv_device_attr, tv_device_attr, max_qp_rd_atom);
	FIELD(ibv_device_attr, tv_device_attr, max_qp_init_rd_atom);
	FIELD(ibv_device_attr, tv_device_attr, max_pkeys);
	FIELD(ibv_device_attr, tv_device_attr, local_ca_ack_delay);
	FIELD(ibv_device_attr, tv_device_attr, phys_port_cnt);
	FIELD(ibv_port_attr, tv_port_attr, state);
	FIELD(ibv_port_attr, tv_port_attr, max_mtu);
	FIELD(ibv_port_attr, tv_port_attr, active_mtu);
	FIELD(ibv_port_attr, tv_port_attr, gid_tbl_len);
	FIELD(ibv_port_attr, tv_port_attr, max_msg_sz);
	FIELD(ibv_port_attr, tv_port_attr, pkey_tbl_len);
	FIELD(ibv_port_attr, tv_port_attr, lid);
	FIELD(ibv_port_attr, tv_port_attr, sm_lid);
	FIELD(ibv_port_attr, tv_port_attr, active_width);
	FIELD(ibv_port_attr, tv_port_attr, active_speed);
	FIELD(ibv_port_attr, tv_port_attr, link_layer);
	FIELD(ibv_port_attr, tv_port_attr, flags);
	SIZE(ibv_gid_entry, tv_gid_entry);
	FIELD(ibv_gid_entry, tv_gid_entry, gid);
	FIELD(ibv_gid_entry, tv_gid_entry, gid_index);
	FIELD(ibv_gid_entry, tv_gid_entry, port_num);
	FIELD(ibv_gid_entry, tv_gid_entry, gid_type);
	FIELD(ibv_gid_entry, tv_gid_entry, ndev_ifindex);
	SIZE(ibv_async_event, tv_event);
	FIELD(ibv_async_event, tv_event, element.qp);
	FIELD(ibv_async_event, tv_event, element.port_num);
	FIELD(ibv_async_event, tv_event, event_type);
}

static void objects(void)
{
	FIELD(ibv_pd, tv_pd, context);
	FIELD(ibv_mr, tv_mr, context);
	FIELD(ibv_mr, tv_mr, pd);
	FIELD(ibv_mr, tv_mr, lkey);
	FIELD(ibv_mr, tv_mr, rkey);
	FIELD(ibv_comp_channel, tv_channel, context);
	FIELD(ibv_comp_channel, tv_channel, fd);
	FIELD(ibv_cq, tv_cq, context);
	FIELD(ibv_cq, tv_cq, channel);
	FIELD(ibv_cq, tv_cq, cqe);
	FIELD(ibv_qp, tv_qp, context);
	FIELD(ibv_qp, tv_qp, pd);
	FIELD(ibv_qp, tv_qp, send_cq);
	FIELD(ibv_qp, tv_qp, qp_num);
	FIELD(ibv_qp, tv_qp, qp_type);
}

static void attributes(void)
{
	SIZE(ibv_qp_init_attr, tv_qp_init_attr);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, send_cq);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, recv_cq);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, cap.max_send_wr);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, cap.max_send_sge);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, cap.max_inline_data);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, qp_type);
	FIELD(ibv_qp_init_attr, tv_qp_init_attr, sq_sig_all);
	SIZE(ibv_qp_attr, tv_qp_attr);
	FIELD(ibv_qp_attr, tv_qp_attr, qp_state);
	FIELD(ibv_qp_attr, tv_qp_attr, path_mtu);
	FIELD(ibv_qp_attr, tv_qp_attr, rq_psn);
	FIELD(ibv_qp_attr, tv_qp_attr, sq_psn);
	FIELD(ibv_qp_attr, tv_qp_attr, dest_qp_num);
	FIELD(ibv_qp_attr, tv_qp_attr, qp_access_flags);
	FIELD(ibv_qp_attr, tv_qp_attr, ah_attr);
	FIELD2(ibv_qp_attr, ah_attr.grh.dgid, tv_qp_attr, ah_attr.dgid);
	FIELD2(ibv_qp_attr, ah_attr.grh.flow_label, tv_qp_attr, ah_attr.flow_label);
	FIELD2(ibv_qp_attr, ah_attr.grh.sgid_index, tv_qp_attr, ah_attr.sgid_index);
	FIELD2(ibv_qp_attr, ah_attr.grh.hop_limit, tv_qp_attr, ah_attr.hop_limit);
	FIELD2(ibv_qp_attr, ah_attr.grh.traffic_class, tv_qp_attr, ah_attr.traffic_class);
	FIELD(ibv_qp_attr, tv_qp_attr, ah_attr.dlid);
	FIELD(ibv_qp_attr, tv_qp_attr, ah_attr.sl);
	FIELD(ibv_qp_attr, tv_qp_attr, ah_attr.is_global);
	FIELD(ibv_qp_attr, tv_qp_attr, ah_attr.port_num);
	FIELD(ibv_qp_attr, tv_qp_attr, pkey_index);
	FIELD(ibv_qp_attr, tv_qp_attr, max_rd_atomic);
	FIELD(ibv_qp_attr, tv_qp_attr, max_dest_rd_atomic);
	FIELD(ibv_qp_attr, tv_qp_attr, min_rnr_timer);
	FIELD(ibv_qp_attr, tv_qp_attr, port_num);
	FIELD(ibv_qp_attr, tv_qp_attr, timeout);
	FIELD(ibv_qp_attr, tv_qp_attr, retry_cnt);
	FIELD(ibv_qp_attr, tv_qp_attr, rnr_retry);
	SIZE(ibv_sge, tv_sge);
	FIELD(ibv_sge, tv_sge, addr);
	FIELD(ibv_sge, tv_sge, length);
	FIELD(ibv_sge, tv_sge, lkey);
	SIZE(ibv_send_wr, tv_send_wr);
	FIELD(ibv_send_wr, tv_send_wr, wr_id);
	FIELD(ibv_send_wr, tv_send_wr, next);
	FIELD(ibv_send_wr, tv_send_wr, sg_list);
	FIELD(ibv_send_wr, tv_send_wr, num_sge);
	FIELD(ibv_send_wr, tv_send_wr, opcode);
	FIELD(ibv_send_wr, tv_send_wr, send_flags);
	FIELD2(ibv_send_wr, wr.rdma.remote_addr, tv_send_wr, remote_addr);
	FIELD2(ibv_send_wr, wr.rdma.rkey, tv_send_wr, rkey);
	SIZE(ibv_wc, tv_wc);
	FIELD(ibv_wc, tv_wc, wr_id);
	FIELD(ibv_wc, tv_wc, status);
	FIELD(ibv_wc, tv_wc, vendor_err);
	FIELD(ibv_wc, tv_wc, qp_num);
}

static void values(void)
{
	VALUE(IBV_QPT_RC, TV_QPT_RC);
	VALUE(IBV_QPS_RESET, TV_QPS_RESET);
	VALUE(IBV_QPS_INIT, TV_QPS_INIT);
	VALUE(IBV_QPS_RTR, TV_QPS_RTR);
	VALUE(IBV_QPS_RTS, TV_QPS_RTS);
	VALUE(IBV_QPS_ERR, TV_QPS_ERR);
	VALUE(IBV_QP_STATE, TV_QP_STATE);
	VALUE(IBV_QP_ACCESS_FLAGS, TV_QP_ACCESS_FLAGS);
	VALUE(IBV_QP_PKEY_INDEX, TV_QP_PKEY_INDEX);
	VALUE(IBV_QP_PORT, TV_QP_PORT);
	VALUE(IBV_QP_AV, TV_QP_AV);
	VALUE(IBV_QP_PATH_MTU, TV_QP_PATH_MTU);
	VALUE(IBV_QP_TIMEOUT, TV_QP_TIMEOUT);
	VALUE(IBV_QP_RETRY_CNT, TV_QP_RETRY_CNT);
	VALUE(IBV_QP_RNR_RETRY, TV_QP_RNR_RETRY);
	VALUE(IBV_QP_RQ_PSN, TV_QP_RQ_PSN);
	VALUE(IBV_QP_MAX_QP_RD_ATOMIC, TV_QP_MAX_QP_RD_ATOMIC);
	VALUE(IBV_QP_MIN_RNR_TIMER, TV_QP_MIN_RNR_TIMER);
	VALUE(IBV_QP_SQ_PSN, TV_QP_SQ_PSN);
	VALUE(IBV_QP_MAX_DEST_RD_ATOMIC, TV_QP_MAX_DEST_RD_ATOMIC);
	VALUE(IBV_QP_DEST_QPN, TV_QP_DEST_QPN);
	VALUE(IBV_SEND_SIGNALED, TV_SEND_SIGNALED);
	VALUE(IBV_SEND_INLINE, TV_SEND_INLINE);
	VALUE(IBV_WR_RDMA_WRITE, TV_WR_RDMA_WRITE);
	VALUE(IBV_WR_RDMA_READ, TV_WR_RDMA_READ);
	VALUE(IBV_ACCESS_LOCAL_WRITE, TV_ACCESS_LOCAL_WRITE);
	VALUE(IBV_ACCESS_REMOTE_WRITE, TV_ACCESS_REMOTE_WRITE);
	VALUE(IBV_ACCESS_REMOTE_READ, TV_ACCESS_REMOTE_READ);
}

/* The words of types.go: "name real", compared in Go. */
#define WORD(real) printf("%s %lld\n", #real, (long long)(real))
static void words(void)
{
	WORD(IBV_LINK_LAYER_INFINIBAND);
	WORD(IBV_LINK_LAYER_ETHERNET);
	WORD(IBV_PORT_DOWN);
	WORD(IBV_PORT_INIT);
	WORD(IBV_PORT_ARMED);
	WORD(IBV_PORT_ACTIVE);
	WORD(IBV_MTU_256);
	WORD(IBV_MTU_4096);
	WORD(IBV_GID_TYPE_IB);
	WORD(IBV_GID_TYPE_ROCE_V1);
	WORD(IBV_GID_TYPE_ROCE_V2);
	WORD(IBV_WC_SUCCESS);
	WORD(IBV_WC_LOC_LEN_ERR);
	WORD(IBV_WC_LOC_QP_OP_ERR);
	WORD(IBV_WC_LOC_PROT_ERR);
	WORD(IBV_WC_WR_FLUSH_ERR);
	WORD(IBV_WC_BAD_RESP_ERR);
	WORD(IBV_WC_LOC_ACCESS_ERR);
	WORD(IBV_WC_REM_INV_REQ_ERR);
	WORD(IBV_WC_REM_ACCESS_ERR);
	WORD(IBV_WC_REM_OP_ERR);
	WORD(IBV_WC_RETRY_EXC_ERR);
	WORD(IBV_WC_RNR_RETRY_EXC_ERR);
	WORD(IBV_WC_REM_ABORT_ERR);
	WORD(IBV_WC_FATAL_ERR);
	WORD(IBV_WC_RESP_TIMEOUT_ERR);
	WORD(IBV_WC_GENERAL_ERR);
	WORD(IBV_EVENT_CQ_ERR);
	WORD(IBV_EVENT_QP_FATAL);
	WORD(IBV_EVENT_QP_REQ_ERR);
	WORD(IBV_EVENT_QP_ACCESS_ERR);
	WORD(IBV_EVENT_COMM_EST);
	WORD(IBV_EVENT_SQ_DRAINED);
	WORD(IBV_EVENT_PATH_MIG);
	WORD(IBV_EVENT_PATH_MIG_ERR);
	WORD(IBV_EVENT_DEVICE_FATAL);
	WORD(IBV_EVENT_PORT_ACTIVE);
	WORD(IBV_EVENT_PORT_ERR);
	WORD(IBV_EVENT_LID_CHANGE);
	WORD(IBV_EVENT_PKEY_CHANGE);
	WORD(IBV_EVENT_SM_CHANGE);
	WORD(IBV_EVENT_QP_LAST_WQE_REACHED);
	WORD(IBV_EVENT_CLIENT_REREGISTER);
	WORD(IBV_EVENT_GID_CHANGE);
}

/*
 * Never called: the compiler compares the prototypes of abi.h's table with the header's.
 * The header's macros stand before some names.
 */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
__attribute__((unused)) static void calls(struct ibv_context *ctx)
{
	struct ibv_device **(*list)(int *) = ibv_get_device_list;
	void (*free_list)(struct ibv_device **) = ibv_free_device_list;
	const char *(*name)(struct ibv_device *) = ibv_get_device_name;
	struct ibv_context *(*open)(struct ibv_device *) = ibv_open_device;
	int (*close)(struct ibv_context *) = ibv_close_device;
	int (*device)(struct ibv_context *, struct ibv_device_attr *) = ibv_query_device;
	int (*port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *) = ibv_query_port;
	int (*gid)(struct ibv_context *, uint8_t, int, union ibv_gid *) = ibv_query_gid;
	int (*pkey)(struct ibv_context *, uint8_t, int, uint16_t *) = ibv_query_pkey;
	struct ibv_pd *(*alloc)(struct ibv_context *) = ibv_alloc_pd;
	int (*dealloc)(struct ibv_pd *) = ibv_dealloc_pd;
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) = ibv_reg_mr;
	struct ibv_mr *(*iova)(struct ibv_pd *, void *, size_t, uint64_t, int) = ibv_reg_mr_iova;
	struct ibv_mr *(*dmabuf)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = ibv_reg_dmabuf_mr;
	int (*dereg)(struct ibv_mr *) = ibv_dereg_mr;
	struct ibv_comp_channel *(*channel)(struct ibv_context *) = ibv_create_comp_channel;
	int (*no_channel)(struct ibv_comp_channel *) = ibv_destroy_comp_channel;
	struct ibv_cq *(*make_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int) = ibv_create_cq;
	int (*no_cq)(struct ibv_cq *) = ibv_destroy_cq;
	int (*cq_event)(struct ibv_comp_channel *, struct ibv_cq **, void **) = ibv_get_cq_event;
	void (*ack_cq)(struct ibv_cq *, unsigned) = ibv_ack_cq_events;
	struct ibv_qp *(*make_qp)(struct ibv_pd *, struct ibv_qp_init_attr *) = ibv_create_qp;
	int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int) = ibv_modify_qp;
	int (*query)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *) = ibv_query_qp;
	int (*no_qp)(struct ibv_qp *) = ibv_destroy_qp;
	int (*event)(struct ibv_context *, struct ibv_async_event *) = ibv_get_async_event;
	void (*ack)(struct ibv_async_event *) = ibv_ack_async_event;
	ssize_t (*table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t) = _ibv_query_gid_table;
	int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **) = ctx->ops.post_send;
	int (*poll)(struct ibv_cq *, int, struct ibv_wc *) = ctx->ops.poll_cq;
	int (*notify)(struct ibv_cq *, int) = ctx->ops.req_notify_cq;
	(void)list, (void)free_list, (void)name, (void)open, (void)close, (void)device, (void)port, (void)gid;
	(void)pkey, (void)alloc, (void)dealloc, (void)reg, (void)iova, (void)dmabuf, (void)dereg;
	(void)channel, (void)no_channel, (void)make_cq, (void)no_cq, (void)cq_event, (void)ack_cq, (void)make_qp;
	(void)modify, (void)query, (void)no_qp, (void)event, (void)ack, (void)table, (void)post, (void)poll;
	(void)notify, (void)ibv_get_device_guid((struct ibv_device *)0);
}

int main(void)
{
	contexts();
	objects();
	attributes();
	values();
	words();
	return 0;
}
