/* Cases for every implementation of svc/fabric/fabric.h. A factory creates the fabric of each case.
 * Unless a case says otherwise, one thread runs all ends of a case. */
#ifndef GRADPOOL_TEST_FABRIC_SUITE_H
#define GRADPOOL_TEST_FABRIC_SUITE_H

#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct fabric_factory {
    const char *name; /* name of the group in TAP output */
    /* Called before and after each case. NULL: none. */
    void (*begin)(void);
    void (*end)(void);
    int (*open)(const struct fabric_options *options, struct fabric **ret_fabric);
    /* name_address() writes an unused address. dead_address is an address without a listener. */
    void (*name_address)(char *ret_address);
    const char *dead_address;
    /* Advances virtual time. NULL: time is real. */
    void (*advance)(void);
    /* Longest payload after a message. 0: payloads are refused. */
    size_t payload_bytes_max;
    /* Number of rounds in the case of two threads that wake each other. 0: no threads, so the cases
     * about sleepers are skipped. */
    int ping_pongs;
};

/* Runs the common cases and `more` as one group. Returns the number of failed cases. */
#define FABRIC_CASES_MAX 128
int fabric_suite_run(const struct fabric_factory *factory, const struct CMUnitTest *more,
                     size_t more_count);
/* Defines a case. Its `*state` is a new rig with the factory of fabric_suite_run(). */
#define FABRIC_CASE(name) \
    cmocka_unit_test_setup_teardown(name, fabric_case_set_up, fabric_case_tear_down)
int fabric_case_set_up(void **state);
int fabric_case_tear_down(void **state);

/* The common cases. */
extern const struct CMUnitTest fabric_talk_cases[], fabric_memory_cases[], fabric_sleep_cases[];
extern const size_t fabric_talk_cases_count, fabric_memory_cases_count, fabric_sleep_cases_count;

/* tools for tests of one implementation */

#define SEEN_MAX 512
#define SEEN_BYTES_MAX 512

/* A received event. The rig has copied the event's data, and has returned the buffer to the
 * fabric. */
struct seen {
    struct fabric_event event;
    unsigned char data[SEEN_BYTES_MAX];
};

/* A fabric with the events that no test has read yet, oldest first. */
struct side {
    struct fabric *fabric;
    struct seen seen[SEEN_MAX];
    int seen_count;
    bool is_stuck; /* if true, the test never polls this fabric */
};

/* A listening lane, and up to three workers. */
#define RIG_WORKERS 3
struct rig {
    const struct fabric_factory *factory;
    char address[FABRIC_ADDRESS_BYTES_MAX];
    struct side lane;
    struct side workers[RIG_WORKERS];
    struct fabric_conn *at_lane[RIG_WORKERS]; /* the lane's side of the connection to worker i */
    struct fabric_conn *at_worker[RIG_WORKERS];
};

void rig_open(struct rig *rig, const struct fabric_factory *factory,
              const struct fabric_options *lane_options);
/* Connects worker i (owner: its struct side). The lane accepts (owner: &at_lane[i]). */
void rig_connect(struct rig *rig, int i);
void rig_close(struct rig *rig);

/* Polls every side once. Without an event, waits for up to a millisecond. */
void rig_pump(struct rig *rig);
/* Returns the next event of this kind on this side. Fails after ten seconds. */
struct seen rig_expect(struct rig *rig, struct side *side, enum fabric_event_kind kind);
/* Checks that this side has no event. */
void rig_expect_nothing(struct rig *rig, struct side *side);

/* Expects CLOSED for this owner with this error, and no event after CLOSED. */
void rig_expect_closed(struct rig *rig, struct side *side, void *owner, int error);
/* Sends a string with its final zero as a message. */
void rig_send(struct fabric_conn *c, const char *text);
void rig_expect_text(struct rig *rig, struct side *side, const char *text);
/* Returns a region that worker i shares with the lane under the number `id`. */
struct region rig_lend(struct rig *rig, int i, uint32_t id, size_t bytes);

/* Sleeps on the descriptor or bell of fabric_arm(), for at most `ms` milliseconds. */
void fabric_wait_ms(const struct fabric_wait *wait, int ms);
/* Calls fabric_arm(), and sleeps if the fabric allows it. */
void fabric_sleep_ms(struct fabric *f, int ms);

#endif
