/*
 * A process that ends with transfers in flight ends as it wanted to: by exit, by return from
 * main, and while a thread waits. "leaving HOW" is such a process; without HOW it starts each.
 */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>

static int64_t e, batches[8];

static void *waits(void *arg)
{
	(void)arg;
	topoctl_wait(e, 8, batches, 60 * SECOND);
	return NULL;
}

static int leave(const char *how)
{
	static char peer[64];
	uint64_t n = 16 << 20;
	int64_t f = open_small();

	e = open_small();
	address_of(f, peer, sizeof peer);
	uint64_t here = alloc(e, 8 * n, 0), there = alloc(f, n, TOPOCTL_PEER_READ);
	for (int i = 0; i < 8; i++) {
		uint64_t to = here + i * n;

		batches[i] = topoctl_submit(e, peer, TOPOCTL_READ, 1, &to, &there, &n, NULL, 0, 0);
		WANT(batches[i] > 0, 1);
	}
	if (strcmp(how, "thread") == 0) {
		pthread_t t;

		pthread_create(&t, NULL, waits, NULL);
	} else if (strcmp(how, "close") == 0) {
		WANT(topoctl_close(e), TOPOCTL_OK);
		WANT(topoctl_poll(e, batches[0]), TOPOCTL_NO_HANDLE);
	} else if (strcmp(how, "exit") == 0) {
		exit(failures == 0 ? 7 : 1);
	}
	return failures == 0 ? 7 : 1;
}

int main(int argc, char **argv)
{
	static const char *const ways[] = {"return", "exit", "thread", "close"};
	char command[4096];

	if (argc > 1)
		return leave(argv[1]);
	for (int i = 0; i < 20; i++) {
		snprintf(command, sizeof command, "'%s' %s", argv[0], ways[i % 4]);
		int status = system(command);
		WANT(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 7);
	}
	if (failures == 0)
		puts("leaving: ok");
	return failures != 0;
}
