/* Tests orders to pools while the disk fails. An order that is not stored must not be sent
 * (SL3). */
#include "svc/coordinator/service.h"
#include "svc/coordinator/slots/internal.h"
#include "test/unit/coordinator/slots/pool_case.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int disk_error; /* error of every write; 0: writes succeed */

/* Replaces SQLite's write function, as in test_coordinator_disk.c. */
__attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void *bytes, size_t count,
                                                        off64_t offset);
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    if (disk_error == 0)
        return syscall(SYS_pwrite64, fd, bytes, count, offset);
    errno = disk_error;
    return -1;
}

static int teardown(void **state)
{
    disk_error = 0;
    return rig_teardown(state);
}

static void a_job_that_is_not_stored_is_refused(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    disk_error = ENOSPC;
    pool_submit_refused(pool, "resnet", 1, 1, -ENOSPC, "state.db");
    end_expect_none(pool, BODY(POOL_ORDERS));
    disk_error = 0;
    pool_submit(pool, "resnet", 1, 1);
    pool_expect_for(pool, POOL_START, "resnet", 0);
}

static void a_start_that_is_not_stored_is_not_sent(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "bert", 4, 4);
    struct pool_order ranks[4];
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks[rank] = pool_expect(pool, POOL_START);
    pool_submit(pool, "resnet", 1, 1);
    disk_error = EIO;
    pool_ended(pool, &ranks[3], 0);
    kept_log_expect("the order for rank");
    end_expect_none(pool, BODY(POOL_ORDERS));
    disk_error = 0;
    pool_expect_for(pool, POOL_START, "resnet", 0);
}

static void an_end_that_is_not_stored_is_sent_later(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect(pool, POOL_START);
    disk_error = EIO;
    pool_withdraw(pool, "resnet");
    kept_log_expect("its end was not stored");
    end_expect_none(pool, BODY(POOL_ORDERS));
    disk_error = 0;
    pool_expect_for(pool, POOL_END, "resnet", 0);
    disk_error = EIO;
    pool_ended(pool, &zero, 143);
    assert_int_equal(pool_expect(pool, POOL_OVER).code, -ECANCELED);
    kept_log_expect("was not deleted:");
}

static void a_rest_that_is_not_stored_is_refused(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    envelope order = MESSAGE(0, POOL_REST, pool_rest, .job = "resnet", .rests = true);
    pool_submit(pool, "vgg", 4, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        pool_expect(pool, POOL_START);
    pool_submit(pool, "resnet", 1, 1);
    disk_error = ENOSPC;
    end_ask_refused(pool, &order, -ENOSPC, "job resnet: its rest was not stored: ");
    disk_error = 0;
    envelope *reply = end_ask(pool, &order);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

static void ends_that_are_not_stored_are_logged(void **state)
{
    struct end *pool = pool_join(*state, (struct pool_joining){0});
    pool_submit(pool, "resnet", 1, 1);
    struct pool_order zero = pool_expect_and_start(pool);
    struct end *worker = pool_worker_join(*state, &zero, 0);
    disk_error = EIO;
    end_leave(worker);
    rig_settle(*state);
    kept_log_expect("the end of its workers could not be written");
    disk_error = 0;
    pool_ended(pool, &zero, 0);
    assert_int_equal(pool_expect(pool, POOL_OVER).code, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, pools_setup, teardown)

int main(void)
{
    static const struct CMUnitTest cases[] = {
        CASE(a_job_that_is_not_stored_is_refused),     CASE(a_start_that_is_not_stored_is_not_sent),
        CASE(an_end_that_is_not_stored_is_sent_later), CASE(a_rest_that_is_not_stored_is_refused),
        CASE(ends_that_are_not_stored_are_logged),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
