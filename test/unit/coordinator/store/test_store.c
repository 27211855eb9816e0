/* Tests the store alone. Rows must be read as they were written, and a change is made as a whole or
 * not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/coordinator/store/state_dir.h"
#include "svc/coordinator/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS_MAX 64

struct fixture {
    char dir[64], path[96];
    struct store *store;
    /* rows returned by the last load */
    struct store_row rows[ROWS_MAX];
    char texts[ROWS_MAX][3][32];
    uint8_t ranks[ROWS_MAX][STORE_RANKS_BYTES];
    size_t count;
};

static int keep_row(void *context, const struct store_row *row)
{
    struct fixture *f = context;
    if (f->count == ROWS_MAX)
        return -ENOSPC;
    struct store_row *kept = &f->rows[f->count];
    *kept = *row;
    if (row->table == STORE_TENSOR) {
        memcpy(f->ranks[f->count], row->tensor.ranks, STORE_RANKS_BYTES);
        snprintf(f->texts[f->count][0], 32, "%s", row->tensor.name);
        kept->tensor.ranks = f->ranks[f->count];
        kept->tensor.name = f->texts[f->count][0];
    } else if (row->table == STORE_JOB) {
        snprintf(f->texts[f->count][0], 32, "%s", row->job.name);
        memcpy(f->ranks[f->count], row->job.backup, STORE_BACKUP_BYTES);
        kept->job.backup = f->ranks[f->count];
        kept->job.name = f->texts[f->count][0];
    }
    f->count++;
    return 0;
}

static size_t load(struct fixture *f)
{
    struct err err;
    f->count = 0;
    assert_int_equal(store_load(f->store, keep_row, f, &err), 0);
    return f->count;
}

static void reopen(struct fixture *f, uint32_t pages_max)
{
    struct err err = {0};
    store_close(f->store);
    f->store = NULL;
    if (store_sqlite_open(f->path, pages_max, &f->store, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    snprintf(f->dir, sizeof f->dir, "/tmp/gradpool-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/state.db", f->dir);
    reopen(f, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char path[128];
    store_close(f->store);
    unlink(f->path);
    snprintf(path, sizeof path, "%s-wal", f->path);
    unlink(path);
    snprintf(path, sizeof path, "%s-shm", f->path);
    unlink(path);
    snprintf(path, sizeof path, "%s-used", f->path);
    unlink(path);
    rmdir(f->dir);
    free(f);
    return 0;
}

static struct store_row job_row(uint32_t job, const char *name)
{
    static const uint8_t backup[STORE_BACKUP_BYTES] = {1, [4] = 2, [27] = 0x80};
    struct store_row row = {.table = STORE_JOB};
    row.job = (struct store_job){.job = job,
                                 .tenant = "",
                                 .name = name,
                                 .workers = 2,
                                 .epoch = 1,
                                 .failure = "",
                                 .flags = STORE_JOB_ELASTIC,
                                 .backup = backup};
    return row;
}

static struct store_row tensor_row(uint32_t job, uint32_t tensor)
{
    static const uint8_t ranks[STORE_RANKS_BYTES] = {0x81, [95] = 0x80};
    static const uint8_t terms[STORE_TERMS_BYTES] = {1, [16] = 5, [111] = 0x80};
    struct store_row row = {.table = STORE_TENSOR};
    row.tensor = (struct store_tensor){.job = job,
                                       .tensor = tensor,
                                       .name = "layer'1\"",
                                       .dtype = 1,
                                       .elements = UINT64_MAX,
                                       .failure = "",
                                       .ranks = ranks,
                                       .terms = terms,
                                       .members = ranks,
                                       .grouped = 3};
    return row;
}

static struct store_row piece_row(uint32_t job, uint32_t tensor, uint32_t piece)
{
    struct store_row row = {.table = STORE_PIECE};
    row.piece = (struct store_piece){.job = job,
                                     .tensor = tensor,
                                     .piece = piece,
                                     .first = UINT64_C(1) << 40,
                                     .elements = 7,
                                     .task = 3,
                                     .lane = 4,
                                     .epoch = 5};
    return row;
}

static struct store_row session_row(uint32_t job, uint32_t rank)
{
    struct store_row row = {.table = STORE_SESSION};
    row.session =
        (struct store_session){.job = job, .rank = rank, .session = UINT64_MAX, .node = "n"};
    return row;
}

static void put(struct fixture *f, struct store_row row)
{
    struct err err;
    store_begin(f->store);
    store_put(f->store, &row);
    assert_int_equal(store_commit(f->store, &err), 0);
}

static void rows_are_read_as_they_were_written(void **state)
{
    struct fixture *f = *state;
    put(f, job_row(7, "resnet"));
    put(f, tensor_row(7, 2));
    put(f, piece_row(7, 2, 9));
    reopen(f, 0);
    assert_int_equal(load(f), 3);
    assert_int_equal(f->rows[0].job.job, 7);
    assert_string_equal(f->rows[0].job.name, "resnet");
    assert_int_equal(f->rows[0].job.flags, STORE_JOB_ELASTIC);
    assert_memory_equal(f->rows[0].job.backup, job_row(7, "").job.backup, STORE_BACKUP_BYTES);
    assert_string_equal(f->rows[1].tensor.name, "layer'1\"");
    assert_true(f->rows[1].tensor.elements == UINT64_MAX);
    assert_int_equal(f->rows[1].tensor.ranks[0], 0x81);
    assert_int_equal(f->rows[1].tensor.ranks[95], 0x80);
    assert_true(f->rows[2].piece.first == UINT64_C(1) << 40);
    assert_int_equal(f->rows[2].piece.epoch, 5);
}

static void a_row_put_again_replaces_the_old_one_and_keeps_dependent_rows(void **state)
{
    struct fixture *f = *state;
    put(f, job_row(7, "resnet"));
    put(f, session_row(7, 0));
    struct store_row changed = job_row(7, "resnet");
    changed.job.epoch = 12;
    put(f, changed);
    assert_int_equal(load(f), 2);
    assert_int_equal(f->rows[0].job.epoch, 12);
    assert_true(f->rows[1].session.session == UINT64_MAX);
}

static void erasing_a_row_erases_only_it_and_dependent_rows(void **state)
{
    struct fixture *f = *state;
    struct err err;
    for (uint32_t job = 7; job <= 8; job++) {
        put(f, job_row(job, "resnet"));
        put(f, session_row(job, 0));
        put(f, tensor_row(job, 1));
        put(f, tensor_row(job, 2));
        put(f, piece_row(job, 1, 1));
        put(f, piece_row(job, 2, 2));
    }
    struct store_row tensor = tensor_row(7, 1), job = job_row(7, "");
    store_begin(f->store);
    store_erase(f->store, &tensor);
    assert_int_equal(store_commit(f->store, &err), 0);
    assert_int_equal(load(f), 10);
    store_begin(f->store);
    store_erase(f->store, &job);
    assert_int_equal(store_commit(f->store, &err), 0);
    assert_int_equal(load(f), 6);
    for (size_t i = 0; i < f->count; i++)
        assert_int_equal(f->rows[i].table == STORE_JOB ? f->rows[i].job.job : 8, 8);
}

static void a_row_without_its_owner_fails_the_whole_change(void **state)
{
    struct fixture *f = *state;
    struct store_row job = job_row(1, "a"), orphan = session_row(99, 0);
    struct err err;
    store_begin(f->store);
    store_put(f->store, &job);
    store_put(f->store, &orphan);
    assert_true(store_commit(f->store, &err) < 0);
    assert_int_equal(load(f), 0);
    put(f, job_row(1, "a"));
    assert_int_equal(load(f), 1);
}

static void a_full_disk_leaves_the_stored_state_unchanged(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    reopen(f, 40);
    put(f, job_row(1, "kept"));
    store_begin(f->store);
    for (uint32_t tensor = 1; tensor < 5000; tensor++) {
        struct store_row row = tensor_row(1, tensor);
        store_put(f->store, &row);
    }
    assert_int_equal(store_commit(f->store, &err), -ENOSPC);
    assert_non_null(strstr(err.text, f->path));
    assert_int_equal(load(f), 1);
    put(f, job_row(2, "later"));
    reopen(f, 0);
    assert_int_equal(load(f), 2);
}

static void a_change_that_was_not_committed_is_gone(void **state)
{
    struct fixture *f = *state;
    struct store_row row = job_row(1, "a");
    store_begin(f->store);
    store_put(f->store, &row);
    reopen(f, 0);
    assert_int_equal(load(f), 0);
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_mode & 0777;
}

static void the_file_is_readable_by_its_user_only_even_if_it_was_open_before(void **state)
{
    struct fixture *f = *state;
    char wal[128];
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    put(f, job_row(1, "a"));
    assert_int_equal(mode_of(f->path), 0600);
    assert_int_equal(mode_of(wal), 0600);
    assert_int_equal(chmod(f->path, 0644), 0);
    reopen(f, 0);
    assert_int_equal(mode_of(f->path), 0600);
}

static int refuse(void *context, const struct store_row *row) { return -EBADMSG; }

static void a_load_ends_with_the_error_of_its_reader(void **state)
{
    struct fixture *f = *state;
    struct err err;
    put(f, job_row(1, "a"));
    assert_int_equal(store_load(f->store, refuse, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "table jobs"));
}

static void change_file(struct fixture *f, const char *sql)
{
    sqlite3 *db = NULL;
    store_close(f->store);
    f->store = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void the_measurements_of_earlier_runs_are_stored_beside_the_job(void **state)
{
    struct fixture *f = *state;
    struct store_row profile = {.table = STORE_PROFILE};
    profile.profile = (struct store_profile){.tenant = "",
                                             .job = "resnet",
                                             .workers = 2,
                                             .period_ns = 5,
                                             .slack_ns = 6,
                                             .tensors = {"abcdefgh", 8}};
    put(f, profile);
    struct store_row job = job_row(7, "resnet");
    job.job.layout = UINT32_MAX;
    put(f, job);
    reopen(f, 0);
    assert_int_equal(load(f), 2);
    assert_true(f->rows[0].job.layout == UINT32_MAX);
    assert_int_equal(f->rows[1].profile.period_ns, 5);
    assert_int_equal(f->rows[1].profile.slack_ns, 6);
    assert_int_equal(f->rows[1].profile.tensors.bytes, 8);
}

static void a_file_of_another_version_is_left_alone(void **state)
{
    struct fixture *f = *state;
    struct err err;
    change_file(f, "PRAGMA user_version=99");
    assert_int_equal(store_sqlite_open(f->path, 0, &f->store, &err), -EPROTO);
    assert_non_null(strstr(err.text, "schema 99"));
    assert_non_null(strstr(err.text, "another --state-dir"));
    change_file(f, "PRAGMA user_version=10");
    assert_int_equal(store_sqlite_open(f->path, 0, &f->store, &err), -EPROTO);
    assert_non_null(strstr(err.text, "schema 10"));
}

static void a_store_that_cannot_be_opened_is_named(void **state)
{
    struct store *store = NULL;
    struct err err;
    assert_true(store_sqlite_open("/nowhere/state.db", 0, &store, &err) < 0);
    assert_null(store);
    assert_non_null(strstr(err.text, "/nowhere/state.db"));
}

static void a_state_dir_that_no_group_can_get_is_named_with_the_group(void **state)
{
    struct err err;
    (void)state;
    assert_int_equal(state_dir_admit("/nowhere", "/nowhere/control.sock", "0", &err), -ENOENT);
    assert_string_equal(err.text,
                        "--operators 0: cannot give /nowhere and its socket to that group: No such "
                        "file or directory (the user of gradpool serve must own the folder and be "
                        "in the group, or be root)");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rows_are_read_as_they_were_written),
        CASE(a_row_put_again_replaces_the_old_one_and_keeps_dependent_rows),
        CASE(erasing_a_row_erases_only_it_and_dependent_rows),
        CASE(a_row_without_its_owner_fails_the_whole_change),
        CASE(a_full_disk_leaves_the_stored_state_unchanged),
        CASE(a_change_that_was_not_committed_is_gone),
        CASE(the_file_is_readable_by_its_user_only_even_if_it_was_open_before),
        CASE(a_load_ends_with_the_error_of_its_reader),
        CASE(the_measurements_of_earlier_runs_are_stored_beside_the_job),
        CASE(a_file_of_another_version_is_left_alone),
        CASE(a_store_that_cannot_be_opened_is_named),
        CASE(a_state_dir_that_no_group_can_get_is_named_with_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
