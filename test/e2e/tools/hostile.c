/* Acts as a hostile tenant, with the project's own wire library. `hostile WHAT N` opens N
 * connections to GRADPOOL_ENDPOINT, with the key of GRADPOOL_KEY_FILE if set. Prints "ready", and
 * attacks until it is killed. WHAT is one of:
 *
 *   plans      requests for plans of 512 GiB, repeated
 *   jobs       requests for lists of jobs, a new one after each answer
 *   joins      new jobs, repeated
 *   halves     a message of 16 MiB that never ends
 *   strangers  TLS with a wrong key, repeated
 *   lends      N data connections, 1 TiB each, four for each job
 *   attaches   like lends, without memory */
#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/channel/internal.h"
#include "svc/endpoint/endpoint.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define W(type) Gradpool__Wire__##type
#define B(name) GRADPOOL__WIRE__ENVELOPE__BODY_##name
#define MEMBERS_MAX 1024
#define IN_FLIGHT 64
#define DEADLINE_NS (60 * NS_PER_S)

static struct channel *members[MEMBERS_MAX];
static int count;

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static struct channel *dial(const struct key *key)
{
    struct endpoint e;
    struct err err;
    struct channel *ch;
    int fd;
    if (endpoint_parse(getenv("GRADPOOL_ENDPOINT"), &e, &err) < 0 ||
        endpoint_connect(&e, clock_now_ns() + DEADLINE_NS, &fd, &err) < 0)
        fail("connect", err.text);
    if (channel_create(fd, &ch) < 0 || (key && channel_use_key(ch, key) < 0))
        fail("connect", "no channel");
    return ch;
}

static struct channel *greet(W(Role) role)
{
    struct key key;
    struct err err;
    uint64_t incarnation;
    struct channel *ch = dial(key_from_environment(&key, &err) == 1 ? &key : NULL);
    if (channel_greet(ch, role, "crowd", clock_now_ns() + DEADLINE_NS, &incarnation, &err) < 0)
        fail("hello", err.text);
    return ch;
}

static envelope *call(struct channel *ch, envelope *request)
{
    struct err err;
    envelope *reply;
    if (channel_call(ch, request, clock_now_ns() + DEADLINE_NS, NULL, NULL, &reply, &err) < 0)
        fail("request", err.text);
    return reply;
}

static void say_ready(void)
{
    puts("ready");
    fflush(stdout);
}

/* --- endless requests --- */

static void ask(struct channel *ch, envelope *request)
{
    request->id = channel_next_id(ch);
    if (channel_send(ch, request) < 0)
        fail("send", channel_failure(ch));
}

static int take_answers(struct channel *ch)
{
    envelope *message;
    int taken = 0;
    for (; channel_receive(ch, &message) == 0; taken++)
        gradpool__wire__envelope__free_unpacked(message, NULL);
    return taken;
}

static _Noreturn void repeat(envelope *request, W(Role) role, int in_flight)
{
    for (int i = 0; i < count; i++)
        members[i] = greet(role);
    for (int i = 0; i < count * in_flight; i++)
        ask(members[i % count], request);
    say_ready();
    for (;;) {
        for (int i = 0; i < count; i++)
            for (int taken = take_answers(members[i]); taken > 0; taken--)
                ask(members[i], request);
        usleep(200);
    }
}

static _Noreturn void plans(void)
{
    W(TensorSpec) tensor = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *tensors[] = {&tensor};
    W(PlanRequest) plan = GRADPOOL__WIRE__PLAN_REQUEST__INIT;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    tensor.name = (char *)"w";
    tensor.dtype = 1;
    tensor.elements = UINT64_C(1) << 37;
    plan.job = (char *)"planned";
    plan.workers = 2;
    plan.tensors = tensors;
    plan.n_tensors = 1;
    e.body_case = B(PLAN_REQUEST);
    e.plan_request = &plan;
    repeat(&e, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, 1);
}

static _Noreturn void jobs(void)
{
    W(JobsRequest) list = GRADPOOL__WIRE__JOBS_REQUEST__INIT;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    e.body_case = B(JOBS_REQUEST);
    e.jobs_request = &list;
    repeat(&e, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR, IN_FLIGHT);
}

/* --- jobs --- */

static void join(struct channel *ch, const char *job, uint32_t rank, uint32_t workers)
{
    W(JoinRequest) join = GRADPOOL__WIRE__JOIN_REQUEST__INIT;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    join.job = (char *)job;
    join.rank = rank;
    join.workers = workers;
    join.node = (char *)"crowd";
    join.pid = (uint32_t)getpid();
    e.body_case = B(JOIN_REQUEST);
    e.join_request = &join;
    gradpool__wire__envelope__free_unpacked(call(ch, &e), NULL);
}

static void leave(struct channel *ch)
{
    W(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    e.body_case = B(LEAVE_REQUEST);
    e.leave_request = &leave;
    gradpool__wire__envelope__free_unpacked(call(ch, &e), NULL);
}

static _Noreturn void joins(void)
{
    for (int i = 0; i < count; i++)
        members[i] = greet(GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    say_ready();
    for (unsigned turn = 0;; turn++) {
        char name[32];
        struct channel *ch = members[turn % (unsigned)count];
        snprintf(name, sizeof name, "crowd-%u", turn);
        join(ch, name, 0, 1);
        leave(ch);
    }
}

/* --- messages that never end --- */

static void send_half(struct channel *ch)
{
    size_t bytes = CHANNEL_FRAME_BYTES_MAX;
    if (buffer_reserve(&ch->out, bytes + 3) < 0)
        fail("halves", "no memory");
    memset(ch->out.bytes, 0, bytes + 3);
    ch->out.bytes[3] = (uint8_t)(bytes >> 24);
    ch->out.end = bytes + 3; /* all but the last byte */
}

static _Noreturn void halves(void)
{
    for (int i = 0; i < count; i++) {
        members[i] = greet(GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
        send_half(members[i]);
        channel_flush(members[i]);
    }
    say_ready();
    for (;; usleep(1000))
        for (int i = 0; i < count; i++)
            channel_flush(members[i]);
}

static _Noreturn void strangers(void)
{
    struct key key;
    if (key_generate("nobody", &key) < 0)
        fail("strangers", "no random numbers");
    for (int i = 0; i < count; i++)
        members[i] = dial(&key);
    say_ready();
    for (;; usleep(200))
        for (int i = 0; i < count; i++) {
            envelope *message;
            if (channel_receive(members[i], &message) == -EAGAIN)
                continue;
            channel_destroy(members[i]);
            members[i] = dial(&key);
        }
}

/* --- the data plane --- */

static uint32_t declare(struct channel *ch)
{
    W(TensorSpec) tensor = GRADPOOL__WIRE__TENSOR_SPEC__INIT, *tensors[] = {&tensor};
    W(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    tensor.name = (char *)"w";
    tensor.dtype = 1;
    tensor.elements = 16;
    declare.tensors = tensors;
    declare.n_tensors = 1;
    e.body_case = B(DECLARE_REQUEST);
    e.declare_request = &declare;
    envelope *reply = call(ch, &e);
    uint32_t lane = reply->declare_reply->tensors[0]->pieces[0]->lane;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return lane;
}

static struct fabric_conn *attach(struct fabric *f, struct channel *ch, uint32_t lane)
{
    W(TicketRequest) ask = GRADPOOL__WIRE__TICKET_REQUEST__INIT;
    envelope e = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct fabric_conn *conn;
    ask.lane = lane;
    e.body_case = B(TICKET_REQUEST);
    e.ticket_request = &ask;
    envelope *reply = call(ch, &e);
    const W(TicketReply) *ticket = reply->ticket_reply;
    if (fabric_connect(f, ticket->address->shm, ticket->ticket.data, ticket->ticket.len, NULL,
                       &conn) < 0)
        fail("attach", "refused at once");
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return conn;
}

/* Prints how the connection ends. Returns false if it has ended. */
static bool look(struct fabric *f, const struct fabric_conn *conn, enum fabric_event_kind awaited,
                 uint64_t wait_ns)
{
    for (uint64_t until_ns = clock_now_ns() + wait_ns; clock_now_ns() < until_ns; usleep(200)) {
        struct fabric_event events[64];
        int got = fabric_poll(f, events, 64);
        for (int i = 0; i < got; i++) {
            if (events[i].kind == FABRIC_EVENT_MESSAGE)
                fabric_message_done(events[i].conn, events[i].data);
            if (events[i].kind == FABRIC_EVENT_CLOSED && events[i].conn == conn) {
                printf("closed %u\n", events[i].word);
                return false;
            }
            if (events[i].kind == awaited && events[i].conn == conn)
                return true;
        }
    }
    return true;
}

static struct region untouched(uint64_t bytes)
{
    int fd = memfd_create("crowd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        fail("lends", "no memfd");
    return (struct region){.base = (void *)4096, .bytes = bytes, .fd = fd};
}

static _Noreturn void attaches(uint64_t lent_bytes)
{
    struct fabric *f;
    struct fabric_options options = {0};
    bool goes_on = fabric_open("shm", &options, &f) == 0;
    int attached = 0;
    for (; goes_on && attached < count; attached += goes_on) {
        char name[32];
        struct channel *ch = members[attached] = greet(GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
        snprintf(name, sizeof name, "crowd-%d", attached / 4);
        join(ch, name, (uint32_t)attached % 4, 4);
        struct fabric_conn *conn = attach(f, ch, declare(ch));
        goes_on = look(f, conn, FABRIC_EVENT_OPEN, DEADLINE_NS);
        if (!goes_on || lent_bytes == 0)
            continue;
        struct region region = untouched(lent_bytes);
        fabric_lend(conn, &region, 0);
        fabric_flush(f);
        goes_on = look(f, conn, FABRIC_EVENT_CLOSED, 50 * NS_PER_MS);
        close(region.fd);
    }
    printf("attached %d\n", attached);
    say_ready();
    for (;; usleep(20000))
        look(f, NULL, FABRIC_EVENT_CLOSED, 0);
}

int main(int argc, char **argv)
{
    const char *what = argc == 3 ? argv[1] : "";
    uint64_t number = 0;
    if (argc != 3 || text_parse_u64(argv[2], 1, MEMBERS_MAX, &number) < 0)
        fail("hostile", "expected WHAT N");
    count = (int)number;
    if (strcmp(what, "plans") == 0)
        plans();
    if (strcmp(what, "jobs") == 0)
        jobs();
    if (strcmp(what, "joins") == 0)
        joins();
    if (strcmp(what, "halves") == 0)
        halves();
    if (strcmp(what, "strangers") == 0)
        strangers();
    if (strcmp(what, "lends") == 0)
        attaches(UINT64_C(1) << 40);
    if (strcmp(what, "attaches") == 0)
        attaches(0);
    fail("hostile", "does not know that");
}
