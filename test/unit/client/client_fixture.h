/* Two workers of one job in this process, connected to the scripted service. */
#ifndef GRADPOOL_TEST_CLIENT_FIXTURE_H
#define GRADPOOL_TEST_CLIENT_FIXTURE_H

#include "client/gradpool.h"
#include "test/unit/client/service_rig.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKERS 2
#define WAIT_MS 60000 /* deadline in ms; only a call that hangs takes this long */
#define SHORT_MS 50

extern struct service_rig rig;
extern gp_client *clients[WORKERS];
extern gp_job *jobs[WORKERS];

/* For cmocka: functions that start the service and both workers, or only the service. */
int fixture_start(void **state);
int fixture_start_alone(void **state);
int fixture_stop(void **state);

/* For cmocka: clears all variables of launchers, and all variables that the client reads. */
int fixture_clear(void **state);
void fixture_set(const char *name, const char *text);

void fixture_join(uint32_t rank, const gp_options *options);
/* Sets the default deadline of calls, like GRADPOOL_TIMEOUT_MS. The deadline applies after the
 * join. */
void fixture_set_timeout(uint32_t rank, uint64_t timeout_ms);
/* Fails the test with the client's last error. */
void ok(int r);
/* Checks that the call has failed with this code. The text must contain all words of the list,
 * which ends with NULL. */
void failed(int r, int code, ...) __attribute__((sentinel));
/* Checks that the call has failed with -ETIMEDOUT. Returns whether the text contains `text`. */
bool has_timed_out(int r, const char *text);
/* Repeats a call with a short deadline until the text of its timeout contains this text. On a slow
 * host the call may time out in an earlier wait. */
#define UNTIL_TIMED_OUT(call, text)    \
    while (!has_timed_out(call, text)) \
        ;

void declare(const char *name, uint64_t elements, gp_tensor **ret_tensors);
float value(uint32_t rank, uint64_t round, size_t i);
void fill(float *values, size_t elements, uint32_t rank, uint64_t round);
void check_sum(const float *values, size_t elements, uint64_t round);
void check_mean(const float *values, size_t elements, uint64_t round);
/* Returns memory from gp_alloc(). */
float *lent(uint32_t rank, size_t elements);
/* Both workers push round `round` of a tensor from plain memory, wait, and check the result. */
void run_round(gp_tensor **tensors, uint64_t round);

/* Returns the last READY of a rank with this round. NULL: none has arrived. Needs the rig's
 * lock. */
const struct script_heard *heard(uint32_t rank, uint64_t round);
/* Waits until the lanes have received `count` announcements in total. */
void wait_heard(uint32_t count);

#endif
