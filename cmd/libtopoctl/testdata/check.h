/* What the programs here share. Each ends with 1 where something is not as it should be. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "topoctl.h"

static int failures __attribute__((unused));

/* WANT compares, and prints the error's text where they differ. */
#define WANT(got, want) do { \
	int64_t got_ = (int64_t)(got), want_ = (int64_t)(want); \
	if (got_ != want_) { \
		char text_[300]; \
		topoctl_error(text_, sizeof text_); \
		fprintf(stderr, "%s:%d: %s is %" PRId64 ", want %" PRId64 ": %s\n", __FILE__, __LINE__, #got, got_, want_, text_); \
		__atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST); \
	} \
} while (0)

#define SECOND INT64_C(1000000000)

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

/* open_small makes an engine that knows no ports. */
static inline int64_t open_small(void)
{
	int64_t e = topoctl_open("{\"topology\": \"none\"}");

	if (e <= 0) {
		WANT(e, 1);
		exit(1);
	}
	return e;
}

/* address_of is host:port of an engine. */
static inline const char *address_of(int64_t engine, char *out, int64_t cap)
{
	int64_t n = topoctl_address(engine, out, cap);

	WANT(n > 0 && n < cap, 1);
	return out;
}

/* alloc is memory of the engine. */
static inline uint64_t alloc(int64_t engine, uint64_t length, int32_t grant)
{
	uint64_t address = 0;

	WANT(topoctl_alloc(engine, length, NULL, grant, &address), TOPOCTL_OK);
	return address;
}

/* ended waits for a batch and gives how it ended, or why it could not begin. */
static inline int64_t ended(int64_t engine, int64_t batch)
{
	int32_t status = TOPOCTL_OK;

	if (batch < 0)
		return batch;
	status = topoctl_wait(engine, 1, &batch, 20 * SECOND);
	WANT(topoctl_release(engine, batch), TOPOCTL_OK);
	return status;
}
