// The part of the CUDA driver API that is used, in our own words: no CUDA header is
// needed to build. Numbers and signatures are those of the public documentation of
// the driver API; docs/gpu.md lists them.
#ifndef TOPOCTL_CUDA_API_H
#define TOPOCTL_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

// tc_lib holds the functions that were found.
typedef struct tc_lib tc_lib;

// tc_find gives the address of a function, or NULL.
typedef void *(*tc_find)(void *from, const char *name);

// tc_piece is one copy between the device's memory and the host's.
typedef struct {
	uint64_t device;
	uint64_t host;
	uint64_t bytes;
} tc_piece;

typedef struct {
	uint64_t start;
	uint64_t bytes;
	uint32_t type;    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	uint32_t managed; // CU_POINTER_ATTRIBUTE_IS_MANAGED
	int32_t ordinal;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
} tc_pointer;

// tc_opened is a library, or why it could not be opened: error is a text that the caller frees,
// missing a function that the library lacks. All NULL: no memory.
typedef struct {
	tc_lib *lib;
	char *error;
	const char *missing;
} tc_opened;

// tc_open loads a library by name.
tc_opened tc_open(const char *name);
// tc_loaded says whether the process has the library.
int tc_loaded(void);
// tc_bind takes functions from somewhere else.
tc_opened tc_bind(tc_find find, void *from);
int tc_can_export(tc_lib *l);
int tc_can_flush(tc_lib *l);

// All others give a CUresult. Those with a context make it current for their time
// on this thread, and put back what was current before.
int tc_init(tc_lib *l);
int tc_count(tc_lib *l, int *count);
int tc_device(tc_lib *l, int ordinal, int *device);
int tc_name(tc_lib *l, int device, char *text, int size);
int tc_pci(tc_lib *l, int device, char *text, int size);
int tc_uuid(tc_lib *l, int device, unsigned char uuid[16]);
int tc_total(tc_lib *l, int device, size_t *bytes);
int tc_attribute(tc_lib *l, int device, int attribute, int *value);
int tc_retain(tc_lib *l, int device, uintptr_t *ctx);
int tc_release(tc_lib *l, int device);
int tc_alloc(tc_lib *l, uintptr_t ctx, size_t bytes, uint64_t *address);
int tc_free(tc_lib *l, uintptr_t ctx, uint64_t address);
int tc_pin(tc_lib *l, uintptr_t ctx, uintptr_t address, size_t bytes);
int tc_unpin(tc_lib *l, uintptr_t ctx, uintptr_t address);
int tc_stream(tc_lib *l, uintptr_t ctx, uintptr_t *stream);
int tc_stream_end(tc_lib *l, uintptr_t ctx, uintptr_t stream);
int tc_event(tc_lib *l, uintptr_t ctx, uintptr_t *event);
int tc_event_end(tc_lib *l, uintptr_t ctx, uintptr_t event);
int tc_event_wait(tc_lib *l, uintptr_t ctx, uintptr_t event);
// tc_copy queues the copies on the stream and the event behind them. The event is
// recorded although a copy fails: what was queued before that still runs. recorded
// says whether it was.
int tc_copy(tc_lib *l, uintptr_t ctx, uintptr_t stream, uintptr_t event, int to_host,
	const tc_piece *pieces, int count, int *recorded);
// tc_copy_peer queues the same copy between the memory of two GPUs so many times, and the
// event behind them.
int tc_copy_peer(tc_lib *l, uintptr_t ctx, uintptr_t stream, uintptr_t event, uint64_t to, uintptr_t to_ctx, uint64_t from,
	uintptr_t from_ctx, size_t bytes, int times, int *recorded);
// tc_timer makes an event that takes the time, tc_record records one, tc_elapsed gives
// the milliseconds between two that are over.
int tc_timer(tc_lib *l, uintptr_t ctx, uintptr_t *event);
int tc_record(tc_lib *l, uintptr_t ctx, uintptr_t stream, uintptr_t event);
int tc_elapsed(tc_lib *l, uintptr_t ctx, uintptr_t from, uintptr_t to, float *ms);
int tc_can_access_peer(tc_lib *l, int device, int peer, int *can);
int tc_enable_peer(tc_lib *l, uintptr_t ctx, uintptr_t peer);
int tc_disable_peer(tc_lib *l, uintptr_t ctx, uintptr_t peer);
int tc_pointer_of(tc_lib *l, uint64_t address, tc_pointer *p);
int tc_sync_memops(tc_lib *l, uintptr_t ctx, uint64_t address);
int tc_export(tc_lib *l, uintptr_t ctx, uint64_t address, size_t bytes, int *fd);
int tc_flush(tc_lib *l, uintptr_t ctx);
const char *tc_error_name(tc_lib *l, int code);
const char *tc_error_text(tc_lib *l, int code);

#endif
