/*
 * Pusher moves pages of a KV cache into another process, and goes on when that was killed and started again: "pusher
 * TOKEN HOST:PORT REQUESTS". TOKEN is a file with the secret that both have. It prints each request that the receiver
 * has consumed, and at its end the engine's statistics: which lanes carried how much, and which one failed.
 */
#include <time.h>
#include <unistd.h>

#include "page.h"

enum { DEADLINE = 20 /* seconds, of a page, of which each try has 1 s */ };
#define SECOND INT64_C(1000000000)

/* A slot has one batch at a time: the write of a page, then the call that gives the credit for it. */
struct slot {
	uint32_t page; /* from 1 on */
	int64_t batch; /* 0: no page is left */
	int calling;
	time_t began; /* to push the page */
};

static const char *peer;
static uint64_t local;
static uint32_t last; /* page */
static unsigned char *credits; /* of each request */

/* write_page submits a slot's page to where the receiver's memory is now, which an error may have changed. */
static void write_page(struct slot *slot, int find)
{
	static uint64_t kv[2]; /* address and length */
	uint64_t at = slot->page % SLOTS * PAGE_BYTES, from = local + at, to, length = PAGE_BYTES;
	char note[16];

	if (find || kv[0] == 0) {
		int64_t found = check(topoctl_find(engine, peer, "kv", SECOND));

		topoctl_wait(engine, 1, &found, 2 * SECOND);
		topoctl_result(engine, found, kv, sizeof kv); /* where it fails the write does, too */
		check(topoctl_release(engine, found));
	}
	to = kv[0] + at;
	slot->calling = 0;
	slot->batch = check(topoctl_submit(engine, peer, TOPOCTL_WRITE, 1, &from, &to, &length, note,
					   snprintf(note, sizeof note, "%" PRIu32, slot->page), SECOND));
}

/* begin makes a slot's page and pushes it, unless it is behind the last one. */
static void begin(struct slot *slot)
{
	unsigned char *content = (unsigned char *)local + slot->page % SLOTS * PAGE_BYTES;
	uint32_t sum;

	slot->batch = 0;
	if (slot->page > last)
		return;
	for (int i = 0; i < PAGE_BYTES; i += 4)
		memcpy(content + i, &(uint32_t){(uint32_t)random()}, 4);
	memcpy(content, &slot->page, 4);
	sum = adler32(content, PAGE_BYTES - 4);
	memcpy(content + PAGE_BYTES - 4, &sum, 4);
	slot->began = time(NULL);
	write_page(slot, 0);
}

/* again pushes a page once more after its write or its call has failed. */
static void again(struct slot *slot, int64_t status)
{
	char text[512];

	topoctl_error(text, sizeof text);
	fprintf(stderr, "page %" PRIu32 " again: %s\n", slot->page, text);
	if (status == TOPOCTL_INVALID || time(NULL) - slot->began > DEADLINE)
		exit(1); /* it will not be better */
	check(topoctl_release(engine, slot->batch));
	usleep(20000);
	write_page(slot, 1);
}

/* proceed does what comes after a batch that is done. */
static void proceed(struct slot *slot)
{
	char text[16];
	int length = snprintf(text, sizeof text, "%" PRIu32, slot->page);
	uint32_t request = (slot->page - 1) / PAGES;

	check(topoctl_release(engine, slot->batch));
	if (!slot->calling) {
		slot->calling = 1;
		slot->batch = check(topoctl_call(engine, peer, text, length, SECOND));
		return;
	}
	if (++credits[request] == PAGES)
		printf("request %" PRIu32 "\n", request);
	slot->page += SLOTS;
	begin(slot);
}

int main(int argc, char **argv)
{
	static struct slot slots[SLOTS];
	static char stats[1 << 16];
	int64_t status;

	if (argc != 4 || atoi(argv[3]) <= 0)
		return fprintf(stderr, "want pusher TOKEN HOST:PORT REQUESTS\n"), 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	snprintf(stats, sizeof stats, "{\"token_file\": \"%s\"}", argv[1]);
	engine = check(topoctl_open(stats));
	peer = argv[2];
	last = (uint32_t)atoi(argv[3]) * PAGES;
	credits = calloc((size_t)last / PAGES, 1);
	check(topoctl_alloc(engine, SLOTS * PAGE_BYTES, NULL, 0, &local));
	for (uint32_t i = 0; i < SLOTS; i++) {
		slots[i].page = i + 1;
		begin(&slots[i]);
	}
	for (;;) {
		int64_t running[SLOTS], n = 0;

		for (int i = 0; i < SLOTS; i++)
			if (slots[i].batch != 0)
				running[n++] = slots[i].batch;
		if (n == 0)
			break;
		check(topoctl_wait_any(engine, n, running, 2 * SECOND));
		for (int i = 0; i < SLOTS; i++) {
			if (slots[i].batch == 0 || (status = topoctl_poll(engine, slots[i].batch)) == TOPOCTL_OK)
				continue;
			if (status < 0)
				again(&slots[i], status);
			else
				proceed(&slots[i]);
		}
	}
	check(topoctl_stats(engine, stats, sizeof stats));
	printf("%s\n", stats);
	free(credits);
	return check(topoctl_close(engine)) != 0;
}
