//go:build cgo && linux

#define _GNU_SOURCE // dl_iterate_phdr
#include "api.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

// Values of the driver API.
enum {
	POINTER_MEMORY_TYPE = 2,
	POINTER_SYNC_MEMOPS = 6,
	POINTER_IS_MANAGED = 8,
	POINTER_DEVICE_ORDINAL = 9,
	POINTER_RANGE_START = 11,
	POINTER_RANGE_SIZE = 12,

	STREAM_NON_BLOCKING = 1,
	EVENT_BLOCKING_SYNC = 1,
	EVENT_DISABLE_TIMING = 2,
	HOST_REGISTER_PORTABLE = 1,
	HANDLE_DMA_BUF_FD = 1,
	FLUSH_CURRENT_CTX = 0,
	FLUSH_TO_OWNER = 100,
	NOT_SUPPORTED = 801,
};

struct tc_lib {
	int (*Init)(unsigned);
	int (*DeviceGetCount)(int *);
	int (*DeviceGet)(int *, int);
	int (*DeviceGetName)(char *, int, int);
	int (*DeviceGetPCIBusId)(char *, int, int);
	int (*DeviceGetUuid)(unsigned char *, int);
	int (*DeviceTotalMem)(size_t *, int);
	int (*DeviceGetAttribute)(int *, int, int);
	int (*PrimaryCtxRetain)(void **, int);
	int (*PrimaryCtxRelease)(int);
	int (*CtxPushCurrent)(void *);
	int (*CtxPopCurrent)(void **);
	int (*MemAlloc)(uint64_t *, size_t);
	int (*MemFree)(uint64_t);
	int (*MemHostRegister)(void *, size_t, unsigned);
	int (*MemHostUnregister)(void *);
	int (*StreamCreate)(void **, unsigned);
	int (*StreamDestroy)(void *);
	int (*EventCreate)(void **, unsigned);
	int (*EventDestroy)(void *);
	int (*EventRecord)(void *, void *);
	int (*EventSynchronize)(void *);
	int (*MemcpyHtoDAsync)(uint64_t, const void *, size_t, void *);
	int (*MemcpyDtoHAsync)(void *, uint64_t, size_t, void *);
	int (*MemcpyPeerAsync)(uint64_t, void *, uint64_t, void *, size_t, void *);
	int (*EventElapsedTime)(float *, void *, void *);
	int (*DeviceCanAccessPeer)(int *, int, int);
	int (*CtxEnablePeerAccess)(void *, unsigned);
	int (*CtxDisablePeerAccess)(void *);
	int (*PointerGetAttribute)(void *, int, uint64_t);
	int (*PointerSetAttribute)(const void *, int, uint64_t);
	int (*GetErrorName)(int, const char **);
	int (*GetErrorString)(int, const char **);
	// Since CUDA 11.7 and 11.3.
	int (*MemGetHandleForAddressRange)(void *, uint64_t, size_t, int, unsigned long long);
	int (*FlushGPUDirectRDMAWrites)(int, int);
};

// Where each function goes, and under which name it has been since CUDA 4 to 7:
// the suffix is the version of the ABI.
static const struct {
	size_t at;
	const char *name;
	int optional;
} functions[] = {
#define NEED(field, name) {offsetof(struct tc_lib, field), name, 0}
#define HAVE(field, name) {offsetof(struct tc_lib, field), name, 1}
	NEED(Init, "cuInit"),
	NEED(DeviceGetCount, "cuDeviceGetCount"),
	NEED(DeviceGet, "cuDeviceGet"),
	NEED(DeviceGetName, "cuDeviceGetName"),
	NEED(DeviceGetPCIBusId, "cuDeviceGetPCIBusId"),
	HAVE(DeviceGetUuid, "cuDeviceGetUuid"),
	HAVE(DeviceGetUuid, "cuDeviceGetUuid_v2"), // the later one wins: it tells MIG instances apart
	NEED(DeviceTotalMem, "cuDeviceTotalMem_v2"),
	NEED(DeviceGetAttribute, "cuDeviceGetAttribute"),
	NEED(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
	HAVE(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease"),
	HAVE(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"),
	NEED(CtxPushCurrent, "cuCtxPushCurrent_v2"),
	NEED(CtxPopCurrent, "cuCtxPopCurrent_v2"),
	NEED(MemAlloc, "cuMemAlloc_v2"),
	NEED(MemFree, "cuMemFree_v2"),
	NEED(MemHostRegister, "cuMemHostRegister_v2"),
	NEED(MemHostUnregister, "cuMemHostUnregister"),
	NEED(StreamCreate, "cuStreamCreate"),
	NEED(StreamDestroy, "cuStreamDestroy_v2"),
	NEED(EventCreate, "cuEventCreate"),
	NEED(EventDestroy, "cuEventDestroy_v2"),
	NEED(EventRecord, "cuEventRecord"),
	NEED(EventSynchronize, "cuEventSynchronize"),
	NEED(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"),
	NEED(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2"),
	NEED(MemcpyPeerAsync, "cuMemcpyPeerAsync"),
	NEED(EventElapsedTime, "cuEventElapsedTime"),
	NEED(DeviceCanAccessPeer, "cuDeviceCanAccessPeer"),
	NEED(CtxEnablePeerAccess, "cuCtxEnablePeerAccess"),
	NEED(CtxDisablePeerAccess, "cuCtxDisablePeerAccess"),
	NEED(PointerGetAttribute, "cuPointerGetAttribute"),
	NEED(PointerSetAttribute, "cuPointerSetAttribute"),
	NEED(GetErrorName, "cuGetErrorName"),
	NEED(GetErrorString, "cuGetErrorString"),
	HAVE(MemGetHandleForAddressRange, "cuMemGetHandleForAddressRange"),
	HAVE(FlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites"),
};

static void *in_library(void *library, const char *name) { return dlsym(library, name); }

tc_opened tc_open(const char *name) {
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *why = dlerror();
		return (tc_opened){.error = strdup(why ? why : "dlopen failed")};
	}
	// The library stays: the driver does not like to be unloaded.
	return tc_bind(in_library, library);
}

static int is_cuda(struct dl_phdr_info *library, size_t size, void *unused) {
	return library->dlpi_name && strstr(library->dlpi_name, "/libcuda.so");
}

int tc_loaded(void) { return dl_iterate_phdr(is_cuda, NULL); }

tc_opened tc_bind(tc_find find, void *from) {
	tc_lib *l = calloc(1, sizeof *l);
	if (!l) return (tc_opened){0};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *f = find(from, functions[i].name);
		if (f) {
			memcpy((char *)l + functions[i].at, &f, sizeof f);
		} else if (!functions[i].optional) {
			free(l);
			return (tc_opened){.missing = functions[i].name};
		}
	}
	return (tc_opened){.lib = l};
}

int tc_can_export(tc_lib *l) { return l->MemGetHandleForAddressRange != NULL; }
int tc_can_flush(tc_lib *l) { return l->FlushGPUDirectRDMAWrites != NULL; }

int tc_init(tc_lib *l) { return l->Init(0); }
int tc_count(tc_lib *l, int *count) { return l->DeviceGetCount(count); }
int tc_device(tc_lib *l, int ordinal, int *device) { return l->DeviceGet(device, ordinal); }
int tc_name(tc_lib *l, int device, char *text, int size) { return l->DeviceGetName(text, size, device); }
int tc_pci(tc_lib *l, int device, char *text, int size) { return l->DeviceGetPCIBusId(text, size, device); }
int tc_uuid(tc_lib *l, int device, unsigned char uuid[16]) {
	return l->DeviceGetUuid ? l->DeviceGetUuid(uuid, device) : NOT_SUPPORTED;
}
int tc_total(tc_lib *l, int device, size_t *bytes) { return l->DeviceTotalMem(bytes, device); }
int tc_attribute(tc_lib *l, int device, int attribute, int *value) {
	return l->DeviceGetAttribute(value, attribute, device);
}

int tc_retain(tc_lib *l, int device, uintptr_t *ctx) {
	void *got = NULL;
	int r = l->PrimaryCtxRetain(&got, device);
	*ctx = (uintptr_t)got;
	return r;
}

int tc_release(tc_lib *l, int device) {
	return l->PrimaryCtxRelease ? l->PrimaryCtxRelease(device) : NOT_SUPPORTED;
}

// IN runs a call with the context current.
#define IN(l, ctx, call)                                  \
	do {                                                  \
		int r_ = (l)->CtxPushCurrent((void *)(ctx));      \
		if (r_) return r_;                                \
		r_ = (call);                                      \
		void *was_;                                       \
		int p_ = (l)->CtxPopCurrent(&was_);               \
		return r_ ? r_ : p_;                              \
	} while (0)

int tc_alloc(tc_lib *l, uintptr_t ctx, size_t bytes, uint64_t *address) { IN(l, ctx, l->MemAlloc(address, bytes)); }
int tc_free(tc_lib *l, uintptr_t ctx, uint64_t address) { IN(l, ctx, l->MemFree(address)); }
int tc_pin(tc_lib *l, uintptr_t ctx, uintptr_t address, size_t bytes) {
	IN(l, ctx, l->MemHostRegister((void *)address, bytes, HOST_REGISTER_PORTABLE));
}
int tc_unpin(tc_lib *l, uintptr_t ctx, uintptr_t address) { IN(l, ctx, l->MemHostUnregister((void *)address)); }

int tc_stream(tc_lib *l, uintptr_t ctx, uintptr_t *stream) {
	IN(l, ctx, l->StreamCreate((void **)stream, STREAM_NON_BLOCKING));
}
int tc_stream_end(tc_lib *l, uintptr_t ctx, uintptr_t stream) { IN(l, ctx, l->StreamDestroy((void *)stream)); }
int tc_event(tc_lib *l, uintptr_t ctx, uintptr_t *event) {
	IN(l, ctx, l->EventCreate((void **)event, EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING));
}
int tc_event_end(tc_lib *l, uintptr_t ctx, uintptr_t event) { IN(l, ctx, l->EventDestroy((void *)event)); }
int tc_event_wait(tc_lib *l, uintptr_t ctx, uintptr_t event) { IN(l, ctx, l->EventSynchronize((void *)event)); }

static int copy_all(tc_lib *l, void *stream, void *event, int to_host, const tc_piece *p, int count, int *recorded) {
	int r = 0;
	for (int i = 0; i < count && !r; i++) {
		if (to_host)
			r = l->MemcpyDtoHAsync((void *)(uintptr_t)p[i].host, p[i].device, p[i].bytes, stream);
		else
			r = l->MemcpyHtoDAsync(p[i].device, (const void *)(uintptr_t)p[i].host, p[i].bytes, stream);
	}
	int e = l->EventRecord(event, stream);
	*recorded = e == 0;
	return r ? r : e;
}

int tc_copy(tc_lib *l, uintptr_t ctx, uintptr_t stream, uintptr_t event, int to_host, const tc_piece *pieces, int count,
	int *recorded) {
	*recorded = 0;
	IN(l, ctx, copy_all(l, (void *)stream, (void *)event, to_host, pieces, count, recorded));
}

static int copy_peer(tc_lib *l, void *stream, void *event, uint64_t to, void *to_ctx, uint64_t from, void *from_ctx, size_t bytes,
	int times, int *recorded) {
	int r = 0;
	for (int i = 0; i < times && !r; i++) r = l->MemcpyPeerAsync(to, to_ctx, from, from_ctx, bytes, stream);
	int e = l->EventRecord(event, stream);
	*recorded = e == 0;
	return r ? r : e;
}

int tc_copy_peer(tc_lib *l, uintptr_t ctx, uintptr_t stream, uintptr_t event, uint64_t to, uintptr_t to_ctx, uint64_t from,
	uintptr_t from_ctx, size_t bytes, int times, int *recorded) {
	*recorded = 0;
	IN(l, ctx, copy_peer(l, (void *)stream, (void *)event, to, (void *)to_ctx, from, (void *)from_ctx, bytes, times, recorded));
}

int tc_timer(tc_lib *l, uintptr_t ctx, uintptr_t *event) {
	IN(l, ctx, l->EventCreate((void **)event, EVENT_BLOCKING_SYNC));
}
int tc_record(tc_lib *l, uintptr_t ctx, uintptr_t stream, uintptr_t event) {
	IN(l, ctx, l->EventRecord((void *)event, (void *)stream));
}
int tc_elapsed(tc_lib *l, uintptr_t ctx, uintptr_t from, uintptr_t to, float *ms) {
	IN(l, ctx, l->EventElapsedTime(ms, (void *)from, (void *)to));
}
int tc_can_access_peer(tc_lib *l, int device, int peer, int *can) { return l->DeviceCanAccessPeer(can, device, peer); }
int tc_enable_peer(tc_lib *l, uintptr_t ctx, uintptr_t peer) { IN(l, ctx, l->CtxEnablePeerAccess((void *)peer, 0)); }
int tc_disable_peer(tc_lib *l, uintptr_t ctx, uintptr_t peer) { IN(l, ctx, l->CtxDisablePeerAccess((void *)peer)); }

int tc_pointer_of(tc_lib *l, uint64_t address, tc_pointer *p) {
	size_t bytes = 0;
	int r;
	if ((r = l->PointerGetAttribute(&p->type, POINTER_MEMORY_TYPE, address))) return r;
	if ((r = l->PointerGetAttribute(&p->ordinal, POINTER_DEVICE_ORDINAL, address))) return r;
	if ((r = l->PointerGetAttribute(&p->managed, POINTER_IS_MANAGED, address))) return r;
	if ((r = l->PointerGetAttribute(&p->start, POINTER_RANGE_START, address))) return r;
	if ((r = l->PointerGetAttribute(&bytes, POINTER_RANGE_SIZE, address))) return r;
	p->bytes = bytes;
	return 0;
}

int tc_sync_memops(tc_lib *l, uintptr_t ctx, uint64_t address) {
	unsigned on = 1;
	IN(l, ctx, l->PointerSetAttribute(&on, POINTER_SYNC_MEMOPS, address));
}

int tc_export(tc_lib *l, uintptr_t ctx, uint64_t address, size_t bytes, int *fd) {
	if (!l->MemGetHandleForAddressRange) return NOT_SUPPORTED;
	IN(l, ctx, l->MemGetHandleForAddressRange(fd, address, bytes, HANDLE_DMA_BUF_FD, 0));
}

int tc_flush(tc_lib *l, uintptr_t ctx) {
	if (!l->FlushGPUDirectRDMAWrites) return NOT_SUPPORTED;
	IN(l, ctx, l->FlushGPUDirectRDMAWrites(FLUSH_CURRENT_CTX, FLUSH_TO_OWNER));
}

const char *tc_error_name(tc_lib *l, int code) {
	const char *text = NULL;
	return l->GetErrorName(code, &text) ? NULL : text;
}

const char *tc_error_text(tc_lib *l, int code) {
	const char *text = NULL;
	return l->GetErrorString(code, &text) ? NULL : text;
}
