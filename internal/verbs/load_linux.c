//go:build cgo && linux && (amd64 || arm64)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

static const struct {
	const char *name, *version;
	size_t at; /* in struct tv_lib */
	int optional;
} symbols[] = {
#define NEED(field, name, version) {name, version, offsetof(struct tv_lib, field), 0}
#define MAY(field, name, version) {name, version, offsetof(struct tv_lib, field), 1}
	NEED(get_device_list, "ibv_get_device_list", "IBVERBS_1.1"),
	NEED(free_device_list, "ibv_free_device_list", "IBVERBS_1.1"),
	NEED(get_device_name, "ibv_get_device_name", "IBVERBS_1.1"),
	NEED(get_device_guid, "ibv_get_device_guid", "IBVERBS_1.1"),
	NEED(open_device, "ibv_open_device", "IBVERBS_1.1"),
	NEED(close_device, "ibv_close_device", "IBVERBS_1.1"),
	NEED(query_device, "ibv_query_device", "IBVERBS_1.1"),
	NEED(query_port, "ibv_query_port", "IBVERBS_1.1"),
	NEED(query_gid, "ibv_query_gid", "IBVERBS_1.1"),
	NEED(query_pkey, "ibv_query_pkey", "IBVERBS_1.1"),
	NEED(alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1"),
	NEED(dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1"),
	NEED(reg_mr, "ibv_reg_mr", "IBVERBS_1.1"),
	NEED(dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1"),
	NEED(create_channel, "ibv_create_comp_channel", "IBVERBS_1.0"),
	NEED(destroy_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0"),
	NEED(create_cq, "ibv_create_cq", "IBVERBS_1.1"),
	NEED(destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1"),
	NEED(get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1"),
	NEED(ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1"),
	NEED(create_qp, "ibv_create_qp", "IBVERBS_1.1"),
	NEED(modify_qp, "ibv_modify_qp", "IBVERBS_1.1"),
	NEED(query_qp, "ibv_query_qp", "IBVERBS_1.1"),
	NEED(destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1"),
	NEED(get_async_event, "ibv_get_async_event", "IBVERBS_1.1"),
	NEED(ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1"),
	MAY(reg_mr_iova, "ibv_reg_mr_iova", "IBVERBS_1.7"),
	MAY(query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11"),
	MAY(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"),
};

static struct tv_device **list_real(void *owner, int *n)
{
	return ((struct tv_lib *)owner)->get_device_list(n);
}

/*
 * The library is never unloaded: its providers start no threads of ours, but they may keep
 * handlers of theirs.
 */
const char *tv_load(struct tv_lib *lib, char *text, size_t len)
{
	void *dl = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		snprintf(text, len, "%s", dlerror());
		return text;
	}
	memset(lib, 0, sizeof *lib);
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlvsym(dl, symbols[i].name, symbols[i].version);
		if (!f && !symbols[i].optional) {
			snprintf(text, len, "libibverbs.so.1 has no %s@%s", symbols[i].name,
				 symbols[i].version);
			dlclose(dl);
			return text;
		}
		memcpy((char *)lib + symbols[i].at, &f, sizeof f);
	}
	lib->owner = lib;
	lib->list = list_real;
	return NULL;
}
