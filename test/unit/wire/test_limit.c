/* Tests named limits: how their values are read, and the text of a refusal. */
#include "svc/wire/limit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct limits defaults(void)
{
    struct limits limits;
    limits_init(&limits);
    return limits;
}

static void each_default_is_within_its_bounds_and_reads_as_it_is_shown(void **state)
{
    struct limits limits = defaults();
    struct err err;
    for (enum limit limit = 0; limit < LIMITS; limit++) {
        const struct limit_about *about = limit_about(limit);
        assert_true(about->least <= about->value && about->value <= about->most);
        assert_int_equal(limits.most[limit], about->value);
        limits.most[limit] = 0;
        assert_int_equal(limits_set(&limits, limit, about->preset, &err), 0);
        assert_int_equal(limits.most[limit], about->value);
    }
}

static void bytes_take_a_unit_and_numbers_do_not(void **state)
{
    struct limits limits = defaults();
    struct err err;
    assert_int_equal(limits_set(&limits, LIMIT_LANE_MEMORY, "64M", &err), 0);
    assert_int_equal(limits.most[LIMIT_LANE_MEMORY], 64u << 20);
    assert_int_equal(limits_set(&limits, LIMIT_LANE_MEMORY, "2097152", &err), 0);
    assert_int_equal(limits.most[LIMIT_LANE_MEMORY], 2u << 20);
    assert_int_equal(limits_set(&limits, LIMIT_JOB_TENSORS, "12", &err), 0);
    assert_int_equal(limits.most[LIMIT_JOB_TENSORS], 12);
    const char *const bad[] = {"", "M", "64MB", "-1", "1.5G", "99999999999T", "0", "1K1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(limits_set(&limits, LIMIT_LANE_MEMORY, bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "from 1 MiB to 1 TiB"));
    }
    assert_int_equal(limits_set(&limits, LIMIT_JOB_TENSORS, "1K", &err), -EINVAL);
    assert_int_equal(limits.most[LIMIT_JOB_TENSORS], 12);
}

static void a_refusal_names_owner_limit_amount_and_option(void **state)
{
    struct limits limits = defaults();
    struct err err;
    limits.most[LIMIT_JOB_TENSORS] = 10;
    assert_int_equal(limits_check(&limits, LIMIT_JOB_TENSORS, "job resnet", 8, 2, &err), 0);
    assert_int_equal(limits_check(&limits, LIMIT_JOB_TENSORS, "job resnet", 8, 3, &err), -EDQUOT);
    assert_string_equal(err.text, "job resnet: tensors of one job: has 8, asks for 3 more, may "
                                  "have 10; the operator can raise --job-tensors-max of "
                                  "gradpool serve");
    assert_int_equal(limits_check(&limits, LIMIT_JOB_TENSORS, "j", 11, 0, &err), -EDQUOT);
    assert_int_equal(limits_check(&limits, LIMIT_JOB_BYTES, "j", 5, UINT64_MAX, &err), -EDQUOT);
    assert_non_null(strstr(err.text, "may have 1 TiB"));
}

static void a_tenant_s_own_limits_are_kept_as_text(void **state)
{
    struct limits service, own, read;
    struct err err;
    char text[LIMITS_TEXT_BYTES];
    limits_init(&service);
    own = service;
    assert_int_equal(limits_set_own(&own, &service, LIMIT_JOB_BYTES, "8K", &err), 0);
    assert_int_equal(limits_set_own(&own, &service, LIMIT_TENANT_JOBS, "3", &err), 0);
    assert_int_equal(limits_set_own(&own, &service, LIMIT_LANE_MEMORY, "1G", &err), -EINVAL);
    assert_string_equal(err.text, "expected a limit that can be set for one tenant");
    assert_int_equal(limits_set_own(&own, &service, LIMITS, "1", &err), -EINVAL);
    limits_write_own(&own, text, sizeof text);
    assert_string_equal(text, "job-bytes=8192 tenant-jobs=3");
    read = service;
    assert_int_equal(limits_read_own(&read, text), 0);
    assert_memory_equal(read.most, own.most, sizeof own.most);
    assert_int_equal(read.own, own.own);
    assert_int_equal(limits_read_own(&read, ""), 0);
    assert_int_equal(limits_read_own(&read, "job-bytes"), -EBADMSG);
    assert_int_equal(limits_read_own(&read, "no-such=1"), -EBADMSG);
    assert_int_equal(limits_set_own(&own, &service, LIMIT_JOB_BYTES, "default", &err), 0);
    assert_int_equal(own.most[LIMIT_JOB_BYTES], service.most[LIMIT_JOB_BYTES]);
    own.tenant = "acme";
    assert_int_equal(limits_check(&own, LIMIT_TENANT_JOBS, "tenant acme", 3, 1, &err), -EDQUOT);
    assert_non_null(strstr(err.text, "; an operator can raise it with gradpool tenant set "));
    assert_non_null(strstr(err.text, "gradpool tenant set acme --tenant-jobs-max"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_default_is_within_its_bounds_and_reads_as_it_is_shown),
        cmocka_unit_test(bytes_take_a_unit_and_numbers_do_not),
        cmocka_unit_test(a_refusal_names_owner_limit_amount_and_option),
        cmocka_unit_test(a_tenant_s_own_limits_are_kept_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
