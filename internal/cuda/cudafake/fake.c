//go:build cgo && linux

#define _GNU_SOURCE
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, LAUNCH_FAILED = 719, PEER_UNSUPPORTED = 217, INVALID_HANDLE = 400, PEER_ENABLED = 704, PEER_NOT_ENABLED = 705, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801,
	MAX_DEVICES = 8, MAX_ALLOCS = 4096, MAX_PINS = 1024, MAX_FAILS = 16, MAX_DEPTH = 8,
};
#define SPACE (64ull << 30)
#define GRAIN (2ull << 20)

typedef struct {
	uint64_t start, bytes;
	char *shadow;
	int fd, device;
} allocation;

typedef struct {
	int device, refs, error;
	unsigned peers; // whose memory it may reach, by bit
} context;

typedef struct event {
	context *ctx;
	uint64_t recorded, over; // numbers of records
	int timing;
	double at; // when it was reached last, on its stream's clock
} event;

typedef struct op {
	struct op *next;
	event *e; // a record, else a copy
	uint64_t number, device, host, bytes;
	int to_host;
	uint64_t from;    // of a copy between GPUs: device memory, 0 it is none
	double takes;     // on the stream's clock
} op;

typedef struct {
	context *ctx;
	op *first, **last;
	int queued, closing;
	double clock; // seconds that copies took
	pthread_t thread;
} stream;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
#ifndef FAKE_RATE // of copies from and to the host, of a library that no test can set it in
#define FAKE_RATE 0
#endif
static fake_options opts = {.devices = 2, .dmabuf = 1, .gpudirect = 1, .flush = 1, .memory = 1ll << 33, .pinnable = 1ll << 33,
	.from_host = FAKE_RATE, .to_host = FAKE_RATE};
static fake_stats stats;
static char *space;
static uint64_t next_address;
static allocation allocs[MAX_ALLOCS];
static struct { uint64_t start, bytes; } pins[MAX_PINS];
static struct { char name[48]; int code, after, times; } fails[MAX_FAILS];
static context contexts[MAX_DEVICES];
static int started, held;
static __thread context *stack[MAX_DEPTH];
static __thread int depth;

void fake_reset(fake_options o) {
	pthread_mutex_lock(&mu);
	opts = o;
	memset(&fails, 0, sizeof fails);
	for (int i = 0; i < MAX_DEVICES; i++) contexts[i].error = contexts[i].peers = 0;
	stats.copies = stats.copied_bytes = stats.unpinned_copies = stats.flushes = stats.most_queued = 0;
	held = 0;
	started = 0;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

fake_stats fake_count(void) {
	pthread_mutex_lock(&mu);
	fake_stats s = stats;
	pthread_mutex_unlock(&mu);
	return s;
}

void cudafake_fail(const char *function, int code, int after, int times) {
	pthread_mutex_lock(&mu);
	for (int i = 0; i < MAX_FAILS; i++) {
		if (fails[i].name[0] && strcmp(fails[i].name, function)) continue;
		snprintf(fails[i].name, sizeof fails[i].name, "%s", function);
		fails[i].code = code;
		fails[i].after = after;
		fails[i].times = times;
		break;
	}
	pthread_mutex_unlock(&mu);
}

void fake_lose(int device, int code) {
	pthread_mutex_lock(&mu);
	contexts[device].error = code;
	pthread_mutex_unlock(&mu);
}

int fake_depth(void) { return depth; }

void fake_hold(int on) {
	pthread_mutex_lock(&mu);
	held = on;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

// failing is what was asked for this call. mu is held.
static int failing(const char *name) {
	for (int i = 0; i < MAX_FAILS; i++) {
		if (strcmp(fails[i].name, name)) continue;
		if (fails[i].after > 0) {
			fails[i].after--;
			return 0;
		}
		if (fails[i].times == 0) return 0;
		if (fails[i].times > 0) fails[i].times--;
		return fails[i].code;
	}
	return 0;
}

// ENTER begins a function, LEAVE ends it; CURRENT is for those that need a context.
#define ENTER(name)                    \
	pthread_mutex_lock(&mu);           \
	int r = started ? failing(name) : NOT_INITIALIZED; \
	if (r) LEAVE(r)
#define LEAVE(code)                    \
	do {                               \
		int code_ = (code);            \
		pthread_mutex_unlock(&mu);     \
		return code_;                  \
	} while (0)
#define CURRENT()                                    \
	context *cur = depth ? stack[depth - 1] : NULL;  \
	if (!cur) LEAVE(INVALID_CONTEXT);                \
	if (cur->error) LEAVE(cur->error)

static allocation *find(uint64_t address) {
	for (int i = 0; i < MAX_ALLOCS; i++)
		if (allocs[i].bytes && address >= allocs[i].start && address - allocs[i].start < allocs[i].bytes) return &allocs[i];
	return NULL;
}

static char *behind(uint64_t address, uint64_t bytes) {
	allocation *a = find(address);
	return a && bytes <= a->bytes - (address - a->start) ? a->shadow + (address - a->start) : NULL;
}

int fake_peek(uint64_t address, void *to, uint64_t bytes) {
	pthread_mutex_lock(&mu);
	char *p = behind(address, bytes);
	if (p) memcpy(to, p, bytes);
	LEAVE(p != NULL);
}

int fake_poke(uint64_t address, const void *from, uint64_t bytes) {
	pthread_mutex_lock(&mu);
	char *p = behind(address, bytes);
	if (p) memcpy(p, from, bytes);
	LEAVE(p != NULL);
}

static int f_Init(unsigned flags) {
	pthread_mutex_lock(&mu);
	int r = flags ? INVALID_VALUE : failing("cuInit");
	if (r) LEAVE(r);
	if (!space) {
		space = mmap(NULL, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (space == MAP_FAILED) {
			space = NULL;
			LEAVE(OUT_OF_MEMORY);
		}
	}
	started = 1;
	LEAVE(opts.devices ? OK : NO_DEVICE);
}

static int f_DeviceGetCount(int *n) {
	ENTER("cuDeviceGetCount");
	*n = opts.devices;
	LEAVE(OK);
}
// Handles are not ordinals, so that nobody takes one for the other.
static int f_DeviceGet(int *d, int i) {
	ENTER("cuDeviceGet");
	if (i < 0 || i >= opts.devices) LEAVE(INVALID_DEVICE);
	*d = i + 100;
	LEAVE(OK);
}
#define DEVICE(d) \
	int i = (d)-100; \
	if (i < 0 || i >= opts.devices) LEAVE(INVALID_DEVICE)
static int f_DeviceGetName(char *s, int n, int d) {
	ENTER("cuDeviceGetName");
	DEVICE(d);
	snprintf(s, n, "Fake GPU %d", i);
	LEAVE(OK);
}
static int f_DeviceGetPCIBusId(char *s, int n, int d) {
	ENTER("cuDeviceGetPCIBusId");
	DEVICE(d);
	snprintf(s, n, "0000:%02X:00.0", 0x1B + 0x80 * (i % 2) + i / 2);
	LEAVE(OK);
}
static int f_DeviceGetUuid(unsigned char *u, int d) {
	ENTER("cuDeviceGetUuid");
	DEVICE(d);
	memset(u, 0x10 + i, 16);
	LEAVE(OK);
}
static int f_DeviceTotalMem(size_t *n, int d) {
	ENTER("cuDeviceTotalMem_v2");
	DEVICE(d);
	*n = opts.memory;
	LEAVE(OK);
}
static int f_DeviceGetAttribute(int *v, int attribute, int d) {
	ENTER("cuDeviceGetAttribute");
	DEVICE(d);
	switch (attribute) {
	case 116: *v = opts.gpudirect; break;
	case 117: *v = opts.flush; break;
	case 124:
		if (opts.old) LEAVE(INVALID_VALUE);
		*v = opts.dmabuf;
		break;
	default: LEAVE(INVALID_VALUE);
	}
	LEAVE(OK);
}
static int f_PrimaryCtxRetain(void **c, int d) {
	ENTER("cuDevicePrimaryCtxRetain");
	DEVICE(d);
	contexts[i].device = i;
	if (!contexts[i].refs++) stats.contexts++;
	*c = &contexts[i];
	LEAVE(OK);
}
static int f_PrimaryCtxRelease(int d) {
	ENTER("cuDevicePrimaryCtxRelease_v2");
	DEVICE(d);
	if (!contexts[i].refs) LEAVE(INVALID_CONTEXT);
	if (!--contexts[i].refs) stats.contexts--;
	LEAVE(OK);
}
static int f_CtxPushCurrent(void *c) {
	ENTER("cuCtxPushCurrent_v2");
	if (depth == MAX_DEPTH) LEAVE(INVALID_VALUE);
	stack[depth++] = c;
	LEAVE(OK);
}
static int f_CtxPopCurrent(void **c) {
	ENTER("cuCtxPopCurrent_v2");
	if (!depth) LEAVE(INVALID_CONTEXT);
	*c = stack[--depth];
	LEAVE(OK);
}

static int f_MemAlloc(uint64_t *p, size_t n) {
	ENTER("cuMemAlloc_v2");
	CURRENT();
	if (!n) LEAVE(INVALID_VALUE);
	uint64_t room = (n + GRAIN - 1) / GRAIN * GRAIN;
	allocation *a = NULL;
	for (int i = 0; i < MAX_ALLOCS && !a; i++)
		if (!allocs[i].bytes) a = &allocs[i];
	if (!stats.allocations) next_address = 0;
	if (!a || stats.allocated_bytes + (int64_t)n > opts.memory || next_address + room > SPACE) LEAVE(OUT_OF_MEMORY);
	a->fd = memfd_create("fakegpu", MFD_CLOEXEC);
	if (a->fd < 0) LEAVE(OUT_OF_MEMORY);
	if (ftruncate(a->fd, room) ||
		(a->shadow = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0)) == MAP_FAILED) {
		close(a->fd);
		LEAVE(OUT_OF_MEMORY);
	}
	memset(a->shadow, 0xdb, n < 65536 ? n : 65536); // it is not zero
	a->start = (uint64_t)(uintptr_t)space + next_address;
	a->bytes = n;
	a->device = cur->device;
	next_address += room;
	stats.allocations++;
	stats.allocated_bytes += n;
	*p = a->start;
	LEAVE(OK);
}
static int f_MemFree(uint64_t p) {
	ENTER("cuMemFree_v2");
	CURRENT();
	allocation *a = find(p);
	if (!a || a->start != p) LEAVE(INVALID_VALUE);
	munmap(a->shadow, (a->bytes + GRAIN - 1) / GRAIN * GRAIN);
	close(a->fd);
	stats.allocations--;
	stats.allocated_bytes -= a->bytes;
	memset(a, 0, sizeof *a);
	LEAVE(OK);
}

static int f_MemHostRegister(void *p, size_t n, unsigned flags) {
	ENTER("cuMemHostRegister_v2");
	CURRENT();
	if (flags != 1) LEAVE(INVALID_VALUE);
	if (stats.pinned_bytes + (int64_t)n > opts.pinnable) LEAVE(OUT_OF_MEMORY);
	for (int i = 0; i < MAX_PINS; i++) {
		if (pins[i].bytes) continue;
		pins[i].start = (uint64_t)(uintptr_t)p;
		pins[i].bytes = n;
		stats.pinned++;
		stats.pinned_bytes += n;
		LEAVE(OK);
	}
	LEAVE(OUT_OF_MEMORY);
}
static int f_MemHostUnregister(void *p) {
	ENTER("cuMemHostUnregister");
	CURRENT();
	for (int i = 0; i < MAX_PINS; i++) {
		if (!pins[i].bytes || pins[i].start != (uint64_t)(uintptr_t)p) continue;
		stats.pinned--;
		stats.pinned_bytes -= pins[i].bytes;
		pins[i].bytes = 0;
		LEAVE(OK);
	}
	LEAVE(INVALID_VALUE);
}
static int pinned(uint64_t p, uint64_t n) {
	for (int i = 0; i < MAX_PINS; i++)
		if (pins[i].bytes && p >= pins[i].start && p + n <= pins[i].start + pins[i].bytes) return 1;
	return 0;
}

// run_copy moves the bytes of an operation. mu is held but for the delay.
static void run_copy(stream *s, op *o) {
	if (opts.delay_ns) {
		struct timespec t = {opts.delay_ns / 1000000000, opts.delay_ns % 1000000000};
		pthread_mutex_unlock(&mu);
		nanosleep(&t, NULL);
		pthread_mutex_lock(&mu);
	}
	int r = failing("copy");
	if (r) s->ctx->error = r; // as on a GPU: the context is broken for good
	char *p = behind(o->device, o->bytes);
	if (s->ctx->error || !p) return;
	s->clock += o->takes;
	if (o->from) {
		char *q = behind(o->from, o->bytes);
		if (!q) return;
		memmove(p, q, o->bytes);
		p[o->bytes / 2] += opts.spoil;
		stats.copies++;
		stats.copied_bytes += o->bytes;
		return;
	}
	char *host = (void *)(uintptr_t)o->host;
	if (o->to_host)
		memcpy(host, p, o->bytes);
	else
		memcpy(p, host, o->bytes);
	(o->to_host ? host : p)[o->bytes / 2] += opts.spoil;
	stats.copies++;
	stats.copied_bytes += o->bytes;
	if (!pinned(o->host, o->bytes)) stats.unpinned_copies++;
}

static void *run_stream(void *arg) {
	stream *s = arg;
	pthread_mutex_lock(&mu);
	for (;;) {
		while ((!s->first || held) && !(s->closing && !s->first)) pthread_cond_wait(&changed, &mu);
		op *o = s->first;
		if (!o) break;
		if (!o->e) run_copy(s, o);
		else {
			o->e->over = o->number;
			o->e->at = s->clock;
		}
		s->first = o->next;
		if (!s->first) s->last = &s->first;
		if (!o->e) s->queued--;
		free(o);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&mu);
	return NULL;
}

static int f_StreamCreate(void **p, unsigned flags) {
	ENTER("cuStreamCreate");
	CURRENT();
	if (flags != 1) LEAVE(INVALID_VALUE);
	stream *s = calloc(1, sizeof *s);
	s->ctx = cur;
	s->last = &s->first;
	if (pthread_create(&s->thread, NULL, run_stream, s)) LEAVE(OUT_OF_MEMORY);
	stats.streams++;
	*p = s;
	LEAVE(OK);
}
static int f_StreamDestroy(void *p) {
	pthread_mutex_lock(&mu);
	stream *s = p;
	s->closing = 1;
	stats.streams--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	pthread_join(s->thread, NULL);
	free(s);
	return OK;
}
static int f_EventCreate(void **p, unsigned flags) {
	ENTER("cuEventCreate");
	CURRENT();
	if (flags != 3 && flags != 1) LEAVE(INVALID_VALUE);
	event *e = calloc(1, sizeof *e);
	e->ctx = cur;
	e->timing = flags == 1;
	stats.events++;
	*p = e;
	LEAVE(OK);
}
static int f_EventDestroy(void *p) {
	pthread_mutex_lock(&mu);
	stats.events--;
	free(p);
	LEAVE(OK);
}
static void push(stream *s, op *o) {
	*s->last = o;
	s->last = &o->next;
	pthread_cond_broadcast(&changed);
}
static int f_EventRecord(void *p, void *to) {
	ENTER("cuEventRecord");
	CURRENT();
	event *e = p;
	op *o = calloc(1, sizeof *o);
	o->e = e;
	o->number = ++e->recorded;
	push(to, o);
	LEAVE(OK);
}
static int f_EventSynchronize(void *p) {
	ENTER("cuEventSynchronize");
	event *e = p;
	while (e->over != e->recorded && !e->ctx->error) pthread_cond_wait(&changed, &mu);
	LEAVE(e->ctx->error);
}

static int f_EventElapsedTime(float *ms, void *a, void *b) {
	ENTER("cuEventElapsedTime");
	CURRENT();
	event *from = a, *to = b;
	if (!from->timing || !to->timing || !from->recorded || !to->recorded) LEAVE(INVALID_HANDLE);
	if (from->over != from->recorded || to->over != to->recorded) LEAVE(NOT_READY);
	*ms = (to->at - from->at) * 1e3;
	LEAVE(OK);
}

// takes is how long a copy is under way on its stream's clock.
static double takes(size_t n, double rate) { return opts.copy_seconds + (rate > 0 ? n / rate : 0); }

static int copy(const char *name, void *to, uint64_t device, uint64_t host, size_t n, int to_host) {
	ENTER(name);
	CURRENT();
	stream *s = to;
	allocation *a = find(device);
	if (!behind(device, n) || s->ctx != cur || a->device != cur->device) LEAVE(INVALID_VALUE);
	op *o = calloc(1, sizeof *o);
	o->device = device;
	o->host = host;
	o->bytes = n;
	o->to_host = to_host;
	o->takes = takes(n, to_host ? opts.to_host : opts.from_host);
	if (++s->queued > stats.most_queued) stats.most_queued = s->queued;
	push(s, o);
	LEAVE(OK);
}
static int f_MemcpyHtoDAsync(uint64_t d, const void *h, size_t n, void *s) {
	return copy("cuMemcpyHtoDAsync_v2", s, d, (uint64_t)(uintptr_t)h, n, 0);
}
static int f_MemcpyDtoHAsync(void *h, uint64_t d, size_t n, void *s) {
	return copy("cuMemcpyDtoHAsync_v2", s, d, (uint64_t)(uintptr_t)h, n, 1);
}

static int f_MemcpyPeerAsync(uint64_t d, void *to, uint64_t f, void *from, size_t n, void *on) {
	ENTER("cuMemcpyPeerAsync");
	CURRENT();
	context *a = to, *b = from;
	stream *s = on;
	allocation *x = find(d), *y = find(f);
	if (!behind(d, n) || !behind(f, n) || x->device != a->device || y->device != b->device || s->ctx != cur) LEAVE(INVALID_VALUE);
	if (b->error || a->error) LEAVE(b->error ? b->error : a->error);
	op *o = calloc(1, sizeof *o);
	o->device = d;
	o->from = f;
	o->bytes = n;
	int direct = (a->peers >> b->device | b->peers >> a->device) & 1;
	o->takes = takes(n, direct ? opts.peer : opts.staged);
	if (++s->queued > stats.most_queued) stats.most_queued = s->queued;
	push(s, o);
	LEAVE(OK);
}
static int f_DeviceCanAccessPeer(int *can, int d, int peer) {
	ENTER("cuDeviceCanAccessPeer");
	DEVICE(d);
	if (peer - 100 < 0 || peer - 100 >= opts.devices) LEAVE(INVALID_DEVICE);
	*can = !opts.no_peer && peer != d;
	LEAVE(OK);
}
static int f_CtxEnablePeerAccess(void *p, unsigned flags) {
	ENTER("cuCtxEnablePeerAccess");
	CURRENT();
	context *peer = p;
	if (flags || peer == cur) LEAVE(INVALID_VALUE);
	if (opts.no_peer) LEAVE(PEER_UNSUPPORTED);
	if (cur->peers >> peer->device & 1) LEAVE(PEER_ENABLED);
	cur->peers |= 1u << peer->device;
	LEAVE(OK);
}
static int f_CtxDisablePeerAccess(void *p) {
	ENTER("cuCtxDisablePeerAccess");
	CURRENT();
	context *peer = p;
	if (!(cur->peers >> peer->device & 1)) LEAVE(PEER_NOT_ENABLED);
	cur->peers &= ~(1u << peer->device);
	LEAVE(OK);
}

static int f_PointerGetAttribute(void *out, int attribute, uint64_t p) {
	ENTER("cuPointerGetAttribute");
	allocation *a = find(p);
	if (!a) LEAVE(INVALID_VALUE);
	switch (attribute) {
	case 2: *(unsigned *)out = 2; break;
	case 8: *(unsigned *)out = 0; break;
	case 9: *(int *)out = a->device; break;
	case 11: *(uint64_t *)out = a->start; break;
	case 12: *(size_t *)out = a->bytes; break;
	default: LEAVE(INVALID_VALUE);
	}
	LEAVE(OK);
}
static int f_PointerSetAttribute(const void *v, int attribute, uint64_t p) {
	ENTER("cuPointerSetAttribute");
	CURRENT();
	LEAVE(attribute == 6 && *(const unsigned *)v == 1 && find(p) ? OK : INVALID_VALUE);
}

static int f_MemGetHandleForAddressRange(void *out, uint64_t p, size_t n, int type, unsigned long long flags) {
	ENTER("cuMemGetHandleForAddressRange");
	CURRENT();
	if (!opts.dmabuf) LEAVE(NOT_SUPPORTED);
	allocation *a = find(p);
	long page = sysconf(_SC_PAGESIZE);
	// The whole allocation begins where its file does: ranges inside are not offered.
	if (!a || type != 1 || flags || p % page || n % page || p != a->start || n > (a->bytes + page - 1) / page * page)
		LEAVE(INVALID_VALUE);
	int fd = dup(a->fd);
	if (fd < 0) LEAVE(OUT_OF_MEMORY);
	*(int *)out = fd;
	LEAVE(OK);
}
static int f_FlushGPUDirectRDMAWrites(int target, int scope) {
	ENTER("cuFlushGPUDirectRDMAWrites");
	CURRENT();
	if (target != 0 || scope != 100) LEAVE(INVALID_VALUE);
	stats.flushes++;
	LEAVE(OK);
}

// The one kernel that this GPU runs traps, which ends the context.
static int f_ModuleLoadData(void **m, const void *image) {
	ENTER("cuModuleLoadData");
	CURRENT();
	*m = (void *)image;
	LEAVE(image ? OK : INVALID_VALUE);
}
static int f_ModuleGetFunction(void **f, void *m, const char *name) {
	ENTER("cuModuleGetFunction");
	CURRENT();
	*f = m;
	LEAVE(m && name ? OK : INVALID_VALUE);
}
static int f_LaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, void *stream, void **args, void **extra) {
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)args, (void)extra;
	ENTER("cuLaunchKernel");
	CURRENT();
	if (!f) LEAVE(INVALID_VALUE);
	cur->error = LAUNCH_FAILED;
	LEAVE(OK);
}
static int f_CtxSynchronize(void) {
	ENTER("cuCtxSynchronize");
	CURRENT();
	LEAVE(OK);
}

static const struct { int code; const char *name, *text; } words[] = {
	{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};
static int f_GetErrorName(int code, const char **s) {
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (words[i].code == code) return *s = words[i].name, OK;
	return INVALID_VALUE;
}
static int f_GetErrorString(int code, const char **s) {
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (words[i].code == code) return *s = words[i].text, OK;
	return INVALID_VALUE;
}

#define FUNCTIONS(X)                                                        \
	X(cuInit, f_Init, 0)                                                    \
	X(cuDeviceGetCount, f_DeviceGetCount, 0)                                \
	X(cuDeviceGet, f_DeviceGet, 0)                                          \
	X(cuDeviceGetName, f_DeviceGetName, 0)                                  \
	X(cuDeviceGetPCIBusId, f_DeviceGetPCIBusId, 0)                          \
	X(cuDeviceGetUuid, f_DeviceGetUuid, 0)                                  \
	X(cuDeviceTotalMem_v2, f_DeviceTotalMem, 0)                             \
	X(cuDeviceGetAttribute, f_DeviceGetAttribute, 0)                        \
	X(cuDevicePrimaryCtxRetain, f_PrimaryCtxRetain, 0)                      \
	X(cuDevicePrimaryCtxRelease_v2, f_PrimaryCtxRelease, 0)                 \
	X(cuCtxPushCurrent_v2, f_CtxPushCurrent, 0)                             \
	X(cuCtxPopCurrent_v2, f_CtxPopCurrent, 0)                               \
	X(cuMemAlloc_v2, f_MemAlloc, 0)                                         \
	X(cuMemFree_v2, f_MemFree, 0)                                           \
	X(cuMemHostRegister_v2, f_MemHostRegister, 0)                           \
	X(cuMemHostUnregister, f_MemHostUnregister, 0)                          \
	X(cuStreamCreate, f_StreamCreate, 0)                                    \
	X(cuStreamDestroy_v2, f_StreamDestroy, 0)                               \
	X(cuEventCreate, f_EventCreate, 0)                                      \
	X(cuEventDestroy_v2, f_EventDestroy, 0)                                 \
	X(cuEventRecord, f_EventRecord, 0)                                      \
	X(cuEventSynchronize, f_EventSynchronize, 0)                            \
	X(cuMemcpyHtoDAsync_v2, f_MemcpyHtoDAsync, 0)                           \
	X(cuMemcpyDtoHAsync_v2, f_MemcpyDtoHAsync, 0)                           \
	X(cuMemcpyPeerAsync, f_MemcpyPeerAsync, 0)                              \
	X(cuEventElapsedTime, f_EventElapsedTime, 0)                            \
	X(cuDeviceCanAccessPeer, f_DeviceCanAccessPeer, 0)                      \
	X(cuCtxEnablePeerAccess, f_CtxEnablePeerAccess, 0)                      \
	X(cuCtxDisablePeerAccess, f_CtxDisablePeerAccess, 0)                    \
	X(cuPointerGetAttribute, f_PointerGetAttribute, 0)                      \
	X(cuPointerSetAttribute, f_PointerSetAttribute, 0)                      \
	X(cuModuleLoadData, f_ModuleLoadData, 0)                                \
	X(cuModuleGetFunction, f_ModuleGetFunction, 0)                          \
	X(cuLaunchKernel, f_LaunchKernel, 0)                                    \
	X(cuCtxSynchronize, f_CtxSynchronize, 0)                                \
	X(cuGetErrorName, f_GetErrorName, 0)                                    \
	X(cuGetErrorString, f_GetErrorString, 0)                                \
	X(cuMemGetHandleForAddressRange, f_MemGetHandleForAddressRange, 1)      \
	X(cuFlushGPUDirectRDMAWrites, f_FlushGPUDirectRDMAWrites, 1)

void *fake_find(void *from, const char *name) {
	(void)from;
#define FIND(real, mine, recent) \
	if (!strcmp(name, #real)) return recent && opts.old ? NULL : (void *)mine;
	FUNCTIONS(FIND)
	return NULL;
}

#ifdef FAKE_SHARED // built as a library, under the real names
#define EXPORT(real, mine, recent) extern __typeof(mine) real __attribute__((alias(#mine)));
FUNCTIONS(EXPORT)
#endif
