/* Short payloads for later rounds, copied from their receive buffers. RULES.md: A23. */
#ifndef GRADPOOL_LANE_WORKER_INBOX_H
#define GRADPOOL_LANE_WORKER_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lane_job;
struct worker;
struct announcement;

#define INBOX_CELL_BYTES 512
#define INBOX_CELLS_MAX 1024
#define INBOX_PAYLOAD_BYTES_MAX (4u << 10)

/* One worker's part of the job's inbox. */
struct inbox {
    char *cells;                         /* NULL: the job has no inbox yet */
    uint32_t count;                      /* number of cells */
    uint32_t free;                       /* number of free cells */
    uint32_t next;                       /* cell at which the next search starts */
    uint64_t used[INBOX_CELLS_MAX / 64]; /* bitmap of the cells in use */
};

/* Copies a payload of up to INBOX_PAYLOAD_BYTES_MAX. If too few cells are free, a->payload is NULL,
 * and the lane reads the input in its round. Returns false if the payload is too long or there is
 * no inbox. */
bool inbox_keep(struct worker *w, struct announcement *a, const void *payload, size_t bytes);
/* Returns the receive buffer with a payload of the worker, if there is one, to its connection. */
void worker_drop_payload(struct worker *w);
/* Frees the announcement's payload, in the inbox or in a receive buffer. Does nothing without a
 * payload. */
void announcement_drop_payload(struct worker *w, struct announcement *a);

#endif
