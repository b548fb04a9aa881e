/*
 * libtopoctl: moves memory between processes and hosts over many NICs at once.
 * Interface version 2. See docs/c-api.md.
 *
 * An engine registers memory, which its peers, other engines, may read and write as far as it
 * grants, and begins batches that move bytes between its memory and theirs.
 *
 * Handles of engines, batches and lists are positive numbers. A function that fails gives a
 * negative topoctl_status, and topoctl_error says why in words, for the calling thread. Lengths
 * are bytes, times nanoseconds, texts UTF-8 that ends in a zero byte.
 *
 * What a peer takes part in is a batch: only topoctl_wait, topoctl_wait_any and topoctl_transfer
 * wait for a peer. Arguments are copied before a function returns, with two exceptions: registered
 * memory must stay mapped until topoctl_unregister or topoctl_close has returned, and memory that
 * a batch moves must not be used until the batch has ended, as topoctl_poll, topoctl_wait or
 * topoctl_release say.
 *
 * All functions may be called by many threads at once. In a child of fork() they do nothing and
 * give TOPOCTL_FORKED, or NULL.
 */
#ifndef TOPOCTL_H
#define TOPOCTL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TOPOCTL_ABI 2

typedef enum {
	TOPOCTL_OK = 0,
	TOPOCTL_DONE = 1,           /* topoctl_poll: the batch has ended, all bytes are in place */
	TOPOCTL_FAILED = -1,        /* none of the others: see topoctl_error */
	TOPOCTL_INVALID = -2,       /* an argument is wrong: nothing was begun */
	TOPOCTL_NO_HANDLE = -3,     /* no such engine, batch or list (any more) */
	TOPOCTL_TIMEOUT = -4,       /* of a wait: a batch still runs; of a batch: it ended when its time was up */
	TOPOCTL_UNSAFE = -5,        /* of a batch: it has ended, but bytes of it may still land in the peer's
	                               memory, which the engine refuses as a destination until they cannot;
	                               memory of this side may be used. Of topoctl_release, topoctl_unregister
	                               and topoctl_free: memory of this side is still in use; call again */
	TOPOCTL_NO_PEER = -6,       /* nothing answers at the peer's address, or it refuses the token */
	TOPOCTL_PEER_LOST = -7,     /* the peer died or restarted while it was used, or since it made the
	                               metadata that topoctl_add_peer was given */
	TOPOCTL_NO_REGION = -8,     /* the range is not registered there, or its owner does not grant it */
	TOPOCTL_CANCELED = -9,      /* released, or the engine was closed */
	TOPOCTL_EXISTS = -10,       /* register: overlaps what is registered */
	TOPOCTL_LIMIT = -11,        /* a limit of the engine is reached */
	TOPOCTL_FORKED = -12,       /* this process is a child of the one that opened the library */
	TOPOCTL_INTERNAL = -13,     /* a defect of the library, caught: please report it */
	TOPOCTL_REFUSED = -14,      /* the peer's application answered a call with an error */
	TOPOCTL_NO_MEMORY = -15     /* the system has not so much memory */
} topoctl_status;

typedef enum { TOPOCTL_READ = 0, TOPOCTL_WRITE = 1 } topoctl_op; /* READ: from the peer to here */

enum { TOPOCTL_PEER_READ = 1, TOPOCTL_PEER_WRITE = 2 };           /* what peers may do with memory */

int32_t topoctl_abi(void);            /* TOPOCTL_ABI of the library; compare it with the header's */
const char *topoctl_version(void);    /* such as "0.9.0"; it stays valid */
/* The text of the calling thread's latest failure. Like every function that fills out, it copies
 * what cap bytes have room for, and gives the length of the whole. A text (char *) ends in a zero
 * byte, which the length does not count: it is whole if the length is below cap. */
int64_t topoctl_error(char *out, int64_t cap);

/* Opens an engine. options is a JSON object, NULL or "" for all defaults:
 *   "name"        string   what the engine calls itself; default host:pid
 *   "listen"      [string] host:port to listen at, or host:first-last for the first port that is
 *                          free; default ["127.0.0.1:0"], a free port that only this host reaches
 *   "advertise"   string   host or host:port to tell peers
 *   "token_file"  string   file with the secret that peers share, 16 bytes or more, as for
 *                          topoctl agent: a line for each, SECRET or NAME SECRET
 *   "cert_file", "key_file", "ca_file" string   this engine's certificate, its key, and the CAs of
 *                          its peers' certificates, as PEM
 *   "insecure"    bool     true: other hosts may connect without token or certificate
 *   "registry"    string   registry in which engines find each other by name, such as
 *                          "etcd://host1,host2/prefix" (docs/registry.md); default: none
 *   "serves"      [string] with registry: words that tell others what this engine is for
 *   "regions"     [object] memory that is there before a peer can open the engine, and that peers
 *                          find by its name: "name", "bytes", and, as for topoctl_alloc, "location"
 *                          and "grant" (a number; default 3: peers may read and write)
 *   "answer"      bool     true: this program answers the calls of peers (topoctl_calls)
 *   "devices"     [string] RDMA devices or netdevs that may be used; default: all that carry data
 *   "transports"  [string] of "shm", "rdma", "tcp"; default all three, in this order
 *   "protection"  string   what data over TCP has at least: "open", "headers", "payload", "sealed"
 *                          (docs/wire.md, Protection); default "headers" with a token or
 *                          certificate, else "open"
 *   "compat"      [string] "mooncake": also speak Mooncake's classic protocol (docs/mooncake.md)
 *   "metadata"    string   with compat: "P2PHANDSHAKE" (default) or http://host:port/metadata
 *   "topology"    string   "discover" (default), "none", or a topology document's file name
 *   "local_rank", "local_size" int   which of how many engines of this host this is
 *   "default_timeout_ns" int   that a batch may take without a timeout of its own; default 30 s
 *   "give_up_ns"  int      after which a peer that does not answer is lost; default 10 s
 *   "http"        string   host:port at which metrics are served; with port 0, or one that is
 *                          taken, it is a free one: topoctl_stats has the address
 *   "log"         string   "error" (default), "warn", "info", "debug": to standard error
 * Unknown keys are refused. */
int64_t topoctl_open(const char *options);
/* Cancels all batches, closes all connections, and gives registered memory back. TOPOCTL_UNSAFE:
 * peers may still touch that memory; leave it mapped. */
int32_t topoctl_close(int64_t engine);
int32_t topoctl_port(int64_t engine);                            /* that it listens at, the first of several */
int64_t topoctl_address(int64_t engine, char *out, int64_t cap); /* host:port by which peers open it */
int64_t topoctl_name(int64_t engine, char *out, int64_t cap);    /* what it calls itself */

/* Registers n ranges of memory, all or none, in any order; what lies between them is never open to
 * peers. location is where they are, "cpu:0" or "gpu:3"; NULL or "*" finds it out. grant is what
 * peers may do, TOPOCTL_PEER_READ | TOPOCTL_PEER_WRITE, or 0: only this engine uses the memory. */
int32_t topoctl_register(int64_t engine, int64_t n, const uint64_t *address, const uint64_t *length,
                         const char *location, int32_t grant);
/* Gives ranges back, by the addresses that topoctl_register was given, and cancels batches that use
 * them. Waits until nothing can touch the memory any more, at most 5 s; after that TOPOCTL_UNSAFE:
 * keep it mapped and call again. A range that touches it, was registered by the same call, and
 * stays, is registered again: its batches are canceled, too, and for a moment peers do not find it. */
int32_t topoctl_unregister(int64_t engine, int64_t n, const uint64_t *address);
/* Allocates memory that engines of this host share, the fastest way between processes, and registers
 * it. location is a NUMA node, "cpu:0", or NULL: any. TOPOCTL_NO_MEMORY: there is not so much. */
int32_t topoctl_alloc(int64_t engine, uint64_t length, const char *location, int32_t grant, uint64_t *address);
int32_t topoctl_free(int64_t engine, uint64_t address); /* as topoctl_unregister; then the memory is gone */
/* Where a region of the options is; TOPOCTL_NO_REGION: none has that name. */
int32_t topoctl_region(int64_t engine, const char *name, uint64_t *address, uint64_t *length);

/* A peer is named by host:port, by its name in the registry, or by the one that topoctl_add_peer
 * gave. It is opened by the first batch that uses it, and again after it was lost.
 * topoctl_metadata gives name, addresses and epoch of this engine as JSON of at most 64 KiB, to be
 * passed on by any means. topoctl_add_peer takes those of another engine, and fills name with the
 * peer's. topoctl_remove_peer forgets a peer, and cancels its batches. */
int64_t topoctl_metadata(int64_t engine, void *out, int64_t cap);
int64_t topoctl_add_peer(int64_t engine, const void *metadata, int64_t length, char *name, int64_t cap);
int32_t topoctl_remove_peer(int64_t engine, const char *peer);
/* Asks which memory the peer offers to this engine: a batch, whose result is address and length of
 * each range, two uint64_t, in the order of addresses. */
int64_t topoctl_peer_ranges(int64_t engine, const char *peer, int64_t timeout_ns);
/* Finds a region of the peer by its name: a batch, whose result is its address and length, two
 * uint64_t. A peer that is not there yet, or was lost, and a region that it does not offer yet are
 * waited for until the timeout; then the batch ends with TOPOCTL_NO_PEER or TOPOCTL_NO_REGION. */
int64_t topoctl_find(int64_t engine, const char *peer, const char *region, int64_t timeout_ns);

/* Begins a batch: range i of local, length[i] bytes, goes to range i of remote, or comes from there.
 * Ranges are absolute addresses. Each must lie in registered memory, and may cross registered
 * ranges that touch; ranges that a batch writes must not overlap. The notification (NULL: none) is
 * delivered to the peer after the data. The batch ends by timeout_ns, which bounds the opening of
 * the peer, too; 0 is default_timeout_ns, which is also the longest that a batch waits for its peer
 * to be opened or to say what it offers.
 * Wrong arguments, and memory that is not registered here, are refused at once; what the peer has
 * to say is how the batch ends. With n 0 it is a notification alone, or, without one, opens the
 * peer. */
int64_t topoctl_submit(int64_t engine, const char *peer, int32_t op, int64_t n, const uint64_t *local,
                       const uint64_t *remote, const uint64_t *length,
                       const void *notify, int64_t notify_length, int64_t timeout_ns);
/* topoctl_submit and topoctl_wait in one call, the quickest way for a small batch. Where the batch
 * has ended within wait_ns it is released, *batch is 0, and the status is how it ended. Else the
 * status is TOPOCTL_TIMEOUT, and *batch goes on: wait for it and release it. */
int32_t topoctl_transfer(int64_t engine, const char *peer, int32_t op, int64_t n, const uint64_t *local,
                         const uint64_t *remote, const uint64_t *length, const void *notify,
                         int64_t notify_length, int64_t timeout_ns, int64_t wait_ns, int64_t *batch);
/* Keeps a list of n ranges, of a peer or (NULL) of this engine, from which batches pick by index.
 * Entry i is address[i*stride], length[i*stride]: stride 3 reads an N x 3 array. topoctl_list_free
 * forgets the list; batches that were made of it go on. */
int64_t topoctl_list(int64_t engine, const char *peer, int64_t n, const uint64_t *address,
                     const uint64_t *length, int64_t stride);
int32_t topoctl_list_free(int64_t engine, int64_t list);
/* As topoctl_submit, of n pairs: entry local_index[k] of the local list goes to entry
 * remote_index[k] of the remote one, or comes from there. An index that is NULL is 0 to n-1. */
int64_t topoctl_submit_lists(int64_t engine, int32_t op, int64_t local, const int64_t *local_index,
                             int64_t remote, const int64_t *remote_index, int64_t n,
                             const void *notify, int64_t notify_length, int64_t timeout_ns);
/* How a batch is: TOPOCTL_OK while it runs, TOPOCTL_DONE, or why it failed. */
int32_t topoctl_poll(int64_t engine, int64_t batch);
/* Waits until all n have ended: TOPOCTL_OK, TOPOCTL_TIMEOUT, or why the first that failed did. With
 * timeout_ns 0 it only looks. */
int32_t topoctl_wait(int64_t engine, int64_t n, const int64_t *batch, int64_t timeout_ns);
/* Waits until one of n has ended, which topoctl_poll finds: TOPOCTL_OK, or TOPOCTL_TIMEOUT. */
int32_t topoctl_wait_any(int64_t engine, int64_t n, const int64_t *batch, int64_t timeout_ns);
/* The result of a batch of topoctl_call, topoctl_peer_ranges or topoctl_find, until it is released.
 * TOPOCTL_TIMEOUT while it runs, else why it failed. */
int64_t topoctl_result(int64_t engine, int64_t batch, void *out, int64_t cap);
/* A descriptor (an eventfd) for poll, epoll or a loop: it becomes readable when a batch has ended,
 * and when a notification or a call has come, also those from before. Read 8 bytes of it to wait
 * for the next. Each call makes another one, which is not affected by the reads of others. Close
 * it by topoctl_event_close, after topoctl_close by close(2). Linux only. */
int32_t topoctl_event_fd(int64_t engine);
int32_t topoctl_event_close(int64_t engine, int32_t fd);
/* Forgets a batch; each is to be released once. One that runs is canceled, and waited for, at most
 * 5 s. TOPOCTL_OK: its memory may be used again. TOPOCTL_UNSAFE: not yet; call again. */
int32_t topoctl_release(int64_t engine, int64_t batch);

/* What a batch did so far. size is sizeof *out. */
typedef struct {
	int64_t start_unix_ns;  /* when it was submitted, since 1970 */
	int64_t post_ns;        /* how long submitting took */
	int64_t duration_ns;    /* from submitting to the end, or to now */
	int64_t bytes;          /* in place */
	int64_t ops;            /* n of topoctl_submit */
	int64_t retries;        /* slices that were sent again */
} topoctl_telemetry_v1;
int32_t topoctl_telemetry(int64_t engine, int64_t batch, topoctl_telemetry_v1 *out, int64_t size);
/* Which NICs carried a batch, what failed, and why: JSON, topoctl.explain/v1. */
int64_t topoctl_explain(int64_t engine, int64_t batch, char *out, int64_t cap);
/* Peers, lanes and what was moved: JSON, topoctl.engine/v1. */
int64_t topoctl_stats(int64_t engine, char *out, int64_t cap);

/* Take notifications, and calls, of peers that came since the last time: as many whole ones, oldest
 * first, as cap has room for. They give the bytes written, 0 for none, and TOPOCTL_LIMIT where even
 * the first does not fit (topoctl_error says how much it needs). Each is, little endian,
 *   u64 number of the call, 0 for a notification
 *   u32 length of the sender, u32 of the proven name, u32 of the message, u32 0
 *   the sender: what the peer calls itself
 *   the proven name: the first name of its certificate, or the name of its token, or nothing
 *   the message
 * without zero bytes between them. A notification has at most 1 MiB. While those that wait
 * take their share of memory (a quarter of the system's, at most 4 GiB), peers that send more wait, too. */
int64_t topoctl_notifications(int64_t engine, void *out, int64_t cap);
int64_t topoctl_calls(int64_t engine, void *out, int64_t cap);
/* Answers a call by its number, with at most 4 MiB, or, where refused is not NULL, with that text as
 * an error, which is TOPOCTL_REFUSED there. TOPOCTL_NO_HANDLE: it was answered, or its peer is gone. */
int32_t topoctl_answer(int64_t engine, int64_t call, const void *answer, int64_t length, const char *refused);
/* Sends a request of at most 1 MiB to the peer's program, where it arrives at most once: a batch,
 * whose result is the answer. With length 0 it asks whether the peer is there, which the peer's
 * library answers. */
int64_t topoctl_call(int64_t engine, const char *peer, const void *request, int64_t length, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
