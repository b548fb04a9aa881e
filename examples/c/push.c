/*
 * push: one process writes into another's memory.
 *
 *	push          starts "push serve" and writes to it
 *	push serve    registers a buffer, prints where it is, and waits for a notification
 *
 * Build it with: gcc -o push examples/c/push.c $(PKG_CONFIG_PATH=$PWD/bin pkg-config --cflags --libs topoctl)
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topoctl.h"

enum { SIZE = 1 << 20 };

/* check ends the program where a call failed, with the library's words. */
static int64_t check(const char *what, int64_t status)
{
	char text[512];

	if (status < 0) {
		topoctl_error(text, sizeof text);
		fprintf(stderr, "push: %s: status %" PRId64 ": %s\n", what, status, text);
		exit(1);
	}
	return status;
}

static int serve(void)
{
	int64_t engine = check("open", topoctl_open("{\"name\": \"server\"}"));
	char host_port[128], note[256];
	uint64_t address, events;

	check("address", topoctl_address(engine, host_port, sizeof host_port));
	/* Memory of malloc would be registered by topoctl_register; this is faster within a host. */
	check("alloc", topoctl_alloc(engine, SIZE, NULL, TOPOCTL_PEER_WRITE, &address));
	printf("%s %" PRIu64 "\n", host_port, address);
	fflush(stdout);
	/* A program with a loop gives the descriptor to poll or epoll. */
	int fd = (int)check("event_fd", topoctl_event_fd(engine));
	struct pollfd news = {.fd = fd, .events = POLLIN};

	while (check("notifications", topoctl_notifications(engine, note, sizeof note)) == 0)
		if (poll(&news, 1, -1) == 1 && read(fd, &events, sizeof events) < 0)
			break;
	/* The notification comes after the data. */
	for (uint64_t i = 0; i < SIZE; i++) {
		if (((unsigned char *)address)[i] != (unsigned char)(i * 7)) {
			fprintf(stderr, "push: byte %" PRIu64 " is wrong\n", i);
			return 1;
		}
	}
	printf("server: %d bytes are right\n", SIZE);
	check("event_close", topoctl_event_close(engine, fd));
	return check("close", topoctl_close(engine)) != 0;
}

static int push(const char *self)
{
	char command[4096], peer[128];
	uint64_t remote;
	FILE *server;
	unsigned char *buffer = malloc(SIZE);

	/* Processes are started by exec: the library does not work in a child of fork. */
	snprintf(command, sizeof command, "'%s' serve", self);
	server = popen(command, "r");
	if (buffer == NULL || server == NULL || fscanf(server, "%127s %" SCNu64 "%*c", peer, &remote) != 2) {
		fprintf(stderr, "push: the server did not start\n");
		return 1;
	}
	for (int i = 0; i < SIZE; i++)
		buffer[i] = (unsigned char)(i * 7);

	int64_t engine = check("open", topoctl_open(NULL));
	uint64_t local = (uintptr_t)buffer, length = SIZE;
	check("register", topoctl_register(engine, 1, &local, &length, NULL, 0));

	/* One call for a batch, of two ranges here. */
	uint64_t from[] = {local, local + SIZE / 2}, to[] = {remote, remote + SIZE / 2}, lengths[] = {SIZE / 2, SIZE / 2};
	int64_t batch = check("submit", topoctl_submit(engine, peer, TOPOCTL_WRITE, 2, from, to, lengths, "done", 4, 0));
	check("wait", topoctl_wait(engine, 1, &batch, INT64_C(10000000000)));

	topoctl_telemetry_v1 t;
	check("telemetry", topoctl_telemetry(engine, batch, &t, sizeof t));
	printf("client: %" PRId64 " bytes in %" PRId64 " ops\n", t.bytes, t.ops);
	check("release", topoctl_release(engine, batch));
	check("unregister", topoctl_unregister(engine, 1, &local));
	check("close", topoctl_close(engine));
	free(buffer);

	for (int c; (c = fgetc(server)) != EOF;)
		putchar(c);
	return pclose(server) != 0;
}

int main(int argc, char **argv)
{
	if (topoctl_abi() != TOPOCTL_ABI) {
		fprintf(stderr, "push: libtopoctl has interface version %d, this program wants %d\n", topoctl_abi(), TOPOCTL_ABI);
		return 1;
	}
	return argc > 1 && strcmp(argv[1], "serve") == 0 ? serve() : push(argv[0]);
}
