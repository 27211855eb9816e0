/* The cases that every implementation of svc/fabric/fabric.h must pass, run on a fabric from a
 * factory. One thread drives all ends of a case, except where the case differs. */
#ifndef GRADPOOL_TEST_FABRIC_SUITE_H
#define GRADPOOL_TEST_FABRIC_SUITE_H

#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct fabric_factory {
    const char *name; /* name of the group, for TAP */
    /* Before and after each case; NULL: nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    int (*open)(const struct fabric_options *options, struct fabric **ret_fabric);
    /* An unused address, and an address without a listener. */
    void (*name_address)(char *ret_address);
    const char *dead_address;
    /* Advances virtual time; NULL: time is real. */
    void (*advance)(void);
    /* Longest payload behind a message; 0: payloads are refused. */
    size_t payload_bytes_max;
    /* Rounds of the case in which two threads wake each other; 0: no threads, so that the cases
     * about sleepers are left out. */
    int ping_pongs;
};

/* Runs the common cases and `more`, as one group. Returns the number of cases that failed. */
#define FABRIC_CASES_MAX 128
int fabric_suite_run(const struct fabric_factory *factory, const struct CMUnitTest *more,
                     size_t more_count);
/* A case. Its `*state` is a new rig with the factory that was passed to fabric_suite_run(). */
#define FABRIC_CASE(name) \
    cmocka_unit_test_setup_teardown(name, fabric_case_set_up, fabric_case_tear_down)
int fabric_case_set_up(void **state);
int fabric_case_tear_down(void **state);

/* The common cases. */
extern const struct CMUnitTest fabric_talk_cases[], fabric_memory_cases[], fabric_sleep_cases[];
extern const size_t fabric_talk_cases_count, fabric_memory_cases_count, fabric_sleep_cases_count;

/* helpers that tests of one implementation may use */

#define SEEN_MAX 512
#define SEEN_BYTES_MAX 512

/* An event that was read. Its data was copied and given back. */
struct seen {
    struct fabric_event event;
    unsigned char data[SEEN_BYTES_MAX];
};

/* A fabric, and its events that no test has read, oldest first. */
struct side {
    struct fabric *fabric;
    struct seen seen[SEEN_MAX];
    int seen_count;
    bool is_stuck; /* the fabric is never polled */
};

/* A lane that listens, and up to three workers. */
#define RIG_WORKERS 3
struct rig {
    const struct fabric_factory *factory;
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct side lane;
    struct side workers[RIG_WORKERS];
    struct fabric_conn *at_lane[RIG_WORKERS]; /* the lane's end of the connection with worker i */
    struct fabric_conn *at_worker[RIG_WORKERS];
};

void rig_open(struct rig *rig, const struct fabric_factory *factory,
              const struct fabric_options *lane_options);
/* Connects worker i (owner: its struct side). The lane accepts (owner: &at_lane[i]). */
void rig_connect(struct rig *rig, int i);
void rig_close(struct rig *rig);

/* Polls every side once. Waits up to a millisecond if none had an event. */
void rig_pump(struct rig *rig);
/* Returns the next event of this kind on that side, which must come within ten seconds. */
struct seen rig_expect(struct rig *rig, struct side *side, enum fabric_event_kind kind);
/* Checks that no event comes on that side. */
void rig_expect_nothing(struct rig *rig, struct side *side);

/* Expects CLOSED of that owner with this error, and no event after it. */
void rig_expect_closed(struct rig *rig, struct side *side, void *owner, int error);
/* Sends a string as a message, with its terminating zero. */
void rig_send(struct fabric_conn *c, const char *text);
void rig_expect_text(struct rig *rig, struct side *side, const char *text);
/* Returns a region of worker i that is lent under `id` and known to the lane. */
struct region rig_lend(struct rig *rig, int i, uint32_t id, size_t bytes);

/* Sleeps at most `ms`, as after fabric_arm(). */
void fabric_wait_ms(const struct fabric_wait *wait, int ms);
/* Arms, and sleeps if the fabric allows it. */
void fabric_sleep_ms(struct fabric *f, int ms);

#endif
