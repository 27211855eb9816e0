/* Short payloads that wait for their round. README: A23. */
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

/* A worker's part of its job's. */
struct inbox {
    char *cells; /* NULL: the job has none, or not yet */
    uint32_t count, free, next;
    uint64_t used[INBOX_CELLS_MAX / 64];
};

/* A payload that is short enough is copied, if there is room. false: it is too long for that. */
bool inbox_keep(struct worker *w, struct announcement *a, const void *payload, size_t bytes);
/* Gives the receive back in which a payload of the worker is held, if one is. */
void worker_drop_payload(struct worker *w);
/* Wherever it is, in the inbox or in a receive; if there is one. */
void announcement_drop_payload(struct worker *w, struct announcement *a);

#endif
