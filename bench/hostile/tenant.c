/* Control connections of a hostile tenant. Attempts to connect are repeated, because the
 * coordinator may be restarting. The attempts stop at the end of the attack. */
#include "bench/hostile/tenant.h"

#include "svc/base/clock.h"
#include "svc/base/system/process.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_US 20000

bool tenant_has_time(const struct tenant *t) { return clock_now_ns() < t->until_ns; }

uint32_t tenant_draw(struct tenant *t, uint32_t below)
{
    t->random = t->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(t->random >> 33) % below;
}

void tenant_pause_us(uint64_t us)
{
    const struct timespec nap = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&nap, NULL);
}

const char *tenant_name_job(const char *attack, size_t number, char *ret_name)
{
    snprintf(ret_name, TENANT_JOB_BYTES, "%.16s-%d-%zu", attack, (int)getpid(), number);
    return ret_name;
}

static struct channel *dial(const struct tenant *t)
{
    struct channel *ch = NULL;
    struct err err;
    int fd;
    if (endpoint_connect(&t->endpoint, t->until_ns, &fd, &err) < 0)
        return NULL;
    if (channel_create(fd, &ch) < 0) {
        close(fd);
        return NULL;
    }
    if (channel_use_key(ch, &t->key) == 0)
        return ch;
    channel_destroy(ch);
    return NULL;
}

struct channel *tenant_greet(struct tenant *t, WIRE_TYPE(Role) role)
{
    while (tenant_has_time(t)) {
        uint64_t incarnation;
        struct err err;
        struct channel *ch = dial(t);
        if (ch && channel_greet(ch, role, "hostile", t->until_ns, &incarnation, &err) == 0)
            return ch;
        channel_destroy(ch);
        tenant_pause_us(AGAIN_US);
    }
    return NULL;
}

envelope *tenant_call(struct tenant *t, struct channel *ch, envelope *request)
{
    struct err err;
    envelope *reply = NULL;
    return channel_call(ch, request, t->until_ns, NULL, NULL, &reply, &err) < 0 ? NULL : reply;
}

bool tenant_join(struct tenant *t, struct channel *ch, const char *job, uint32_t rank,
                 uint32_t workers)
{
    WIRE_TYPE(JoinRequest) join = GRADPOOL__WIRE__JOIN_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    join.job = (char *)job;
    join.rank = rank;
    join.workers = workers;
    join.node = (char *)"hostile";
    join.pid = (uint32_t)getpid();
    /* sometimes the request has no identity, so the service has to detect the worker's end */
    if (tenant_draw(t, 4) > 0) {
        join.pid_namespace = process_namespace();
        join.identity = process_identity(join.pid);
    }
    request.body_case = BODY(JOIN_REQUEST);
    request.join_request = &join;
    envelope *reply = tenant_call(t, ch, &request);
    if (!reply)
        return false;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return true;
}
