/* Tests the promotion of a copy after the loss of its owner, with repeated requests. */
#include "svc/lane/rows/bulk/bulk.h"
#include "svc/lane/rows/log/row_state.h"
#include "svc/wire/ranks.h"
#include "test/unit/lane/rows/log_rig.h"

#define ROW_BYTES (sizeof(uint64_t) + DIM * sizeof(float))

/* Number of promotions after which a shard had a part of the updates of a clock or push. */
static int midst;

/* Number of pushes of each rank. The rows of all pushes fit into the ring, because the killed owner
 * hears no report. With BSP all pushes change each row once. */
static int pushes_of(unsigned consistency) { return consistency == TABLE_TERMS_BSP ? 2 : 1; }

/* Over a network, an update needs events of the fabric. */
static void step(struct lane_job *job)
{
    if (rows_are_mapped())
        (void)rows_turn(job);
    else
        turn();
}

/* Runs the owner for a number of its smallest steps, with pushes of each rank, and kills it. */
static void run_and_die(int steps, int pushes, struct rows_asked *ret_asked[RANKS][2])
{
    struct lane_job *job = job_find(owner(), RIG_JOB);
    struct lane_table *table = table_find(job, ROWS_TABLE);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < pushes; i++)
            ret_asked[rank][i] = push(&old, rank, KEYS);
    until(count_pushes() == RANKS * (uint32_t)pushes);
    assert_int_equal(rows_stored(&old), 0); /* the pushes wait for settings and clocks */
    assert_int_equal(table_set(table, 1, &settings), 0);
    for (uint32_t rank = 0; rank < RANKS && table_is_bsp(table); rank++)
        assert_in_range(table_clocks_end(table->clocks, rank, 1), 0, 1);
    for (int i = 0; i < steps; i++)
        step(job);
    fabric_flush(old.lanes[0].fabric);
    old.lanes[0].is_dead = true;
    settle();
}

static struct lane_table *promoted_table(void)
{
    return table_find(job_find(replica(), RIG_JOB), next.route.table);
}

/* The owner dies after some steps. Returns whether all pushes had their words. */
static bool die_and_promote(unsigned consistency, int steps)
{
    struct rows_asked *asked[RANKS][2], *again[RANKS][2] = {0};
    int pushes = pushes_of(consistency);
    bool is_over = true;
    start_without_settings(consistency);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    run_and_die(steps, pushes, asked);
    assert_int_equal(promote(), 0);
    midst += promoted_table()->queues->logged.progress.next > 0;
    rows_set(&next, &settings);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < pushes; i++) {
            bool is_done = rows_is_done(&old, asked[rank][i]);
            is_over &= is_done;
            if (!is_done)
                again[rank][i] = repeat(rank, (uint64_t)i + 1, 1, KEYS);
            rows_asked_free(asked[rank][i]);
        }
        stand(rank, 1);
    }
    for (uint32_t i = 0; i < 2 * RANKS; i++) {
        struct rows_asked *repeated = again[i / 2][i % 2];
        if (!repeated)
            continue;
        rows_wait(&next, repeated);
        rows_asked_free(repeated);
    }
    rows_have(&next, RANKS * (uint32_t)pushes);
    assert_int_equal(promoted_table()->queues->logged.progress.sequence, 0);
    stop();
    return is_over;
}

static void no_push_is_lost_or_counts_twice(unsigned consistency)
{
    int steps = 0;
    midst = 0;
    while (!die_and_promote(consistency, steps))
        steps += rows_are_mapped() ? 1 : 1 + steps / 2;
    print_message("# %d moments of death, %d of them within a shard\n", steps + 1, midst);
    assert_true(steps >= 4 && (midst >= 2 || !rows_are_mapped()));
}

static void no_push_counts_twice_after_a_kill(void **state)
{
    for (unsigned consistency = TABLE_TERMS_BSP; consistency <= TABLE_TERMS_ASP; consistency++)
        no_push_is_lost_or_counts_twice(consistency);
}

static bool is_held(void)
{
    struct bulk_standing standing;
    assert_int_equal(bulk_hold(replica(), RIG_JOB, next.route.table, 0, false, &standing), 0);
    return standing.is_held;
}

/* Checks that the rows of an export have had the same number of gradients. */
static void held_rows_are_equal(void)
{
    static char rows[(KEYS + 1) * ROW_BYTES]; /* a part needs room for a row */
    size_t bytes = 0;
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct bulk_part part = {0};
        while (!part.is_end) {
            assert_int_equal(bulk_read(replica(), RIG_JOB, next.route.table, shard, part.next,
                                       rows + bytes, sizeof rows - bytes, &part),
                             0);
            bytes += part.bytes;
        }
    }
    assert_int_equal(bytes, KEYS * ROW_BYTES);
    for (size_t at = 0; at < bytes; at += ROW_BYTES)
        assert_memory_equal(rows + at + sizeof(uint64_t), rows + sizeof(uint64_t), sizeof(float));
}

static struct rows_asked *repeat_pull(uint32_t rank, uint64_t sequence, uint64_t clock)
{
    next.workers[rank].clock = (struct worker_clock){.ended = clock - 1, .sequence = sequence - 1};
    return rows_pull(&next, rank, keys, 1);
}

/* Checks that a repeated pull of rank 0 gets an error, and that the job goes on. */
static void pull_gets_an_error(struct rows_asked *pull)
{
    const struct rig_worker *worker = &next.lanes[0].workers[0];
    until(worker->errors_count == 1);
    assert_int_equal(worker->error.code, -EOWNERDEAD);
    assert_non_null(memmem(worker->error.text, sizeof worker->error.text,
                           "a lost lane had answered this pull, and clock 1 is applied now", 62));
    assert_int_equal(job_find(replica(), RIG_JOB)->failure, 0);
    rows_asked_free(pull);
}

/* Returns false if the owner has died at another moment than within its first shard. */
static bool die_and_hold(unsigned consistency, int steps)
{
    struct rows_asked *asked[RANKS][2];
    int pushes = pushes_of(consistency);
    start_without_settings(consistency);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    run_and_die(steps, pushes, asked);
    assert_int_equal(promote(), 0);
    const struct lane_table *table = promoted_table();
    bool is_midst = table->queues->logged.progress.next > 0 && table->shard == 0;
    assert_true(!is_midst || !is_held());
    rows_set(&next, &settings);
    for (uint32_t rank = 0; rank < RANKS && is_midst; rank++) {
        for (int i = 0; i < pushes; i++) {
            rows_asked_free(asked[rank][i]);
            asked[rank][i] = repeat(rank, (uint64_t)i + 1, 1, KEYS);
        }
        if (rank == 0 && consistency == TABLE_TERMS_BSP) /* the clock of this pull has begun */
            pull_gets_an_error(repeat_pull(0, (uint64_t)pushes + 1, 1));
        stand(rank, 1);
    }
    until(!is_midst || is_held());
    if (is_midst)
        held_rows_are_equal();
    for (uint32_t i = 0; i < RANKS * (uint32_t)pushes; i++)
        rows_asked_free(asked[i / (uint32_t)pushes][i % (uint32_t)pushes]);
    stop();
    return is_midst;
}

static void a_hold_waits_for_what_a_former_owner_has_begun(void **state)
{
    for (unsigned consistency = TABLE_TERMS_BSP; consistency <= TABLE_TERMS_ASP; consistency++) {
        int steps = 0;
        while (!die_and_hold(consistency, steps))
            assert_in_range(steps++, 0, 100);
    }
}

/* Returns false if the owner has died at another moment than within a push of rank 0. */
static bool die_and_leave(int steps)
{
    struct rows_asked *asked[RANKS][2];
    start_without_settings(TABLE_TERMS_ASP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    run_and_die(steps, 1, asked);
    struct worker *w = &job_find(replica(), RIG_JOB)->workers[0];
    const struct worker was = *w;
    w->state = WORKER_LEFT;
    assert_int_equal(promote(), 0);
    w->state = was.state;
    const struct row_progress *before = &promoted_table()->queues->logged.progress;
    bool is_midst = before->next > 0 && before->rank == 0;
    if (is_midst)
        assert_int_equal(before->sequence, 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rows_asked_free(asked[rank][0]);
    stop();
    return is_midst;
}

/* The rank has left before the promotion, and the log does not contain this. */
static void a_rank_that_has_left_is_not_awaited(void **state)
{
    int steps = 0;
    while (!die_and_leave(steps))
        assert_in_range(steps++, 0, 100);
    assert_true(steps > 0);
}

static void promoted(unsigned consistency)
{
    start(consistency);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    run_clock(&old, KEYS);
    run_clock(&old, KEYS);
    assert_int_equal(promote(), 0);
}

static void clocks_go_on_after_a_promotion(void **state)
{
    promoted(TABLE_TERMS_BSP);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        stand(rank, 2);
    run_clock(&next, KEYS);
    run_clock(&next, KEYS);
    rows_have(&next, 4 * RANKS);
    stop();
}

static void no_clock_is_applied_before_every_rank_stands(void **state)
{
    promoted(TABLE_TERMS_BSP);
    stand(0, 2);
    struct rows_asked *asked = push(&next, 0, 10);
    rows_clock(&next, 0);
    rows_settle(&next);
    assert_false(rows_is_done(&next, asked));
    stand(1, 2);
    rows_settle(&next);
    assert_false(rows_is_done(&next, asked));
    rows_clock(&next, 1);
    rows_wait(&next, asked);
    rows_asked_free(asked);
    stop();
}

static void a_push_within_the_progress_gets_its_word_at_once(void **state)
{
    for (unsigned consistency = TABLE_TERMS_BSP; consistency <= TABLE_TERMS_ASP; consistency++) {
        promoted(consistency);
        struct rows_asked *asked = repeat(0, 1, 1, KEYS);
        rows_wait(&next, asked);
        rows_asked_free(asked);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            stand(rank, 2);
        rows_have(&next, 2 * RANKS);
        stop();
    }
}

/* Promotes the copy, and checks that this record of rank 0 fails the job with this text. */
static void promoted_lane_refuses(const void *record, size_t bytes, const char *words)
{
    rows_send(&next, 0, 0, record, bytes);
    until(job_find(replica(), RIG_JOB)->failure == -EPROTO);
    assert_non_null(strstr(job_find(replica(), RIG_JOB)->failure_text, words));
    stop();
}

static void records_that_do_not_fit_a_promotion_are_refused(void **state)
{
    const struct record_clock ended = {.kind = RECORD_CLOCK,
                                       .form = RECORD_CLOCK_ENDED,
                                       .count = 1,
                                       .clock = 3,
                                       .tables = {row_table_id(ROWS_TABLE, GROUP)}};
    promoted(TABLE_TERMS_BSP);
    promoted_lane_refuses(
        &ended, sizeof ended,
        "a clock came before the standing of its rank; use one version of gradpool");
}

static void a_pull_whose_answer_was_lost_gets_an_error(void **state)
{
    promoted(TABLE_TERMS_BSP);
    pull_gets_an_error(repeat_pull(0, 2, 1));
    for (uint32_t rank = 0; rank < RANKS; rank++)
        stand(rank, 2);
    run_clock(&next, KEYS);
    rows_have(&next, 3 * RANKS);
    stop();
}

static void a_repeated_promotion_changes_nothing(void **state)
{
    promoted(TABLE_TERMS_BSP);
    assert_int_equal(promote(), 0);
    assert_null(the_copy());
    stop();
}

static void a_copy_that_is_not_whole_is_not_promoted(void **state)
{
    start(TABLE_TERMS_BSP);
    place_copy();
    assert_int_equal(promote(), -EBADMSG);
    lane_drop_copy(replica(), RIG_JOB, RIG_LANE);
    assert_int_equal(
        lane_promote_copy(replica(), RIG_JOB,
                          &(struct lane_promotion){RIG_LANE, COPY, 1, NEXT_EPOCH, {0}}),
        -ENOENT);
    stop();
}

static void a_promotion_with_an_invalid_group_or_stage_is_refused(void **state)
{
    const struct lane_promotion wrong[] = {
        {RIG_LANE, COPY, 0, NEXT_EPOCH, {0}},
        {RIG_LANE, COPY, ROW_GROUP_MAX + 1, NEXT_EPOCH, {0}},
        {RIG_LANE, COPY, 1, 0, {0}},
        {RIG_LANE, COPY, 1, NEXT_EPOCH, {.number = 1, .first_clock = 1}},
        {RIG_LANE, COPY, 1, NEXT_EPOCH, {.number = 1, .ranks = (uint64_t[RANKS_WORDS]){1}}},
    };
    start(TABLE_TERMS_BSP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(lane_promote_copy(replica(), RIG_JOB, &wrong[i]), -EINVAL);
    assert_non_null(the_copy());
    struct lane_table_spec table = {row_table_id(ROWS_TABLE, 1), "group", &old.terms, ROWS_SALT};
    assert_int_equal(
        lane_place_table(owner(), RIG_JOB, &table, &(struct lane_shard_spec){0, ROWS_EPOCH}, 1),
        -EINVAL);
    stop();
}

/* The owner dies after the begin of a stage, and before this begin is in the log. */
static void a_stage_that_the_log_lacks_begins_at_the_promotion(void **state)
{
    const uint64_t ranks[RANKS_WORDS] = {2};
    const struct lane_promotion promotion = {
        RIG_LANE, COPY, GROUP, NEXT_EPOCH, {.number = 1, .ranks = ranks, .first_clock = 5}};
    start(TABLE_TERMS_BSP);
    begin_copy();
    until(the_log()->state == ROW_LOG_WHOLE);
    assert_int_equal(lane_promote_copy(replica(), RIG_JOB, &promotion), 0);
    next.route.table = row_table_id(ROWS_TABLE, GROUP);
    const struct lane_table *table = promoted_table();
    assert_int_equal(table->clock, 5);
    assert_int_equal(table_clocks_of(table->clocks, 0), CLOCK_NONE);
    assert_int_equal(table_clocks_of(table->clocks, 1), 5);
    assert_int_equal(tables_of(replica())->stage, 1);
    stop();
}

/* A state with a wrong progress changes nothing, not even the settings before it. */
static void a_state_that_does_not_fit_changes_nothing(void **state)
{
    start(TABLE_TERMS_BSP);
    struct lane_table *table = table_find(job_find(owner(), RIG_JOB), ROWS_TABLE);
    until(table->changes->count == 1);
    const struct log_head wrong = {.table = ROWS_TABLE}; /* clock 0 */
    char *payload = malloc(row_state_bytes_max(table));
    size_t bytes = row_state_write(table, &wrong, payload);
    table->changes->count = 0;
    assert_int_equal(row_state_read(table, payload, bytes), -EBADMSG);
    assert_int_equal(table->changes->count, 0);
    free(payload);
    stop();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_push_counts_twice_after_a_kill),
        cmocka_unit_test(a_hold_waits_for_what_a_former_owner_has_begun),
        cmocka_unit_test(a_rank_that_has_left_is_not_awaited),
        cmocka_unit_test(clocks_go_on_after_a_promotion),
        cmocka_unit_test(no_clock_is_applied_before_every_rank_stands),
        cmocka_unit_test(a_push_within_the_progress_gets_its_word_at_once),
        cmocka_unit_test(records_that_do_not_fit_a_promotion_are_refused),
        cmocka_unit_test(a_pull_whose_answer_was_lost_gets_an_error),
        cmocka_unit_test(a_repeated_promotion_changes_nothing),
        cmocka_unit_test(a_copy_that_is_not_whole_is_not_promoted),
        cmocka_unit_test(a_promotion_with_an_invalid_group_or_stage_is_refused),
        cmocka_unit_test(a_stage_that_the_log_lacks_begins_at_the_promotion),
        cmocka_unit_test(a_state_that_does_not_fit_changes_nothing),
    };
    rows_set_kind(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
