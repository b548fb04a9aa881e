#ifndef BASELINE_H
#define BASELINE_H

#include <stddef.h>
#include <stdint.h>

/* What one end tells the other. */
struct bl_end {
	uint64_t addr;
	uint32_t qpn, psn, rkey;
	uint8_t gid[16];
};

/* All give NULL or what went wrong. There is one end for each process. */
const char *bl_open(const char *device, int gid_index, size_t size, int depth, struct bl_end *mine);
const char *bl_connect(const struct bl_end *theirs, int mtu, int timeout);
/* Moves count messages, depth at a time; ns are the nanoseconds that each took, or NULL. */
const char *bl_run(int read, uint32_t bytes, int depth, int count, uint64_t *total_ns, uint32_t *ns);
const char *bl_close(void);

#endif
