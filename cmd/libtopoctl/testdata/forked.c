/* In a child of fork every call gives TOPOCTL_FORKED at once, and the parent goes on. */
#include "check.h"

#include <sys/wait.h>

static void in_child(int64_t e, int64_t batch, const char *peer)
{
	char out[256];
	uint64_t a = 1, n = 1;
	topoctl_telemetry_v1 t;
	int64_t running, begin = now_ns();

	WANT(topoctl_abi(), TOPOCTL_FORKED);
	WANT(topoctl_version() == NULL, 1);
	WANT(topoctl_error(out, sizeof out) > 0, 1);
	WANT(topoctl_open(NULL), TOPOCTL_FORKED);
	WANT(topoctl_port(e), TOPOCTL_FORKED);
	WANT(topoctl_address(e, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_name(e, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_register(e, 1, &a, &n, NULL, 0), TOPOCTL_FORKED);
	WANT(topoctl_unregister(e, 1, &a), TOPOCTL_FORKED);
	WANT(topoctl_alloc(e, 1, NULL, 0, &a), TOPOCTL_FORKED);
	WANT(topoctl_free(e, 1), TOPOCTL_FORKED);
	WANT(topoctl_call(e, peer, NULL, 0, 0), TOPOCTL_FORKED);
	WANT(topoctl_result(e, batch, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_metadata(e, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_add_peer(e, out, 1, out, 1), TOPOCTL_FORKED);
	WANT(topoctl_remove_peer(e, peer), TOPOCTL_FORKED);
	WANT(topoctl_peer_ranges(e, peer, 0), TOPOCTL_FORKED);
	WANT(topoctl_submit(e, peer, TOPOCTL_READ, 1, &a, &a, &n, NULL, 0, 0), TOPOCTL_FORKED);
	WANT(topoctl_transfer(e, peer, TOPOCTL_READ, 1, &a, &a, &n, NULL, 0, 0, SECOND, &running), TOPOCTL_FORKED);
	WANT(topoctl_list(e, NULL, 1, &a, &n, 1), TOPOCTL_FORKED);
	WANT(topoctl_list_free(e, 1), TOPOCTL_FORKED);
	WANT(topoctl_submit_lists(e, TOPOCTL_READ, 1, NULL, 1, NULL, 1, NULL, 0, 0), TOPOCTL_FORKED);
	WANT(topoctl_poll(e, batch), TOPOCTL_FORKED);
	WANT(topoctl_wait(e, 1, &batch, SECOND), TOPOCTL_FORKED);
	WANT(topoctl_release(e, batch), TOPOCTL_FORKED);
	WANT(topoctl_telemetry(e, batch, &t, sizeof t), TOPOCTL_FORKED);
	WANT(topoctl_explain(e, batch, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_stats(e, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_wait_any(e, 1, &batch, SECOND), TOPOCTL_FORKED);
	WANT(topoctl_event_fd(e), TOPOCTL_FORKED);
	WANT(topoctl_event_close(e, 1), TOPOCTL_FORKED);
	WANT(topoctl_calls(e, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_answer(e, 1, "x", 1, NULL), TOPOCTL_FORKED);
	WANT(topoctl_notifications(e, out, sizeof out), TOPOCTL_FORKED);
	WANT(topoctl_close(e), TOPOCTL_FORKED);
	WANT(now_ns() - begin < 10 * SECOND, 1); /* none of them waits: they take microseconds */
	_exit(failures != 0);
}

int main(void)
{
	char peer[64];
	int64_t e = open_small(), f = open_small();
	uint64_t here = alloc(e, 64 << 20, 0), there = alloc(f, 64 << 20, TOPOCTL_PEER_READ);
	uint64_t n = 64 << 20;
	int status;

	address_of(f, peer, sizeof peer);
	for (int i = 0; i < 5; i++) {
		int64_t batch = topoctl_submit(e, peer, TOPOCTL_READ, 1, &here, &there, &n, NULL, 0, 0);
		pid_t child = fork();

		if (child == 0) {
			alarm(30);
			in_child(e, batch, peer);
		}
		WANT(topoctl_wait(e, 1, &batch, 20 * SECOND), TOPOCTL_OK);
		WANT(topoctl_release(e, batch), TOPOCTL_OK);
		WANT(waitpid(child, &status, 0), child);
		WANT(status, 0);
	}
	/* A child that execs is another process. */
	WANT(system("true"), 0);
	WANT(topoctl_close(e), TOPOCTL_OK);
	WANT(topoctl_close(f), TOPOCTL_OK);
	if (failures == 0)
		puts("forked: ok");
	return failures != 0;
}
