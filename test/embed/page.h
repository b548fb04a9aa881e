/*
 * What pusher.c and receiver.c have together.
 *
 * A request is 8 pages. A page goes to slot PAGE % 16 of the receiver's memory, and with it the notification "PAGE".
 * The call "PAGE" then returns the credit for the slot, once the receiver has consumed the page. Whatever fails, the
 * same page is pushed again until then, so that what is still under way changes nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topoctl.h"

enum { SLOTS = 16, PAGES = 8 /* of a request */, PAGE_BYTES = 64 << 10 /* its number, anything, Adler-32 of both */ };
static int64_t engine;

/* check ends the program where a call failed, with the library's words. */
static int64_t check(int64_t status)
{
	char text[512];

	if (status >= 0)
		return status;
	topoctl_error(text, sizeof text);
	fprintf(stderr, "status %" PRId64 ": %s\n", status, text);
	exit(1);
}

static uint32_t adler32(const unsigned char *bytes, size_t n)
{
	uint32_t a = 1, b = 0;

	for (size_t i = 0; i < n; i++) {
		a = (a + bytes[i]) % 65521;
		b = (b + a) % 65521;
	}
	return b << 16 | a;
}
