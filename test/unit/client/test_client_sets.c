/* Tests the file with the sets of a job (client/lib/sets): every line that is written is read
 * again, a replay refuses a file that was damaged or is of another job, and a recording ends with a
 * warning when it cannot be whole. */
#include "client/lib/sets/sets.h"
#include "client/lib/sets/sets_file.h"
#include "svc/fabric/fabric_ops.h"
#include "svc/wire/terms.h"
#include "test/lib/kept_log.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 4
#define BYTES_MOST 100000

static const struct backup_terms terms = {.rule = BACKUP_TERMS_STATIC, .k = 2};
static const struct sets_way leader = {.lane = 3, .openings = 1, .epoch = 1};
static struct gp_job job = {.name = "resnet"};
static char folder[] = "/tmp/gradpool-sets-XXXXXX", path[64];
static struct err err;
static uint32_t last_sent;

static int start(void **state)
{
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/sets", folder);
    kept_log_begin();
    return 0;
}

static int stop(void **state)
{
    (void)unlink(path); /* some cases write no file */
    return rmdir(folder);
}

/* --- files --- */

static struct sets_recording *open_recording(void)
{
    struct sets_recording *r = NULL;
    assert_int_equal(sets_recording_open(path, &job, &terms, RANKS, &r, &err), 0);
    return r;
}

static void hear(struct sets_recording *r, uint8_t form, uint64_t round, uint64_t ranks)
{
    const struct record_chosen passed = {.kind = RECORD_PASSED,
                                         .form = form,
                                         .reason = form ? 0 : RECORD_REASON_GAIN,
                                         .round = round,
                                         .ranks = {ranks}};
    sets_recording_hear(r, &leader, &passed);
}

/* Rank 3 misses rounds 1 and 2, and begins after round 2. */
static void record(void)
{
    struct sets_recording *r = open_recording();
    hear(r, RECORD_FORM_RANKS, 1, 7);
    hear(r, RECORD_FORM_RANKS, 2, 7);
    hear(r, RECORD_FORM_TAKERS, 2, 8);
    hear(r, RECORD_FORM_RANKS, 3, 15);
    sets_recording_close(r);
}

static size_t read_file(char *text)
{
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, text, BYTES_MOST - 1);
    assert_true(bytes > 0);
    close(fd);
    text[bytes] = '\0';
    return (size_t)bytes;
}

static void write_file(const char *text, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
}

/* Writes a file of lines with valid checksums. */
static void write_lines(const struct sets_line *lines, size_t count)
{
    static char text[BYTES_MOST];
    uint64_t sum = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        at += sets_line_write(&lines[i], &sum, text + at);
    write_file(text, at);
}

static int replay(uint32_t workers, const struct backup_terms *of)
{
    struct sets_replay *r = NULL;
    int error = sets_replay_read(path, &job, of, workers, &r, &err);
    assert_true((error == 0) == (r != NULL));
    sets_replay_free(r);
    return error;
}

static void refuses(uint32_t workers, const struct backup_terms *of, const char *text)
{
    assert_int_equal(replay(workers, of), -EINVAL);
    if (!strstr(err.text, text))
        fail_msg("'%s' lacks '%s'", err.text, text);
}

static void is_damaged(const struct sets_line *lines, size_t count, const char *text)
{
    write_lines(lines, count);
    refuses(RANKS, &terms, text);
}

/* --- lines --- */

static void same_after_writing(const struct sets_line *line)
{
    char text[SETS_LINE_BYTES];
    struct sets_line read;
    uint64_t written = 17, found = 17;
    size_t bytes = sets_line_write(line, &written, text);
    assert_true(bytes < SETS_LINE_BYTES);
    assert_int_equal(text[bytes - 1], '\n');
    text[bytes - 1] = '\0';
    assert_null(sets_line_read(text, &found, &read));
    assert_int_equal(found, written);
    assert_memory_equal(&read, line, sizeof read);
}

static void every_line_is_the_same_after_writing_and_reading(void **state)
{
    for (uint8_t reason = 0; reason < RECORD_REASONS; reason++)
        same_after_writing(&(struct sets_line){.kind = SETS_ROUND,
                                               .round = RECORD_ROUND_MOST,
                                               .reason = reason,
                                               .ns = UINT64_C(4294967295999999000),
                                               .ranks = {UINT64_C(0x8000000000000005), 1}});
    struct sets_line longest = {.kind = SETS_ROUND, .round = 1};
    for (uint32_t rank = 0; rank < RANKS_WORDS * 64; rank += 2)
        ranks_add(longest.ranks, rank);
    same_after_writing(&longest);
    same_after_writing(&(struct sets_line){.kind = SETS_TOOK, .round = 9, .ranks = {0, 4}});
    same_after_writing(&(struct sets_line){.kind = SETS_HEAD, .workers = 768, .rule = "auto, x"});
}

static void a_recording_can_be_replayed(void **state)
{
    char text[BYTES_MOST];
    record();
    assert_int_equal(replay(RANKS, &terms), 0);
    read_file(text);
    assert_non_null(strstr(text, "gradpool sets 1, 4 ranks, static, k 2, "));
    assert_non_null(strstr(text, "\nround 1 gain 0.000000 0-2 #"));
    assert_non_null(strstr(text, "\ntook 2 3 #"));
}

/* --- refusals --- */

static void every_changed_or_missing_byte_is_found(void **state)
{
    char text[BYTES_MOST], bad[BYTES_MOST];
    record();
    size_t bytes = read_file(text);
    for (size_t i = 0; i < bytes; i++) {
        memcpy(bad, text, bytes);
        bad[i] ^= 1;
        write_file(bad, bytes);
        /* without its end, the last line counts as cut off */
        assert_int_equal(replay(RANKS, &terms), i + 1 < bytes ? -EINVAL : 0);
        memmove(bad + i, text + i + 1, bytes - i - 1);
        write_file(bad, bytes - 1);
        assert_int_equal(replay(RANKS, &terms), i + 1 < bytes ? -EINVAL : 0);
    }
    char *took = strstr(text, "took"), *next = strchr(took, '\n') + 1;
    memmove(took, next, strlen(next));
    write_file(text, bytes - (size_t)(next - took));
    refuses(
        RANKS, &terms,
        "is damaged in line 4: the checksum differs, so this line or an earlier one was changed");
}

static void a_file_that_was_cut_off_is_read_up_to_its_last_whole_line(void **state)
{
    char text[BYTES_MOST];
    record();
    size_t bytes = read_file(text);
    write_file(text, bytes - 3);
    assert_int_equal(replay(RANKS, &terms), 0);
    write_file(text, (size_t)(strchr(text, '\n') - text) + 10);
    refuses(RANKS, &terms, "is damaged in line 2: the file has no round");
    write_file(text, 0);
    refuses(RANKS, &terms, "is damaged in line 1: the file has no round");
}

static void a_recording_of_another_job_is_refused_with_both_values(void **state)
{
    struct backup_terms three = terms;
    three.k = 3;
    record();
    refuses(8, &terms, "has 8 workers, and the recording /tmp/");
    refuses(8, &terms, " is of 4; start 4 workers");
    refuses(RANKS, &three, "has backup rule static, k 3, least 2");
    refuses(RANKS, &three, "; give the recorded rule, or name another recording");
    refuses(RANKS, &three,
            "is of static, k 2, least 2, absence 64, lag 4, gradients 1, rate fixed; give the "
            "recorded rule, or name another recording");
}

static const struct sets_line head = {
    .kind = SETS_HEAD,
    .workers = RANKS,
    .rule = "static, k 2, least 2, absence 64, lag 4, gradients 1, rate fixed"};

static void sets_that_cannot_be_are_refused_with_their_line(void **state)
{
    const struct sets_line one = {.kind = SETS_ROUND, .round = 1, .ranks = {7}};
    const struct sets_line two = {.kind = SETS_ROUND, .round = 2, .ranks = {7}};
    const struct sets_line taken = {.kind = SETS_TOOK, .round = 1, .ranks = {8}};
    struct sets_line bad = two;
    write_lines((struct sets_line[]){head, one, taken, two}, 4);
    assert_int_equal(replay(RANKS, &terms), 0);
    bad.ranks[0] = 15;
    is_damaged((struct sets_line[]){head, one, bad}, 3,
               "in line 3: a rank of the set did not have the results of the round before");
    bad.ranks[0] = 16;
    is_damaged((struct sets_line[]){head, one, bad}, 3,
               "in line 3: the line names a rank that the job does not have");
    is_damaged((struct sets_line[]){head, two}, 2,
               "in line 2: the line of a round is missing, or there twice");
    is_damaged((struct sets_line[]){head, one, one}, 3,
               "in line 3: the line of a round is missing");
    is_damaged((struct sets_line[]){head, taken, one}, 3,
               "in line 2: the line names a round that does not stand above");
    bad = taken;
    bad.ranks[0] = 1;
    is_damaged((struct sets_line[]){head, one, bad}, 3,
               "in line 3: the rank was in the set of that round");
    is_damaged((struct sets_line[]){head, one, head}, 3,
               "in line 3: the line of the job is there twice");
    is_damaged((struct sets_line[]){one, head}, 2, "in line 1: the line of the job is missing");
}

static void a_line_of_another_version_is_refused(void **state)
{
    struct sets_line line;
    static const char *const texts[] = {"",
                                        "round",
                                        "round 1",
                                        "round 1 gain 0.1 ",
                                        "took 1 0-1",
                                        "took 1 768",
                                        "took 1 2-1",
                                        "took 18446744073709551616 1",
                                        "left 1 2",
                                        "round 1 all 0 1",
                                        "gradpool sets 2, 4 ranks, auto",
                                        "round 1 all 0.000000 1,",
                                        "gradpool sets 1, 0 ranks, auto"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[SETS_LINE_BYTES], summed[SETS_LINE_BYTES];
        uint64_t sum = 0, ignored = 0;
        /* the head's text is free, so any text gets its checksum as a part of a head */
        snprintf(text, sizeof text, "%s #00000000", texts[i]);
        assert_non_null(sets_line_read(text, &sum, &line));
        snprintf(summed, sizeof summed, "%s #%08x", texts[i], (unsigned)(sum ^ sum >> 32));
        assert_string_equal(sets_line_read(summed, &ignored, &line),
                            "this version has no such line");
    }
}

/* --- recording --- */

static void an_existing_file_is_not_overwritten(void **state)
{
    struct sets_recording *r = NULL;
    record();
    assert_int_equal(sets_recording_open(path, &job, &terms, RANKS, &r, &err), -EEXIST);
    assert_null(r);
    assert_non_null(strstr(err.text, "exists; name another file"));
    assert_int_equal(replay(RANKS, &terms), 0);
}

static void a_recording_without_a_round_leaves_no_file(void **state)
{
    sets_recording_close(open_recording());
    assert_int_equal(access(path, F_OK), -1);
    struct sets_recording *r = open_recording();
    unlink(path);
    write_file("of another job", 14);
    sets_recording_close(r);
    assert_int_equal(access(path, F_OK), 0);
}

static void a_replay_never_waits_for_the_writer_of_a_fifo(void **state)
{
    assert_int_equal(mkfifo(path, 0666), 0);
    refuses(RANKS, &terms, "is no regular file; name the file of a recording");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    refuses(RANKS, &terms, "is no regular file");
    assert_int_equal(rmdir(path), 0);
}

static void an_empty_name_overrides_the_variables(void **state)
{
    gp_backup_spec spec = {.rule = GP_BACKUP_STATIC, .k = 2};
    setenv(SETS_RECORD_VARIABLE, "/tmp/sets", 1);
    setenv(SETS_REPLAY_VARIABLE, "/tmp/sets", 1);
    assert_int_equal(sets_flags(&spec), BACKUP_TERMS_RECORDS | BACKUP_TERMS_REPLAYS);
    spec.record = spec.replay = "";
    assert_int_equal(sets_flags(&spec), 0);
    unsetenv(SETS_RECORD_VARIABLE);
    unsetenv(SETS_REPLAY_VARIABLE);
}

static void a_folder_that_does_not_exist_is_an_error(void **state)
{
    struct sets_recording *r = NULL;
    struct sets_replay *of = NULL;
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(sets_recording_open("2", &job, &terms, RANKS, &r, &err), -ENOENT);
    assert_non_null(strstr(err.text, "the recording 2 cannot be written: "));
    assert_int_equal(sets_replay_read("2", &job, &terms, RANKS, &of, &err), -ENOENT);
    assert_non_null(strstr(err.text, "the recording 2 cannot be read: "));
    assert_int_equal(sets_replay_read("/", &job, &terms, RANKS, &of, &err), -EINVAL);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

/* The limit of the process for the length of a file is reached, as on a full disk. */
static void a_recording_ends_when_the_file_cannot_grow(void **state)
{
    char text[BYTES_MOST];
    struct rlimit limit, before;
    struct sets_recording *r = open_recording();
    hear(r, RECORD_FORM_RANKS, 1, 7);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = read_file(text);
    assert_int_equal(sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    hear(r, RECORD_FORM_RANKS, 2, 7);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    hear(r, RECORD_FORM_RANKS, 3, 7);
    sets_recording_close(r);
    assert_int_equal(kept_log_count("because the file cannot be written (File too large)"), 1);
    assert_int_equal(replay(RANKS, &terms), 0);
}

static void a_recording_ends_when_a_set_is_missing(void **state)
{
    struct sets_recording *r = open_recording();
    hear(r, RECORD_FORM_RANKS, 1, 7);
    hear(r, RECORD_FORM_RANKS, 3, 7);
    hear(r, RECORD_FORM_RANKS, 2, 7);
    sets_recording_close(r);
    assert_int_equal(kept_log_count("; a replay has the same bits up to that round"), 1);
    assert_int_equal(kept_log_count("ends after round 1, because the set of the next round has not "
                                    "arrived; a replay has the same bits up to that round"),
                     1);
    assert_int_equal(replay(RANKS, &terms), 0);
}

static void a_recording_ends_with_its_leader_lane(void **state)
{
    const struct record_chosen next = {.kind = RECORD_PASSED, .round = 2, .ranks = {7}};
    const struct sets_way others[] = {{.lane = 4, .openings = 1, .epoch = 1},
                                      {.lane = 3, .openings = 2, .epoch = 1},
                                      {.lane = 3, .openings = 1, .epoch = 2}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        unlink(path);
        struct sets_recording *r = open_recording();
        hear(r, RECORD_FORM_RANKS, 1, 7);
        sets_recording_hear(r, &others[i], &next);
        hear(r, RECORD_FORM_RANKS, 2, 7);
        sets_recording_close(r);
        assert_int_equal(
            kept_log_count("because another lane or connection decides the rounds now"), i + 1);
        assert_int_equal(replay(RANKS, &terms), 0);
    }
}

/* Counts the takers of the last recorded round, which are sent behind its set. */
static int count_last(struct fabric_conn *c, const void *record, size_t bytes, const void *payload,
                      size_t payload_bytes)
{
    const struct record_chosen *sent = record;
    last_sent += sent->kind == RECORD_PASSED && sent->reason == RECORD_REASON_REPLAY;
    return 0;
}

/* Otherwise a leader lane that begins long after the end would wait for further sets. */
static void a_new_leader_lane_is_told_the_end_of_the_recording(void **state)
{
    const struct fabric_conn_ops ops = {.send = count_last};
    struct fabric_conn conn = {.ops = &ops};
    struct sets_way to = {.conn = &conn, .lane = 3, .openings = 1, .epoch = 1};
    struct sets_replay *r = NULL;
    record();
    assert_int_equal(sets_replay_read(path, &job, &terms, RANKS, &r, &err), 0);
    for (last_sent = 0; to.epoch <= 3; to.epoch++) {
        sets_replay_closed(r, 1000 * to.epoch);
        assert_true(sets_replay_send(r, &to));
        assert_true(sets_replay_send(r, &to));
        assert_int_equal(last_sent, to.epoch);
    }
    sets_replay_free(r);
}

static int note_newest(struct fabric_conn *c, const void *record, size_t bytes, const void *payload,
                       size_t payload_bytes)
{
    const struct record_chosen *sent = record;
    last_sent = sent->round > last_sent ? (uint32_t)sent->round : last_sent;
    return 0;
}

/* A lane stores the sets of TERMS_LAG_MAX + 4 rounds. A later set replaces the set of the open
 * round, which then would never close. */
static void connections_without_a_closed_round_send_no_set_too_early(void **state)
{
    const struct fabric_conn_ops ops = {.send = note_newest};
    struct fabric_conn conn = {.ops = &ops};
    struct sets_way to = {.conn = &conn, .lane = 3, .openings = 1, .epoch = 1};
    struct sets_replay *r = NULL;
    struct sets_recording *written = open_recording();
    for (uint64_t round = 1; round <= 60; round++)
        hear(written, RECORD_FORM_RANKS, round, 7);
    sets_recording_close(written);
    assert_int_equal(sets_replay_read(path, &job, &terms, RANKS, &r, &err), 0);
    sets_replay_closed(r, 5);
    for (last_sent = 0; to.openings <= 40; to.openings++)
        assert_true(sets_replay_send(r, &to));
    assert_in_range(last_sent, 5 + 3, 5 + TERMS_LAG_MAX + 4);
    sets_replay_free(r);
}

static void the_end_of_a_recording_is_warned_of_once(void **state)
{
    struct sets_replay *r = NULL;
    record();
    assert_int_equal(sets_replay_read(path, &job, &terms, RANKS, &r, &err), 0);
    sets_replay_closed(r, 3);
    assert_int_equal(kept_log_count("ends after round 3"), 0);
    sets_replay_closed(r, 4);
    sets_replay_closed(r, 5);
    assert_int_equal(kept_log_count("ends after round 3; rule 'static' closes the later rounds"),
                     1);
    sets_replay_free(r);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(every_line_is_the_same_after_writing_and_reading),
        CASE(a_recording_can_be_replayed),
        CASE(every_changed_or_missing_byte_is_found),
        CASE(a_file_that_was_cut_off_is_read_up_to_its_last_whole_line),
        CASE(a_recording_of_another_job_is_refused_with_both_values),
        CASE(sets_that_cannot_be_are_refused_with_their_line),
        CASE(a_line_of_another_version_is_refused),
        CASE(an_existing_file_is_not_overwritten),
        CASE(a_recording_without_a_round_leaves_no_file),
        CASE(a_replay_never_waits_for_the_writer_of_a_fifo),
        CASE(an_empty_name_overrides_the_variables),
        CASE(a_folder_that_does_not_exist_is_an_error),
        CASE(a_recording_ends_when_the_file_cannot_grow),
        CASE(a_recording_ends_when_a_set_is_missing),
        CASE(a_recording_ends_with_its_leader_lane),
        CASE(a_new_leader_lane_is_told_the_end_of_the_recording),
        CASE(connections_without_a_closed_round_send_no_set_too_early),
        CASE(the_end_of_a_recording_is_warned_of_once),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
