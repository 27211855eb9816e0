/* Tests the file of a timeline. The file is complete after each batch. The former file stays until
 * the first batch. Data of a worker cannot make the file unreadable. */
#include "svc/timeline/timeline_file.h"
#include "svc/wire/record.h"
#include "svc/wire/trace_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define BEGUN 1000000

struct rig {
    char folder[64], path[96];
    struct timeline_file *file;
    struct timeline_totals totals;
    int64_t offset_ns;
    char text[16 << 20];
};

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    rig->offset_ns = -2000;
    snprintf(rig->folder, sizeof rig->folder, "/tmp/gradpool-timeline-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof rig->path, "%s/trace.json", rig->folder);
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    unlink(rig->path);
    rmdir(rig->folder);
    free(rig);
    return 0;
}

static const char *text_of(struct rig *rig)
{
    int fd = open(rig->path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, rig->text, sizeof rig->text - 1);
    rig->text[bytes < 0 ? 0 : bytes] = '\0';
    if (fd >= 0)
        close(fd);
    return rig->text;
}

static void open_file(struct rig *rig)
{
    struct err err;
    assert_int_equal(timeline_file_open(rig->path, &rig->file, &err), 0);
}

static void close_file(struct rig *rig)
{
    struct err err;
    assert_int_equal(timeline_file_close(rig->file, &rig->totals, &err), 0);
}

/* Returns whether brackets outside of quotes are balanced, as any parser requires. */
static bool is_whole(const char *text)
{
    int depth = 0;
    bool is_quoted = false;
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 && *text != '\n')
            return false;
        if (*text == '\\' && is_quoted)
            text++;
        else if (*text == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted)
            depth += (*text == '{' || *text == '[') - (*text == '}' || *text == ']');
    }
    return depth == 0 && !is_quoted;
}

static size_t count(const char *text, const char *part)
{
    const char *end =
        /* the end is computed once, because AddressSanitizer's strstr() would read the whole text
         * at each call */
        text + strlen(text);
    size_t bytes = strlen(part), found = 0;
    for (; (text = memmem(text, (size_t)(end - text), part, bytes)); text += bytes)
        found++;
    return found;
}

static struct trace_round round_at(uint64_t begin, uint64_t end)
{
    struct trace_round r = {
        .round = 7, .bytes = 4, .thing = 3, .operation = RECORD_SUM, .at_ns = {BEGUN + begin}};
    for (int i = 1; i < TRACE_STEPS; i++)
        r.at_ns[i] = BEGUN + end;
    return r;
}

/* Adds rounds as if a worker had sent them, or lane 2 of an aggregator. */
static void add(struct rig *rig, bool is_aggregator, const void *rounds, size_t bytes,
                uint64_t dropped)
{
    Gradpool__Wire__TimelineNext next = GRADPOOL__WIRE__TIMELINE_NEXT__INIT;
    Gradpool__Wire__TimelineTensor tensor = GRADPOOL__WIRE__TIMELINE_TENSOR__INIT,
                                   *tensors = &tensor;
    Gradpool__Wire__TimelineSource source = GRADPOOL__WIRE__TIMELINE_SOURCE__INIT,
                                   *sources = &source;
    Gradpool__Wire__TimelineRounds part = GRADPOOL__WIRE__TIMELINE_ROUNDS__INIT, *parts = &part;
    tensor.tensor = 3;
    tensor.first_piece = 3;
    tensor.pieces = 2;
    tensor.name = (char *)"a\"b\\c\n\xc3\xa4";
    part.lane = is_aggregator ? 2 : 0;
    part.rounds = (ProtobufCBinaryData){bytes, (uint8_t *)rounds};
    part.dropped = dropped;
    source.is_aggregator = is_aggregator;
    source.node = (char *)"no\"de";
    source.error_ns = 5;
    source.offset_ns = rig->offset_ns;
    source.rounds = &parts;
    source.n_rounds = 1;
    next.sources = &sources;
    next.n_sources = 1;
    next.tensors = &tensors;
    next.n_tensors = 1;
    timeline_file_add(rig->file, &next);
}

static void the_file_is_complete_after_each_batch(void **state)
{
    struct rig *rig = *state;
    struct trace_round r = round_at(3000, 4500);
    open_file(rig);
    timeline_file_begin(rig->file, "jo\"b", BEGUN);
    assert_true(is_whole(text_of(rig)));
    for (size_t i = 1; i <= 3; i++) {
        add(rig, false, &r, sizeof r, i);
        assert_true(is_whole(text_of(rig)));
        assert_int_equal(count(rig->text, "\"bytes\":4,\"operation\":\"sum\""), i);
        assert_int_equal(count(rig->text, "\"otherData\""), 1);
    }
    assert_non_null(strstr(rig->text, "\"name\":\"a\\u0022b\\u005cc\\u000a\xc3\xa4\""));
    assert_non_null(strstr(rig->text, "\"ts\":1.000,\"dur\":1.500,\"args\":{\"round\":7,"));
    assert_non_null(strstr(rig->text, "\"offset\":-2.000,\"error\":0.005"));
    assert_non_null(strstr(rig->text, "\"rounds\":\"3\",\"dropped\":\"3\""));
    close_file(rig);
    assert_int_equal(rig->totals.dropped, 3);
}

static void rounds_that_overlap_get_rows_of_their_own(void **state)
{
    struct rig *rig = *state;
    const struct trace_round rounds[] = {round_at(0, 1000), round_at(500, 1500),
                                         round_at(1000, 2000), round_at(1900, 2100)};
    open_file(rig);
    timeline_file_begin(rig->file, "job", BEGUN);
    add(rig, true, rounds, sizeof rounds, 0);
    close_file(rig);
    assert_int_equal(count(text_of(rig), "\"tid\":2000001,\"name\":\"a\\u0022"), 2);
    assert_int_equal(count(rig->text, "\"tid\":2000002,\"name\":\"a\\u0022"), 2);
    assert_int_equal(count(rig->text, "{\"name\":\"lane 2 (2)\"}"), 1);
    assert_int_equal(count(rig->text, "\"ph\":\"i\""), 4);
    assert_int_equal(rig->totals.lanes, 1);
}

static void a_better_clock_estimate_makes_no_events_of_a_row_overlap(void **state)
{
    struct rig *rig = *state;
    struct trace_round before = round_at(10000, 11000), after = round_at(11000, 12000),
                       behind = round_at(12000, 13000);
    open_file(rig);
    timeline_file_begin(rig->file, "job", BEGUN);
    rig->offset_ns = -1000;
    add(rig, false, &before, sizeof before, 0);
    rig->offset_ns = -1500;
    add(rig, false, &after, sizeof after, 0);
    add(rig, false, &behind, sizeof behind, 0);
    close_file(rig);
    text_of(rig);
    assert_non_null(strstr(rig->text, "\"tid\":1,\"name\":\"a\\u0022b\\u005cc\\u000a\xc3\xa4\","
                                      "\"ts\":9.000,\"dur\":1.000,"));
    assert_non_null(strstr(rig->text, "\"tid\":2,\"name\":\"a\\u0022b\\u005cc\\u000a\xc3\xa4\","
                                      "\"ts\":9.500,\"dur\":1.000,"));
    assert_non_null(strstr(rig->text, "\"tid\":1,\"name\":\"a\\u0022b\\u005cc\\u000a\xc3\xa4\","
                                      "\"ts\":10.500,\"dur\":1.000,"));
}

#define MANY 10000

static void each_round_under_way_has_a_row(void **state)
{
    struct rig *rig = *state;
    struct trace_round *rounds = calloc(2 * MANY, sizeof *rounds);
    assert_non_null(rounds);
    for (size_t i = 0; i < MANY; i++) {
        rounds[i] = round_at(i, 100000 + i);
        rounds[MANY + i] = round_at(100000 + i, 300000);
    }
    open_file(rig);
    timeline_file_begin(rig->file, "job", BEGUN);
    add(rig, true, rounds, 2 * MANY * sizeof *rounds, 0);
    close_file(rig);
    free(rounds);
    assert_int_equal(rig->totals.rounds, 2 * MANY);
    assert_int_equal(rig->totals.damaged + rig->totals.dropped, 0);
    assert_true(is_whole(text_of(rig)));
    assert_int_equal(count(rig->text, "\"thread_name\""), MANY);
    for (unsigned row = 1; row <= MANY; row += MANY - 1) { /* the second row fits after the first */
        char tid[64];
        snprintf(tid, sizeof tid, "\"tid\":%u,\"name\":\"a\\u0022", 2000000 + row);
        assert_int_equal(count(rig->text, tid), 2);
    }
}

/* --- files that cannot be written --- */

static void let_files_grow_to(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_write_without_space_leaves_the_file_unchanged(void **state)
{
    struct rig *rig = *state;
    struct trace_round r = round_at(0, 1000), more[100];
    struct err err;
    for (size_t i = 0; i < 100; i++)
        more[i] = r;
    open_file(rig);
    timeline_file_begin(rig->file, "job", BEGUN);
    add(rig, false, &r, sizeof r, 0);
    char *before = strdup(text_of(rig));
    assert_non_null(before);
    let_files_grow_to(strlen(before) + 1000);
    add(rig, false, more, sizeof more, 7);
    let_files_grow_to(RLIM_INFINITY);
    assert_string_equal(text_of(rig), before);
    assert_int_equal(timeline_file_check(rig->file, &err), -EFBIG);
    add(rig, false, &r, sizeof r, 0);
    assert_int_equal(timeline_file_close(rig->file, &rig->totals, &err), -EFBIG);
    assert_string_equal(text_of(rig), before);
    assert_true(is_whole(before));
    assert_non_null(strstr(err.text, "the file has the first 1 rounds"));
    assert_int_equal(rig->totals.rounds, 1);
    free(before);
}

static void a_file_without_room_to_begin_does_not_exist(void **state)
{
    struct rig *rig = *state;
    struct err err;
    open_file(rig);
    let_files_grow_to(20);
    timeline_file_begin(rig->file, "job", BEGUN);
    let_files_grow_to(RLIM_INFINITY);
    assert_int_equal(timeline_file_check(rig->file, &err), -EFBIG);
    assert_int_equal(timeline_file_close(rig->file, NULL, &err), -EFBIG);
    assert_null(strstr(err.text, "rounds"));
    assert_int_equal(access(rig->path, F_OK), -1);
}

static void a_device_is_a_stream(void **state)
{
    struct rig *rig = *state;
    struct trace_round r = round_at(0, 1000);
    struct err err;
    assert_int_equal(timeline_file_open("/dev/null", &rig->file, &err), 0);
    timeline_file_begin(rig->file, "job", BEGUN);
    add(rig, false, &r, sizeof r, 0);
    close_file(rig);
    assert_int_equal(rig->totals.rounds, 1);
    assert_int_equal(timeline_file_open("/dev/full", &rig->file, &err), 0);
    timeline_file_begin(rig->file, "job", BEGUN);
    assert_int_equal(timeline_file_close(rig->file, NULL, &err), -ENOSPC);
    assert_int_equal(access("/dev/full", F_OK), 0);
}

static void senseless_records_are_counted_and_omitted(void **state)
{
    struct rig *rig = *state;
    struct trace_round rounds[] = {round_at(0, 1000), round_at(5, 4), round_at(2000, 3000)};
    rounds[2].thing = 77; /* an unknown kind */
    rounds[2].operation = 200;
    open_file(rig);
    timeline_file_begin(rig->file, "job", BEGUN);
    add(rig, false, rounds, sizeof rounds - 1, 0);
    add(rig, false, &rounds[2], sizeof rounds[2], 0);
    close_file(rig);
    assert_true(is_whole(text_of(rig)));
    assert_int_equal(rig->totals.rounds, 2);
    assert_int_equal(rig->totals.damaged, 1);
    assert_non_null(strstr(rig->text, "\"name\":\"tensor 77\""));
    assert_non_null(strstr(rig->text, "\"operation\":\"unknown\""));
}

static void an_earlier_file_stays_until_the_new_one_begins(void **state)
{
    struct rig *rig = *state;
    open_file(rig);
    close_file(rig);
    assert_int_equal(access(rig->path, F_OK), -1);
    int fd = open(rig->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    open_file(rig);
    close_file(rig);
    assert_string_equal(text_of(rig), "mine");
}

static void a_missing_folder_is_named(void **state)
{
    struct rig *rig = *state;
    struct err err;
    assert_int_equal(timeline_file_open("/no/such/trace.json", &rig->file, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/no/such/trace.json"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_file_is_complete_after_each_batch),
        CASE(rounds_that_overlap_get_rows_of_their_own),
        CASE(a_better_clock_estimate_makes_no_events_of_a_row_overlap),
        CASE(each_round_under_way_has_a_row),
        CASE(a_write_without_space_leaves_the_file_unchanged),
        CASE(a_file_without_room_to_begin_does_not_exist),
        CASE(a_device_is_a_stream),
        CASE(senseless_records_are_counted_and_omitted),
        CASE(an_earlier_file_stays_until_the_new_one_begins),
        CASE(a_missing_folder_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
