/* Many threads on two engines: batches, engines that come and go, and each thread's own error. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 12, ROUNDS = 200, EACH = 4096 };

static int64_t e, f;
static uint64_t here, there;
static char peer[64];

static void *moves(void *arg)
{
	int64_t number = (intptr_t)arg;
	uint64_t local = here + number * EACH, remote = there + number * EACH, n = EACH;
	unsigned char *mine = (unsigned char *)local;
	char text[256], want[64];

	for (int i = 0; i < ROUNDS; i++) {
		memset(mine, i, EACH);
		for (int op = TOPOCTL_WRITE; op >= TOPOCTL_READ; op--) {
			int64_t batch;

			if (i % 2 == 0) {
				batch = topoctl_submit(e, peer, op, 1, &local, &remote, &n, NULL, 0, 0);
				WANT(batch > 0, 1);
				WANT(topoctl_wait(e, 1, &batch, 20 * SECOND), TOPOCTL_OK);
				WANT(topoctl_release(e, batch), TOPOCTL_OK);
			} else {
				WANT(topoctl_transfer(e, peer, op, 1, &local, &remote, &n, NULL, 0, 0, 20 * SECOND, &batch), TOPOCTL_OK);
			}
			if (op == TOPOCTL_WRITE)
				memset(mine, 0, EACH);
		}
		WANT(mine[0], (unsigned char)i);
		WANT(mine[EACH - 1], (unsigned char)i);
		/* The text is this thread's own. */
		WANT(topoctl_port(-1000 - number), TOPOCTL_NO_HANDLE);
		topoctl_error(text, sizeof text);
		snprintf(want, sizeof want, "%" PRId64, -1000 - number);
		WANT(strstr(text, want) != NULL, 1);
	}
	return NULL;
}

static void *opens(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		int64_t x = open_small();

		WANT(ended(x, topoctl_call(x, peer, NULL, 0, 20 * SECOND)), TOPOCTL_OK);
		WANT(topoctl_close(x), TOPOCTL_OK);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS + 1];

	e = open_small(), f = open_small();
	here = alloc(e, THREADS * EACH, 0);
	there = alloc(f, THREADS * EACH, TOPOCTL_PEER_READ | TOPOCTL_PEER_WRITE);
	address_of(f, peer, sizeof peer);
	for (intptr_t i = 0; i < THREADS; i++)
		WANT(pthread_create(&threads[i], NULL, moves, (void *)i), 0);
	WANT(pthread_create(&threads[THREADS], NULL, opens, NULL), 0);
	for (int i = 0; i <= THREADS; i++)
		WANT(pthread_join(threads[i], NULL), 0);
	WANT(topoctl_close(e), TOPOCTL_OK);
	WANT(topoctl_close(f), TOPOCTL_OK);
	if (failures == 0)
		puts("threads: ok");
	return failures != 0;
}
