/* The library leaves what is the whole process's as it finds it, while other threads of the program read it:
 * the environment, the locale, the time zone, the current directory, the umask, limits, signal handlers.
 * .ci/lib builds it with ThreadSanitizer too. */
#include "check.h"

#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

enum { READERS = 2, OPENS = 10, LIMITS = 16, SIGNALS = 64 };

static atomic_int stop;

static void *reads(void *sum)
{
	while (!atomic_load(&stop)) {
		const char *value = getenv("TOPOCTL_TEST_LAST");
		time_t now = time(NULL);
		struct tm local;

		*(size_t *)sum += value ? strlen(value) : 0;
		*(size_t *)sum += getenv("TOPOCTL_TEST_NOT_THERE") != NULL;
		*(size_t *)sum += localtime_r(&now, &local) != NULL && localeconv() != NULL;
	}
	return NULL;
}

/* What must be the same before and after. */
struct process {
	char **environ;
	char *variables[1024];
	char locale[64], folder[4096];
	mode_t mask;
	struct rlimit limits[LIMITS];
	void *handlers[SIGNALS];
};

static void look(struct process *p)
{
	memset(p, 0, sizeof *p);
	p->environ = environ;
	for (int i = 0; environ[i] && i < 1023; i++)
		p->variables[i] = environ[i];
	snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
	WANT(getcwd(p->folder, sizeof p->folder) != NULL, 1);
	umask(p->mask = umask(0));
	for (int i = 0; i < LIMITS; i++)
		getrlimit(i, &p->limits[i]);
	for (int i = 1; i < SIGNALS; i++) {
		struct sigaction now;

		p->handlers[i] = sigaction(i, NULL, &now) == 0 ? (void *)now.sa_handler : NULL;
	}
}

int main(void)
{
	pthread_t threads[READERS];
	size_t sums[READERS] = {0};
	static struct process before, after;

	setenv("TOPOCTL_TEST_LAST", "value", 1);
	look(&before);
	for (int i = 0; i < READERS; i++)
		WANT(pthread_create(&threads[i], NULL, reads, &sums[i]), 0);
	for (int i = 0; i < OPENS; i++) {
		int64_t e = topoctl_open(NULL); /* looks at the whole host */

		WANT(e > 0, 1);
		WANT(topoctl_close(e), TOPOCTL_OK);
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < READERS; i++)
		WANT(pthread_join(threads[i], NULL), 0);
	look(&after);
	WANT(memcmp(&before, &after, sizeof before), 0);
	if (failures == 0)
		puts("environ: ok");
	return failures != 0;
}
