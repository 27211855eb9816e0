/* Short payloads for later rounds, copied from their receive buffers. Many payloads of one
 * connection can wait, and each buffer is returned at once (W6). Each worker has its own part of
 * the job's inbox, so early announcements of one rank never use up another rank's part. If no cells
 * are free for a payload, the lane reads the input from the worker later. RULES.md: A23. */
#include "svc/lane/worker/inbox.h"

#include "svc/lane/worker/window.h"

#include <string.h>

/* ---- cells ---- */

static uint32_t cells_for(size_t bytes)
{
    return (uint32_t)((bytes + INBOX_CELL_BYTES - 1) / INBOX_CELL_BYTES);
}

static bool is_used(const struct inbox *inbox, uint32_t cell)
{
    return inbox->used[cell / 64] >> (cell % 64) & 1;
}

static void flip(struct inbox *inbox, uint32_t first, uint32_t count)
{
    for (uint32_t cell = first; cell < first + count; cell++)
        inbox->used[cell / 64] ^= UINT64_C(1) << (cell % 64);
}

/* Finds `count` consecutive free cells. The search begins where the last search ended. Returns the
 * first cell, or -1. */
static int64_t find_run(const struct inbox *inbox, uint32_t count)
{
    uint32_t run = 0, at = inbox->next;
    for (uint32_t tried = 0; tried < inbox->count + count; tried++, at++) {
        if (at >= inbox->count)
            at = run = 0;
        run = is_used(inbox, at) ? 0 : run + 1;
        if (run == count)
            return at + 1 - count;
    }
    return -1;
}

static const void *put(struct inbox *inbox, const void *payload, size_t bytes)
{
    uint32_t count = cells_for(bytes);
    int64_t first = count <= inbox->free ? find_run(inbox, count) : -1;
    if (first < 0)
        return NULL;
    flip(inbox, (uint32_t)first, count);
    inbox->free -= count;
    inbox->next = (uint32_t)first + count;
    return memcpy(inbox->cells + (size_t)first * INBOX_CELL_BYTES, payload, bytes);
}

static void take_back(struct inbox *inbox, const void *copy, size_t bytes)
{
    uint32_t first = (uint32_t)(((const char *)copy - inbox->cells) / INBOX_CELL_BYTES);
    flip(inbox, first, cells_for(bytes));
    inbox->free += cells_for(bytes);
}

/* ---- payloads ---- */

bool inbox_keep(struct worker *w, struct announcement *a, const void *payload, size_t bytes)
{
    if (bytes > INBOX_PAYLOAD_BYTES_MAX || window_open(w->job) < 0)
        return false;
    a->payload = put(&w->inbox, payload, bytes);
    a->inbox_bytes = a->payload ? (uint32_t)bytes : 0;
    return true;
}

void worker_drop_payload(struct worker *w)
{
    if (!w->holding)
        return;
    if (w->conn)
        fabric_message_done(w->conn, w->held);
    w->holding->payload = NULL;
    w->holding = NULL;
    w->held = NULL;
}

void announcement_drop_payload(struct worker *w, struct announcement *a)
{
    if (w->holding == a)
        worker_drop_payload(w);
    if (a->inbox_bytes > 0) {
        take_back(&w->inbox, a->payload, a->inbox_bytes);
        a->inbox_bytes = 0;
    }
    a->payload = NULL;
}
