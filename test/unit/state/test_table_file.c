/* Tests the file of a table: rows are read as they were written, any changed byte is refused, and
 * an unfinished file leaves the former file unchanged. */
#include "svc/reduce/reduce.h"
#include "svc/state/table_write.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DIM 3
#define ROW_BYTES (sizeof(uint64_t) + 2 * DIM * sizeof(float))
#define ROWS 5

static char path[] = "/tmp/gradpool-table-XXXXXX/users.table";
static char memory[TABLE_FILE_PART_BYTES_MAX];

static struct table_file_head head_of_users(void)
{
    return (struct table_file_head){.name = "users",
                                    .terms = {.dim = DIM,
                                              .dtype = REDUCE_F32,
                                              .rule = TABLE_TERMS_ADAGRAD,
                                              .initial = TABLE_TERMS_UNIFORM,
                                              .initial_value = 0.5,
                                              .seed = 11},
                                    .steps = 7,
                                    .clock = 8};
}

static void fill(char *rows, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        rows[i] = (char)(i * 37);
}

static int setup(void **state)
{
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_non_null(mkdtemp(path));
    *slash = '/';
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    return rmdir(path);
}

/* Writes ROWS rows in two parts. */
static void write_users(void)
{
    const struct table_file_head head = head_of_users();
    struct table_file_writer w;
    struct err err;
    char rows[ROWS * ROW_BYTES];
    fill(rows, sizeof rows);
    assert_int_equal(table_file_begin(path, &head, &w, &err), 0);
    assert_int_equal(table_file_put(&w, rows, 2 * ROW_BYTES, &err), 0);
    assert_int_equal(table_file_put(&w, rows + 2 * ROW_BYTES, 3 * ROW_BYTES, &err), 0);
    assert_int_equal(table_file_finish(&w, &err), 0);
}

/* Reads the whole file. Returns 0 or the first error, which has a text. */
static int read_users(struct err *err)
{
    struct table_file f;
    err->text[0] = '\0';
    int error = table_file_open(path, &f, err);
    int64_t bytes = 1;
    while (error == 0 && bytes > 0)
        bytes = table_file_next(&f, memory, err);
    if (error == 0)
        table_file_close(&f);
    return error < 0 ? error : (int)bytes;
}

static void rows_come_back(void **state)
{
    struct table_file f;
    struct err err;
    char rows[ROWS * ROW_BYTES];
    fill(rows, sizeof rows);
    write_users();
    assert_int_equal(table_file_open(path, &f, &err), 0);
    assert_string_equal(f.head.name, "users");
    assert_int_equal(f.head.rows, ROWS);
    assert_int_equal(f.head.steps, 7);
    assert_int_equal(f.head.clock, 8);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(table_file_next(&f, memory, &err), 2 * ROW_BYTES);
        assert_memory_equal(memory, rows, 2 * ROW_BYTES);
        assert_int_equal(table_file_next(&f, memory, &err), 3 * ROW_BYTES);
        assert_memory_equal(memory, rows + 2 * ROW_BYTES, 3 * ROW_BYTES);
        assert_int_equal(table_file_next(&f, memory, &err), 0);
        table_file_rewind(&f);
    }
    table_file_close(&f);
}

static void a_table_without_rows_has_a_file(void **state)
{
    const struct table_file_head head = head_of_users();
    struct table_file_writer w;
    struct err err;
    assert_int_equal(table_file_begin(path, &head, &w, &err), 0);
    assert_int_equal(table_file_finish(&w, &err), 0);
    assert_int_equal(read_users(&err), 0);
}

static void each_changed_byte_is_refused(void **state)
{
    struct err err;
    struct stat status;
    write_users();
    assert_int_equal(stat(path, &status), 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (off_t at = 0; at < status.st_size; at++) {
        char byte, other;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        other = (char)(byte ^ 1);
        assert_int_equal(pwrite(fd, &other, 1, at), 1);
        int error = read_users(&err);
        assert_true(error == -EBADMSG || error == -EPROTO);
        if (error == -EBADMSG)
            assert_non_null(strstr(err.text, "the file is no exported table, or is damaged: ")
                                ?: strstr(err.text, "a damaged file of a table"));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(read_users(&err), 0);
    close(fd);
}

static void a_shorter_or_longer_file_is_refused(void **state)
{
    struct err err;
    struct stat status;
    write_users();
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size + 1), 0);
    assert_int_equal(read_users(&err), -EBADMSG);
    for (off_t bytes = status.st_size - 1; bytes >= 0; bytes -= 7) {
        assert_int_equal(truncate(path, bytes), 0);
        assert_int_equal(read_users(&err), -EBADMSG);
    }
}

static void an_unfinished_file_leaves_the_former_one(void **state)
{
    const struct table_file_head head = head_of_users();
    struct table_file_writer w;
    struct err err;
    write_users();
    assert_int_equal(table_file_begin(path, &head, &w, &err), 0);
    table_file_abandon(&w);
    assert_int_equal(read_users(&err), 0);
}

static void parts_of_other_lengths_are_refused(void **state)
{
    const struct table_file_head head = head_of_users();
    struct table_file_writer w;
    struct err err;
    assert_int_equal(table_file_begin(path, &head, &w, &err), 0);
    assert_int_equal(table_file_put(&w, memory, 0, &err), -EBADMSG);
    assert_int_equal(table_file_put(&w, memory, ROW_BYTES + 1, &err), -EBADMSG);
    assert_int_equal(table_file_put(&w, memory, (TABLE_FILE_PART_ROWS_MAX + 1) * ROW_BYTES, &err),
                     -EBADMSG);
    table_file_abandon(&w);
}

static void paths_that_cannot_be_written_are_named(void **state)
{
    static const struct {
        const char *path, *text;
        int error;
    } cases[] = {
        {"", "the path of the table is empty; name a file", -EINVAL},
        {"/tmp", "table /tmp: the path is no regular file; choose another path", -EINVAL},
        {"/tmp/nowhere/users",
         "table /tmp/nowhere/users cannot be written: No such file or directory; choose another "
         "path",
         -ENOENT},
    };
    const struct table_file_head head = head_of_users();
    struct table_file_writer w;
    struct err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(table_file_begin(cases[i].path, &head, &w, &err), cases[i].error);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void refuses(struct table_terms terms, const char *words)
{
    const struct table_file_head head = head_of_users();
    struct err err;
    assert_int_equal(table_file_match(&head, &terms, "items", &err), -EINVAL);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

static void rows_fit_into_tables_with_the_same_rows_alone(void **state)
{
    const struct table_file_head head = head_of_users();
    struct table_terms terms = head.terms, other;
    struct err err;
    terms.shards = 4096;
    terms.consistency = TABLE_TERMS_ASP;
    assert_int_equal(table_file_match(&head, &terms, "items", &err), 0);
    other = terms;
    other.dim = 4;
    refuses(other, "dim 3, dtype f32, rule adagrad, but table 'items' has dim 4, dtype f32");
    other = terms;
    other.rule = TABLE_TERMS_ADAM;
    refuses(other, "but table 'items' has dim 3, dtype f32, rule adam");
    other = terms;
    other.dtype = REDUCE_F16;
    refuses(other, "but table 'items' has dim 3, dtype f16");
    other = terms;
    other.seed++;
    refuses(other, "rows that the file lacks would have other values");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(a_table_without_rows_has_a_file),
        cmocka_unit_test(each_changed_byte_is_refused),
        cmocka_unit_test(a_shorter_or_longer_file_is_refused),
        cmocka_unit_test(an_unfinished_file_leaves_the_former_one),
        cmocka_unit_test(parts_of_other_lengths_are_refused),
        cmocka_unit_test(paths_that_cannot_be_written_are_named),
        cmocka_unit_test(rows_fit_into_tables_with_the_same_rows_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
