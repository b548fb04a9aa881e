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

// Memory. Each thread goes over a part of its own, piece by piece, until the time is over.
#define PIECE (4u << 20)
static int threads;
static size_t bytes;
static char *memory;
static const char *what;
static double until;
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

// work gives the bytes that it has loaded and stored.
static void *work(void *arg) {
	size_t t = (size_t)arg, part = bytes / threads / 2 / PIECE * PIECE, moved = 0;
	char *low = memory + 2 * t * part, *high = low + part;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(t, &set);
	pthread_setaffinity_np(pthread_self(), sizeof set, &set);
	static __thread int64_t found;
	static size_t at[CPU_SETSIZE]; // goes on where it was
	for (; now() < until; at[t] = (at[t] + PIECE) % part, moved += 2 * PIECE) {
		char *to = low + at[t], *from = high + at[t];
		if (!strcmp(what, "read")) found += sum((void *)to, PIECE / 8) + sum((void *)from, PIECE / 8);
		else if (!strcmp(what, "copy")) copy((void *)to, (void *)from, PIECE / 8);
		else stream(to, from, PIECE);
	}
	sink += found;
	return (void *)moved;
}

static double measure_memory(double seconds) {
	pthread_t ids[threads];
	double start = now(), moved = 0;
	until = start + seconds;
	for (size_t t = 0; t < (size_t)threads; t++) pthread_create(&ids[t], NULL, work, (void *)t);
	for (int t = 0; t < threads; t++) {
		void *part;
		pthread_join(ids[t], &part);
		moved += (size_t)part;
	}
	return moved / (now() - start);
}

// TCP: a process that sends from its memory, and one that receives into its own.
#define REGION (64u << 20)
static size_t op;

static void congestion(int fd) {
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// send_ops sends ops for as long as it is told. The first byte of an op says whether there
// are more.
static void send_ops(struct sockaddr_in at) {
	char *region = map(REGION);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	congestion(fd);
	if (connect(fd, (void *)&at, sizeof at)) exit(1);
	double seconds;
	for (size_t k = 0; read(fd, &seconds, sizeof seconds) == sizeof seconds;) {
		double start = now();
		for (int more = 1; more; k++) {
			char *from = region + k % (REGION / op) * op;
			from[0] = more = now() - start < seconds;
			for (size_t left = op; left;) {
				ssize_t n = write(fd, from + op - left, left);
				if (n <= 0) exit(1);
				left -= n;
			}
		}
	}
	exit(0);
}

static int connect_sender(void) {
	int on = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	congestion(on);
	if (bind(on, (void *)&at, sizeof at) || listen(on, 1) || getsockname(on, (void *)&at, &len)) return -1;
	if (fork() == 0) {
		close(on);
		send_ops(at);
	}
	int fd = accept(on, NULL, NULL);
	close(on);
	return fd;
}

// The first sixth of the time warms up.
static double measure_tcp(double seconds) {
	static char *region;
	static int fd;
	static size_t k;
	if (!region) region = map(REGION), fd = connect_sender();
	double whole = seconds * 7 / 6, first = 0, start = 0, end = 0, total = 0;
	if (write(fd, &whole, sizeof whole) != sizeof whole) return 0;
	for (int more = 1; more; k++) {
		char *to = region + (REGION / op - 1 - k % (REGION / op)) * op;
		for (size_t left = op; left;) {
			ssize_t n = read(fd, to + op - left, left);
			if (n <= 0) return 0;
			left -= n;
			end = now();
			if (!first) first = end;
			if (start) total += n;
			else if (end - first >= seconds / 6) start = end;
		}
		more = to[0];
	}
	return start && end > start ? total / (end - start) : 0;
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
