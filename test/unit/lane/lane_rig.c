/* See lane_rig.h. */
#include "test/unit/lane/lane_rig.h"

#include "svc/base/clock.h"
#include "svc/lane/job.h"
#include "svc/lane/job/table.h"
#include "svc/reduce/reduce.h"
#include "test/unit/broken_page.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SETTLE_TURNS 30 /* minimum number of polls in rig_settle() */

uint64_t rig_now(void) { return clock_now_ns(); }

static void count_failure(void *context) { ((struct rig *)context)->failures++; }

static void count_rest(void *context) { ((struct rig *)context)->rests++; }

void rig_start(struct rig *rig, const char *kind) { rig_start_policy(rig, kind, LANE_FAIR); }

void rig_start_policy(struct rig *rig, const char *kind, enum lane_policy policy)
{
    static int number;
    char address[FABRIC_ADDRESS_BYTES_MAX] = "127.0.0.1:0";
    struct fabric_options options = {.payload_bytes_max = 64u << 10};
    *rig = (struct rig){.kind = kind};
    if (strcmp(kind, "shm") == 0)
        snprintf(address, sizeof address, "@gradpool-test-%d-%d", (int)getpid(), number++);
    assert_int_equal(arena_create(NULL, 0, &rig->arena), 0);
    assert_int_equal(fabric_open(kind, &options, &rig->fabric), 0);
    assert_int_equal(fabric_listen(rig->fabric, address, rig->address), 0);
    struct lane_options lane = {.id = RIG_LANE,
                                .incarnation = RIG_INCARNATION,
                                .arena = rig->arena,
                                .policy = policy,
                                .fabrics = {rig->fabric},
                                .fabrics_count = 1,
                                .cache_bytes = RIG_CACHE_BYTES,
                                .job_failed = count_failure,
                                .moving_news = count_rest,
                                .context = rig};
    assert_int_equal(lane_create(&lane, &rig->lane), 0);
}

void rig_stop(struct rig *rig)
{
    for (uint32_t i = 0; i < RIG_WORKERS_MAX; i++) {
        fabric_close(rig->workers[i].fabric);
        region_destroy(&rig->workers[i].region);
    }
    fabric_close(rig->fabric);
    lane_destroy(rig->lane);
    arena_destroy(rig->arena);
}

void rig_place(struct rig *rig, uint32_t job, uint32_t workers, uint32_t first, uint32_t count,
               uint64_t elements, bool recovering)
{
    for (uint32_t i = 0; i < count; i++) {
        struct lane_piece piece = {
            .id = first + i, .task = 1, .dtype = REDUCE_F32, .elements = elements, .tensor = "w"};
        assert_int_equal(lane_place(rig->lane, job, "job", workers, 1, recovering, &piece, 1), 0);
    }
}

void rig_place_piece(struct rig *rig, uint32_t workers, struct lane_piece piece, bool recovering)
{
    if (piece.dtype == 0)
        piece.dtype = REDUCE_F32;
    piece.task = 1;
    piece.tensor = "w";
    assert_int_equal(lane_place(rig->lane, RIG_JOB, "job", workers, 1, recovering, &piece, 1), 0);
}

struct lane_job_use rig_use(struct rig *rig)
{
    struct lane_use use;
    struct lane_job_use job = {0};
    lane_measure(rig->lane, &use, &job, 1);
    assert_int_equal(job.job, RIG_JOB);
    return job;
}

struct record_connect rig_ticket(struct rig *rig, uint32_t job, uint32_t rank)
{
    static uint8_t number;
    struct record_connect ticket = {.magic = RECORD_MAGIC,
                                    .job = job,
                                    .rank = rank,
                                    .lane = RIG_LANE,
                                    .incarnation = RIG_INCARNATION,
                                    .entered = rig->entered,
                                    .token = {++number, 1, 2, 3}};
    assert_int_equal(lane_grant(rig->lane, &ticket), 0);
    return ticket;
}

static void take_message(struct rig_worker *w, const struct fabric_event *event)
{
    union record record;
    size_t bytes;
    assert_int_equal(record_check(event->data, event->bytes, &record, &bytes), 0);
    if (record.kind == RECORD_COMMIT) {
        for (uint32_t i = 0; i < record.commit.count; i++)
            w->commits[w->commits_count++ % 4096] = record.commit.words[i];
    } else if (record.kind == RECORD_ERROR) {
        w->error = record.error;
        w->errors_count++;
    } else if (record.kind == RECORD_MISSING) {
        w->missing = record.missing;
        w->missing_count++;
    } else if (record.kind == RECORD_CLOSED) {
        w->closed[w->closed_count++ % 16] = record.closed;
        w->chosen_before_word = w->chosen_count;
    } else if (record.kind == RECORD_BACKED) {
        w->backed = record.backed;
        w->backed_count++;
    } else if (record.kind == RECORD_CHOSEN) {
        w->chosen = record.chosen;
        w->chosen_count++;
    } else if (record.kind == RECORD_PASSED) {
        w->passed = record.chosen;
        w->passed_count++;
    } else if (record.kind == RECORD_MEASURE) {
        w->measure = record.measure;
        w->measures_count++;
    } else if (record.kind == RECORD_GO_ON) {
        w->go_on = record.go_on;
        w->go_on_count++;
    } else if (record.kind == RECORD_CLOCKS) {
        w->clocks = record.clocks;
        w->clocks_count++;
    } else if (record.kind == RECORD_LOGGED) {
        w->logged = record.logged;
        w->logged_count++;
    } else if (record.kind == RECORD_TICKET) {
        w->next_ticket = record.ticket.connect;
    } else {
        fail_msg("a worker got record %u", record.kind);
    }
    fabric_message_done(event->conn, event->data);
}

static void take(struct rig_worker *w, const struct fabric_event *event)
{
    switch (event->kind) {
    case FABRIC_EVENT_OPEN: w->is_open = true; break;
    case FABRIC_EVENT_WORD:
        w->words[w->words_count++ % 4096] = event->word;
        w->chosen_before_word = w->chosen_count;
        break;
    case FABRIC_EVENT_MESSAGE: take_message(w, event); break;
    case FABRIC_EVENT_CLOSED:
        assert_false(w->is_closed);
        w->is_closed = true;
        w->close_error = event->error;
        w->refused = event->word;
        break;
    default: break;
    }
}

bool rig_turn(struct rig *rig)
{
    struct fabric_event events[32];
    bool is_busy =
        !rig->is_dead && lane_poll(rig->lane, rig->clock_ns ? rig->clock_ns : clock_now_ns());
    for (uint32_t i = 0; i < RIG_WORKERS_MAX; i++) {
        struct rig_worker *w = &rig->workers[i];
        if (!w->fabric || w->is_stopped)
            continue;
        int count = fabric_poll(w->fabric, events, 32);
        for (int j = 0; j < count; j++)
            take(w, &events[j]);
        is_busy |= count > 0;
    }
    return is_busy;
}

void rig_turn_gently(struct rig *rig)
{
    const struct timespec moment = {.tv_nsec = 20 * NS_PER_US};
    if (!rig_turn(rig))
        nanosleep(&moment, NULL);
}

void rig_until_busy(struct rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (lane_is_quiet(rig->lane)) {
        (void)lane_poll(rig->lane, clock_now_ns());
        if (clock_now_ns() > deadline_ns)
            fail_msg("the lane never begins a chunk");
    }
}

/* Polls for longer than a packet needs over loopback. If the host has stopped this process for a
 * while, the number of polls is still sufficient for several successive messages. */
void rig_settle(struct rig *rig)
{
    uint64_t until_ns = clock_now_ns() + (strcmp(rig->kind, "shm") == 0 ? 5 : 40) * NS_PER_MS;
    for (int turns = 0; turns < SETTLE_TURNS || clock_now_ns() < until_ns; turns++)
        rig_turn_gently(rig);
}

/* Returns whether the lane has mapped the region. The mapping may come later than the message. */
static bool has_region(struct rig *rig, uint32_t job, uint32_t rank)
{
    struct worker *w = job_peer(job_find(rig->lane, job), rank);
    return !w || !w->conn || fabric_region_bytes(w->conn, 0) > 0;
}

void rig_connect(struct rig *rig, uint32_t i, uint32_t job, uint32_t rank)
{
    struct rig_worker *w = &rig->workers[i];
    struct fabric_options options = {.payload_bytes_max = 64u << 10};
    struct record_connect ticket = rig_ticket(rig, job, rank);
    assert_int_equal(fabric_open(rig->kind, &options, &w->fabric), 0);
    size_t bytes = rig->region_bytes ? rig->region_bytes : RIG_REGION_BYTES;
    assert_int_equal(region_create(bytes, &w->region), 0);
    assert_int_equal(fabric_connect(w->fabric, rig->address, &ticket, sizeof ticket, w, &w->conn),
                     0);
    rig_until(rig, w->is_open);
    assert_int_equal(fabric_lend(w->conn, &w->region, 0), 0);
    rig_until(rig, w->next_ticket.magic == RECORD_MAGIC || (rank & RECORD_HOLDER));
    rig_until(rig, has_region(rig, job, rank));
}

void rig_start_job(struct rig *rig, const char *kind, uint32_t count, uint32_t pieces,
                   uint64_t elements)
{
    rig_start(rig, kind);
    rig_place(rig, RIG_JOB, count, 1, pieces, elements, false);
    for (uint32_t i = 0; i < count; i++)
        rig_connect(rig, i, RIG_JOB, i);
    rig->count = count;
}

float *rig_input(struct rig *rig, uint32_t i, uint64_t offset)
{
    return (float *)((char *)rig->workers[i].region.base + offset);
}

float *rig_landing(struct rig *rig, uint32_t i, uint64_t offset)
{
    return rig_input(rig, i, RIG_LANDING + offset);
}

/* Returns the lane's mapping of the worker's memory. NULL: there is none. */
static char *lanes_mapping(const struct region *region)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    struct stat file;
    char line[512], *found = NULL;
    assert_non_null(maps);
    assert_int_equal(fstat(region->fd, &file), 0);
    while (!found && fgets(line, sizeof line, maps)) {
        unsigned long start, inode;
        int fields = sscanf(line, "%lx-%*x %*s %*x %*s %lu", &start, &inode);
        if (fields == 2 && inode == file.st_ino && start != (uintptr_t)region->base)
            found = (char *)start;
    }
    fclose(maps);
    return found;
}

void rig_break_page(struct rig *rig, uint32_t i, const void *at)
{
    const struct region *region = &rig->workers[i].region;
    size_t page = (size_t)((const char *)at - (const char *)region->base) / 4096;
    char *mapping = lanes_mapping(region);
    assert_non_null(mapping);
    break_page(mapping + page * 4096);
}

void rig_say(struct rig *rig, uint32_t i, struct say say)
{
    struct rig_worker *w = &rig->workers[i];
    uint64_t bytes = say.elements * sizeof(float);
    struct record_ready ready = {.kind = RECORD_READY,
                                 .operation = say.operation ? say.operation : RECORD_SUM,
                                 .dtype = say.dtype ? say.dtype : REDUCE_F32,
                                 .standing = say.standing,
                                 .piece = say.piece,
                                 .word = say.word,
                                 .round = say.round,
                                 .epoch = say.epoch ? say.epoch : 1,
                                 .root = say.root,
                                 .priority = say.priority,
                                 .stalled = say.stalled,
                                 .loss = 0.5f,
                                 .input_offset = say.offset,
                                 .input_bytes = say.has_no_input ? 0 : bytes,
                                 .payload_bytes = say.is_inline ? (uint32_t)bytes : 0,
                                 .weight = say.has_no_weight ? 0 : say.weight,
                                 .input_stride = say.stride,
                                 .gradient = say.gradient ? say.gradient : RECORD_GRADIENT};
    if (!say.weight && !say.has_no_weight)
        ready.weight = RECORD_WEIGHT;
    bool collects = say.output_blocks > 1;
    if (say.input_blocks > 1)
        ready.input_stride = bytes;
    if (!say.has_no_output) {
        ready.outputs = 1;
        ready.output[0] = (struct record_output){.source = collects ? 0 : RECORD_SOURCE_RESULT,
                                                 .count = collects ? say.output_blocks : 1,
                                                 .offset = RIG_LANDING + say.offset,
                                                 .bytes = bytes,
                                                 .stride = collects ? bytes : 0};
    }
    int r;
    while ((r = fabric_send(w->conn, &ready, sizeof ready,
                            say.is_inline ? rig_input(rig, i, say.offset) : NULL,
                            say.is_inline ? bytes : 0)) == -EAGAIN)
        rig_turn(rig);
    assert_int_equal(r, 0);
}

bool rig_says(const struct rig_worker *w, int code, const char *words)
{
    char text[RECORD_TEXT_BYTES + 1] = {0};
    memcpy(text, w->error.text, w->error.text_bytes);
    if (w->error.code == code && strstr(text, words))
        return true;
    print_message("said: %d, %s\n", w->error.code, text);
    return false;
}
