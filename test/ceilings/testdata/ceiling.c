// What this machine can do: memory bandwidth as STREAM measures it, and bytes over a TCP
// connection of loopback. Each line of input is a command, "read", "copy", "stream" or
// "tcp", and milliseconds; the answer is bytes per second.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static char *map(size_t n) {
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	madvise(p, n, MADV_HUGEPAGE);
	memset(p, 0, n);
	return p;
}

// Memory. Each thread has a part of its own and goes over it with all others at once.
static int threads;
static size_t bytes;
static char *memory;
static const char *what;
static int over;
static pthread_barrier_t barrier;
static volatile int64_t sink;

static int64_t sum(const int64_t *restrict p, size_t n) {
	int64_t s = 0;
	for (size_t i = 0; i < n; i++) s += p[i];
	return s;
}

static void copy(double *restrict to, const double *restrict from, size_t n) {
	for (size_t i = 0; i < n; i++) to[i] = from[i];
}

static void stream(char *restrict to, const char *restrict from, size_t n) {
#ifdef __AVX2__
	for (size_t i = 0; i + 128 <= n; i += 128) {
		__m256i a = _mm256_load_si256((const void *)(from + i)), b = _mm256_load_si256((const void *)(from + i + 32));
		__m256i c = _mm256_load_si256((const void *)(from + i + 64)), d = _mm256_load_si256((const void *)(from + i + 96));
		_mm256_stream_si256((void *)(to + i), a);
		_mm256_stream_si256((void *)(to + i + 32), b);
		_mm256_stream_si256((void *)(to + i + 64), c);
		_mm256_stream_si256((void *)(to + i + 96), d);
	}
	_mm_sfence();
#else
	memcpy(to, from, n);
#endif
}

static void *work(void *arg) {
	size_t t = (size_t)arg, part = bytes / threads / 4096 * 4096;
	char *mine = memory + t * part;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(t, &set);
	pthread_setaffinity_np(pthread_self(), sizeof set, &set);
	for (;;) {
		pthread_barrier_wait(&barrier);
		if (over) return NULL;
		if (!strcmp(what, "read")) sink += sum((void *)mine, part / 8);
		else if (!strcmp(what, "copy")) copy((void *)mine, (void *)(mine + part / 2), part / 16);
		else stream(mine, mine + part / 2, part / 2);
		pthread_barrier_wait(&barrier);
	}
}

static double measure_memory(double seconds) {
	pthread_t ids[threads];
	size_t moved = bytes / threads / 4096 * 4096 * threads; // a copy of a half: loaded once and stored once
	double start, passes = 0;
	over = 0;
	pthread_barrier_init(&barrier, NULL, threads + 1);
	for (size_t t = 0; t < (size_t)threads; t++) pthread_create(&ids[t], NULL, work, (void *)t);
	for (start = now();; passes++) {
		if (now() - start >= seconds) over = 1;
		pthread_barrier_wait(&barrier);
		if (over) break;
		pthread_barrier_wait(&barrier);
	}
	double rate = moved * passes / (now() - start);
	for (int t = 0; t < threads; t++) pthread_join(ids[t], NULL);
	return rate;
}

// TCP: a process that sends from its memory, and one that receives into its own.
#define REGION (128u << 20)
static size_t op;

static void congestion(int fd) {
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_ops(struct sockaddr_in at, double seconds) {
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	congestion(fd);
	if (connect(fd, (void *)&at, sizeof at)) exit(1);
	char *p = map(REGION);
	char ready;
	if (read(fd, &ready, 1) != 1) exit(1);
	size_t k = 0;
	for (double start = now(); now() - start < seconds; k++) {
		char *from = p + k % (REGION / op) * op;
		for (size_t left = op; left;) {
			ssize_t n = write(fd, from + op - left, left);
			if (n <= 0) exit(1);
			left -= n;
		}
	}
	exit(0);
}

static double measure_tcp(double seconds) {
	int on = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	congestion(on);
	if (bind(on, (void *)&at, sizeof at) || listen(on, 1) || getsockname(on, (void *)&at, &len)) return 0;
	pid_t child = fork();
	if (child == 0) send_ops(at, seconds);
	int fd = accept(on, NULL, NULL);
	close(on);
	static char *p;
	if (!p) p = map(REGION);
	if (write(fd, "", 1) != 1) return 0;
	double start = now(), total = 0;
	for (size_t k = 0;; k++) {
		char *to = p + (REGION / op - 1 - k % (REGION / op)) * op;
		size_t left = op;
		while (left) {
			ssize_t n = read(fd, to + op - left, left);
			if (n <= 0) break;
			left -= n;
			total += n;
		}
		if (left) break;
	}
	double rate = total / (now() - start);
	close(fd);
	waitpid(child, NULL, 0);
	return rate;
}

int main(int argc, char **argv) {
	if (argc != 4) return 2;
	threads = atoi(argv[1]);
	bytes = strtoull(argv[2], NULL, 10);
	op = strtoull(argv[3], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	static char command[16];
	int ms;
	while (scanf("%15s %d", command, &ms) == 2) {
		what = command;
		if (!strcmp(command, "tcp")) {
			printf("%.0f\n", measure_tcp(ms / 1e3));
			continue;
		}
		if (!memory) memory = map(bytes);
		printf("%.0f\n", measure_memory(ms / 1e3));
	}
}
