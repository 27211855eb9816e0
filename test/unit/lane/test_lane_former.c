/* Tests the report about a lost worker of an elastic job after a later worker has taken its rank
 * (A40, A42 of svc/lane). */
#include "svc/lane/move/regroup.h"
#include "test/unit/lane/lane_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define LATER 5 /* `entered` of the later worker */
#define AGAIN 2 /* index of the later worker in the rig */

static const char *kind;
static struct rig rig;

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

static void start(void)
{
    rig_start_job(&rig, kind, 2, 1, 1000);
    lane_set_elastic(rig.lane, RIG_JOB);
}

struct reports {
    int count;
    uint32_t entered;
};

static void count_report(void *context, const struct lane_lost *lost)
{
    struct reports *reports = context;
    assert_int_equal(lost->job, RIG_JOB);
    assert_int_equal(lost->rank, 1);
    *reports = (struct reports){reports->count + 1, lost->entered};
}

static struct reports reports_now(void)
{
    struct reports reports = {0};
    lane_each_lost(rig.lane, count_report, &reports);
    return reports;
}

static void kill_worker(uint32_t i)
{
    fabric_disconnect(rig.workers[i].conn);
    rig_until(&rig, reports_now().count == 1);
}

static void a_report_names_the_worker_by_the_number_of_its_ticket(void **state)
{
    start();
    kill_worker(1);
    assert_int_equal(reports_now().entered, 0);
    rig.entered = LATER;
    rig_connect(&rig, AGAIN, RIG_JOB, 1);
    rig.count = 3;
    assert_int_equal(reports_now().count, 0);
    assert_int_equal(rig.workers[AGAIN].next_ticket.entered, LATER);
    kill_worker(AGAIN);
    assert_int_equal(reports_now().entered, LATER);
}

static void the_ticket_of_a_later_worker_ends_the_report(void **state)
{
    start();
    kill_worker(1);
    rig_ticket(&rig, RIG_JOB, 0);
    rig_ticket(&rig, RIG_JOB, 1); /* a ticket of the lost worker itself */
    assert_int_equal(reports_now().count, 1);
    rig.entered = LATER;
    rig_ticket(&rig, RIG_JOB, 0); /* a ticket of another rank */
    assert_int_equal(reports_now().count, 1);
    rig_ticket(&rig, RIG_JOB, 1);
    assert_int_equal(reports_now().count, 0);
}

static void the_ticket_of_a_later_worker_leaves_an_open_connection(void **state)
{
    start();
    rig.entered = LATER;
    rig_ticket(&rig, RIG_JOB, 1);
    kill_worker(1);
    assert_int_equal(reports_now().entered, 0);
}

#define CASE(test) cmocka_unit_test_teardown(test, stop)

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shm";
    const struct CMUnitTest tests[] = {
        CASE(a_report_names_the_worker_by_the_number_of_its_ticket),
        CASE(the_ticket_of_a_later_worker_ends_the_report),
        CASE(the_ticket_of_a_later_worker_leaves_an_open_connection),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
