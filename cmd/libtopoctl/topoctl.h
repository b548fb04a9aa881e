/*
 * libtopoctl: moves memory between processes and hosts over many NICs at once.
 * Interface version 2. See docs/c-api.md.
 *
 * Handles are positive numbers; 0 is none. Functions that give a number give a negative
 * topoctl_status where they fail; topoctl_error then says why, in words, for the calling
 * thread. No function keeps a pointer of the caller's after it returns, but for registered
 * memory, which must stay mapped until topoctl_unregister (or topoctl_close) has returned,
 * and the memory that a batch moves, which must not be used until it has ended (topoctl_poll,
 * topoctl_wait, topoctl_release). No function waits for a peer but those whose name says wait:
 * what takes long is a batch. All functions may be called by many threads at once.
 * In a child of fork() every function gives TOPOCTL_FORKED (0 or NULL where it gives no
 * status) and does nothing else; topoctl_error says so there.
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
	TOPOCTL_FAILED = -1,        /* see topoctl_error */
	TOPOCTL_INVALID = -2,       /* an argument is wrong: nothing was begun */
	TOPOCTL_NO_HANDLE = -3,     /* no such engine, batch or list (any more) */
	TOPOCTL_TIMEOUT = -4,       /* topoctl_wait: still running; a batch that has ended: its time was up */
	TOPOCTL_UNSAFE = -5,        /* a batch that has ended: bytes of it may still land in the peer's memory,
	                               which the engine refuses until it is safe; this side's memory is the
	                               caller's. topoctl_release, topoctl_unregister, topoctl_free: this side's
	                               memory is still in use; call again */
	TOPOCTL_NO_PEER = -6,       /* nothing answers at the peer's address, or it refuses the token */
	TOPOCTL_PEER_LOST = -7,     /* the peer died, or restarted, while it was used, or since the metadata was
	                               made by which topoctl_add_peer knows it */
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
const char *topoctl_version(void);
/* The text of the calling thread's latest failure. Like every function that fills out, it gives
 * the length of the whole text or data, and copies as much as cap bytes have room for; a text
 * (char *) ends in a zero byte, which the length does not count: it is whole if the length is
 * below cap. */
int64_t topoctl_error(char *out, int64_t cap);

/* Engines. options is a JSON object (UTF-8), every key optional:
 *   "name"        string   what the engine calls itself; default host:pid
 *   "listen"      [string] host:port; default ["127.0.0.1:0"]
 *   "advertise"   string   host or host:port to tell peers
 *   "token_file"  string   a file with the secret that peers share, 16 bytes or more, as for
 *                          topoctl agent: a line for each, SECRET or NAME SECRET
 *   "cert_file", "key_file", "ca_file" string   certificate, its key, and the CAs of peers, as PEM
 *   "insecure"    bool     true: neither is wanted, though other hosts can connect
 *   "registry"    string   a registry in which peers find this engine by its name, and it them, such as
 *                          "etcd://host1,host2/prefix" (docs/registry.md); default: none
 *   "serves"      [string] with registry: what it tells others that this engine is good for
 *   "regions"     [object] memory that is allocated as by topoctl_alloc before a peer can open this engine, and
 *                          that peers find by name: "name", "bytes", and, optional, "location" and "grant" (a
 *                          number; default 3: peers may read and write)
 *   "answer"      bool     true: this program answers the calls of peers (topoctl_calls)
 *   "devices"     [string] RDMA devices or netdevs that may be used; default: those with role data
 *   "transports"  [string] of "shm", "rdma", "tcp"; default all three, in this order
 *   "protection"  string   what data over TCP has at least: "open", "headers", "payload", "sealed"
 *                          (docs/wire.md, Protection); default "headers" with a token, else "open"
 *   "compat"      [string] "mooncake": also speak Mooncake's classic protocol (docs/mooncake.md)
 *   "metadata"    string   with compat: "P2PHANDSHAKE" or http://host:port/metadata
 *   "topology"    string   "discover" (default), "none", or a topology document's file name
 *   "local_rank", "local_size" int   one of several engines of this host
 *   "default_timeout_ns", "give_up_ns" int
 *   "http"        string   host:port at which metrics are served; with port 0 see topoctl_stats
 *   "log"         string   "error" (default), "warn", "info", "debug": to standard error
 * Unknown keys are refused. */
int64_t topoctl_open(const char *options);
int32_t topoctl_close(int64_t engine);
int32_t topoctl_port(int64_t engine);                       /* that it listens at */
int64_t topoctl_address(int64_t engine, char *out, int64_t cap); /* host:port by which peers open it */
int64_t topoctl_name(int64_t engine, char *out, int64_t cap);

/* Memory. Registers n ranges by address, in any order. Ranges that touch become one; what lies
 * between ranges is never open to peers. location is "cpu:0", "gpu:3", or NULL or "*": found out.
 * All n or none. grant: TOPOCTL_PEER_READ | TOPOCTL_PEER_WRITE, 0 for own use only. */
int32_t topoctl_register(int64_t engine, int64_t n, const uint64_t *address, const uint64_t *length,
                         const char *location, int32_t grant);
/* By the addresses that were given to register. Waits until nothing can touch the memory any
 * more, at most 5 s; TOPOCTL_UNSAFE after that: keep it mapped and call again. Batches on it are
 * canceled. Ranges of the same register call that touch it, and stay, are registered again:
 * batches on them are canceled, too, and for a moment peers do not find them. */
int32_t topoctl_unregister(int64_t engine, int64_t n, const uint64_t *address);
/* Memory that engines of this host share (the fastest path between processes), registered. */
int32_t topoctl_alloc(int64_t engine, uint64_t length, const char *location, int32_t grant, uint64_t *address);
int32_t topoctl_free(int64_t engine, uint64_t address);
/* Where a region of the options is; TOPOCTL_NO_REGION: none has that name. */
int32_t topoctl_region(int64_t engine, const char *name, uint64_t *address, uint64_t *length);

/* Peers are named by host:port, by their name in the registry, or by the one that topoctl_add_peer gave.
 * They are opened by the first batch that uses them, and again after they were lost. Metadata is
 * JSON of at most 64 KiB: name, addresses and epoch of an engine, to be passed on by any means. */
int64_t topoctl_metadata(int64_t engine, void *out, int64_t cap);
int64_t topoctl_add_peer(int64_t engine, const void *metadata, int64_t length, char *name, int64_t cap);
int32_t topoctl_remove_peer(int64_t engine, const char *peer);
/* Asks what the peer offers: a batch, whose result is address and length of each range, two
 * uint64_t, in the order of addresses. */
int64_t topoctl_peer_ranges(int64_t engine, const char *peer, int64_t timeout_ns);
/* Finds a region of the peer by its name: a batch, whose result is its address and length, two
 * uint64_t. A peer that is not there yet, or was lost, and a region that it does not offer yet are
 * waited for until the timeout; then the batch ends with TOPOCTL_NO_PEER or TOPOCTL_NO_REGION. */
int64_t topoctl_find(int64_t engine, const char *peer, const char *region, int64_t timeout_ns);

/* Transfers: a call for a whole batch. Ranges are absolute addresses, here and there; each must
 * lie in registered memory and may cross registered ranges that touch. notify (NULL: none) is
 * delivered to the peer after the data. timeout_ns bounds the batch, the opening of the peer
 * included, 0: default_timeout_ns, which is also the most that it waits for a peer that has to be opened,
 * or asked what it offers. Ranges that a batch writes must not overlap. Gives a batch. What is
 * wrong with the arguments, or with memory of this process, is said at once; what the peer has
 * to say is how the batch ends. With n 0 a batch is a notification; without that, too, it has
 * ended when the peer is open. */
int64_t topoctl_submit(int64_t engine, const char *peer, int32_t op, int64_t n, const uint64_t *local,
                       const uint64_t *remote, const uint64_t *length,
                       const void *notify, int64_t notify_length, int64_t timeout_ns);
/* topoctl_submit and topoctl_wait in one call, the quickest way for a small batch. Where the batch
 * has ended within wait_ns it is forgotten, *batch is 0, and the status is that of topoctl_wait.
 * Else it goes on: the status is TOPOCTL_TIMEOUT, and *batch is to be waited for and released. */
int32_t topoctl_transfer(int64_t engine, const char *peer, int32_t op, int64_t n, const uint64_t *local,
                         const uint64_t *remote, const uint64_t *length, const void *notify,
                         int64_t notify_length, int64_t timeout_ns, int64_t wait_ns, int64_t *batch);
/* Lists of ranges that are kept, from which batches pick by index. peer NULL: of this engine.
 * Entry i is address[i*stride], length[i*stride]: stride 3 reads an N x 3 array. */
int64_t topoctl_list(int64_t engine, const char *peer, int64_t n, const uint64_t *address,
                     const uint64_t *length, int64_t stride);
int32_t topoctl_list_free(int64_t engine, int64_t list);
/* Entry local_index[k] of the local list goes to, or comes from, entry remote_index[k]; an index
 * NULL means 0..n-1. */
int64_t topoctl_submit_lists(int64_t engine, int32_t op, int64_t local, const int64_t *local_index,
                             int64_t remote, const int64_t *remote_index, int64_t n,
                             const void *notify, int64_t notify_length, int64_t timeout_ns);
int32_t topoctl_poll(int64_t engine, int64_t batch);         /* TOPOCTL_DONE, TOPOCTL_OK: running, or why it failed */
/* Waits until all n have ended: TOPOCTL_OK, TOPOCTL_TIMEOUT, or why the first failed one did. */
int32_t topoctl_wait(int64_t engine, int64_t n, const int64_t *batch, int64_t timeout_ns);
/* Waits until one of them has ended, which topoctl_poll finds: TOPOCTL_OK, or TOPOCTL_TIMEOUT. */
int32_t topoctl_wait_any(int64_t engine, int64_t n, const int64_t *batch, int64_t timeout_ns);
/* What a batch of topoctl_call or topoctl_peer_ranges is answered, until it is released: TOPOCTL_TIMEOUT while it
 * runs, else why it failed. */
int64_t topoctl_result(int64_t engine, int64_t batch, void *out, int64_t cap);
/* A descriptor for poll, epoll or a loop: it becomes readable when a batch has ended, and when a
 * notification or a call has come, also those from before; reading 8 bytes makes it wait for the next. Each call
 * makes another one (an eventfd), which wakes by itself. topoctl_event_close closes it; after
 * topoctl_close, close(2) does. Linux only. */
int32_t topoctl_event_fd(int64_t engine);
int32_t topoctl_event_close(int64_t engine, int32_t fd);
/* Forgets a batch; one that runs is canceled first, and waited for: at most 5 s. TOPOCTL_OK: the
 * memory is the caller's. TOPOCTL_UNSAFE: it is not, see above. */
int32_t topoctl_release(int64_t engine, int64_t batch);

typedef struct {
	int64_t start_unix_ns;  /* of submit */
	int64_t post_ns;        /* in submit */
	int64_t duration_ns;    /* from submit to the end, or to now */
	int64_t bytes;          /* in place */
	int64_t ops;            /* as given */
	int64_t retries;        /* slices that were sent again */
} topoctl_telemetry_v1;
int32_t topoctl_telemetry(int64_t engine, int64_t batch, topoctl_telemetry_v1 *out, int64_t size);
int64_t topoctl_explain(int64_t engine, int64_t batch, char *out, int64_t cap); /* JSON: which NICs, and why */
int64_t topoctl_stats(int64_t engine, char *out, int64_t cap);                  /* JSON, as topoctl agent's */

/* Notifications and calls of peers that came since the last call, oldest first, as many whole ones as
 * cap has room for; 0: none. Each is u64 number, u32 length of what the sender calls itself, u32
 * length of what it has proven to be (the first name of its certificate, the name of its token,
 * nothing), u32 length of the message, u32 0 (little endian), and these three without a zero
 * byte. Both give the bytes written; where even the first does not fit TOPOCTL_LIMIT, and
 * topoctl_error says how much it needs. A notification has at most 64 KiB, and number 0. Once
 * 1,024 are waiting, peers that send more wait, too. */
int64_t topoctl_notifications(int64_t engine, void *out, int64_t cap);
int64_t topoctl_calls(int64_t engine, void *out, int64_t cap);
/* Answers the call of that number with at most 4 MiB, or, where refused is not NULL, with that
 * text as an error (TOPOCTL_REFUSED there). TOPOCTL_NO_HANDLE: it is answered, or its peer is gone. */
int32_t topoctl_answer(int64_t engine, int64_t call, const void *answer, int64_t length, const char *refused);
/* Sends a request of at most 1 MiB to the peer's application: a batch, whose result is the answer. It runs there at
 * most once. Without a request (length 0) it asks whether the peer is there, which the library answers. */
int64_t topoctl_call(int64_t engine, const char *peer, const void *request, int64_t length, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
