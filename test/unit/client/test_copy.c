/* Tests copies to and from staging. For every offset and length the right bytes are copied, and no
 * other byte is changed. */
#include "client/lib/link/copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG ((size_t)2 << 20)
#define SHORT ((size_t)16 << 10)
#define LOTS (UINT64_C(64) << 20)
#define GUARD 64

static unsigned char source[LONG + 1024], target[LONG + 1024 + 2 * GUARD];

static void check(size_t from, size_t to, size_t bytes, uint64_t staged_bytes)
{
    memset(target, 0xa5, sizeof target);
    copy_values(target + GUARD + to, source + from, bytes, copy_streams_from(staged_bytes));
    assert_memory_equal(target + GUARD + to, source + from, bytes);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(target[GUARD + to - 1 - i], 0xa5);
        assert_int_equal(target[GUARD + to + bytes + i], 0xa5);
    }
}

static void a_copy_is_the_same_bytes_at_every_alignment(void **state)
{
    for (size_t to = 0; to < 64; to += 4)
        for (size_t from = 0; from < 64; from += 20)
            check(from, to, LONG + 12, 0);
}

static void a_copy_of_every_length_ends_where_it_should(void **state)
{
    for (size_t bytes = LONG - 70; bytes <= LONG + 70; bytes++)
        check(4, 8, bytes, 0);
    for (size_t bytes = 0; bytes <= 70; bytes++)
        check(4, 8, bytes, 0);
}

static void short_copies_bypass_the_cache_where_much_is_staged(void **state)
{
    assert_int_equal(copy_streams_from(12u << 20), LONG);
    assert_int_equal(copy_streams_from((12u << 20) + 1), SHORT);
    for (size_t bytes = SHORT - 70; bytes <= SHORT + 1100; bytes++)
        check(4, 8, bytes, LOTS);
    for (size_t to = 0; to < 64; to += 4)
        check(20, to, SHORT + 12, LOTS);
}

int main(void)
{
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (unsigned char)(i * 2654435761u >> 13);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_the_same_bytes_at_every_alignment),
        cmocka_unit_test(a_copy_of_every_length_ends_where_it_should),
        cmocka_unit_test(short_copies_bypass_the_cache_where_much_is_staged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
