/* A pool's ranks on a clock of the test, and checks of their next action. */
#ifndef GRADPOOL_TEST_RANKS_CASE_H
#define GRADPOOL_TEST_RANKS_CASE_H

#include "svc/base/clock.h"
#include "svc/pool/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define LEAVE_NS (30 * NS_PER_S)
#define MOST 4

static struct pool_ranks p;
static uint64_t now_ns;
static uint32_t pause_s;

static inline struct pool_action next(void) { return ranks_next(&p, SIGINT, now_ns); }

static inline void expect_signal(uint32_t rank, int signal)
{
    struct pool_action action = next();
    assert_int_equal(action.verb, POOL_SIGNAL);
    assert_int_equal(action.rank, rank);
    assert_int_equal(action.signal, signal);
}

static inline void expect_wait(uint64_t seconds)
{
    struct pool_action action = next();
    assert_int_equal(action.verb, POOL_NOTHING);
    assert_int_equal(action.at_ns, now_ns + seconds * NS_PER_S);
}

static inline void expect_rest(void)
{
    struct pool_action action = next();
    assert_int_equal(action.verb, POOL_NOTHING);
    assert_int_equal(action.at_ns, UINT64_MAX);
}

static inline void pass(uint64_t seconds) { now_ns += seconds * NS_PER_S; }

static inline enum rank_verdict exits(uint32_t rank, int code)
{
    return ranks_ended(&p, rank, END_EXIT, code, now_ns, &pause_s);
}

static inline enum rank_verdict killed(uint32_t rank)
{
    return ranks_ended(&p, rank, END_SIGNAL, SIGKILL, now_ns, &pause_s);
}

#endif
