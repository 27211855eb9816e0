/* Attacks on the coordinator: unlimited requests, incomplete messages and greetings, jobs that join
 * and leave. Each attack owns its connections, and sends only to the tenant's endpoint. */
#include "bench/hostile/tenant.h"

#include "svc/channel/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTS_OPEN 64 /* number of open lists of one connection */
#define DRIP_US 5000  /* pause between two bytes of a greeting */

/* --- requests without end --- */

struct asker {
    struct channel *ch; /* control connection; NULL: not connected */
    int open;
};

/* Returns the number of received answers. Negative: the connection has ended. */
static int take_answers(struct channel *ch)
{
    envelope *message;
    int taken = 0, r;
    for (; (r = channel_receive(ch, &message)) == 0; taken++)
        gradpool__wire__envelope__free_unpacked(message, NULL);
    return r == -EAGAIN ? taken : r;
}

static void ask(struct tenant *t, struct asker *a, envelope *request, int most)
{
    int r = take_answers(a->ch);
    if (r > 0) {
        a->open -= r;
        *t->done += (uint64_t)r;
    }
    for (; r >= 0 && a->open < most; a->open++) {
        request->id = channel_next_id(a->ch);
        r = channel_send(a->ch, request);
    }
    if (r >= 0)
        return;
    channel_destroy(a->ch);
    *a = (struct asker){0};
}

static void repeat(struct tenant *t, envelope *request, size_t count, int most)
{
    struct asker askers[PLANS + LISTS] = {0};
    while (tenant_has_time(t)) {
        for (size_t i = 0; i < count; i++) {
            if (!askers[i].ch)
                askers[i].ch = tenant_greet(t, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
            if (askers[i].ch)
                ask(t, &askers[i], request, most);
        }
        tenant_pause_us(200);
    }
}

void attack_plans(struct tenant *t)
{
    WIRE_TYPE(TensorSpec) tensor = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *tensors[] = {&tensor};
    WIRE_TYPE(PlanRequest) plan = GRADPOOL__WIRE__PLAN_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    tensor.name = (char *)"huge";
    tensor.dtype = 1;
    tensor.elements = UINT64_C(1) << 37;
    plan.job = (char *)"planned";
    plan.workers = 2;
    plan.tensors = tensors;
    plan.n_tensors = 1;
    request.body_case = BODY(PLAN_REQUEST);
    request.plan_request = &plan;
    repeat(t, &request, PLANS, 1);
}

void attack_lists(struct tenant *t)
{
    WIRE_TYPE(JobsRequest) jobs = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(JOBS_REQUEST);
    request.jobs_request = &jobs;
    repeat(t, &request, LISTS, LISTS_OPEN);
}

/* --- messages without an end --- */

/* Sends the length of a frame, and the frame without its last byte: the message never becomes
 * complete. */
static void send_half(struct channel *ch)
{
    const uint32_t frame_bytes = CHANNEL_FRAME_BYTES_MAX;
    size_t bytes = sizeof frame_bytes + frame_bytes - 1;
    if (buffer_reserve(&ch->out, bytes) < 0)
        return;
    uint8_t *at = ch->out.bytes + ch->out.end;
    memset(at, '\n', bytes);
    memcpy(at, &frame_bytes, sizeof frame_bytes);
    ch->out.end += bytes;
}

void attack_halves(struct tenant *t)
{
    struct channel *members[HALVES] = {0};
    while (tenant_has_time(t)) {
        for (size_t i = 0; i < HALVES; i++) {
            if (!members[i] && (members[i] = tenant_greet(t, GRADPOOL__WIRE__ROLE__ROLE_CLIENT))) {
                send_half(members[i]);
                ++*t->done;
            }
            if (!members[i] || take_answers(members[i]) >= 0)
                continue;
            channel_destroy(members[i]);
            members[i] = NULL;
        }
        tenant_pause_us(1000);
    }
}

/* Sends nothing, or the first bytes of a TLS or plain greeting, and later one byte at a time. */
static int begin_greeting(struct tenant *t)
{
    static const struct {
        size_t bytes;
        uint8_t text[16];
    } beginnings[] = {{0, {0}},
                      {11, {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}},
                      {8, {200, 0, 0, 0, 8, 1, 0x12, 190}}};
    const uint32_t kind = tenant_draw(t, sizeof beginnings / sizeof *beginnings);
    struct err err;
    int fd;
    if (endpoint_connect(&t->endpoint, t->until_ns, &fd, &err) < 0)
        return -1;
    (void)!send(fd, beginnings[kind].text, beginnings[kind].bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    ++*t->done;
    return fd;
}

static bool send_byte(int fd)
{
    uint8_t byte;
    return send(fd, "\x0a", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 &&
           recv(fd, &byte, 1, MSG_DONTWAIT) != 0;
}

/* Opens connections that never complete a greeting. One connection at a time is reset and opened
 * again. */
void attack_greetings(struct tenant *t)
{
    const struct linger reset = {1, 0};
    int fds[GREETINGS];
    memset(fds, -1, sizeof fds);
    while (tenant_has_time(t)) {
        for (size_t i = 0; i < GREETINGS; i++) {
            if (fds[i] >= 0 && i > 0 && send_byte(fds[i]))
                continue;
            if (fds[i] >= 0) {
                (void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
                close(fds[i]);
            }
            fds[i] = begin_greeting(t);
        }
        tenant_pause_us(DRIP_US);
    }
}

/* --- jobs that come and go --- */

static bool leave(struct tenant *t, struct channel *ch)
{
    WIRE_TYPE(LeaveRequest) goodbye = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &goodbye;
    envelope *reply = tenant_call(t, ch, &request);
    if (!reply)
        return false;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return true;
}

void attack_storms(struct tenant *t)
{
    struct channel *members[STORMS] = {0};
    for (uint32_t turn = 0; tenant_has_time(t); turn++) {
        struct channel **member = &members[turn % STORMS];
        char job[TENANT_JOB_BYTES];
        tenant_name_job("storm", turn, job);
        if (!*member)
            *member = tenant_greet(t, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
        if (!*member)
            continue;
        bool stays = tenant_join(t, *member, job, 0, 1 + tenant_draw(t, 2));
        ++*t->done;
        if (stays && tenant_draw(t, 4) > 0 && leave(t, *member))
            continue;
        channel_destroy(*member);
        *member = NULL;
    }
}
