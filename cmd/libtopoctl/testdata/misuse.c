/* Wrong arguments, handles that are none, and an engine that is closed: a status, never a crash. */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>

static void other_handler(int sig) { _exit(100 + sig); }

int main(void)
{
	char out[64], small[3], peer[64];
	uint64_t a = 0, n = 0;
	int64_t wrong[] = {0, -1, 1 << 20, INT64_MIN, INT64_MAX}, running = 1;
	topoctl_telemetry_v1 t;

	WANT(topoctl_abi(), TOPOCTL_ABI);
	WANT(strlen(topoctl_version()) > 0, 1);
	WANT(topoctl_error(NULL, 0), 0);
	WANT(topoctl_open("{"), TOPOCTL_INVALID);
	WANT(topoctl_open("\xff\xfe"), TOPOCTL_INVALID);
	WANT(topoctl_open("{\"surprise\": 1}"), TOPOCTL_INVALID);
	WANT(topoctl_error(NULL, 0) > 0, 1);
	WANT(topoctl_error(small, sizeof small) > 3, 1);
	WANT(strlen(small), 2);
	WANT(topoctl_error(out, -1) > 3, 1);

	/* Who takes over the faults' handlers after loading gets a warning, for which .ci/lib looks. */
	signal(SIGSEGV, other_handler);
	int64_t e = topoctl_open("{\"topology\": \"none\", \"log\": \"warn\"}"), f = open_small();
	WANT(e > 0, 1);

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int64_t w = wrong[i];

		WANT(topoctl_port(w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_address(w, out, sizeof out), TOPOCTL_NO_HANDLE);
		WANT(topoctl_register(w, 0, NULL, NULL, NULL, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_alloc(w, 1, NULL, 0, &a), TOPOCTL_NO_HANDLE);
		WANT(topoctl_call(w, "x", NULL, 0, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_event_fd(w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_event_close(e, (int32_t)w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_result(e, w, NULL, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_wait_any(e, 1, &w, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_answer(e, w, NULL, 0, NULL), TOPOCTL_NO_HANDLE);
		WANT(topoctl_submit(w, "x", TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 0, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_transfer(w, "x", TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 0, 0, 0, &running), TOPOCTL_NO_HANDLE);
		WANT(topoctl_stats(w, NULL, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_close(w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_poll(e, w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_wait(e, 1, &w, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_release(e, w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_explain(e, w, NULL, 0), TOPOCTL_NO_HANDLE);
		WANT(topoctl_telemetry(e, w, &t, sizeof t), TOPOCTL_NO_HANDLE);
		WANT(topoctl_list_free(e, w), TOPOCTL_NO_HANDLE);
		WANT(topoctl_submit_lists(e, TOPOCTL_READ, w, NULL, w, NULL, 0, NULL, 0, 0), TOPOCTL_NO_HANDLE);
	}

	WANT(topoctl_name(e, NULL, 0) > 0, 1);
	WANT(topoctl_name(e, out, -5) > 0, 1);
	WANT(topoctl_register(e, 1, NULL, &n, NULL, 0), TOPOCTL_INVALID);
	WANT(topoctl_register(e, -1, &a, &n, NULL, 0), TOPOCTL_INVALID);
	WANT(topoctl_register(e, INT64_MAX, &a, &n, NULL, 0), TOPOCTL_INVALID);
	WANT(topoctl_register(e, 1, &a, &n, NULL, 0), TOPOCTL_INVALID);
	WANT(topoctl_register(e, 0, NULL, NULL, "moon", 0), TOPOCTL_INVALID);
	WANT(topoctl_unregister(e, 1, &a), TOPOCTL_NO_REGION);
	WANT(topoctl_free(e, 4096), TOPOCTL_NO_REGION);
	WANT(topoctl_alloc(e, UINT64_MAX, NULL, 0, &a), TOPOCTL_INVALID);
	WANT(topoctl_alloc(e, 1, NULL, 0, NULL), TOPOCTL_INVALID);
	WANT(topoctl_region(e, "x", &a, &n), TOPOCTL_NO_REGION);
	WANT(topoctl_region(e, "x", NULL, &n), TOPOCTL_INVALID);
	WANT(topoctl_find(e, "127.0.0.1:1", NULL, 0), TOPOCTL_INVALID);
	WANT(ended(e, topoctl_find(e, "127.0.0.1:1", "x", SECOND / 50)), TOPOCTL_NO_PEER);
	WANT(topoctl_submit(e, NULL, TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 0, 0), TOPOCTL_INVALID);
	WANT(topoctl_submit(e, address_of(f, peer, sizeof peer), TOPOCTL_READ, 1, NULL, &a, &n, NULL, 0, 0), TOPOCTL_INVALID);
	WANT(topoctl_submit(e, peer, 7, 0, NULL, NULL, NULL, NULL, 0, 0), TOPOCTL_INVALID);
	WANT(topoctl_submit(e, peer, TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 9, 0), TOPOCTL_INVALID);
	WANT(topoctl_transfer(e, peer, TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 0, 0, SECOND, NULL), TOPOCTL_INVALID);
	WANT(topoctl_transfer(e, peer, TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 0, 0, -1, &running), TOPOCTL_INVALID);
	WANT(running, 0);
	WANT(topoctl_transfer(e, peer, TOPOCTL_READ, 0, NULL, NULL, NULL, NULL, 0, 0, 10 * SECOND, &running), TOPOCTL_OK);
	WANT(topoctl_list(e, NULL, 1, &a, &n, 0), TOPOCTL_INVALID);
	WANT(topoctl_list(e, NULL, INT64_MAX, &a, &n, INT64_MAX), TOPOCTL_INVALID);
	WANT(topoctl_wait(e, -1, NULL, 0), TOPOCTL_INVALID);
	WANT(topoctl_wait(e, 0, NULL, 0), TOPOCTL_OK);
	WANT(topoctl_add_peer(e, "{}", 2, NULL, 0), TOPOCTL_INVALID);
	WANT(topoctl_add_peer(e, NULL, 2, NULL, 0), TOPOCTL_INVALID);
	WANT(ended(e, topoctl_peer_ranges(e, peer, 0)), TOPOCTL_OK);
	WANT(ended(e, topoctl_call(e, "127.0.0.1:1", NULL, 0, SECOND)), TOPOCTL_NO_PEER);
	WANT(ended(e, topoctl_call(e, peer, NULL, 0, SECOND)), TOPOCTL_OK);
	WANT(ended(e, topoctl_call(e, peer, "x", 1, SECOND)), TOPOCTL_REFUSED);
	WANT(topoctl_call(e, peer, NULL, 1, SECOND), TOPOCTL_INVALID);
	WANT(topoctl_call(e, peer, NULL, 0, -1), TOPOCTL_INVALID);
	WANT(topoctl_notifications(e, NULL, 0), 0);
	WANT(topoctl_calls(e, NULL, 0), 0);
	WANT(topoctl_wait_any(e, 0, NULL, -1), TOPOCTL_INVALID);

	int64_t batch = topoctl_submit(e, peer, TOPOCTL_WRITE, 0, NULL, NULL, NULL, "hello", 5, 0);
	WANT(batch > 0, 1);
	WANT(topoctl_wait(e, 1, &batch, 10 * SECOND), TOPOCTL_OK);
	WANT(topoctl_poll(e, batch), TOPOCTL_DONE);
	WANT(topoctl_poll(f, batch), TOPOCTL_NO_HANDLE);
	WANT(topoctl_telemetry(e, batch, &t, 3), TOPOCTL_INVALID);
	WANT(topoctl_telemetry(e, batch, NULL, sizeof t), TOPOCTL_INVALID);
	WANT(topoctl_notifications(f, out, 4), TOPOCTL_LIMIT);
	WANT(topoctl_notifications(f, out, sizeof out) > 24, 1);
	WANT(topoctl_release(e, batch), TOPOCTL_OK);
	WANT(topoctl_release(e, batch), TOPOCTL_NO_HANDLE);

	/* Memory that is not mapped any more when a batch begins was registered before: it must stay
	 * mapped, as the header says. Unregistering such memory is fine. It lies where no thread maps
	 * anything in its place afterwards. */
	void *gone = mmap((void *)0x200000000000, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	a = (uintptr_t)gone, n = 8192;
	WANT(topoctl_register(e, 1, &a, &n, "*", 0), TOPOCTL_OK);
	WANT(topoctl_register(e, 1, &a, &n, "*", 0), TOPOCTL_EXISTS);
	munmap(gone, 8192);
	WANT(topoctl_unregister(e, 1, &a), TOPOCTL_OK);
	WANT(topoctl_register(e, 1, &a, &n, "*", 0), TOPOCTL_INVALID);

	WANT(topoctl_close(e), TOPOCTL_OK);
	WANT(topoctl_close(e), TOPOCTL_NO_HANDLE);
	WANT(topoctl_port(e), TOPOCTL_NO_HANDLE);
	WANT(topoctl_close(f), TOPOCTL_OK);
	if (failures == 0)
		puts("misuse: ok");
	return failures != 0;
}
