/* Runs the coordinator under test and its peers in one thread. */
#include "test/unit/coordinator/coordinator_rig.h"

#include "svc/base/clock.h"
#include "svc/base/system/process.h"
#include "svc/coordinator/service.h"
#include "svc/coordinator/store/events.h"
#include "svc/endpoint/endpoint.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS (60 * NS_PER_S)
#define SLICE_NS (5 * NS_PER_MS)
#define QUIET_SLICES 10

/* --- processes --- */

/* Runs in a child process. Closes all descriptors of the test, because copies would keep
 * connections open and the state directory locked. */
static void be_a_process(int ready_fd)
{
    dup2(ready_fd, 3);
    close_range(4, ~0u, 0);
    if (write(3, "", 1) == 1)
        close(3);
    for (;;)
        pause();
}

static void note_process(struct rig *rig, int pid)
{
    for (int i = 0; i < RIG_SLOTS_MAX; i++) {
        if (rig->processes[i] == 0) {
            rig->processes[i] = pid;
            return;
        }
    }
    fail_msg("too many processes");
}

/* Starts a process that first connects `fd`; -1: the process connects no socket. Returns when the
 * process is ready. */
static int spawn(struct rig *rig, int fd, const struct sockaddr_un *address)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) < 0)
            _exit(1);
        be_a_process(ready[1]);
    }
    assert_true(pid > 0);
    note_process(rig, pid);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

int rig_spawn(struct rig *rig) { return spawn(rig, -1, NULL); }

void rig_kill(struct rig *rig, int pid)
{
    for (int i = 0; i < RIG_SLOTS_MAX; i++) {
        if (pid == 0 || rig->processes[i] != pid)
            continue;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        rig->processes[i] = 0;
    }
}

/* --- a provisioner with simulated processes --- */

struct stage {
    struct provisioner provisioner;
    struct rig *rig;
};

static int stage_start(struct provisioner *p, const struct provision *what,
                       struct provisioned *ret_it, struct err *err)
{
    struct rig *rig = ((struct stage *)p)->rig;
    int pid = rig_spawn(rig);
    snprintf(rig->grants[rig->starts++ % RIG_SLOTS_MAX], sizeof rig->grants[0], "%s", what->grant);
    *ret_it = (struct provisioned){.pid = pid, .watch_fd = pidfd_open(pid, 0)};
    return ret_it->watch_fd < 0 ? err_set(err, -errno, "pidfd_open") : 0;
}

static bool stage_collect(struct provisioner *p, const struct provisioned *it, char *buffer,
                          size_t buffer_bytes)
{
    rig_kill(((struct stage *)p)->rig, it->pid);
    snprintf(buffer, buffer_bytes, "ended");
    return ((struct stage *)p)->rig->locals_give_up;
}

static void stage_stop(struct provisioner *p, const struct provisioned *it, bool now)
{
    ((struct stage *)p)->rig->stops++;
    kill(it->pid, now ? SIGKILL : SIGTERM);
}

static void stage_destroy(struct provisioner *p) { free(p); }

static struct provisioner *stage_create(struct rig *rig)
{
    static const struct provisioner_ops ops = {stage_start, stage_collect, stage_stop,
                                               stage_destroy};
    struct stage *stage = calloc(1, sizeof *stage);
    assert_non_null(stage);
    *stage = (struct stage){.provisioner.ops = &ops, .rig = rig};
    return &stage->provisioner;
}

/* --- the coordinator --- */

void rig_start(struct rig *rig)
{
    struct err err = {0};
    struct coordinator_options options = rig->options;
    options.provisioner = stage_create(rig);
    int error = coordinator_create(&options, &rig->coordinator, &err);
    if (error < 0)
        fail_msg("coordinator_create: %s", err.text);
}

void rig_crash(struct rig *rig)
{
    coordinator_destroy(rig->coordinator);
    rig->coordinator = NULL;
    for (size_t i = 0; i < rig->ends_count; i++)
        end_close(&rig->ends[i]);
    rig->ends_count = 0;
}

int rig_setup(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    snprintf(rig->dir, sizeof rig->dir, "/tmp/gradpool-coordinator-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    rig->options = (struct coordinator_options){
        .state_dir = rig->dir, .listen = "gradpool://127.0.0.1:0", .job_end_ns = 100 * NS_PER_MS};
    kept_log_begin();
    rig_start(rig);
    *state = rig;
    return 0;
}

const char *rig_last_event(const struct rig *rig, const char *kind)
{
    const struct events *events = rig->coordinator->service->events;
    const char *text = "";
    for (uint64_t i = 0; i < events->count; i++) {
        const struct event *e = events_at(events, i);
        if (e && strcmp(e->kind, kind) == 0)
            text = e->text;
    }
    return text;
}

static void empty_dir(const char *dir)
{
    static const char *const files[] = {"lock",         "state.db",      "state.db-wal",
                                        "state.db-shm", "state.db-used", "control.sock"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
}

void rig_start_afresh(struct rig *rig)
{
    rig_crash(rig);
    empty_dir(rig->dir);
    rig->has_node_key = false;
    rig_start(rig);
}

int rig_teardown(void **state)
{
    struct rig *rig = *state;
    rig_crash(rig);
    for (int i = 0; i < RIG_SLOTS_MAX; i++)
        rig_kill(rig, rig->processes[i]);
    empty_dir(rig->dir);
    rmdir(rig->dir);
    free(rig);
    return 0;
}

/* --- connections of peers --- */

static struct end *new_end(struct rig *rig, int fd)
{
    assert_true(rig->ends_count < RIG_ENDS_MAX);
    struct end *e = &rig->ends[rig->ends_count++];
    *e = (struct end){.rig = rig};
    assert_int_equal(channel_create(fd, &e->channel), 0);
    return e;
}

void message_free(envelope *message) { gradpool__wire__envelope__free_unpacked(message, NULL); }

void end_close(struct end *e)
{
    for (size_t i = 0; i < e->inbox_count; i++)
        message_free(e->inbox[i]);
    e->inbox_count = 0;
    channel_destroy(e->channel);
    e->channel = NULL;
}

/* Returns whether the request may arrive at any time and is not checked by tests. */
static bool is_routine(const envelope *message)
{
    return message->body_case == BODY(STATS_REQUEST) || message->body_case == BODY(PING_REQUEST);
}

static void say_ended(struct end *e, uint64_t hold)
{
    WIRE(HeldRequest) held = GRADPOOL__WIRE__HELD_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    held.hold = hold;
    held.state = GRADPOOL__WIRE__HOLD_STATE__HOLD_ENDED;
    request.body_case = BODY(HELD_REQUEST);
    request.held_request = &held;
    end_send(e, &request);
}

static void receive(struct end *e)
{
    envelope *message;
    int error;
    while ((error = channel_receive(e->channel, &message)) == 0) {
        if (message->body_case == BODY(HOLD) && !e->takes_holds) {
            if (!message->hold->is_over)
                say_ended(e, message->hold->hold);
            message_free(message);
            continue;
        }
        if (e->answers && channel_wants_answer(message) && (int)message->body_case != e->ignores) {
            end_answer(e, message);
            if (is_routine(message)) {
                message_free(message);
                continue;
            }
        }
        assert_true(e->inbox_count < RIG_INBOX_MAX);
        e->inbox[e->inbox_count++] = message;
    }
    e->is_gone = error != -EAGAIN;
}

void rig_step_within(struct rig *rig, uint64_t wait_ns)
{
    if (rig->in_step)
        rig->in_step(true);
    if (rig->coordinator)
        assert_true(coordinator_step(rig->coordinator, clock_now_ns() + wait_ns) >= 0);
    if (rig->in_step)
        rig->in_step(false);
    for (size_t i = 0; i < rig->ends_count; i++) {
        struct end *e = &rig->ends[i];
        if (!e->channel || e->is_gone)
            continue;
        channel_flush(e->channel);
        receive(e);
    }
}

void rig_step(struct rig *rig) { rig_step_within(rig, 0); }

void rig_settle(struct rig *rig)
{
    for (int i = 0; i < QUIET_SLICES; i++)
        rig_step_within(rig, SLICE_NS);
}

uint64_t end_send(struct end *e, envelope *message)
{
    message->id = ++e->last_id;
    channel_send(e->channel, message); /* a disconnected peer is reported by the next receive */
    return message->id;
}

static envelope *take(struct end *e, size_t i)
{
    envelope *message = e->inbox[i];
    e->inbox_count--;
    memmove(&e->inbox[i], &e->inbox[i + 1], (e->inbox_count - i) * sizeof *e->inbox);
    return message;
}

static envelope *find(struct end *e, int body)
{
    for (size_t i = 0; i < e->inbox_count; i++)
        if ((int)e->inbox[i]->body_case == body)
            return take(e, i);
    return NULL;
}

envelope *end_expect(struct end *e, int body)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    envelope *message;
    while (!(message = find(e, body))) {
        if (clock_now_ns() > deadline_ns || e->is_gone)
            fail_msg("message %d did not come%s (%zu others did, the first %d: %s)", body,
                     e->is_gone ? ", the connection was closed" : "", e->inbox_count,
                     e->inbox_count ? (int)e->inbox[0]->body_case : 0,
                     e->inbox_count && e->inbox[0]->body_case == BODY(FAILURE)
                         ? e->inbox[0]->failure->text
                         : "");
        rig_step_within(e->rig, SLICE_NS);
    }
    return message;
}

void assert_failed_so(int got, const char *got_text, int code, const char *words)
{
    if (!strstr(got_text, words))
        fail_msg("'%s' does not say '%s'", got_text, words);
    assert_int_equal(got, code);
}

void end_expect_job_failure(struct end *e, int code, const char *words)
{
    envelope *message = end_expect(e, BODY(JOB_FAILURE));
    assert_failed_so(message->job_failure->code, message->job_failure->text, code, words);
    message_free(message);
}

envelope *end_expect_reply(struct end *e, uint64_t id)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    for (;;) {
        for (size_t i = 0; i < e->inbox_count; i++)
            if (e->inbox[i]->id == id)
                return take(e, i);
        if (clock_now_ns() > deadline_ns || e->is_gone)
            fail_msg("no reply to message %u", (unsigned)id);
        rig_step_within(e->rig, SLICE_NS);
    }
}

envelope *end_ask(struct end *e, envelope *request)
{
    return end_expect_reply(e, end_send(e, request));
}

void end_ask_refused(struct end *e, envelope *request, int code, const char *text)
{
    envelope *reply = end_ask(e, request);
    assert_int_equal(reply->body_case, BODY(FAILURE));
    if (!strstr(reply->failure->text, text))
        fail_msg("'%s' does not say '%s'", reply->failure->text, text);
    assert_int_equal(reply->failure->code, code);
    message_free(reply);
}

void end_expect_closed(struct end *e)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    while (!e->is_gone) {
        assert_true(clock_now_ns() < deadline_ns);
        rig_step_within(e->rig, SLICE_NS);
    }
}

void end_expect_none(struct end *e, int body)
{
    rig_settle(e->rig);
    envelope *message = find(e, body);
    if (message)
        fail_msg("message %d came", body);
}

/* --- connecting --- */

static int dial(const char *url)
{
    struct endpoint endpoint;
    struct err err;
    int fd;
    assert_int_equal(endpoint_parse(url, &endpoint, &err), 0);
    assert_int_equal(endpoint_connect(&endpoint, clock_now_ns() + PATIENCE_NS, &fd, &err), 0);
    return fd;
}

/* The kernel stores the PID of the connecting process. Therefore the child connects a
 * socket that it shares with this process. */
static int dial_as_child(struct rig *rig, int *ret_pid)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(fd >= 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control.sock", rig->dir);
    *ret_pid = spawn(rig, fd, &address);
    return fd;
}

void hello_request(envelope *e, WIRE(Hello) * hello, WIRE(Role) role)
{
    gradpool__wire__envelope__init(e);
    gradpool__wire__hello__init(hello);
    hello->version = CHANNEL_VERSION;
    hello->role = role;
    hello->program = "test";
    e->body_case = BODY(HELLO);
    e->hello = hello;
}

static void say_hello(struct end *e, WIRE(Role) role)
{
    WIRE(Hello) hello;
    envelope request;
    hello_request(&request, &hello, role);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(WELCOME));
    message_free(reply);
}

struct end *rig_connect_silently(struct rig *rig)
{
    return new_end(rig, dial(coordinator_endpoint(rig->coordinator)));
}

struct end *rig_knock_locally(struct rig *rig)
{
    char url[128];
    snprintf(url, sizeof url, "unix:%s/control.sock", rig->dir);
    return new_end(rig, dial(url));
}

struct end *rig_connect_locally(struct rig *rig, WIRE(Role) role)
{
    struct end *e = rig_knock_locally(rig);
    say_hello(e, role);
    return e;
}

struct end *rig_connect_with_key(struct rig *rig, WIRE(Role) role, const struct key *key)
{
    struct end *e = rig_connect_silently(rig);
    assert_int_equal(key ? channel_use_key(e->channel, key) : 0, 0);
    say_hello(e, role);
    return e;
}

struct end *rig_connect(struct rig *rig, WIRE(Role) role)
{
    return rig_connect_with_key(rig, role, NULL);
}

static void make_node_key(struct rig *rig)
{
    WIRE(TenantAddRequest) add = GRADPOOL__WIRE__TENANT_ADD_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    struct err err;
    struct end *e = rig_connect_locally(rig, GRADPOOL__WIRE__ROLE__ROLE_OPERATOR);
    add.tenant = "rig-nodes";
    add.is_operator = true;
    request.body_case = BODY(TENANT_ADD_REQUEST);
    request.tenant_add_request = &add;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(TENANT_ADD_REPLY));
    assert_int_equal(key_parse(reply->tenant_add_reply->key, &rig->node_key, &err), 0);
    message_free(reply);
    end_close(e);
    rig->has_node_key = true;
}

struct end *rig_connect_node(struct rig *rig)
{
    if (!rig->has_node_key)
        make_node_key(rig);
    return rig_connect_with_key(rig, GRADPOOL__WIRE__ROLE__ROLE_AGGREGATOR, &rig->node_key);
}

struct end *rig_connect_as_child(struct rig *rig, WIRE(Role) role)
{
    int pid;
    struct end *e = new_end(rig, dial_as_child(rig, &pid));
    e->process = pid;
    say_hello(e, role);
    return e;
}

/* --- clients --- */

void join_request(envelope *e, WIRE(JoinRequest) * join, const char *job, uint32_t rank,
                  uint32_t workers)
{
    gradpool__wire__envelope__init(e);
    gradpool__wire__join_request__init(join);
    join->job = (char *)job;
    join->rank = rank;
    join->workers = workers;
    join->node = "elsewhere";
    join->pid = 1000 + rank;
    e->body_case = BODY(JOIN_REQUEST);
    e->join_request = join;
}

void join_request_of_process(WIRE(JoinRequest) * join, int pid)
{
    static char node[HOST_NAME_MAX + 1];
    gethostname(node, sizeof node - 1);
    join->node = node;
    join->pid = (uint32_t)pid;
    join->pid_namespace = process_namespace();
    join->identity = process_identity(join->pid);
}

struct end *rig_join(struct rig *rig, const char *job, uint32_t rank, uint32_t workers,
                     uint64_t *ret_session, uint32_t *ret_job)
{
    envelope request;
    WIRE(JoinRequest) join;
    struct end *e = rig_connect(rig, GRADPOOL__WIRE__ROLE__ROLE_CLIENT);
    join_request(&request, &join, job, rank, workers);
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(JOIN_REPLY));
    if (ret_session)
        *ret_session = reply->join_reply->session;
    if (ret_job)
        *ret_job = reply->join_reply->job_id;
    message_free(reply);
    return e;
}

uint64_t end_declare(struct end *e, size_t count, const char *const *names,
                     const uint64_t *elements)
{
    WIRE(DeclareRequest) declare = GRADPOOL__WIRE__DECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    WIRE(TensorSpec) *specs = calloc(count, sizeof *specs);
    declare.tensors = calloc(count, sizeof *declare.tensors);
    declare.n_tensors = count;
    for (size_t i = 0; i < count; i++) {
        gradpool__wire__tensor_spec__init(&specs[i]);
        specs[i].name = (char *)names[i];
        specs[i].dtype = 1;
        specs[i].elements = elements[i];
        declare.tensors[i] = &specs[i];
    }
    request.body_case = BODY(DECLARE_REQUEST);
    request.declare_request = &declare;
    uint64_t id = end_send(e, &request);
    free(declare.tensors);
    free(specs);
    return id;
}

uint64_t end_declare_one(struct end *e, const char *name, uint64_t elements)
{
    return end_declare(e, 1, &name, &elements);
}

void end_undeclare(struct end *e, uint32_t tensor)
{
    WIRE(UndeclareRequest) undeclare = GRADPOOL__WIRE__UNDECLARE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    undeclare.tensors = &tensor;
    undeclare.n_tensors = 1;
    request.body_case = BODY(UNDECLARE_REQUEST);
    request.undeclare_request = &undeclare;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}

void end_leave(struct end *e)
{
    WIRE(LeaveRequest) leave = GRADPOOL__WIRE__LEAVE_REQUEST__INIT;
    envelope request = GRADPOOL__WIRE__ENVELOPE__INIT;
    request.body_case = BODY(LEAVE_REQUEST);
    request.leave_request = &leave;
    envelope *reply = end_ask(e, &request);
    assert_int_equal(reply->body_case, BODY(DONE));
    message_free(reply);
}
