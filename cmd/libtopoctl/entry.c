//go:build cgo && linux

/*
 * The functions of topoctl.h. Each looks whether this process is the one that loaded the
 * library before it calls Go: in a child of fork() Go's threads are gone, and a call would
 * hang. What they call is in exports.go.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "_cgo_export.h"
#include "topoctl.h"

static volatile int forked;

/*
 * The text of a thread's latest failure. It is no __thread variable: Go's own makes all of this
 * library's thread-local memory static, of which a process that has loaded much may have no
 * more than a few bytes left.
 */
struct error {
	int64_t length;
	char text[4096];
};

static pthread_key_t error_key;
static int have_key;

static void in_child(void) { forked = 1; }

/* Go raises the limit of descriptors when it starts, which is the program's to do, and inherited by what it starts. */
static struct rlimit files;

__attribute__((constructor(101))) static void note_limit(void) { getrlimit(RLIMIT_NOFILE, &files); }

void golib_restore_limit(void) { setrlimit(RLIMIT_NOFILE, &files); }

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
	have_key = pthread_key_create(&error_key, free) == 0;
}

void golib_keep_error(const char *text, int64_t length)
{
	struct error *e = have_key ? pthread_getspecific(error_key) : NULL;

	if (e == NULL) {
		e = have_key ? malloc(sizeof *e) : NULL;
		if (e == NULL || pthread_setspecific(error_key, e) != 0) {
			free(e);
			return;
		}
	}
	if (length > (int64_t)sizeof e->text)
		length = sizeof e->text;
	memcpy(e->text, text, (size_t)length);
	e->length = length;
}

static const char forked_text[] = "this process was forked from the one that loaded libtopoctl, which works only there: "
	"start processes by spawn or exec, or load the library after the fork";

#define ALIVE(otherwise) do { if (__builtin_expect(forked, 0)) return (otherwise); } while (0)

int64_t topoctl_error(char *out, int64_t cap)
{
	const struct error *e = have_key ? pthread_getspecific(error_key) : NULL;
	const char *text = forked ? forked_text : e != NULL ? e->text : "";
	int64_t length = forked ? (int64_t)sizeof forked_text - 1 : e != NULL ? e->length : 0;

	if (out != NULL && cap > 0) {
		int64_t copied = length < cap ? length : cap - 1;

		memcpy(out, text, (size_t)copied);
		out[copied] = 0;
	}
	return length;
}

int32_t topoctl_abi(void)
{
	ALIVE(TOPOCTL_FORKED);
	return TOPOCTL_ABI;
}

const char *topoctl_version(void)
{
	ALIVE(NULL);
	return golib_version();
}

/*
 * Says whether the handlers of the signals by which Go learns of memory that is not there are
 * this library's. Go sets them when it starts, some time after the library was loaded.
 */
int golib_handles_faults(void)
{
	static const int faults[] = {SIGSEGV, SIGBUS};
	Dl_info ours, its;

	for (int i = 0; i < 2; i++) {
		struct sigaction now;

		if (sigaction(faults[i], NULL, &now) != 0 || dladdr((void *)golib_handles_faults, &ours) == 0)
			return 1; /* it cannot be told */
		if (dladdr((void *)now.sa_handler, &its) == 0 || its.dli_fbase != ours.dli_fbase)
			return 0;
	}
	return 1;
}

int64_t topoctl_open(const char *options)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_open((char *)options);
}

int32_t topoctl_close(int64_t engine)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_close(engine);
}

int32_t topoctl_port(int64_t engine)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_port(engine);
}

int64_t topoctl_address(int64_t engine, char *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_address(engine, out, cap);
}

int64_t topoctl_name(int64_t engine, char *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_name(engine, out, cap);
}

int32_t topoctl_register(int64_t engine, int64_t n, const uint64_t *address, const uint64_t *length,
			 const char *location, int32_t grant)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_register(engine, n, (uint64_t *)address, (uint64_t *)length, (char *)location, grant);
}

int32_t topoctl_unregister(int64_t engine, int64_t n, const uint64_t *address)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_unregister(engine, n, (uint64_t *)address);
}

int32_t topoctl_alloc(int64_t engine, uint64_t length, const char *location, int32_t grant, uint64_t *address)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_alloc(engine, length, (char *)location, grant, address);
}

int32_t topoctl_free(int64_t engine, uint64_t address)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_free(engine, address);
}

int32_t topoctl_region(int64_t engine, const char *name, uint64_t *address, uint64_t *length)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_region(engine, (char *)name, address, length);
}

int64_t topoctl_metadata(int64_t engine, void *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_metadata(engine, out, cap);
}

int64_t topoctl_add_peer(int64_t engine, const void *metadata, int64_t length, char *name, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_add_peer(engine, (void *)metadata, length, name, cap);
}

int32_t topoctl_remove_peer(int64_t engine, const char *peer)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_remove_peer(engine, (char *)peer);
}

int64_t topoctl_peer_ranges(int64_t engine, const char *peer, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_peer_ranges(engine, (char *)peer, timeout_ns);
}

int64_t topoctl_find(int64_t engine, const char *peer, const char *region, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_find(engine, (char *)peer, (char *)region, timeout_ns);
}

int64_t topoctl_call(int64_t engine, const char *peer, const void *request, int64_t length, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_call(engine, (char *)peer, (void *)request, length, timeout_ns);
}

int64_t topoctl_result(int64_t engine, int64_t batch, void *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_result(engine, batch, out, cap);
}

int64_t topoctl_submit(int64_t engine, const char *peer, int32_t op, int64_t n, const uint64_t *local,
		       const uint64_t *remote, const uint64_t *length,
		       const void *notify, int64_t notify_length, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_submit(engine, (char *)peer, op, n, (uint64_t *)local, (uint64_t *)remote, (uint64_t *)length,
			    (void *)notify, notify_length, timeout_ns);
}

int32_t topoctl_transfer(int64_t engine, const char *peer, int32_t op, int64_t n, const uint64_t *local,
			 const uint64_t *remote, const uint64_t *length,
			 const void *notify, int64_t notify_length, int64_t timeout_ns, int64_t wait_ns, int64_t *batch)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_transfer(engine, (char *)peer, op, n, (uint64_t *)local, (uint64_t *)remote, (uint64_t *)length,
			      (void *)notify, notify_length, timeout_ns, wait_ns, batch);
}

int64_t topoctl_list(int64_t engine, const char *peer, int64_t n, const uint64_t *address,
		     const uint64_t *length, int64_t stride)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_list(engine, (char *)peer, n, (uint64_t *)address, (uint64_t *)length, stride);
}

int32_t topoctl_list_free(int64_t engine, int64_t list)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_list_free(engine, list);
}

int64_t topoctl_submit_lists(int64_t engine, int32_t op, int64_t local, const int64_t *local_index,
			     int64_t remote, const int64_t *remote_index, int64_t n,
			     const void *notify, int64_t notify_length, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_submit_lists(engine, op, local, (int64_t *)local_index, remote, (int64_t *)remote_index, n,
				  (void *)notify, notify_length, timeout_ns);
}

int32_t topoctl_poll(int64_t engine, int64_t batch)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_poll(engine, batch);
}

int32_t topoctl_wait(int64_t engine, int64_t n, const int64_t *batch, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_wait(engine, n, (int64_t *)batch, timeout_ns);
}

int32_t topoctl_wait_any(int64_t engine, int64_t n, const int64_t *batch, int64_t timeout_ns)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_wait_any(engine, n, (int64_t *)batch, timeout_ns);
}

int32_t topoctl_event_fd(int64_t engine)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_event_fd(engine);
}

int32_t topoctl_event_close(int64_t engine, int32_t fd)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_event_close(engine, fd);
}

int32_t topoctl_release(int64_t engine, int64_t batch)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_release(engine, batch);
}

int32_t topoctl_telemetry(int64_t engine, int64_t batch, topoctl_telemetry_v1 *out, int64_t size)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_telemetry(engine, batch, out, size);
}

int64_t topoctl_explain(int64_t engine, int64_t batch, char *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_explain(engine, batch, out, cap);
}

int64_t topoctl_stats(int64_t engine, char *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_stats(engine, out, cap);
}

int64_t topoctl_notifications(int64_t engine, void *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_notifications(engine, out, cap);
}

int64_t topoctl_calls(int64_t engine, void *out, int64_t cap)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_calls(engine, out, cap);
}

int32_t topoctl_answer(int64_t engine, int64_t call, const void *answer, int64_t length, const char *refused)
{
	ALIVE(TOPOCTL_FORKED);
	return golib_answer(engine, call, (void *)answer, length, (char *)refused);
}
