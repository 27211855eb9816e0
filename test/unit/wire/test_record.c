/* Tests records of a data connection. Every kind is accepted with exactly its size. All other
 * records are refused. */
#include "svc/wire/record.h"

#include "svc/channel/channel.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t kinds[] = {RECORD_READY,   RECORD_COMMIT,   RECORD_ERROR,  RECORD_QUERY,
                                RECORD_MISSING, RECORD_TICKET,   RECORD_LEAVE,  RECORD_CLOSED,
                                RECORD_CHOSEN,  RECORD_SETTINGS, RECORD_BACKUP, RECORD_BACKED,
                                RECORD_PASSED,  RECORD_LANDED,   RECORD_GO_ON,  RECORD_MEASURE};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static union record sound(uint8_t kind)
{
    union record r;
    memset(&r, 0, sizeof(r));
    r.kind = kind;
    if (kind == RECORD_READY)
        r.ready = (struct record_ready){.kind = RECORD_READY,
                                        .operation = RECORD_SUM,
                                        .dtype = 1,
                                        .outputs = 1,
                                        .piece = 7,
                                        .word = 0x0102,
                                        .round = 3,
                                        .epoch = 2,
                                        .input_region = 4,
                                        .input_offset = 4096,
                                        .input_bytes = 64,
                                        .loss = NAN,
                                        .output = {{.source = RECORD_SOURCE_RESULT,
                                                    .count = 1,
                                                    .region = 4,
                                                    .offset = 8192,
                                                    .bytes = 64}},
                                        .weight = RECORD_WEIGHT,
                                        .gradient = RECORD_GRADIENT};
    if (kind == RECORD_COMMIT)
        r.commit = (struct record_commit){.kind = RECORD_COMMIT, .count = 2, .words = {5, 6}};
    if (kind == RECORD_ERROR)
        record_error_init(&r.error, 9, -EINVAL, "rank 1 says 3 elements, rank 0 says 4");
    if (kind == RECORD_CLOSED)
        r.closed = (struct record_closed){.kind = RECORD_CLOSED, .word = 9, .round = 4};
    if (kind == RECORD_CHOSEN || kind == RECORD_PASSED)
        r.chosen = (struct record_chosen){.kind = kind, .round = 4, .ranks = {5}, .epoch = 2};
    if (kind == RECORD_LANDED)
        r.landed = (struct record_landed){.kind = RECORD_LANDED, .piece = 3, .round = 4};
    if (kind == RECORD_GO_ON)
        r.go_on = (struct record_go_on){.kind = RECORD_GO_ON, .gradient = 2, .round = 4};
    if (kind == RECORD_MEASURE)
        r.measure = (struct record_measure){.kind = RECORD_MEASURE,
                                            .lane = 1,
                                            .round = 4,
                                            .inputs = 3,
                                            .blocks = 256,
                                            .squares = 6.5,
                                            .mean = 1.5,
                                            .product = -0.25};
    if (kind == RECORD_BACKUP)
        r.backup = (struct record_backup){.kind = RECORD_BACKUP, .piece = 3, .since = 1};
    if (kind == RECORD_BACKED)
        r.backed = (struct record_backed){.kind = RECORD_BACKED, .piece = 3, .round = 1};
    if (kind == RECORD_TICKET)
        r.ticket.connect = (struct record_connect){.magic = RECORD_MAGIC, .job = 1, .rank = 2};
    return r;
}

static int check(const void *data, size_t bytes)
{
    union record copy;
    size_t fixed;
    /* the allocation has the exact size, so a sanitizer detects any access beyond the record */
    uint8_t *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, data, bytes);
    int r = record_check(exact, bytes, &copy, &fixed);
    free(exact);
    return r;
}

static int check_record(const union record *r) { return check(r, record_bytes(r)); }

static void every_kind_passes_at_exactly_its_size(void **state)
{
    for (size_t i = 0; i < KINDS; i++) {
        union record r = sound(kinds[i]), copy;
        size_t fixed = 0;
        assert_true(record_bytes(&r) > 0 && record_bytes(&r) <= sizeof(r));
        assert_int_equal(record_check(&r, record_bytes(&r), &copy, &fixed), 0);
        assert_int_equal(fixed, record_bytes(&r));
        assert_memory_equal(&copy, &r, fixed);
    }
}

static void every_other_length_is_refused(void **state)
{
    for (size_t i = 0; i < KINDS; i++) {
        uint8_t data[256] = {0};
        union record r = sound(kinds[i]);
        memcpy(data, &r, sizeof(r));
        for (size_t bytes = 0; bytes < sizeof(data); bytes++)
            assert_int_equal(check(data, bytes), bytes == record_bytes(&r) ? 0 : -EBADMSG);
    }
}

static void unknown_kinds_are_refused(void **state)
{
    for (unsigned kind = 0; kind < 256; kind++) {
        uint8_t data[256] = {(uint8_t)kind};
        if (kind >= RECORD_READY && kind <= RECORD_LOGGED)
            continue;
        for (size_t bytes = 0; bytes < sizeof(data); bytes++)
            assert_int_equal(check(data, bytes), -EBADMSG);
        union record r = {.kind = (uint8_t)kind};
        assert_int_equal(record_bytes(&r), 0);
    }
}

static void a_record_at_any_address_is_read(void **state)
{
    union record r = sound(RECORD_READY), copy;
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t data[sizeof(r) + 8];
        size_t fixed;
        memcpy(data + shift, &r, record_bytes(&r));
        assert_int_equal(record_check(data + shift, record_bytes(&r), &copy, &fixed), 0);
    }
}

static void a_payload_has_exactly_the_length_in_its_record(void **state)
{
    uint8_t data[sizeof(struct record_ready) + 128] = {0};
    union record r = sound(RECORD_READY), copy;
    for (uint32_t says = 0; says <= 128; says++) {
        r.ready.payload_bytes = says;
        memcpy(data, &r.ready, sizeof(r.ready));
        for (size_t carries = 0; carries <= 128; carries++) {
            int expected = says == carries && (says == 0 || says == 64) ? 0 : -EBADMSG;
            assert_int_equal(check(data, sizeof(r.ready) + carries), expected);
        }
    }
    size_t fixed = 0;
    r.ready.payload_bytes = 64;
    memcpy(data, &r.ready, sizeof(r.ready));
    assert_int_equal(record_check(data, sizeof(r.ready) + 64, &copy, &fixed), 0);
    assert_int_equal(fixed, sizeof(r.ready));
}

/* Returns the number of reserved bytes from `*ret_at` on. A flag may be 1, but counts as reserved,
 * because the test writes 2. */
static size_t reserved_of(uint8_t kind, size_t *ret_at)
{
    *ret_at = 1;
    switch (kind) {
    case RECORD_READY: return *ret_at = 117, 3;
    case RECORD_CHOSEN:
    case RECORD_PASSED: return *ret_at = 3, 5;
    case RECORD_GO_ON: return *ret_at = 2, 6;
    case RECORD_MEASURE: return 1;
    case RECORD_TICKET:
    case RECORD_LEAVE:
    case RECORD_SETTINGS: return 7;
    default: return 3;
    }
}

static void reserved_bytes_must_be_zero(void **state)
{
    for (size_t i = 0; i < KINDS; i++) {
        union record r = sound(kinds[i]);
        size_t at, reserved = reserved_of(r.kind, &at);
        for (size_t end = at + reserved; at < end; at++) {
            union record bad = r;
            ((uint8_t *)&bad)[at] = 2;
            assert_int_equal(check_record(&bad), -EBADMSG);
        }
    }
    for (size_t at = 116; at < 120; at++) {
        union record bad = sound(RECORD_CHOSEN);
        ((uint8_t *)&bad)[at] = 1;
        assert_int_equal(check_record(&bad), -EBADMSG);
    }
}

/* Makes one field of a valid record invalid, and expects the refusal. */
#define refuses(kind_, field, value)                    \
    do {                                                \
        union record bad = sound(kind_);                \
        assert_int_equal(check_record(&bad), 0);        \
        bad.field = (value);                            \
        assert_int_equal(check_record(&bad), -EBADMSG); \
    } while (0)
#define accepts(kind_, field, value)              \
    do {                                          \
        union record good = sound(kind_);         \
        good.field = (value);                     \
        assert_int_equal(check_record(&good), 0); \
    } while (0)

static void a_barrier_may_announce_several_gradients(void **state)
{
    union record ready = sound(RECORD_READY);
    ready.ready.operation = RECORD_BARRIER;
    ready.ready.input_bytes = ready.ready.payload_bytes = 0;
    for (unsigned gradient = 0; gradient < 256; gradient++) {
        ready.ready.gradient = (uint8_t)gradient;
        bool is_possible = gradient >= RECORD_GRADIENT && gradient <= RECORD_GRADIENTS_MAX;
        assert_int_equal(check_record(&ready), is_possible ? 0 : -EBADMSG);
    }
}

static void each_field_of_ready_is_checked(void **state)
{
    refuses(RECORD_READY, ready.operation, 0);
    refuses(RECORD_READY, ready.operation, RECORD_RESTORE + 1);
    accepts(RECORD_READY, ready.stalled, UINT16_MAX);
    refuses(RECORD_READY, ready.operation, 255);
    refuses(RECORD_READY, ready.operation, RECORD_BARRIER); /* a barrier with input bytes */
    refuses(RECORD_READY, ready.standing, RECORD_TAKES);    /* a record TAKES must not have an
                                                             * input */
    refuses(RECORD_READY, ready.standing, RECORD_FAILED);   /* no memory is lent */
    refuses(RECORD_READY, ready.standing, RECORD_FAILED + 1);
    refuses(RECORD_READY, ready.weight, 0); /* a sum has no weights */
    refuses(RECORD_READY, ready.weight, 2);
    refuses(RECORD_READY, ready.weight, UINT32_MAX);
    refuses(RECORD_READY, ready.gradient, 0);
    refuses(RECORD_READY, ready.gradient, 2); /* only a barrier announces a second gradient */
    refuses(RECORD_READY, ready.gradient, 255);
    refuses(RECORD_READY, ready.standing, 255);
    refuses(RECORD_READY, ready.outputs, RECORD_OUTPUTS_MAX + 1);
    refuses(RECORD_READY, ready.outputs, UINT16_MAX);
    refuses(RECORD_READY, ready.outputs, 0); /* an output is set, but the number of outputs is 0 */
    refuses(RECORD_READY, ready.round, RECORD_ROUND_NONE);
    refuses(RECORD_READY, ready.input_bytes, UINT64_MAX);
    refuses(RECORD_READY, ready.input_offset, UINT64_MAX - 63);
    accepts(RECORD_READY, ready.input_offset, UINT64_MAX - 64);
    refuses(RECORD_READY, ready.payload_bytes, UINT32_MAX);
    refuses(RECORD_READY, ready.round, RECORD_ROUND_MOST + 1);
}

static void each_field_of_an_output_is_checked(void **state)
{
    refuses(RECORD_READY, ready.output[0].reserved, 1);
    refuses(RECORD_READY, ready.output[0].count, 0);
    refuses(RECORD_READY, ready.output[0].count, 2); /* only one result is allowed */
    refuses(RECORD_READY, ready.output[0].offset, UINT64_MAX - 63);
    accepts(RECORD_READY, ready.output[0].offset, UINT64_MAX - 64);
    refuses(RECORD_READY, ready.output[0].bytes, UINT64_MAX);
    union record r = sound(RECORD_READY);
    refuses(RECORD_READY, ready.output[0].stride, 64); /* with one block, a stride is not allowed */
    r.ready.output[0] =
        (struct record_output){.source = 2, .count = 4, .bytes = 1 << 20, .stride = 1 << 21};
    assert_int_equal(check_record(&r), 0);
    r.ready.output[0].stride = (1 << 20) - 1; /* these blocks overlap */
    assert_int_equal(check_record(&r), -EBADMSG);
    r.ready.output[0].stride = UINT64_C(1) << 63;
    assert_int_equal(check_record(&r), -EBADMSG);
    r.ready.output[0] = (struct record_output){.source = RECORD_SOURCE_RESULT - 3, .count = 4};
    assert_int_equal(check_record(&r), -EBADMSG);
    r.ready.output[0].count = 3;
    assert_int_equal(check_record(&r), 0);
}

static void a_worker_that_finished_nothing_may_stand_idle_at_round_0(void **state)
{
    union record r = sound(RECORD_READY);
    r.ready.round = RECORD_ROUND_NONE;
    r.ready.standing = RECORD_IDLE;
    assert_int_equal(check_record(&r), 0);
    r.ready.standing = RECORD_HOLDS;
    assert_int_equal(check_record(&r), -EBADMSG);
}

static void a_taker_lends_no_input_and_has_a_landing_area(void **state)
{
    union record r = sound(RECORD_READY);
    r.ready.standing = RECORD_TAKES;
    r.ready.input_bytes = 0;
    assert_int_equal(check_record(&r), 0);
    r.ready.round = RECORD_ROUND_NONE;
    assert_int_equal(check_record(&r), -EBADMSG);
    r.ready.round = 1;
    r.ready.outputs = 0;
    memset(r.ready.output, 0, sizeof(r.ready.output));
    assert_int_equal(check_record(&r), -EBADMSG);
}

static void a_barrier_carries_nothing(void **state)
{
    union record r = sound(RECORD_READY);
    r.ready.operation = RECORD_BARRIER;
    r.ready.input_bytes = 0;
    r.ready.outputs = 0;
    memset(r.ready.output, 0, sizeof(r.ready.output));
    assert_int_equal(check_record(&r), 0);
}

static void the_other_kinds_are_checked_field_by_field(void **state)
{
    refuses(RECORD_COMMIT, commit.count, 0);
    refuses(RECORD_COMMIT, commit.count, RECORD_COMMIT_WORDS_MAX + 1);
    refuses(RECORD_COMMIT, commit.count, UINT32_MAX);
    accepts(RECORD_COMMIT, commit.count, RECORD_COMMIT_WORDS_MAX);
    refuses(RECORD_ERROR, error.code, 0);
    refuses(RECORD_ERROR, error.code, 1);
    refuses(RECORD_ERROR, error.code, INT32_MIN);
    refuses(RECORD_ERROR, error.text_bytes, RECORD_TEXT_BYTES + 1);
    refuses(RECORD_ERROR, error.text_bytes, UINT32_MAX);
    accepts(RECORD_ERROR, error.text_bytes, RECORD_TEXT_BYTES);
    refuses(RECORD_ERROR, error.padding, 1);
    refuses(RECORD_QUERY, query.padding, 1);
    refuses(RECORD_CLOSED, closed.round, RECORD_ROUND_MOST + 1);
    refuses(RECORD_CHOSEN, chosen.round, 0);
    refuses(RECORD_CHOSEN, chosen.ranks[0], 0); /* the set has no rank */
    refuses(RECORD_CHOSEN, chosen.round, RECORD_ROUND_MOST + 1);
    accepts(RECORD_CHOSEN, chosen.reason, RECORD_REASON_REPLAY);
    refuses(RECORD_CHOSEN, chosen.reason, RECORD_REASON_REPLAY + 1);
    accepts(RECORD_CHOSEN, chosen.form, RECORD_FORM_COUNTS);
    refuses(RECORD_CHOSEN, chosen.form, RECORD_FORM_TAKERS); /* this form is allowed in PASSED
                                                              * only */
    accepts(RECORD_CHOSEN, chosen.epoch, UINT32_MAX);
    refuses(RECORD_PASSED, chosen.round, 0);
    refuses(RECORD_PASSED, chosen.ranks[0], 0);
    accepts(RECORD_PASSED, chosen.form, RECORD_FORM_TAKERS);
    refuses(RECORD_PASSED, chosen.form, RECORD_FORM_TAKERS + 1);
    accepts(RECORD_LANDED, landed.round, RECORD_ROUND_NONE);
    refuses(RECORD_LANDED, landed.round, RECORD_ROUND_MOST + 1);
    refuses(RECORD_GO_ON, go_on.round, 0);
    refuses(RECORD_GO_ON, go_on.gradient, 1); /* no record GO_ON names the first gradient */
    accepts(RECORD_GO_ON, go_on.gradient, RECORD_GRADIENTS_MAX);
    refuses(RECORD_GO_ON, go_on.gradient, RECORD_GRADIENTS_MAX + 1);
    refuses(RECORD_MEASURE, measure.round, 0);
    refuses(RECORD_MEASURE, measure.inputs, 0);
    accepts(RECORD_MEASURE, measure.inputs, RECORD_COUNTED_RANKS * RECORD_GRADIENTS_MAX);
    refuses(RECORD_MEASURE, measure.inputs, RECORD_COUNTED_RANKS * RECORD_GRADIENTS_MAX + 1);
    accepts(RECORD_MEASURE, measure.blocks, 0);
    accepts(RECORD_MEASURE, measure.lanes, UINT16_MAX);
    refuses(RECORD_MEASURE, measure.reserved, 1);
    refuses(RECORD_MEASURE, measure.blocks, RECORD_SAMPLE_BLOCKS + 1);
    accepts(RECORD_MEASURE, measure.squares, NAN); /* the receiver drops the sample */
    refuses(RECORD_TICKET, ticket.connect.magic, RECORD_MAGIC ^ 1);
    accepts(RECORD_TICKET, ticket.connect.entered, UINT32_MAX);
    refuses(RECORD_TICKET, ticket.connect.entered, UINT64_C(1) << 32);
}

static void a_record_of_takers_may_be_empty_and_has_no_reason_but_replay(void **state)
{
    union record r = sound(RECORD_PASSED);
    r.chosen.form = RECORD_FORM_TAKERS;
    memset(r.chosen.ranks, 0, sizeof(r.chosen.ranks));
    assert_int_equal(check_record(&r), 0);
    r.chosen.reason = RECORD_REASON_REPLAY;
    assert_int_equal(check_record(&r), 0);
    r.chosen.reason = RECORD_REASON_GAIN;
    assert_int_equal(check_record(&r), -EBADMSG);
}

/* Compares the record with bytes that were written by hand, so that fields stay at their
 * offsets. */
static void has_bytes(const union record *r, const char *hex)
{
    const uint8_t *bytes = (const uint8_t *)r;
    assert_int_equal(strlen(hex), 2 * record_bytes(r));
    for (size_t i = 0; i < record_bytes(r); i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        assert_int_equal(bytes[i], strtoul(digits, NULL, 16));
    }
    assert_int_equal(check_record(r), 0);
}

static void each_field_lies_at_its_offset(void **state)
{
    char words_2_to_11[161], hex[241];
    memset(words_2_to_11, '0', sizeof(words_2_to_11) - 1);
    words_2_to_11[sizeof(words_2_to_11) - 1] = '\0';
    union record r = sound(RECORD_READY);
    r.ready.loss = 1.5f;
    r.ready.stalled = 0x1234;
    r.ready.root = 0x87654321;
    has_bytes(&r, "01010100"
                  "01003412"
                  "07000000"
                  "02010000"
                  "0300000000000000"
                  "02000000"
                  "21436587"
                  "04000000"
                  "00000000"
                  "0010000000000000"
                  "4000000000000000"
                  "0000000000000000"
                  "0000c03f"
                  "00000000"
                  "ffffffff"
                  "01000000"
                  "04000000"
                  "00000000"
                  "0020000000000000"
                  "4000000000000000"
                  "0000000000000000"
                  "01000000"
                  "01"
                  "000000");
    r = sound(RECORD_CHOSEN);
    r.chosen.reason = RECORD_REASON_ABSENCE;
    r.chosen.form = RECORD_FORM_COUNTS;
    r.chosen.ranks[1] = UINT64_C(0x8000000000000001);
    snprintf(hex, sizeof(hex), "0903010000000000%s%s%s%s%s", "0400000000000000", "0500000000000000",
             "0100000000000080", words_2_to_11, "0200000000000000");
    has_bytes(&r, hex);
    r = sound(RECORD_PASSED);
    r.chosen.reason = RECORD_REASON_REPLAY;
    r.chosen.ranks[1] = 1;
    snprintf(hex, sizeof(hex), "0d04000000000000%s%s%s%s%s", "0400000000000000", "0500000000000000",
             "0100000000000000", words_2_to_11, "0200000000000000");
    has_bytes(&r, hex);
    r = sound(RECORD_LANDED);
    has_bytes(&r, "0e000000030000000400000000000000");
    r = sound(RECORD_GO_ON);
    has_bytes(&r, "0f020000000000000400000000000000");
    r = sound(RECORD_MEASURE);
    has_bytes(&r, "10000000"
                  "01000000"
                  "0400000000000000"
                  "03000000"
                  "00010000"
                  "0000000000001a40"
                  "000000000000f83f"
                  "000000000000d0bf");
}

static void an_error_text_is_truncated_to_its_buffer(void **state)
{
    char text[RECORD_TEXT_BYTES + 50];
    for (size_t length = 0; length < sizeof(text); length++) {
        memset(text, 'x', length);
        text[length] = '\0';
        union record r;
        record_error_init(&r.error, RECORD_WORD_NONE, -ECONNRESET, text);
        size_t kept = length < RECORD_TEXT_BYTES ? length : RECORD_TEXT_BYTES;
        assert_int_equal(r.error.text_bytes, kept);
        bool is_cut = length > RECORD_TEXT_BYTES;
        assert_memory_equal(r.error.text, text, is_cut ? kept - 3 : kept);
        assert_memory_equal(r.error.text + kept - 3 * is_cut, "...", 3 * is_cut);
        assert_int_equal(check_record(&r), 0);
    }
}

static void random_bytes_never_crash(void **state)
{
    unsigned seed = 20240607;
    print_message("# seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 200000; i++) {
        uint8_t data[256];
        size_t bytes = (size_t)random() % sizeof(data);
        for (size_t at = 0; at < sizeof(data); at++)
            data[at] = (uint8_t)random();
        if (i % 2) /* half of the records are valid records with one changed byte */
        {
            union record r = sound(kinds[(size_t)random() % KINDS]);
            size_t spoilt = (size_t)random() % record_bytes(&r);
            ((uint8_t *)&r)[spoilt] = data[0];
            bytes = record_bytes(&r);
            memcpy(data, &r, bytes);
        }
        int r = check(data, bytes);
        assert_true(r == 0 || r == -EBADMSG);
    }
}

/* If these sizes change, a former version would misread records. */
static void the_layout_of_records_goes_with_the_protocol_version(void **state)
{
    /* If a size changes (H10): raise the version, update the sizes, rebuild
     * test/fuzz/corpus/record. */
    assert_int_equal(CHANNEL_VERSION, 22);
    assert_int_equal(sizeof(struct record_ready), 120);
    assert_int_equal(sizeof(struct record_output), 40);
    assert_int_equal(sizeof(struct record_commit), 120);
    assert_int_equal(sizeof(struct record_error), 120);
    assert_int_equal(sizeof(struct record_query), 24);
    assert_int_equal(sizeof(struct record_missing), 112);
    assert_int_equal(sizeof(struct record_connect), 48);
    assert_int_equal(sizeof(struct record_ticket), 56);
    assert_int_equal(sizeof(struct record_leave), 8);
    assert_int_equal(sizeof(struct record_closed), 16);
    assert_int_equal(sizeof(struct record_chosen), 120);
    assert_int_equal(sizeof(struct record_settings), 72);
    assert_int_equal(sizeof(struct record_backup), 96);
    assert_int_equal(sizeof(struct record_backed), 32);
    assert_int_equal(sizeof(struct record_stamp), 24);
    assert_int_equal(sizeof(struct record_landed), 16);
    assert_int_equal(sizeof(struct record_go_on), 16);
    assert_int_equal(sizeof(struct record_measure), 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_passes_at_exactly_its_size),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(a_record_at_any_address_is_read),
        cmocka_unit_test(a_payload_has_exactly_the_length_in_its_record),
        cmocka_unit_test(reserved_bytes_must_be_zero),
        cmocka_unit_test(each_field_of_ready_is_checked),
        cmocka_unit_test(a_barrier_may_announce_several_gradients),
        cmocka_unit_test(each_field_of_an_output_is_checked),
        cmocka_unit_test(a_worker_that_finished_nothing_may_stand_idle_at_round_0),
        cmocka_unit_test(a_taker_lends_no_input_and_has_a_landing_area),
        cmocka_unit_test(a_barrier_carries_nothing),
        cmocka_unit_test(the_other_kinds_are_checked_field_by_field),
        cmocka_unit_test(a_record_of_takers_may_be_empty_and_has_no_reason_but_replay),
        cmocka_unit_test(each_field_lies_at_its_offset),
        cmocka_unit_test(an_error_text_is_truncated_to_its_buffer),
        cmocka_unit_test(random_bytes_never_crash),
        cmocka_unit_test(the_layout_of_records_goes_with_the_protocol_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
