/*
 * hello: writes into a peer's memory over every NIC, and says which of them carried it.
 *
 * Build it with: gcc -o hello examples/c/hello.c $(PKG_CONFIG_PATH=$PWD/bin pkg-config --cflags --libs topoctl)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topoctl.h"

enum { SIZE = 1 << 20 };

/* check ends the program if a call failed, with the library's words. */
static int64_t check(const char *what, int64_t status)
{
	char text[512];

	if (status < 0) {
		topoctl_error(text, sizeof text);
		fprintf(stderr, "hello: %s: %s\n", what, text);
		exit(1);
	}
	return status;
}

int main(void)
{
	/* The side that offers memory: mostly another process, on another host. */
	int64_t there = check("open", topoctl_open("{\"name\": \"there\"}"));
	uint64_t kv, page, length = SIZE;
	char peer[128], why[16384];

	check("alloc", topoctl_alloc(there, SIZE, NULL, TOPOCTL_PEER_WRITE, &kv));
	check("address", topoctl_address(there, peer, sizeof peer));

	/* The side that writes. */
	int64_t here = check("open", topoctl_open("{\"name\": \"here\"}"));

	check("alloc", topoctl_alloc(here, SIZE, NULL, 0, &page));
	strcpy((char *)page, "over every NIC");
	int64_t batch = check("submit", topoctl_submit(here, peer, TOPOCTL_WRITE, 1, &page, &kv, &length,
						       NULL, 0, INT64_C(10000000000)));
	check("wait", topoctl_wait(here, 1, &batch, INT64_C(10000000000)));
	printf("%s\n", (char *)kv);

	check("explain", topoctl_explain(here, batch, why, sizeof why));
	printf("%s\n", why);
	check("release", topoctl_release(here, batch));
	check("close", topoctl_close(here));
	check("close", topoctl_close(there));
	return 0;
}
