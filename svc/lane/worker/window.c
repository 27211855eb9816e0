/* Window of a job: the slots of its transfers, which limit the job's bytes in transit. Each job has
 * its own window. Therefore a stopped worker blocks only slots of its own job, and a slot never has
 * data of several tenants. RULES.md: A7. */
#include "svc/lane/worker/window.h"

#include "svc/base/text.h"
#include "svc/lane/chunk/transfer.h"
#include "svc/lane/job/failure.h"

#include <errno.h>
#include <stdio.h>

/* Bytes of a job's long chunks in transit, for all workers together. With a larger value, data
 * leaves the cache before it is summed. With a smaller value, slots are shorter, and messages and
 * wake-ups cost more CPU time. */
#define WINDOW_BYTES ((5u << 20) / TRANSFER_SHORTER)
#define SLOT_BYTES_LEAST ((64u << 10) / TRANSFER_SHORTER)
#define SLOT_BYTES_MOST ((1u << 20) / TRANSFER_SHORTER)
/* Bytes of small chunks in transit. Many small chunks are in transit at once, because each chunk
 * waits for a round trip. */
#define SMALL_WINDOW_BYTES (1u << 20)
#define SLOT_BYTES_SMALL (4u << 10)

/* Bytes of the inbox for all workers of a job; minimum and maximum bytes for one worker. */
#define INBOX_BYTES (2u << 20)
#define PART_BYTES_LEAST (64u << 10)
#define PART_BYTES_MOST ((size_t)INBOX_CELLS_MAX * INBOX_CELL_BYTES)

/* Returns the number of slots: one for each input of a pass, and one for the partial result. */
static size_t slots_per_transfer(const struct lane_job *job)
{
    uint32_t inputs = job->workers_count * job->sampling->gradients;
    return (inputs < REDUCE_SOURCES_MAX ? inputs : REDUCE_SOURCES_MAX) + 1;
}

size_t window_slot_bytes(const struct lane_job *job)
{
    size_t bytes = WINDOW_BYTES / LARGE_TRANSFERS / slots_per_transfer(job);
    bytes -= bytes % SLOT_BYTES_LEAST;
    if (bytes < SLOT_BYTES_LEAST)
        return SLOT_BYTES_LEAST;
    return bytes > SLOT_BYTES_MOST ? SLOT_BYTES_MOST : bytes;
}

static size_t slot_bytes_of(const struct lane_job *job, int i)
{
    if (i < LARGE_TRANSFERS)
        return window_slot_bytes(job);
    if (i < LARGE_TRANSFERS + SHORT_TRANSFERS)
        return SLOT_BYTES_LEAST;
    size_t fit = SMALL_WINDOW_BYTES / (SLOT_BYTES_SMALL * slots_per_transfer(job));
    return (size_t)(i - LARGE_TRANSFERS - SHORT_TRANSFERS) < fit ? SLOT_BYTES_SMALL : 0;
}

void window_init(struct lane_job *job)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++)
        job->transfers[i].slot_bytes = slot_bytes_of(job, i);
}

static void unregister_first(struct lane_job *job, void *window, size_t fabrics)
{
    for (size_t i = 0; i < fabrics; i++)
        fabric_pool_unregister(job->lane->options.fabrics[i], window);
}

static int register_all(struct lane_job *job, void *window, size_t bytes)
{
    for (size_t i = 0; i < job->lane->options.fabrics_count; i++) {
        int error = fabric_pool_register(job->lane->options.fabrics[i], window, bytes);
        if (error < 0) {
            unregister_first(job, window, i);
            return error;
        }
    }
    return 0;
}

size_t window_bytes(const struct lane_job *job)
{
    size_t bytes = 0;
    for (int i = 0; i < TRANSFERS_PER_JOB; i++)
        bytes += job->transfers[i].slot_bytes * slots_per_transfer(job);
    return bytes;
}

/* Writes the reason why an allocation has failed. The text is short enough for a record to the
 * workers (RECORD_TEXT_BYTES). */
static int say_lack(const struct lane_job *job, char *text, size_t room)
{
    char wants[32], holds[32], may[32];
    const struct arena *arena = job->lane->options.arena;
    int code = arena_lack(arena);
    bool is_job = code == -EDQUOT;
    size_t limit_bytes = is_job ? arena_account_limit(arena) : arena_limit(arena);
    int used = snprintf(text, room, "lane %u has no memory for the window of %s",
                        job->lane->options.id, text_bytes(window_bytes(job), wants, sizeof wants));
    if (code != -ENOMEM)
        snprintf(text + used, room - (size_t)used, " (%s %s of %s, --%s-memory-max)",
                 is_job ? "job has" : "it holds",
                 text_bytes(is_job ? job->account.bytes : arena_counted_bytes(arena), holds,
                            sizeof holds),
                 text_bytes(limit_bytes, may, sizeof may), is_job ? "job" : "lane");
    return code;
}

/* Fails the job here, so that all ranks receive the same text. A later error would name a worker
 * that is not the cause. A refusal over the network contains only a number, and no text (A12). */
static int fail_for_lack(struct lane_job *job)
{
    char text[LANE_TEXT_BYTES];
    int code = say_lack(job, text, sizeof text);
    job_fail(job, code, "%s", text);
    return code;
}

static void share_out(struct lane_job *job, char *slots)
{
    for (int i = 0; i < TRANSFERS_PER_JOB; i++) {
        job->transfers[i].slots = slots;
        slots += job->transfers[i].slot_bytes * slots_per_transfer(job);
    }
}

/* Returns whether a window is needed. Sums in several passes need slots for the partial result,
 * even if all memory is mapped. */
static bool needs_window(const struct lane_job *job, const struct fabric *fabric)
{
    return !fabric_maps(fabric) ||
           job->workers_count * job->sampling->gradients >= REDUCE_SOURCES_MAX ||
           job->workers_count >= REDUCE_TARGETS_MAX;
}

int window_reserve(struct lane_job *job, const struct fabric *fabric)
{
    if (job->window || job->reserved_bytes || !needs_window(job, fabric))
        return 0;
    job->reserved_bytes = arena_reserve(job->lane->options.arena, &job->account, window_bytes(job));
    return job->reserved_bytes ? 0 : fail_for_lack(job);
}

static void unreserve(struct lane_job *job)
{
    arena_unreserve(job->lane->options.arena, &job->account, job->reserved_bytes);
    job->reserved_bytes = 0;
}

static bool is_on_the_way(struct lane_job *job)
{
    const struct lane_options *options = &job->lane->options;
    if (job->pages == WINDOW_READY || !options->memory_wanted)
        return false;
    if (job->pages == WINDOW_UNASKED)
        options->memory_wanted(options->context);
    job->pages = WINDOW_WANTED;
    return true;
}

static size_t part_bytes(const struct lane_job *job)
{
    size_t bytes = INBOX_BYTES / job->workers_count;
    bytes -= bytes % INBOX_CELL_BYTES;
    if (bytes < PART_BYTES_LEAST)
        return PART_BYTES_LEAST;
    return bytes > PART_BYTES_MOST ? PART_BYTES_MOST : bytes;
}

size_t inbox_bytes(const struct lane_job *job) { return part_bytes(job) * job->workers_count; }

static void open_inbox(struct lane_job *job)
{
    job->inbox = arena_alloc(job->lane->options.arena, &job->account, inbox_bytes(job));
    for (uint32_t i = 0; job->inbox && i < job->workers_count; i++) {
        struct inbox *inbox = &job->workers[i].inbox;
        inbox->cells = job->inbox + i * part_bytes(job);
        inbox->count = inbox->free = (uint32_t)(part_bytes(job) / INBOX_CELL_BYTES);
    }
}

int window_open(struct lane_job *job)
{
    size_t bytes = window_bytes(job);
    if (job->window)
        return 0;
    if (is_on_the_way(job))
        return -EAGAIN;
    unreserve(job);
    char *window = arena_alloc_aligned(job->lane->options.arena, &job->account, bytes);
    if (!window)
        return fail_for_lack(job);
    int error = register_all(job, window, bytes);
    if (error < 0) {
        arena_free(job->lane->options.arena, &job->account, window);
        return error;
    }
    share_out(job, window);
    job->window = window;
    open_inbox(job);
    return 0;
}

void window_close(struct lane_job *job)
{
    unreserve(job);
    if (!job->window)
        return;
    unregister_first(job, job->window, job->lane->options.fabrics_count);
    arena_free(job->lane->options.arena, &job->account, job->window);
    arena_free(job->lane->options.arena, &job->account, job->inbox);
}
