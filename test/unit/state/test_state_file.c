/* Tests the file of a snapshot. A file is read with the contents that were written, and any other
 * file is refused. */
#include "svc/reduce/update.h"
#include "svc/state/state_layout.h"
#include "svc/state/state_write.h"
#include "svc/state/tables/tables_copy.h"
#include "test/unit/skip.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TENSORS 3
#define ELEMENTS_MAX 1000

static char folder[] = "/tmp/gradpool-state-XXXXXX", path[64];
static const struct state_tensor written[TENSORS] = {
    {.name = "bias", .dtype = REDUCE_F32, .rule = UPDATE_SGD, .elements = 7},
    {.name = "empty", .dtype = REDUCE_F32, .rule = UPDATE_ADAM, .elements = 0},
    {.name = "weight", .dtype = REDUCE_F32, .rule = UPDATE_ADAMW, .elements = ELEMENTS_MAX},
};
/* tensor i starts i elements later than in a packed array, so tensors have different alignments */
static float state[3 * ELEMENTS_MAX + TENSORS], again[3 * ELEMENTS_MAX];

static int make_folder(void **context)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/snapshot", folder);
    for (size_t i = 0; i < sizeof state / sizeof *state; i++)
        state[i] = (float)i / 7;
    return 0;
}

static int remove_folder(void **context)
{
    unlink(path);
    return rmdir(folder);
}

static void ok(int r, const struct err *err)
{
    if (r < 0)
        fail_msg("%d: %s", r, err->text);
}

static void write_file(void)
{
    struct state_writer w;
    struct err err = {0};
    ok(state_write_begin(path, written, TENSORS, &w, &err), &err);
    for (size_t i = 0; i < TENSORS; i++)
        ok(state_write_put(&w, i, 10 + i, 20 + i, state + i, &err), &err);
    ok(state_write_finish(&w, &err), &err);
}

static void a_written_snapshot_is_read_again(void **context)
{
    struct state_file f;
    struct err err = {0};
    write_file();
    ok(state_file_open(path, &f, &err), &err);
    assert_int_equal(f.count, TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct state_tensor *t = state_file_find(&f, written[i].name);
        assert_ptr_equal(t, &f.tensors[i]);
        assert_int_equal(t->rule, written[i].rule);
        assert_int_equal(t->elements, written[i].elements);
        assert_int_equal(t->steps, 10 + i);
        assert_int_equal(t->round, 20 + i);
        ok(state_file_read(&f, t, again, &err), &err);
        assert_memory_equal(again, state + i, state_tensor_bytes(t));
    }
    assert_null(state_file_find(&f, "weigh"));
    state_file_close(&f);
}

/* Changes each byte of the file, except in the gaps that align tensors. */
static void a_byte_that_has_changed_is_found(void **context)
{
    struct err err = {0};
    struct stat status;
    write_file();
    assert_int_equal(stat(path, &status), 0);
    int fd = open(path, O_RDWR);
    for (off_t at = 0; at < status.st_size; at += 1 + at / 200) {
        uint8_t byte, wrong;
        struct state_file f = {.fd = -1};
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        wrong = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &wrong, 1, at), 1);
        int r = state_file_open(path, &f, &err);
        bool is_gap = r == 0;
        for (size_t i = 0; r == 0 && i < f.count; i++) {
            const struct state_tensor *t = &f.tensors[i];
            is_gap &= at < (off_t)t->offset || at >= (off_t)(t->offset + state_tensor_bytes(t));
            r = state_file_read(&f, t, again, &err);
        }
        assert_true(r < 0 || is_gap);
        assert_true(r == 0 || r == -EBADMSG || r == -EPROTO);
        assert_true(r == 0 || err.text[0]);
        state_file_close(&f);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void a_file_that_is_cut_off_is_refused(void **context)
{
    struct stat status;
    write_file();
    assert_int_equal(stat(path, &status), 0);
    for (off_t bytes = status.st_size - 1; bytes >= 0; bytes -= 1 + bytes / 50) {
        struct state_file f;
        struct err err = {0};
        assert_int_equal(truncate(path, bytes), 0);
        assert_int_equal(state_file_open(path, &f, &err), -EBADMSG);
        assert_non_null(strstr(err.text, path));
    }
}

/* ---- tables ---- */

#define ROW_BYTES (sizeof(uint64_t) + sizeof(float))

static const struct table_file_head heads[] = {
    {.name = "items", .terms = {.dim = 1, .dtype = REDUCE_F32, .rule = TABLE_TERMS_SGD}},
    {.name = "none", .terms = {.dim = 1, .dtype = REDUCE_F32, .rule = TABLE_TERMS_SGD}},
    {.name = "users",
     .terms = {.dim = 1, .dtype = REDUCE_F32, .rule = TABLE_TERMS_SGD},
     .steps = 3},
};
enum { TABLES = sizeof heads / sizeof *heads };

/* Writes tensors and three tables, with 2, 0 and 6 rows in parts of two rows. */
static void write_tables(size_t tensors)
{
    struct state_writer w;
    struct err err = {0};
    ok(state_write_begin(path, written, tensors, &w, &err), &err);
    for (size_t i = 0; i < tensors; i++)
        ok(state_write_put(&w, i, 10 + i, 20 + i, state + i, &err), &err);
    for (size_t i = 0; i < TABLES; i++) {
        struct table_file_writer t;
        ok(state_write_begin_table(&w, &heads[i], &t, &err), &err);
        for (size_t part = 0; i != 1 && part <= i; part++)
            ok(table_file_put(&t, (char *)state + i, 2 * ROW_BYTES, &err), &err);
        ok(state_write_end_table(&w, &t, &err), &err);
    }
    ok(state_write_finish(&w, &err), &err);
}

/* Reads all tables. Returns their number, or an error. */
static int read_tables(const struct state_file *f, struct err *err)
{
    static char rows[TABLE_FILE_PART_BYTES_MAX];
    struct table_file t = {0};
    int count = 0, more;
    while ((more = state_file_next_table(f, &t, err)) > 0) {
        int64_t bytes;
        while ((bytes = table_file_next(&t, rows, err)) > 0)
            assert_memory_equal(rows, (char *)state + count, (size_t)bytes);
        if (bytes < 0)
            return (int)bytes;
        assert_string_equal(t.head.name, heads[count].name);
        assert_int_equal(t.head.rows, count == 1 ? 0 : 2 * (count + 1));
        assert_int_equal(t.head.steps, heads[count].steps);
        count++;
    }
    return more < 0 ? more : count;
}

static void tables_are_read_again_behind_the_tensors(void **context)
{
    for (size_t tensors = 0; tensors <= TENSORS; tensors += TENSORS) {
        struct state_file f;
        struct err err = {0};
        write_tables(tensors);
        ok(state_file_open(path, &f, &err), &err);
        assert_int_equal(f.count, tensors);
        assert_int_equal(read_tables(&f, &err), TABLES);
        for (size_t i = 0; i < tensors; i++)
            ok(state_file_read(&f, &f.tensors[i], again, &err), &err);
        state_file_close(&f);
    }
}

/* Returns the number of calls of tables_import_check() until the last one. */
static int check_in_parts(uint64_t until_ns)
{
    struct tables_copy c = {0};
    struct state_file f;
    struct err err = {0};
    int calls = 1, more;
    ok(state_file_open(path, &f, &err), &err);
    while ((more = tables_import_check(&c, &f, until_ns, &err)) > 0)
        calls++;
    ok(more, &err);
    tables_copy_free(&c);
    state_file_close(&f);
    return calls;
}

static void tables_are_checked_in_one_call_or_in_parts(void **context)
{
    write_tables(1);
    assert_int_equal(check_in_parts(UINT64_MAX), 1);
    /* a call for each of 3 tables, for each of 4 parts, for the ends of the tables and the file */
    assert_int_equal(check_in_parts(0), 3 + 4 + 3 + 1);
}

static void a_file_without_tables_has_none(void **context)
{
    struct state_file f;
    struct err err = {0};
    write_file();
    ok(state_file_open(path, &f, &err), &err);
    assert_int_equal(read_tables(&f, &err), 0);
    state_file_close(&f);
}

static void a_changed_byte_of_a_table_is_found(void **context)
{
    struct err err = {0};
    struct stat status;
    uint32_t changes = 0;
    write_tables(0);
    assert_int_equal(stat(path, &status), 0);
    int fd = open(path, O_RDWR);
    for (off_t at = 0; at < status.st_size; at++) {
        uint8_t byte, wrong;
        struct state_file f = {.fd = -1};
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        wrong = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &wrong, 1, at), 1);
        int result = state_file_open(path, &f, &err);
        result = result < 0 ? result : read_tables(&f, &err);
        assert_true(result == TABLES || result == -EBADMSG || result == -EPROTO);
        changes += result != TABLES;
        state_file_close(&f);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    assert_in_range(status.st_size - changes, 0, TABLES * STATE_ALIGN); /* gaps that align tables */
}

static void a_file_without_one_of_its_tables_is_refused(void **context)
{
    struct stat status;
    write_tables(1);
    assert_int_equal(stat(path, &status), 0);
    for (off_t bytes = status.st_size - 1; bytes >= 0; bytes -= 1 + bytes / 50) {
        struct state_file f;
        struct err err = {0};
        assert_int_equal(truncate(path, bytes), 0);
        assert_int_equal(state_file_open(path, &f, &err), -EBADMSG);
    }
}

/* Changes the header to another version and length, with its checksum. */
static void mend_header(uint32_t version, uint64_t more_bytes)
{
    struct state_header h;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
    h.version = version;
    h.file_bytes += more_bytes;
    h.header_sum = state_sum(&h, offsetof(struct state_header, header_sum));
    assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
    assert_int_equal(ftruncate(fd, (off_t)h.file_bytes), 0);
    close(fd);
}

static void a_header_that_contradicts_the_tables_is_refused(void **context)
{
    struct state_file f;
    struct err err = {0};
    write_file();
    mend_header(STATE_FILE_VERSION_TABLES, 0);
    assert_int_equal(state_file_open(path, &f, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "its tables are missing"));
    write_tables(0);
    mend_header(STATE_FILE_VERSION_TABLES, 1);
    ok(state_file_open(path, &f, &err), &err);
    assert_int_equal(read_tables(&f, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "a table lies outside of it"));
    state_file_close(&f);
}

static void two_writers_of_one_path_have_two_temporary_names(void **context)
{
    struct state_writer first, second;
    struct err err = {0};
    ok(state_write_begin(path, written, 0, &first, &err), &err);
    ok(state_write_begin(path, written, 0, &second, &err), &err);
    assert_string_not_equal(first.file.temporary, second.file.temporary);
    ok(state_write_finish(&first, &err), &err);
    ok(state_write_finish(&second, &err), &err);
}

static void a_path_other_than_a_file_is_refused(void **context)
{
    struct state_file f;
    struct err err = {0};
    assert_int_equal(state_file_open("/dev/zero", &f, &err), -EINVAL);
    assert_int_equal(state_file_open(folder, &f, &err), -EINVAL);
    assert_int_equal(state_file_open("/nonexistent/file", &f, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/file"));
}

static void the_error_of_another_version_has_both_numbers(void **context)
{
    struct state_file f;
    struct err err = {0};
    uint32_t version = 77;
    write_file();
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, &version, 4, offsetof(struct state_header, version)), 4);
    close(fd);
    assert_int_equal(state_file_open(path, &f, &err), -EPROTO);
    assert_non_null(strstr(err.text, "version 77, but this library reads versions 1 to 2"));
}

static void a_snapshot_that_is_given_up_leaves_the_one_before(void **context)
{
    struct state_writer w;
    struct state_file f;
    struct err err = {0};
    write_file();
    ok(state_write_begin(path, written, 1, &w, &err), &err);
    ok(state_write_put(&w, 0, 1, 1, state, &err), &err);
    assert_int_equal(access(w.file.temporary, F_OK), w.file.is_nameless ? -1 : 0);
    char temporary[128];
    snprintf(temporary, sizeof temporary, "%s", w.file.temporary);
    state_write_abandon(&w);
    assert_int_equal(access(temporary, F_OK), -1);
    ok(state_file_open(path, &f, &err), &err);
    assert_int_equal(f.count, TENSORS);
    state_file_close(&f);
}

static void an_interrupted_write_leaves_no_file(void **context)
{
    struct state_writer w;
    struct err err = {0};
    char temporary[128];
    ok(state_write_begin(path, written, 1, &w, &err), &err);
    bool is_nameless = w.file.is_nameless;
    snprintf(temporary, sizeof temporary, "%s", w.file.temporary);
    assert_int_equal(access(temporary, F_OK), is_nameless ? -1 : 0);
    state_write_abandon(&w);
    if (!is_nameless)
        skip_because("the file system has no O_TMPFILE");
}

static void a_link_is_followed_to_its_target(void **context)
{
    char place[] = "/tmp/gradpool-state-XXXXXX", link[64], second[64], target[64];
    struct state_writer w;
    struct state_file f;
    struct stat is;
    struct err err = {0};
    assert_non_null(mkdtemp(place));
    snprintf(link, sizeof link, "%s/link", place);
    snprintf(second, sizeof second, "%s/second", place);
    snprintf(target, sizeof target, "%s/target", place);
    assert_int_equal(symlink("second", link), 0);
    assert_int_equal(symlink(target, second), 0);
    for (int i = 0; i < 2; i++) { /* the second pass writes over an existing file */
        ok(state_write_begin(link, written, 0, &w, &err), &err);
        ok(state_write_finish(&w, &err), &err);
    }
    assert_int_equal(lstat(link, &is), 0);
    assert_true(S_ISLNK(is.st_mode));
    assert_int_equal(lstat(target, &is), 0);
    assert_true(S_ISREG(is.st_mode));
    ok(state_file_open(link, &f, &err), &err);
    state_file_close(&f);
    unlink(second);
    assert_int_equal(symlink("link", second), 0);
    assert_int_equal(state_write_begin(link, written, 0, &w, &err), -ELOOP);
    unlink(link);
    unlink(second);
    unlink(target);
    assert_int_equal(rmdir(place), 0); /* the folder contains no other file */
}

static void a_place_that_cannot_be_written_is_named(void **context)
{
    struct state_writer w;
    struct err err = {0};
    assert_int_equal(state_write_begin("/nonexistent/file", written, 1, &w, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_snapshot_is_read_again),
        cmocka_unit_test(a_byte_that_has_changed_is_found),
        cmocka_unit_test(a_file_that_is_cut_off_is_refused),
        cmocka_unit_test(tables_are_read_again_behind_the_tensors),
        cmocka_unit_test(tables_are_checked_in_one_call_or_in_parts),
        cmocka_unit_test(a_file_without_tables_has_none),
        cmocka_unit_test(a_changed_byte_of_a_table_is_found),
        cmocka_unit_test(a_file_without_one_of_its_tables_is_refused),
        cmocka_unit_test(a_header_that_contradicts_the_tables_is_refused),
        cmocka_unit_test(two_writers_of_one_path_have_two_temporary_names),
        cmocka_unit_test(a_path_other_than_a_file_is_refused),
        cmocka_unit_test(the_error_of_another_version_has_both_numbers),
        cmocka_unit_test(a_snapshot_that_is_given_up_leaves_the_one_before),
        cmocka_unit_test(an_interrupted_write_leaves_no_file),
        cmocka_unit_test(a_link_is_followed_to_its_target),
        cmocka_unit_test(a_place_that_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
