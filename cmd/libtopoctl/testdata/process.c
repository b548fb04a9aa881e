/* The library leaves what is the whole process's as it finds it: the environment, the locale, the time zone, the current
 * directory, the umask, limits, signal handlers and masks. Other threads read all of it while engines are opened, move
 * bytes, fail and are closed. .ci/lib builds it with ThreadSanitizer too. */
#include "check.h"

#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

extern char **environ;

enum { READERS = 2, ROUNDS = 10, LIMITS = 16, SIGNALS = 65, SIZE = 1 << 20 };

static atomic_int stop;

/* What must be the same all the time. */
struct process {
	char **environ;
	char *variables[1024];
	char locale[64], codeset[64], point[8], folder[4096], umask[16];
	struct tm epoch;
	char zone[16];
	struct rlimit limits[LIMITS];
	void *handlers[SIGNALS];
	int flags[SIGNALS];
	char masked[SIGNALS];
};

static void look(struct process *p)
{
	char line[256];
	sigset_t mask;
	FILE *status = fopen("/proc/self/status", "r");

	memset(p, 0, sizeof *p);
	p->environ = environ;
	for (int i = 0; environ[i] && i < 1023; i++)
		p->variables[i] = environ[i];
	WANT(getenv("TOPOCTL_TEST_LAST") != NULL && getenv("TOPOCTL_TEST_NOT_THERE") == NULL, 1);
	snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
	snprintf(p->codeset, sizeof p->codeset, "%s", nl_langinfo(CODESET));
	snprintf(p->point, sizeof p->point, "%s", localeconv()->decimal_point);
	tzset();
	WANT(localtime_r(&(time_t){0}, &p->epoch) != NULL, 1);
	snprintf(p->zone, sizeof p->zone, "%s", p->epoch.tm_zone);
	WANT(getcwd(p->folder, sizeof p->folder) != NULL, 1);
	while (status != NULL && fgets(line, sizeof line, status) != NULL)
		sscanf(line, "Umask: %15s", p->umask);
	WANT(status != NULL && p->umask[0] != 0 && fclose(status) == 0, 1);
	for (int i = 0; i < LIMITS; i++)
		getrlimit(i, &p->limits[i]);
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	for (int i = 1; i < SIGNALS; i++) {
		struct sigaction now;

		p->masked[i] = (char)sigismember(&mask, i);
		if (sigaction(i, NULL, &now) != 0)
			continue;
		p->handlers[i] = (void *)now.sa_handler;
		p->flags[i] = now.sa_flags;
	}
}

static struct process before;

static void *reads(void *unused)
{
	locale_t own = newlocale(LC_ALL_MASK, "C", NULL);
	struct process *now = calloc(1, sizeof *now);

	(void)unused;
	while (!atomic_load(&stop)) {
		uselocale(own);
		WANT(strcmp(nl_langinfo(CODESET), "ANSI_X3.4-1968"), 0);
		uselocale(LC_GLOBAL_LOCALE);
		look(now);
		WANT(memcmp(&before, now, sizeof before), 0);
	}
	freelocale(own);
	free(now);
	return NULL;
}

/* works has two engines move bytes, and fail in all ways that are quick. */
static void works(void)
{
	int64_t e = topoctl_open(NULL), f = open_small(); /* the first looks at the whole host */
	uint64_t here = alloc(e, SIZE, 0), there = alloc(f, SIZE, TOPOCTL_PEER_READ | TOPOCTL_PEER_WRITE), n = SIZE;
	void *own = malloc(SIZE);
	uint64_t registered = (uint64_t)(uintptr_t)own;
	char peer[64];

	address_of(f, peer, sizeof peer);
	WANT(topoctl_register(e, 1, &registered, &n, NULL, 0), TOPOCTL_OK);
	WANT(ended(e, topoctl_submit(e, peer, TOPOCTL_WRITE, 1, &here, &there, &n, "x", 1, 0)), TOPOCTL_OK);
	WANT(ended(e, topoctl_submit(e, peer, TOPOCTL_READ, 1, &registered, &there, &n, NULL, 0, 0)), TOPOCTL_OK);
	WANT(ended(e, topoctl_submit(e, peer, TOPOCTL_READ, 1, &here, &here, &n, NULL, 0, 0)), TOPOCTL_NO_REGION);
	WANT(ended(e, topoctl_call(e, peer, "x", 1, 0)), TOPOCTL_REFUSED);
	WANT(topoctl_open("{\"listen\": 1}"), TOPOCTL_INVALID);
	WANT(topoctl_unregister(e, 1, &registered), TOPOCTL_OK);
	free(own);
	WANT(topoctl_close(f), TOPOCTL_OK);
	WANT(ended(e, topoctl_call(e, peer, NULL, 0, SECOND)) < 0, 1);
	WANT(topoctl_close(e), TOPOCTL_OK);
}

int main(int argc, char **argv)
{
	pthread_t threads[READERS];
	struct rlimit files;

	if (argc == 1) { /* what changes with the loading of the library is seen by a program of other limits */
		getrlimit(RLIMIT_NOFILE, &files);
		files.rlim_cur = files.rlim_max < 512 ? files.rlim_max / 2 : 512;
		WANT(setrlimit(RLIMIT_NOFILE, &files), 0);
		execl(argv[0], argv[0], "again", NULL);
		perror(argv[0]);
		return 1;
	}
	WANT(setenv("TOPOCTL_TEST_LAST", "value", 1) == 0 && setenv("TZ", "Asia/Kathmandu", 1) == 0, 1);
	WANT(setlocale(LC_ALL, "C.UTF-8") != NULL, 1);
	WANT(topoctl_version() != NULL, 1); /* by then Go has started */
	getrlimit(RLIMIT_NOFILE, &files);
	WANT(files.rlim_cur <= 512, 1);
	look(&before);
	for (int i = 0; i < READERS; i++)
		WANT(pthread_create(&threads[i], NULL, reads, NULL), 0);
	for (int i = 0; i < ROUNDS; i++)
		works();
	atomic_store(&stop, 1);
	for (int i = 0; i < READERS; i++)
		WANT(pthread_join(threads[i], NULL), 0);
	static struct process after;

	look(&after);
	WANT(memcmp(&before, &after, sizeof before), 0);
	if (failures == 0)
		puts("process: ok");
	return failures != 0;
}
