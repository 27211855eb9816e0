/* Linked into every cmocka program. If GRADPOOL_TEST_CASE is set, only the cases whose names match
 * this pattern run. The pattern may contain *. */
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
