/*
 * Pusher moves pages of a KV cache into another process, and goes on when that was killed and started again: "pusher
 * HOST:PORT REQUESTS". It prints each request that the receiver has consumed.
 */
#include <time.h>
#include <unistd.h>

#include "page.h"

enum { DEADLINE = 20 /* seconds, of a request, of which each try of a page has 1 s */ };
#define SECOND INT64_C(1000000000)

/* write_page submits a page, that is new or pushed again, to where the receiver's memory is now. */
static int64_t write_page(const char *peer, uint64_t local, uint32_t page, int again)
{
	static uint64_t kv[2]; /* address and length */
	uint64_t from = local + page % SLOTS * PAGE_BYTES, to, length = PAGE_BYTES;
	unsigned char *content = (unsigned char *)from;
	uint32_t sum;
	char note[16];

	for (int i = 0; !again && i < PAGE_BYTES; i += 4)
		memcpy(content + i, &(uint32_t){(uint32_t)random()}, 4);
	memcpy(content, &page, 4);
	sum = adler32(content, PAGE_BYTES - 4);
	memcpy(content + PAGE_BYTES - 4, &sum, 4);
	if (again || kv[0] == 0) {
		int64_t found = check(topoctl_find(engine, peer, "kv", SECOND));

		topoctl_wait(engine, 1, &found, 2 * SECOND);
		topoctl_result(engine, found, kv, sizeof kv); /* where it fails the write does, too */
		check(topoctl_release(engine, found));
	}
	to = kv[0] + page % SLOTS * PAGE_BYTES;
	return check(topoctl_submit(engine, peer, TOPOCTL_WRITE, 1, &from, &to, &length, note,
				    snprintf(note, sizeof note, "%" PRIu32, page), SECOND));
}

/* Each slot has one batch at a time: a write, then the call that gives the credit. */
int main(int argc, char **argv)
{
	uint32_t count = argc == 3 ? (uint32_t)atoi(argv[2]) : 0, page[SLOTS];
	struct request { int credits; time_t began; } *requests = calloc(count, sizeof *requests);
	int64_t batch[SLOTS], running[SLOTS], n;
	int calling[SLOTS] = {0};
	uint64_t local;
	char text[512];

	if (count == 0)
		return fprintf(stderr, "want pusher HOST:PORT REQUESTS\n"), 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	engine = check(topoctl_open(NULL));
	check(topoctl_alloc(engine, SLOTS * PAGE_BYTES, NULL, 0, &local));
	for (uint32_t i = 0; i < SLOTS; i++) {
		page[i] = i + 1;
		batch[i] = i < count * PAGES ? write_page(argv[1], local, page[i], 0) : 0;
	}
	for (;;) {
		n = 0;
		for (int i = 0; i < SLOTS; i++)
			if (batch[i] != 0)
				running[n++] = batch[i];
		if (n == 0)
			break;
		check(topoctl_wait_any(engine, n, running, 2 * SECOND));
		for (int i = 0; i < SLOTS; i++) {
			struct request *request = &requests[(page[i] - 1) / PAGES];
			int64_t status = batch[i] == 0 ? TOPOCTL_OK : topoctl_poll(engine, batch[i]);

			if (status == TOPOCTL_OK)
				continue;
			if (request->began == 0)
				request->began = time(NULL);
			if (status < 0) {
				topoctl_error(text, sizeof text);
				fprintf(stderr, "page %" PRIu32 " again: %s\n", page[i], text);
				if (status == TOPOCTL_INVALID || time(NULL) - request->began > DEADLINE)
					return 1; /* it will not be better */
				usleep(20000);
			}
			check(topoctl_release(engine, batch[i]));
			batch[i] = 0;
			if (status == TOPOCTL_DONE && !calling[i]) {
				snprintf(text, sizeof text, "%" PRIu32, page[i]);
				batch[i] = check(topoctl_call(engine, argv[1], text, (int64_t)strlen(text), SECOND));
				calling[i] = 1;
				continue;
			}
			calling[i] = 0;
			if (status == TOPOCTL_DONE) { /* the credit */
				if (++request->credits == PAGES)
					printf("request %d\n", (int)(request - requests));
				page[i] += SLOTS;
			}
			if (page[i] <= count * PAGES)
				batch[i] = write_page(argv[1], local, page[i], status < 0);
		}
	}
	free(requests);
	return check(topoctl_close(engine)) != 0;
}
