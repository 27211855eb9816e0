/* Tests the texts by which a pool recognises its processes (svc/pool/cookie.c). */
#include "svc/pool/cookie.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct cookie whole = {
    .pool = UINT64_MAX, .rank = 767, .incarnation = 1234567890123, .pid = INT32_MAX};

static void assert_same(const struct cookie *a, const struct cookie *b)
{
    assert_int_equal(a->pool, b->pool);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->incarnation, b->incarnation);
    assert_int_equal(a->pid, b->pid);
}

static void a_cookie_is_read_as_it_was_written(void **state)
{
    char text[COOKIE_BYTES];
    struct cookie found = {0};
    cookie_write(&whole, "a:job = 1", text);
    assert_true(cookie_find(text, strlen(text) + 1, &found));
    assert_same(&found, &whole);
}

static void a_child_writes_its_own_number(void **state)
{
    char text[COOKIE_BYTES];
    struct cookie found = {0}, mine = whole;
    mine.pid = 0;
    cookie_write(&mine, "job", text);
    size_t bytes = strlen(text);
    assert_false(cookie_find(text, bytes + 1, &found));
    cookie_set_pid(text, 4711);
    assert_int_equal(strlen(text), bytes);
    assert_true(cookie_find(text, bytes + 1, &found));
    assert_int_equal(found.pid, 4711);
    assert_int_equal(found.incarnation, whole.incarnation);
}

static void a_cookie_is_found_among_other_variables(void **state)
{
    char all[2 * COOKIE_BYTES] = "A=" COOKIE_VARIABLE "=1\0B=2";
    struct cookie found = {0};
    size_t before = 2 + strlen(COOKIE_VARIABLE) + 3 + 4;
    cookie_write(&whole, "job", all + before);
    size_t bytes = before + strlen(all + before) + 1;
    assert_true(cookie_find(all, bytes, &found));
    assert_same(&found, &whole);
    assert_false(cookie_find(all, bytes - 1, &found)); /* the end is missing */
    assert_false(cookie_find(all, before, &found));
    assert_false(cookie_find(all, 0, &found));
}

static void other_texts_are_no_cookies(void **state)
{
    static const char *const texts[] = {
        "",
        "1",
        "1:2:3",
        "1:2:3:4",
        "0:2:3:4:job",
        "1:2:3:0:job",
        "1:2:3:4294967295:job",
        "x:2:3:4:job",
        "1:-:3:4:job",
        "1:2:3:4job",
        "::::",
    };
    struct cookie found;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (cookie_parse(texts[i], &found))
            fail_msg("'%s' was accepted", texts[i]);
    assert_true(cookie_parse("1:2:3:4:job", &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cookie_is_read_as_it_was_written),
        cmocka_unit_test(a_child_writes_its_own_number),
        cmocka_unit_test(a_cookie_is_found_among_other_variables),
        cmocka_unit_test(other_texts_are_no_cookies),
    };
    return cmocka_run_group_tests_name("cookie", tests, NULL, NULL);
}
