/* Receiver consumes the pages of a KV cache that a pusher sends, and prints each: "receiver TOKEN HOST:PORT". */
#include <poll.h>
#include <unistd.h>

#include "page.h"

/* next gives the page of the next notification or call in a list, and the call's number. */
static uint32_t next(const unsigned char **at, int64_t *number)
{
	uint32_t length[3]; /* of names, name proven, message */
	char text[16] = "";

	memcpy(number, *at, sizeof *number);
	memcpy(length, *at + 8, sizeof length);
	*at += 24 + length[0] + length[1] + length[2];
	memcpy(text, *at - length[2], length[2] < sizeof text ? length[2] : sizeof text - 1);
	return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	static unsigned char calls[1 << 16], notes[1 << 16];
	uint32_t consumed[SLOTS] = {0}; /* the last page of each slot, from 1 on */
	uint64_t kv, length, events;
	int64_t number, n;
	char text[512];

	if (argc != 3)
		return fprintf(stderr, "want receiver TOKEN HOST:PORT\n"), 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	snprintf(text, sizeof text, "{\"token_file\": \"%s\", \"listen\": [\"%s\"], \"answer\": true,"
		 " \"regions\": [{\"name\": \"kv\", \"bytes\": %d, \"grant\": %d}]}",
		 argv[1], argv[2], SLOTS * PAGE_BYTES, TOPOCTL_PEER_WRITE);
	engine = check(topoctl_open(text));
	check(topoctl_region(engine, "kv", &kv, &length));
	struct pollfd news = {.fd = (int)check(topoctl_event_fd(engine)), .events = POLLIN};
	while (poll(&news, 1, -1) == 1 && read(news.fd, &events, sizeof events) == sizeof events) {
		/* The notification of a page comes before its call. */
		const unsigned char *call = calls, *end = calls + check(topoctl_calls(engine, calls, sizeof calls));

		while ((n = check(topoctl_notifications(engine, notes, sizeof notes))) > 0) {
			for (const unsigned char *note = notes; note < notes + n;) {
				uint32_t page = next(&note, &number);
				unsigned char *content = (unsigned char *)kv + page % SLOTS * PAGE_BYTES;
				uint32_t sum = adler32(content, PAGE_BYTES - 4);

				if (page <= consumed[page % SLOTS])
					continue; /* it was pushed twice, and its slot may be the next one's by now */
				int right = memcmp(content, &page, 4) == 0 && memcmp(content + PAGE_BYTES - 4, &sum, 4) == 0;
				printf("page %" PRIu32 " right %s\n", page, right ? "true" : "false");
				consumed[page % SLOTS] = page;
			}
		}
		while (call < end) {
			uint32_t page = next(&call, &number);

			/* What did not come went to the receiver before. A pusher that is gone wants no answer. */
			snprintf(text, sizeof text, "page %" PRIu32 " did not come", page);
			topoctl_answer(engine, number, NULL, 0, page > consumed[page % SLOTS] ? text : NULL);
		}
	}
	perror("receiver");
	return 1;
}
