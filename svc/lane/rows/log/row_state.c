/* Writes and reads the state of a table. The bytes come from another process, so all counts and
 * numbers are checked before the table changes. RULES.md: A129. */
#include "svc/lane/rows/log/row_state.h"

#include "svc/lane/rows/table.h"

#include <errno.h>
#include <string.h>

struct state_head {
    uint64_t minimum, steps_before, stage;
    uint64_t clock, next; /* progress, as in struct log_head */
    uint32_t rank, at_shard;
    uint32_t consistency, staleness;
    uint32_t settings, ranks; /* numbers of the elements that follow */
};
struct state_rank {
    uint64_t applied;
    uint64_t clock;
};
_Static_assert(sizeof(struct state_head) % 8 == 0 && sizeof(struct row_setting) % 8 == 0,
               "elements are aligned");

static size_t row_state_bytes(uint32_t settings, uint32_t ranks)
{
    return sizeof(struct state_head) + settings * sizeof(struct row_setting) +
           ranks * sizeof(struct state_rank);
}

size_t row_state_bytes_max(const struct lane_table *table)
{
    return row_state_bytes(ROW_SETTINGS_MAX, table->job->workers_count);
}

/* Returns the clock of the rank that the state contains. A rank that has left cannot repeat its
 * clock to the next owner, so the state contains its clock; all its pushes are applied. Every other
 * member repeats its clock, so the state contains the first clock. */
static uint64_t state_clock(const struct lane_table *table, uint32_t rank)
{
    uint64_t clock = table_clocks_of(table->clocks, rank);
    bool has_left = table->job->workers[rank].state == WORKER_LEFT;
    return clock == CLOCK_NONE || has_left ? clock : CLOCK_FIRST;
}

size_t row_state_write(const struct lane_table *table, const struct log_head *progress,
                       void *ret_payload)
{
    char *at = ret_payload;
    struct state_head head = {.minimum = table->clocks->minimum,
                              .steps_before = table->hold->steps_before,
                              .stage = table->job->tables->stage,
                              .clock = progress->clock,
                              .next = progress->next,
                              .rank = progress->rank,
                              .at_shard = progress->at_shard,
                              .consistency = table->terms->consistency,
                              .staleness = table->terms->staleness,
                              .settings = table->changes->count,
                              .ranks = table->job->workers_count};
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, table->changes->each, head.settings * sizeof(struct row_setting));
    at += head.settings * sizeof(struct row_setting);
    for (uint32_t rank = 0; rank < head.ranks; rank++, at += sizeof(struct state_rank)) {
        struct state_rank each = {table->queues->ranks[rank].applied, state_clock(table, rank)};
        memcpy(at, &each, sizeof each);
    }
    return row_state_bytes(head.settings, head.ranks);
}

static bool state_is_sound(const struct lane_table *table, const struct state_head *head,
                           size_t bytes)
{
    return head->settings <= ROW_SETTINGS_MAX && head->ranks == table->job->workers_count &&
           bytes == row_state_bytes(head->settings, head->ranks) &&
           head->consistency >= TABLE_TERMS_BSP && head->consistency <= TABLE_TERMS_ASP &&
           head->rank < head->ranks && head->at_shard <= table->terms->shards &&
           head->minimum >= CLOCK_FIRST && head->minimum <= RECORD_CLOCK_MOST &&
           head->clock <= RECORD_CLOCK_MOST &&
           (head->consistency != TABLE_TERMS_BSP || head->clock >= CLOCK_FIRST);
}

static bool state_settings_are_sound(const struct lane_table *table, const struct row_setting *each,
                                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (row_wrong(table->terms->rule, &each[i].settings) ||
            (i > 0 && each[i].clock <= each[i - 1].clock))
            return false;
    return true;
}

static void state_read_ranks(struct lane_table *table, const char *at, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct state_rank each;
        memcpy(&each, at + rank * sizeof each, sizeof each);
        table->queues->ranks[rank].applied = each.applied;
        table->queues->ranks[rank].clock =
            each.clock <= RECORD_CLOCK_MOST ? each.clock : CLOCK_FIRST;
    }
}

int row_state_read(struct lane_table *table, const void *payload, size_t bytes)
{
    struct row_setting settings[ROW_SETTINGS_MAX];
    struct state_head head;
    const char *at = payload;
    if (bytes < sizeof head)
        return -EBADMSG;
    memcpy(&head, at, sizeof head);
    if (!state_is_sound(table, &head, bytes))
        return -EBADMSG;
    at += sizeof head;
    memcpy(settings, at, head.settings * sizeof *settings);
    if (!state_settings_are_sound(table, settings, head.settings))
        return -EBADMSG;
    memcpy(table->changes->each, settings, head.settings * sizeof *settings);
    table->changes->count = head.settings;
    table->hold->steps_before = head.steps_before;
    table->terms->consistency = head.consistency;
    table->terms->staleness = head.staleness;
    table->queues->logged.progress.minimum = head.minimum;
    table->queues->logged.stage = head.stage;
    state_read_ranks(table, at + head.settings * sizeof *settings, head.ranks);
    const struct log_head progress = {
        .clock = head.clock, .next = head.next, .rank = head.rank, .at_shard = head.at_shard};
    return row_state_advance(table, &progress);
}

/* The owner applies one push at a time. So a block of another push shows that the previous push is
 * applied to all its shards. */
static void state_begin_push(struct lane_table *table, const struct log_head *head)
{
    struct row_progress *progress = &table->queues->logged.progress;
    uint64_t *applied = &table->queues->ranks[progress->rank].applied;
    bool is_same = progress->rank == head->rank && progress->sequence == head->clock;
    if (!is_same && progress->sequence > *applied)
        *applied = progress->sequence;
    progress->rank = head->rank;
    progress->sequence = head->clock;
    progress->shard = head->at_shard;
}

int row_state_advance(struct lane_table *table, const struct log_head *head)
{
    if (head->rank >= table->job->workers_count || head->at_shard > table->terms->shards ||
        head->clock > RECORD_CLOCK_MOST || (table_is_bsp(table) && head->clock < CLOCK_FIRST))
        return -EBADMSG;
    if (table_is_bsp(table)) {
        table->clock = head->clock;
        table->shard = head->at_shard;
    } else {
        state_begin_push(table, head);
    }
    table->queues->logged.progress.next = head->next;
    return 0;
}
