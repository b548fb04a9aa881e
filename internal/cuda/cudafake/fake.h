// A stand-in for libcuda.so.1: GPUs whose memory no processor can touch.
#ifndef TOPOCTL_CUDAFAKE_H
#define TOPOCTL_CUDAFAKE_H

#include <stdint.h>

typedef struct {
	int devices;
	int dmabuf;       // attribute, and whether export works
	int gpudirect;
	int flush;        // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
	int old;          // lacks what came with CUDA 11.3 and 11.7
	int64_t delay_ns; // of each copy on a stream
	int64_t memory;   // bytes of each GPU
	int64_t pinnable; // bytes that may be registered
	int no_peer;      // GPUs cannot reach each other
	int spoil;        // copies change a byte
	// Bytes per second of copies, for what timers tell; 0: they take no time. from_host,
	// to_host, between GPUs directly, and through memory of the host.
	double from_host, to_host, peer, staged;
	double copy_seconds; // that each copy takes beside
} fake_options;

typedef struct {
	int64_t allocations, allocated_bytes;
	int64_t pinned, pinned_bytes;
	int64_t streams, events, contexts;
	int64_t copies, copied_bytes, unpinned_copies, flushes;
	int64_t most_queued; // copies that were queued at a time
} fake_stats;

void fake_reset(fake_options o);
fake_stats fake_count(void);
// cudafake_fail has a function give a code, after so many calls that work, so many times
// (-1: for ever). "copy" is a copy when it runs.
void cudafake_fail(const char *function, int code, int after, int times);
// fake_lose breaks a GPU's context: all calls in it fail from now on.
void fake_lose(int device, int code);
// fake_hold keeps streams from running, or lets them go on.
void fake_hold(int on);
// fake_peek and fake_poke reach device memory from behind; 0: it is none.
int fake_peek(uint64_t address, void *to, uint64_t bytes);
int fake_poke(uint64_t address, const void *from, uint64_t bytes);
int fake_depth(void);
void *fake_find(void *from, const char *name);

#endif
