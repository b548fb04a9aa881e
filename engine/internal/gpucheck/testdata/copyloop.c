// Copies between pinned memory and a GPU in a loop, with the calls of the CUDA driver API that the
// engine uses: what the machine gives to a C program. Needs no CUDA header.
//
//	copyloop ORDINAL BYTES
//
// allocates BYTES on the GPU and on the host. Each line of standard input is
//
//	MODE SIZE QUEUE NODE MILLISECONDS
//
// MODE is h2d, d2h or both (h2d while d2h keeps the other direction busy), QUEUE how many copies
// are queued before it waits for them, NODE the NUMA node of host memory, -1 any. The answer is a
// line with the bytes per second of MODE (of both: h2d's).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLS(X)                                                                     \
	X(cuInit, (unsigned))                                                            \
	X(cuDeviceGet, (int *, int))                                                     \
	X(cuDevicePrimaryCtxRetain, (void **, int))                                      \
	X(cuCtxPushCurrent_v2, (void *))                                                 \
	X(cuMemAlloc_v2, (uint64_t *, size_t))                                           \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned))                              \
	X(cuMemHostUnregister, (void *))                                                 \
	X(cuStreamCreate, (void **, unsigned))                                           \
	X(cuEventCreate, (void **, unsigned))                                            \
	X(cuEventRecord, (void *, void *))                                               \
	X(cuEventSynchronize, (void *))                                                  \
	X(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *))                \
	X(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *))
#define DECLARE(name, args) static int(*name) args;
CALLS(DECLARE)

static void check(int r, const char *what) {
	if (!r) return;
	fprintf(stderr, "copyloop: %s: CUDA error %d\n", what, r);
	exit(1);
}
#define DO(call) check(call, #call)

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static size_t bytes;
static char *host;
static int node = -2;

// place makes host memory of a node, pinned.
static void place(int to) {
	if (to == node) return;
	if (host) {
		DO(cuMemHostUnregister(host));
		munmap(host, bytes);
	}
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (host == MAP_FAILED) check(-1, "mmap");
	madvise(host, bytes, MADV_HUGEPAGE);
	if (to >= 0) {
		unsigned long mask[16] = {0};
		mask[to / 64] = 1ul << to % 64;
		if (syscall(SYS_mbind, host, bytes, 2 /* MPOL_BIND */, mask, 1025, 0)) perror("copyloop: mbind");
	}
	memset(host, 1, bytes);
	DO(cuMemHostRegister_v2(host, bytes, 1));
	node = to;
}

typedef struct {
	int to_host;
	uint64_t device;
	char *host;
	void *stream, *event;
	size_t span, at;
} direction;

static void queue(direction *d, size_t size, int count) {
	for (int i = 0; i < count; i++) {
		if (d->at + size > d->span) d->at = 0;
		if (d->to_host)
			DO(cuMemcpyDtoHAsync_v2(d->host + d->at, d->device + d->at, size, d->stream));
		else
			DO(cuMemcpyHtoDAsync_v2(d->device + d->at, d->host + d->at, size, d->stream));
		d->at += size;
	}
	DO(cuEventRecord(d->event, d->stream));
}

int main(int argc, char **argv) {
	if (argc != 3) return fprintf(stderr, "usage: copyloop ORDINAL BYTES\n"), 2;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) return fprintf(stderr, "copyloop: %s\n", dlerror()), 1;
#define FIND(name, args)                                                        \
	*(void **)&name = dlsym(lib, #name);                                        \
	if (!name) return fprintf(stderr, "copyloop: no " #name "\n"), 1;
	CALLS(FIND)
	int device;
	void *ctx;
	uint64_t memory;
	bytes = strtoull(argv[2], NULL, 0);
	DO(cuInit(0));
	DO(cuDeviceGet(&device, atoi(argv[1])));
	DO(cuDevicePrimaryCtxRetain(&ctx, device));
	DO(cuCtxPushCurrent_v2(ctx));
	DO(cuMemAlloc_v2(&memory, bytes));
	direction d[2] = {{.to_host = 0}, {.to_host = 1}};
	for (int i = 0; i < 2; i++) {
		DO(cuStreamCreate(&d[i].stream, 1));
		DO(cuEventCreate(&d[i].event, 1 | 2)); // sleeps, takes no time
	}
	char mode[8];
	size_t size;
	int deep, on, ms;
	while (scanf("%7s %zu %d %d %d", mode, &size, &deep, &on, &ms) == 5) {
		place(on);
		int both = !strcmp(mode, "both");
		direction *main = &d[!strcmp(mode, "d2h")], *other = &d[1];
		for (int i = 0; i < 2; i++) {
			d[i].span = both ? bytes / 2 : bytes;
			d[i].host = host + (both && i ? bytes / 2 : 0);
			d[i].device = memory + (both && i ? bytes / 2 : 0);
			d[i].at = 0;
		}
		if (size > main->span) return fprintf(stderr, "copyloop: %zu bytes are more than there are\n", size), 1;
		size_t moved = 0;
		if (both) queue(other, size, 2 * deep);
		double begin = now(), end = begin + ms / 1e3;
		while (now() < end) {
			if (both) queue(other, size, deep);
			queue(main, size, deep);
			DO(cuEventSynchronize(main->event));
			moved += size * deep;
		}
		double seconds = now() - begin;
		if (both) DO(cuEventSynchronize(other->event));
		printf("%.0f\n", moved / seconds);
		fflush(stdout);
	}
	return 0;
}
