/* Linked into every cmocka program: GRADPOOL_TEST_CASE, a pattern with *, runs some cases alone. */
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
