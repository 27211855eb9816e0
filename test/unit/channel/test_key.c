/* Tests how a tenant's key is read from text. A valid key is accepted, and an invalid key is
 * refused. No error may contain the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "svc/channel/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEX "00112233445566778899aAbBcCdDeEfF00112233445566778899aabbccddeeff"

static void a_generated_key_is_read_back_as_it_was_printed(void **state)
{
    struct key key, other, back;
    struct err err;
    char text[KEY_TEXT_BYTES];
    char name[KEY_TENANT_BYTES_MAX + 1];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(key_generate(name, &key), 0);
    assert_int_equal(key_generate(name, &other), 0);
    assert_memory_not_equal(key.secret, other.secret, KEY_SECRET_BYTES);
    assert_int_equal(strlen(key_format(&key, text)), KEY_TEXT_BYTES - 1);
    assert_int_equal(key_parse(text, &back, &err), 0);
    assert_memory_equal(&back, &key, sizeof key);
}

static void upper_case_and_a_line_end_are_taken(void **state)
{
    struct key key;
    struct err err;
    char text[KEY_TEXT_BYTES];
    assert_int_equal(key_parse("acme:" HEX " \r\n", &key, &err), 0);
    assert_string_equal(key.tenant, "acme");
    assert_int_equal(key.secret[10], 0xaa);
    assert_string_equal(strchr(key_format(&key, text), ':') + 33, &HEX[32]);
}

static void an_invalid_key_is_refused_without_its_text(void **state)
{
    static const char *const texts[] = {
        "",
        "acme",
        "acme:",
        "acme:00",
        ":" HEX,
        "a b:" HEX,
        "acme:" HEX "0",
        "acme:x" HEX,
        "acme:" HEX "\nmore",
        "a/b:" HEX,
        "acme: " HEX,
        HEX,
        "\xc3\xa4:" HEX,
        "01234567890123456789012345678901234567890123456789012345678901234:" HEX};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct key key = {.tenant = "untouched"};
        struct err err = {0};
        assert_int_equal(key_parse(texts[i], &key, &err), -EINVAL);
        assert_string_equal(key.tenant, "untouched");
        assert_non_null(strstr(err.text, "gradpool tenant add"));
        assert_null(strstr(err.text, "2233"));
    }
}

/* --- the environment ------------------------------------------------------------------------- */

static int clean(void **state)
{
    unsetenv("GRADPOOL_KEY");
    unsetenv("GRADPOOL_KEY_FILE");
    return 0;
}

static const char *key_file(const char *text, mode_t mode)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/gradpool-key-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    setenv("GRADPOOL_KEY_FILE", path, 1);
    return path;
}

static void expect_refused(int code, const char *part)
{
    struct key key;
    struct err err = {0};
    assert_int_equal(key_from_environment(&key, &err), code);
    if (!strstr(err.text, part))
        fail_msg("expected '%s' in '%s'", part, err.text);
}

static void without_variables_there_is_no_key(void **state)
{
    struct key key;
    struct err err;
    assert_int_equal(key_from_environment(&key, &err), 0);
    setenv("GRADPOOL_KEY", "", 1);
    assert_int_equal(key_from_environment(&key, &err), 0);
}

static void a_key_comes_from_the_variable_or_from_a_file(void **state)
{
    struct key key;
    struct err err;
    setenv("GRADPOOL_KEY", "acme:" HEX, 1);
    assert_int_equal(key_from_environment(&key, &err), 1);
    assert_string_equal(key.tenant, "acme");
    unsetenv("GRADPOOL_KEY");
    const char *path = key_file("other:" HEX "\n", 0640);
    assert_int_equal(key_from_environment(&key, &err), 1);
    assert_string_equal(key.tenant, "other");
    unlink(path);
}

static void a_second_key_is_refused(void **state)
{
    setenv("GRADPOOL_KEY", "acme:" HEX, 1);
    setenv("GRADPOOL_KEY_FILE", "/nowhere", 1);
    expect_refused(-EINVAL, "both set");
}

static void the_error_of_an_unreadable_key_names_the_variable(void **state)
{
    setenv("GRADPOOL_KEY_FILE", "/nowhere/key", 1);
    expect_refused(-ENOENT,
                   "GRADPOOL_KEY_FILE=/nowhere/key: the key file cannot be opened: No such file");
    setenv("GRADPOOL_KEY_FILE", "/tmp", 1);
    expect_refused(-EACCES, "GRADPOOL_KEY_FILE=/tmp: ");
    const char *path = key_file("acme:" HEX, 0604);
    expect_refused(-EACCES, "chmod 600");
    unlink(path);
    path = key_file("nonsense", 0600);
    expect_refused(-EINVAL, "expected a key");
    unlink(path);
    unsetenv("GRADPOOL_KEY_FILE");
    setenv("GRADPOOL_KEY", "nonsense", 1);
    expect_refused(-EINVAL, "GRADPOOL_KEY: expected a key");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generated_key_is_read_back_as_it_was_printed),
        cmocka_unit_test(upper_case_and_a_line_end_are_taken),
        cmocka_unit_test(an_invalid_key_is_refused_without_its_text),
        cmocka_unit_test_teardown(without_variables_there_is_no_key, clean),
        cmocka_unit_test_teardown(a_key_comes_from_the_variable_or_from_a_file, clean),
        cmocka_unit_test_teardown(a_second_key_is_refused, clean),
        cmocka_unit_test_teardown(the_error_of_an_unreadable_key_names_the_variable, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
