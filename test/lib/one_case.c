/* Linked into every cmocka program. With GRADPOOL_TEST_CASE only cases run whose names match this
 * pattern (with *). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose_case(void)
{
    const char *pattern = getenv("GRADPOOL_TEST_CASE");

    if (pattern)
        cmocka_set_test_filter(pattern);
}
