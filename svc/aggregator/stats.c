/* Counters of all lanes in one reply to the coordinator. The reply fits into a frame (H1 of
 * svc/channel) for any number of lanes, jobs and pieces. Rows that do not fit are dropped.
 * Rows that the coordinator already has are not sent again. svc/lane/RULES.md: A22, A25;
 * svc/coordinator/RULES.md: K61. */
#include "svc/aggregator/internal.h"
#include "svc/base/clock.h"
#include "svc/host/core_wait.h"
#include "svc/lane/piece/counts.h"
#include "svc/lane/rows/counts/table_counts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of rows of jobs, of pieces and of tables in one reply, each followed by the
 * maximum bytes of one row. */
#define STATS_JOBS_MAX 32768
#define JOB_BYTES_MAX 288
#define STATS_PIECES_MAX 368640
#define PIECE_BYTES_MAX 15
#define STATS_TABLES_MAX 8192
#define TABLE_BYTES_MAX 96
#define LANE_BYTES_MAX 96
/* Maximum bytes of the rows with counts of jobs with backup workers. A row that is packed for the
 * reply may be longer, by less than half. */
#define STATS_COUNTS_BYTES_MAX (640u << 10)
_Static_assert(STATS_JOBS_MAX *JOB_BYTES_MAX + STATS_PIECES_MAX * PIECE_BYTES_MAX +
                       STATS_COUNTS_BYTES_MAX / 2 * 3 + STATS_TABLES_MAX * TABLE_BYTES_MAX +
                       AGGREGATOR_LANES_MAX * LANE_BYTES_MAX + 64 <=
                   CHANNEL_FRAME_BYTES_MAX,
               "fits a frame");
/* The digest covers all bytes of the struct, so padding would make equal rows different. */
_Static_assert(sizeof(struct lane_job_use) == 6 * sizeof(uint32_t) + 13 * sizeof(uint64_t) +
                                                  sizeof(struct lane_endings) +
                                                  sizeof(struct lane_squares),
               "no padding");
_Static_assert(sizeof(struct lane_squares) ==
                   2 * sizeof(uint32_t) + 2 * sizeof(uint64_t) + 3 * sizeof(double),
               "no padding");
_Static_assert(sizeof(struct table_counts_row) == 11 * sizeof(uint64_t), "no padding");
/* Maximum number of rows of pieces from one lane. The lane runs no turn while the rows are
 * collected. */
#define LANE_PIECES_MAX 65536
/* usual bytes of counts, and usual number of tables, from one lane */
#define LANE_COUNTS_BYTES (64u << 10)
#define LANE_TABLES 256

/* numbers of rows and bytes that may still be added to the reply */
struct room {
    size_t jobs, pieces;
    size_t counts_bytes; /* bytes of rows with counts */
    size_t tables;
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

struct measurement {
    struct lane_use use;
    uint64_t cpu_ns, core_wait_ns;
    struct lane_job_use *jobs;
    size_t jobs_max;
    uint32_t detailed; /* job for which the reply also has rows of pieces; 0: no job */
    struct lane_piece_use *pieces;
    size_t pieces_max, pieces_count;
    struct counts_row *counts;
    size_t counts_bytes_max, counts_bytes; /* bytes of the buffer; bytes of all rows on the lane */
    struct table_counts_row *tables;
    /* number of rows of the buffer; number of tables on the lane */
    size_t tables_max, tables_count;
};

static int measure(struct lane *lane, void *context)
{
    struct measurement *m = context;
    m->cpu_ns = clock_thread_cpu_ns();
    m->core_wait_ns = core_wait_ns();
    lane_measure(lane, &m->use, m->jobs, m->jobs_max);
    m->counts_bytes = counts_measure(lane, m->counts, m->counts_bytes_max);
    m->tables_count = table_counts_measure(lane, m->tables, m->tables_max);
    if (m->pieces)
        m->pieces_count = lane_measure_pieces(lane, m->detailed, m->pieces, m->pieces_max);
    return 0;
}

static void measurement_release(struct measurement *m)
{
    free(m->jobs);
    free(m->counts);
    free(m->tables);
}

/* Copies the counters of a lane into buffers, which have space for the numbers of rows in
 * `room`. */
static int call_lane(struct lane_thread *thread, const struct room *room, struct measurement *m)
{
    measurement_release(m);
    m->jobs_max = room->jobs;
    m->jobs = calloc(most(m->jobs_max, 1), sizeof *m->jobs);
    m->counts_bytes_max = room->counts_bytes;
    m->counts = calloc(1, most(m->counts_bytes_max, 1));
    m->tables_max = room->tables;
    m->tables = calloc(most(m->tables_max, 1), sizeof *m->tables);
    return m->jobs && m->counts && m->tables ? lane_thread_call(thread, measure, m) : -ENOMEM;
}

/* Copies the counters of a lane in one call, because each call wakes the lane. The buffers have
 * space for the number of jobs in the last statistics, and for the usual counts and tables. If the
 * lane has more rows, a second call follows. */
static int measure_lane(struct lane_thread *thread, size_t jobs_likely, const struct room *room,
                        struct measurement *m)
{
    m->pieces_max = least(room->pieces, LANE_PIECES_MAX);
    if (m->detailed && m->pieces_max > 0)
        m->pieces = calloc(m->pieces_max, sizeof *m->pieces);
    const struct room usual = {.jobs = least(room->jobs, jobs_likely),
                               .counts_bytes = least(room->counts_bytes, LANE_COUNTS_BYTES),
                               .tables = least(room->tables, LANE_TABLES)};
    int error = call_lane(thread, &usual, m);
    const struct room needed = {.jobs = least(room->jobs, m->use.jobs_count),
                                .counts_bytes = least(room->counts_bytes, m->counts_bytes),
                                .tables = least(room->tables, m->tables_count)};
    bool lacks = needed.jobs > m->jobs_max || needed.counts_bytes > m->counts_bytes_max ||
                 needed.tables > m->tables_max;
    return error == 0 && lacks ? call_lane(thread, &needed, m) : error;
}

static size_t rows_count(const struct measurement *m)
{
    return least(m->use.jobs_count, m->jobs_max);
}

static size_t tables_count(const struct measurement *m)
{
    return least(m->tables_count, m->tables_max);
}

/* Continues a digest, word by word. The shift mixes the upper half of each word into the lower
 * half. */
static uint64_t digest_add(uint64_t digest, const void *rows, size_t bytes)
{
    uint64_t word;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, (const unsigned char *)rows + i, sizeof word);
        digest = (digest ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        digest ^= digest >> 32;
    }
    return digest;
}

/* Returns a digest of the rows. 0 means "no digest" and is never returned. */
static uint64_t digest_of(const struct measurement *m)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    digest = digest_add(digest, m->jobs, rows_count(m) * sizeof *m->jobs);
    digest = digest_add(digest, m->counts, least(m->counts_bytes, m->counts_bytes_max));
    digest = digest_add(digest, m->tables, tables_count(m) * sizeof *m->tables);
    return digest ? digest : 1;
}

static void add_pieces(const struct measurement *m, Gradpool__Wire__JobUse *message)
{
    size_t count = m->pieces_count;
    message->pieces = calloc(count ? count : 1, sizeof *message->pieces);
    message->pieces_busy_ns = calloc(count ? count : 1, sizeof *message->pieces_busy_ns);
    for (size_t i = 0; message->pieces && message->pieces_busy_ns && i < count; i++) {
        message->pieces[message->n_pieces++] = m->pieces[i].piece;
        message->pieces_busy_ns[message->n_pieces_busy_ns++] = m->pieces[i].busy_ns;
    }
}

static Gradpool__Wire__JobUse *job_use_message(const struct measurement *m,
                                               const struct lane_job_use *use)
{
    Gradpool__Wire__JobUse *message = malloc(sizeof *message);
    if (!message)
        return NULL;
    const struct lane_squares *squares = &use->squares;
    *message = MESSAGE_PART(
        JobUse, job_use, .job_id = use->job, .heap_bytes = use->heap_bytes,
        .registered_bytes = use->registered_bytes, .registered_regions = use->registered_regions,
        .busy_ns = use->busy_ns, .pushed_bytes = use->pushed_bytes, .rounds = use->rounds,
        .connections = use->connections, .squares_round = squares->round,
        .squares_inputs = squares->inputs, .input_squares = squares->input_squares,
        .result_squares = squares->result_squares, .losses = squares->losses,
        .loss_sum = squares->loss_sum, .queue_ns = use->queue_ns, .handled_ns = use->handled_ns,
        .stalled_ns = use->stalled_ns, .states = use->states, .copied = use->copied,
        .empty = use->empty, .reference = use->reference, .begun_rounds = use->begun_rounds,
        .begun_ns = use->begun_ns, .round_begun_ns = use->round_begun_ns,
        .first_done_ns = use->first_done_ns, .ended_rounds = use->endings.rounds,
        .span_ns = use->endings.span_ns, .burst_ns = use->endings.burst_ns);
    if (m->detailed && m->detailed == use->job)
        add_pieces(m, message);
    return message;
}

static Gradpool__Wire__RoundCounts *counts_message(const struct counts_row *row)
{
    size_t ranks = row->ranks;
    Gradpool__Wire__RoundCounts *message = malloc(sizeof *message);
    if (!message)
        return NULL;
    *message = MESSAGE_PART(RoundCounts, round_counts, .rounds = row->rounds,
                            .gradients = row->gradients, .n_reasons = RECORD_REASONS,
                            .n_counted = ranks, .n_dropped = ranks, .n_scale_ns = ranks);
    message->reasons = malloc(sizeof row->reasons);
    message->counted = calloc(ranks, sizeof *message->counted);
    message->dropped = calloc(ranks, sizeof *message->dropped);
    message->scale_ns = calloc(ranks, sizeof *message->scale_ns);
    if (!message->reasons || !message->counted || !message->dropped || !message->scale_ns) {
        message->n_reasons = message->n_counted = message->n_dropped = message->n_scale_ns = 0;
        gradpool__wire__round_counts__free_unpacked(message, NULL);
        return NULL;
    }
    memcpy(message->reasons, row->reasons, sizeof row->reasons);
    for (size_t i = 0; i < ranks; i++) {
        message->counted[i] = row->of[i].counted;
        message->dropped[i] = row->of[i].dropped;
        message->scale_ns[i] = row->of[i].scale_ns;
    }
    return message;
}

/* Returns the row at byte `*at` if the row belongs to the job, and moves `*at` to the next row;
 * otherwise returns NULL. Rows are in the order of the jobs. */
static const struct counts_row *take_counts(const struct measurement *m, uint32_t job, size_t *at)
{
    const struct counts_row *row = (const struct counts_row *)((const char *)m->counts + *at);
    if (*at + sizeof *row > m->counts_bytes_max || row->job != job)
        return NULL;
    *at += counts_row_bytes(row->ranks);
    return row;
}

static Gradpool__Wire__TableCounts *table_message(const struct table_counts_row *row)
{
    Gradpool__Wire__TableCounts *message = malloc(sizeof *message);
    if (message)
        *message = MESSAGE_PART(
            TableCounts, table_counts, .table = (uint32_t)row->table, .rows = row->rows,
            .bytes = row->bytes, .births = row->births, .pulled_keys = row->pulled_keys,
            .pushed_keys = row->pushed_keys, .minimum_clock = row->minimum_clock,
            .largest_clock = row->largest_clock, .behind_rank = (uint32_t)row->behind_rank,
            .shards = (uint32_t)row->shards);
    return message;
}

/* Adds the tables of the job, whose rows begin at `*at`. Then sets `*at` to the first row of the
 * next job. Returns false if memory is missing. */
static bool add_tables(const struct measurement *m, size_t *at, Gradpool__Wire__JobUse *use)
{
    size_t count = tables_count(m), first = *at;
    while (*at < count && m->tables[*at].job == use->job_id)
        (*at)++;
    if (first == *at)
        return true;
    use->tables = calloc(*at - first, sizeof *use->tables);
    for (size_t i = first; use->tables && i < *at; i++) {
        use->tables[use->n_tables] = table_message(&m->tables[i]);
        use->n_tables += use->tables[use->n_tables] != NULL;
    }
    return use->n_tables == *at - first;
}

static void add_rows(const struct measurement *m, Gradpool__Wire__LaneUse *use)
{
    size_t count = rows_count(m), counts_at = 0, tables_at = 0;
    bool lacks = false;
    use->jobs = calloc(count ? count : 1, sizeof *use->jobs);
    for (size_t i = 0; use->jobs && i < count; i++) {
        const struct counts_row *counts = take_counts(m, m->jobs[i].job, &counts_at);
        Gradpool__Wire__JobUse *row = job_use_message(m, &m->jobs[i]);
        if (!row)
            continue;
        row->counts = counts ? counts_message(counts) : NULL;
        lacks |= (counts && !row->counts) || !add_tables(m, &tables_at, row);
        use->jobs[use->n_jobs++] = row;
    }
    if (lacks || use->n_jobs < count)
        use->digest = 0; /* memory for some rows is missing, so the reply has no digest */
}

/* Builds the row of a lane. If pieces are requested, all rows are sent, because the digest does not
 * cover pieces. */
static Gradpool__Wire__LaneUse lane_use_of(const struct measurement *m, uint32_t lane,
                                           uint64_t known)
{
    uint64_t digest = digest_of(m);
    Gradpool__Wire__LaneUse use =
        MESSAGE_PART(LaneUse, lane_use, .lane = lane, .cpu_ns = m->cpu_ns + m->use.helped_ns,
                     .core_wait_ns = m->core_wait_ns, .busy_ns = m->use.busy_ns,
                     .arena_bytes = m->use.arena_bytes, .rounds = m->use.rounds,
                     .pushed_bytes = m->use.pushed_bytes, .digest = digest,
                     .is_known = digest == known && m->pieces_count == 0);
    if (!use.is_known)
        add_rows(m, &use);
    return use;
}

struct answering {
    const Gradpool__Wire__StatsRequest *request;
    struct room room;
    size_t jobs_likely, jobs_most;
};

static Gradpool__Wire__LaneUse *lane_use_message(struct aggregator *a, size_t index,
                                                 struct answering *to)
{
    struct measurement m = {.detailed = to->request->job_id};
    Gradpool__Wire__LaneUse *use = malloc(sizeof *use);
    int error = use ? measure_lane(a->lanes[index], to->jobs_likely, &to->room, &m) : -ENOMEM;
    if (error == 0) {
        *use = lane_use_of(&m, a->lane_ids[index],
                           index < to->request->n_known ? to->request->known[index] : 0);
        to->room.jobs -= use->n_jobs;
        to->room.pieces -= m.pieces_count;
        to->room.counts_bytes -= least(m.counts_bytes, m.counts_bytes_max);
        to->room.tables -= tables_count(&m);
        to->jobs_most = most(to->jobs_most, m.use.jobs_count);
    }
    measurement_release(&m);
    free(m.pieces);
    if (error == 0)
        return use;
    free(use);
    return NULL;
}

Gradpool__Wire__StatsReply *stats_build(struct aggregator *a,
                                        const Gradpool__Wire__StatsRequest *request)
{
    struct answering to = {.request = request,
                           .room = {.jobs = STATS_JOBS_MAX,
                                    .pieces = STATS_PIECES_MAX,
                                    .counts_bytes = STATS_COUNTS_BYTES_MAX,
                                    .tables = STATS_TABLES_MAX},
                           .jobs_likely = a->stats_jobs};
    Gradpool__Wire__StatsReply *stats = malloc(sizeof *stats);
    if (!stats)
        return NULL;
    *stats = MESSAGE_PART(StatsReply, stats_reply, .cpu_ns = clock_process_cpu_ns(),
                          .lanes = calloc(a->lanes_count, sizeof *stats->lanes));
    for (size_t i = 0; stats->lanes && i < a->lanes_count; i++) {
        stats->lanes[i] = lane_use_message(a, i, &to);
        if (!stats->lanes[i])
            break;
        stats->n_lanes++;
    }
    a->stats_jobs = to.jobs_most;
    return stats;
}
