/* Implements service_rig.h: the answers of the coordinator, and the thread. */
#include "test/unit/client/service_rig.h"

#include "svc/base/clock.h"
#include "svc/endpoint/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS (60 * NS_PER_S)

/* ---- the coordinator's answers ---- */

static void reply(struct channel *channel, uint64_t id, envelope *message)
{
    message->id = id;
    channel_send(channel, message);
}

static void reply_done(struct channel *channel, uint64_t id)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__Done done = GRADPOOL__WIRE__DONE__INIT;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_DONE;
    message.done = &done;
    reply(channel, id, &message);
}

static void reply_failure(struct channel *channel, uint64_t id, int code, const char *text)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__Failure failure = GRADPOOL__WIRE__FAILURE__INIT;
    failure.code = code;
    failure.text = (char *)text;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE;
    message.failure = &failure;
    reply(channel, id, &message);
}

static void greet(struct service_rig *rig, struct channel *channel, uint64_t id)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__Welcome welcome = GRADPOOL__WIRE__WELCOME__INIT;
    if (rig->version != CHANNEL_VERSION) {
        reply_failure(channel, id, -EPROTO, "the service speaks another version");
        return;
    }
    welcome.version = CHANNEL_VERSION;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_WELCOME;
    message.welcome = &welcome;
    reply(channel, id, &message);
}

static void note_backup(struct service_rig *rig, const Gradpool__Wire__BackupSpec *b)
{
    memset(rig->backup, 0, sizeof rig->backup);
    if (b)
        memcpy(rig->backup,
               (uint32_t[]){b->rule, b->k, b->least, b->absence, b->lag, b->gradients, b->rate},
               sizeof rig->backup);
}

static void join(struct service_rig *rig, uint32_t i, const envelope *request)
{
    const Gradpool__Wire__JoinRequest *said = request->join_request;
    struct channel *channel = rig->channels[i].channel;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__JoinReply joined = GRADPOOL__WIRE__JOIN_REPLY__INIT;
    bool is_late = said->rank >= rig->workers;
    note_backup(rig, said->backup);
    if ((said->workers != rig->workers && !is_late) || said->rank >= SCRIPT_WORKERS_MAX ||
        said->workers_max != rig->workers_max) {
        reply_failure(channel, request->id, -EPROTO, "the job runs with another number of workers");
        return;
    }
    if (said->session && rig->stale_text) {
        reply_failure(channel, request->id, -ESTALE, rig->stale_text);
        return;
    }
    if (said->session)
        rig->resumed += said->session == SCRIPT_SESSION + said->rank;
    rig->channels[i].rank = said->rank;
    rig->channels[i].has_joined = true;
    joined.job_id = SCRIPT_JOB_ID;
    joined.session = SCRIPT_SESSION + said->rank;
    joined.policy = (char *)"round-robin";
    joined.is_late = is_late;
    joined.durability = said->durability;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_JOIN_REPLY;
    message.join_reply = &joined;
    reply(channel, request->id, &message);
}

static struct script_tensor *tensor_of(struct service_rig *rig,
                                       const Gradpool__Wire__TensorSpec *spec)
{
    for (uint32_t i = 0; i < rig->tensors_count; i++) {
        if (strcmp(rig->tensors[i].name, spec->name) == 0)
            return &rig->tensors[i];
    }
    struct script_tensor *t = &rig->tensors[rig->tensors_count];
    *t = (struct script_tensor){.id = ++rig->tensors_count,
                                .dtype = spec->dtype,
                                .elements = spec->elements,
                                .first_piece = rig->pieces_count,
                                .pieces = spec->elements ? rig->pieces_per_tensor : 1};
    snprintf(t->name, sizeof t->name, "%s", spec->name);
    for (uint32_t i = 0; i < t->pieces; i++) {
        assert_true(rig->pieces_count < SCRIPT_PIECES_MAX);
        rig->pieces[rig->pieces_count] =
            (struct script_piece){.is_known = true,
                                  .lane = rig->pieces_count % rig->lanes_used,
                                  .epoch = 1,
                                  .lost_epoch = 1,
                                  .round = 1};
        rig->pieces_count++;
    }
    return t;
}

/* A route and its arrays. The caller's stack frame owns this memory. */
struct route_memory {
    Gradpool__Wire__TensorRoute route;
    uint64_t ranks[RECORD_MISSING_WORDS];
    Gradpool__Wire__Piece pieces[8], *pointers[8];
};

static Gradpool__Wire__TensorRoute *
route_of(const struct service_rig *rig, const struct script_tensor *t, struct route_memory *memory)
{
    uint64_t share = t->elements / t->pieces;
    gradpool__wire__tensor_route__init(&memory->route);
    memory->route.tensor = t->id;
    memory->route.n_pieces = t->pieces;
    memory->route.pieces = memory->pointers;
    memset(memory->ranks, 0, sizeof memory->ranks);
    memory->ranks[0] = rig->members;
    memory->route.ranks.data = (uint8_t *)memory->ranks;
    memory->route.ranks.len = rig->members ? sizeof memory->ranks : 0;
    for (uint32_t i = 0; i < t->pieces; i++) {
        Gradpool__Wire__Piece *piece = memory->pointers[i] = &memory->pieces[i];
        gradpool__wire__piece__init(piece);
        piece->id = t->first_piece + i;
        piece->first = share * i;
        piece->elements = i + 1 < t->pieces ? share : t->elements - share * i;
        piece->lane = rig->pieces[piece->id].lane;
        piece->epoch = rig->pieces[piece->id].epoch;
        piece->lost_epoch = rig->pieces[piece->id].lost_epoch;
    }
    return &memory->route;
}

static void declare(struct service_rig *rig, struct channel *channel, const envelope *request)
{
    static struct route_memory memory[SCRIPT_PIECES_MAX];
    Gradpool__Wire__TensorRoute *routes[SCRIPT_PIECES_MAX];
    const Gradpool__Wire__DeclareRequest *said = request->declare_request;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__DeclareReply declared = GRADPOOL__WIRE__DECLARE_REPLY__INIT;
    if (rig->ignores_declares)
        return;
    if (said->n_tables > 0 && !rig->declare_failure)
        return script_declare_tables(rig, channel, request);
    if (rig->declare_failure) {
        reply_failure(channel, request->id, rig->declare_failure, rig->declare_text);
        return;
    }
    for (size_t i = 0; i < said->n_tensors; i++)
        routes[i] = route_of(rig, tensor_of(rig, said->tensors[i]), &memory[i]);
    declared.n_tensors = said->n_tensors;
    declared.tensors = routes;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_DECLARE_REPLY;
    message.declare_reply = &declared;
    reply(channel, request->id, &message);
}

static void undeclare(struct service_rig *rig, struct channel *channel, const envelope *request)
{
    const Gradpool__Wire__UndeclareRequest *said = request->undeclare_request;
    for (size_t i = 0; i < said->n_tensors; i++)
        rig->tensors[said->tensors[i] - 1].undeclared++;
    reply_done(channel, request->id);
}

static void ticket(struct service_rig *rig, uint32_t i, const envelope *request)
{
    uint32_t number = request->ticket_request->lane;
    struct script_lane *lane = &rig->lanes[number];
    struct record_connect ticket = {.magic = RECORD_MAGIC,
                                    .job = SCRIPT_JOB_ID,
                                    .rank = rig->channels[i].rank,
                                    .lane = number,
                                    .token = {'c', 'o', 'o', 'r', 'd'}};
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__LaneAddress address = GRADPOOL__WIRE__LANE_ADDRESS__INIT;
    Gradpool__Wire__TicketReply granted = GRADPOOL__WIRE__TICKET_REPLY__INIT;
    if (rig->not_now > 0) {
        rig->not_now--;
        return reply_failure(rig->channels[i].channel, request->id, -EAGAIN, "not confirmed");
    }
    if (rig->ticket_failure)
        return reply_failure(rig->channels[i].channel, request->id, rig->ticket_failure, "no lane");
    if (!lane->fabric && request->ticket_request->failures > 0)
        return reply_failure(rig->channels[i].channel, request->id, -ENOENT, "nothing there");
    rig->tickets++;
    address.lane = number;
    address.aggregator = 5;
    address.shm = rig->astray > 0 ? (char *)"@gradpool-nowhere" : lane->address;
    address.ofi = (char *)(rig->astray > 0 && rig->astray_ofi ? rig->astray_ofi : "");
    rig->astray -= rig->astray > 0;
    address.node = (char *)"node7";
    granted.address = &address;
    granted.ticket.data = (uint8_t *)&ticket;
    granted.ticket.len = sizeof ticket;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_TICKET_REPLY;
    message.ticket_reply = &granted;
    reply(rig->channels[i].channel, request->id, &message);
}

static void resize(struct service_rig *rig, struct channel *channel, const envelope *request)
{
    rig->resizes++;
    rig->wanted = request->resize_request->workers;
    if (rig->resize_failure)
        reply_failure(channel, request->id, rig->resize_failure, rig->resize_text);
    else if (!rig->ignores_resizes)
        reply_done(channel, request->id);
}

static void note_held(struct service_rig *rig, struct channel *channel, const envelope *request)
{
    const Gradpool__Wire__HeldRequest *said = request->held_request;
    assert_true(rig->held_count < SCRIPT_HELD_MAX);
    rig->held_of[rig->held_count] = said->hold;
    rig->held[rig->held_count++] = said->state;
    rig->held_code = said->code;
    snprintf(rig->held_why, sizeof rig->held_why, "%s", said->text);
    if (rig->saving_is_late && said->state == GRADPOOL__WIRE__HOLD_STATE__HOLD_SAVES)
        reply_failure(channel, request->id, -EBUSY, "too late");
    else
        reply_done(channel, request->id);
}

static void tell_late(struct service_rig *rig, struct channel *channel, const envelope *request)
{
    Gradpool__Wire__LateReply reply = GRADPOOL__WIRE__LATE_REPLY__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    if (!rig->late_text) /* acts like a coordinator of an earlier version */
        return reply_failure(channel, request->id, -EOPNOTSUPP, "unknown message");
    memcpy(rig->late_ranks, request->late_request->ranks.data, sizeof rig->late_ranks);
    reply.text = (char *)rig->late_text;
    message.id = request->id;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_LATE_REPLY;
    message.late_reply = &reply;
    channel_send(channel, &message);
}

static void answer(struct service_rig *rig, uint32_t i, const envelope *request)
{
    struct channel *channel = rig->channels[i].channel;
    switch (request->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_HELLO: greet(rig, channel, request->id); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_JOIN_REQUEST: join(rig, i, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_DECLARE_REQUEST: declare(rig, channel, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_UNDECLARE_REQUEST: undeclare(rig, channel, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_TICKET_REQUEST: ticket(rig, i, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_HELD_REQUEST: note_held(rig, channel, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_RESIZE_REQUEST: resize(rig, channel, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_ENTER_REQUEST:
        rig->entries++;
        reply_done(channel, request->id);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_LATE_REQUEST: tell_late(rig, channel, request); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_LEAVE_REQUEST:
        rig->leaves++;
        rig->settled_count = (uint32_t)request->leave_request->n_tensors;
        rig->settled_round = rig->settled_count > 0 ? request->leave_request->committed[0] : 0;
        reply_done(channel, request->id);
        break;
    default: break;
    }
}

/* ---- the thread ---- */

static void serve_channel(struct service_rig *rig, uint32_t i)
{
    envelope *message;
    int r;
    while ((r = channel_receive(rig->channels[i].channel, &message)) == 0) {
        answer(rig, i, message);
        gradpool__wire__envelope__free_unpacked(message, NULL);
    }
    channel_flush(rig->channels[i].channel);
    if (r != -EAGAIN) {
        channel_destroy(rig->channels[i].channel);
        memset(&rig->channels[i], 0, sizeof rig->channels[i]);
    }
}

static void accept_channel(struct service_rig *rig)
{
    int fd = accept4(rig->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    for (uint32_t i = 0; fd >= 0 && i < SCRIPT_CHANNELS_MAX; i++) {
        if (rig->channels[i].channel)
            continue;
        assert_int_equal(channel_create(fd, &rig->channels[i].channel), 0);
        return;
    }
}

static nfds_t gather(struct service_rig *rig, struct pollfd *fds)
{
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = rig->wake_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = rig->listen_fd, .events = POLLIN};
    for (uint32_t i = 0; i < SCRIPT_CHANNELS_MAX; i++) {
        struct channel *channel = rig->channels[i].channel;
        fds[n++] = (struct pollfd){.fd = channel ? channel_fd(channel) : -1, .events = POLLIN};
    }
    for (uint32_t i = 0; i < SCRIPT_LANES_MAX; i++) {
        struct fabric_wait wait = {.fd = -1};
        struct fabric *fabric = rig->lanes[i].fabric;
        if (fabric && fabric_arm(fabric, &wait) == -EAGAIN)
            eventfd_write(rig->wake_fd, 1);
        fds[n++] = (struct pollfd){.fd = wait.fd, .events = POLLIN};
    }
    return n;
}

static void turn(struct service_rig *rig)
{
    struct pollfd fds[2 + SCRIPT_CHANNELS_MAX + SCRIPT_LANES_MAX];
    eventfd_t value;
    nfds_t n = gather(rig, fds);
    pthread_mutex_unlock(&rig->lock);
    poll(fds, n, -1);
    pthread_mutex_lock(&rig->lock);
    eventfd_read(rig->wake_fd, &value);
    if (fds[1].revents && rig->listen_fd >= 0)
        accept_channel(rig);
    for (uint32_t i = 0; i < SCRIPT_CHANNELS_MAX; i++) {
        if (rig->channels[i].channel)
            serve_channel(rig, i);
    }
    for (uint32_t i = 0; i < SCRIPT_LANES_MAX; i++) {
        if (rig->lanes[i].fabric)
            script_lane_turn(&rig->lanes[i]);
    }
    pthread_cond_broadcast(&rig->changed);
}

static void *script_main(void *context)
{
    struct service_rig *rig = context;
    pthread_mutex_lock(&rig->lock);
    while (!rig->is_stopping)
        turn(rig);
    pthread_mutex_unlock(&rig->lock);
    return NULL;
}

/* ---- the test's side ---- */

void script_lock(struct service_rig *rig) { pthread_mutex_lock(&rig->lock); }

void script_unlock(struct service_rig *rig)
{
    eventfd_write(rig->wake_fd, 1);
    pthread_mutex_unlock(&rig->lock);
}

void script_wait(struct service_rig *rig)
{
    uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S)};
    eventfd_write(rig->wake_fd, 1);
    if (pthread_cond_timedwait(&rig->changed, &rig->lock, &until) == 0)
        return;
    pthread_mutex_unlock(&rig->lock); /* without this unlock the teardown would wait forever */
    fail_msg("what the test waits for has not happened");
}

static void listen_again(struct service_rig *rig)
{
    struct endpoint endpoint = {.port = rig->port};
    struct err err;
    snprintf(endpoint.host, sizeof endpoint.host, "%s", rig->host);
    assert_int_equal(endpoint_listen(&endpoint, NULL, &rig->listen_fd, &err), 0);
    rig->port = endpoint.port;
}

void script_drop_control(struct service_rig *rig)
{
    close(rig->listen_fd);
    rig->listen_fd = -1;
    for (uint32_t i = 0; i < SCRIPT_CHANNELS_MAX; i++)
        channel_destroy(rig->channels[i].channel);
    memset(rig->channels, 0, sizeof rig->channels);
}

void script_restart_control(struct service_rig *rig) { listen_again(rig); }

void script_send_all(struct service_rig *rig, const envelope *message)
{
    for (uint32_t i = 0; i < SCRIPT_CHANNELS_MAX; i++) {
        if (rig->channels[i].has_joined)
            channel_send(rig->channels[i].channel, message);
    }
}

void script_kill_lane(struct service_rig *rig, uint32_t lane)
{
    fabric_close(rig->lanes[lane].fabric);
    rig->lanes[lane].fabric = NULL;
    memset(rig->lanes[lane].workers, 0, sizeof rig->lanes[lane].workers);
}

void script_tell_routes(struct service_rig *rig)
{
    static struct route_memory memory[SCRIPT_PIECES_MAX];
    Gradpool__Wire__TensorRoute *routes[SCRIPT_PIECES_MAX];
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__RouteChange change = GRADPOOL__WIRE__ROUTE_CHANGE__INIT;
    for (uint32_t i = 0; i < rig->tensors_count; i++)
        routes[i] = route_of(rig, &rig->tensors[i], &memory[i]);
    change.n_tensors = rig->tensors_count;
    change.tensors = routes;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_ROUTE_CHANGE;
    message.route_change = &change;
    script_send_all(rig, &message);
}

void script_regroup(struct service_rig *rig, uint64_t ranks)
{
    rig->members = ranks;
    for (uint32_t i = 0; i < rig->pieces_count; i++) {
        rig->pieces[i].epoch++;
        script_lane_recover(rig, &rig->pieces[i]);
    }
    script_tell_routes(rig);
}

void script_tell_members(struct service_rig *rig, uint32_t version, uint32_t wanted, uint64_t ranks,
                         size_t bytes)
{
    uint64_t words[RECORD_MISSING_WORDS] = {ranks};
    Gradpool__Wire__Membership membership = GRADPOOL__WIRE__MEMBERSHIP__INIT;
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    membership.version = version;
    membership.workers = wanted;
    membership.ranks.data = (uint8_t *)words;
    membership.ranks.len = bytes ? bytes : sizeof words;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_MEMBERSHIP;
    message.membership = &membership;
    script_send_all(rig, &message);
}

void script_move(struct service_rig *rig, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < rig->pieces_count; i++) {
        if (rig->pieces[i].lane != from)
            continue;
        rig->pieces[i].lane = to;
        rig->pieces[i].epoch++;
        if (!rig->releases)
            rig->pieces[i].lost_epoch = rig->pieces[i].epoch;
        script_lane_recover(rig, &rig->pieces[i]);
    }
    if (!rig->is_mute)
        script_tell_routes(rig);
}

void script_hold(struct service_rig *rig, uint64_t id, uint32_t scope, bool is_over)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__Hold hold = GRADPOOL__WIRE__HOLD__INIT;
    hold.hold = id;
    hold.scope = (Gradpool__Wire__HoldScope)scope;
    hold.is_over = is_over;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_HOLD;
    message.hold = &hold;
    for (uint32_t i = 0; i < SCRIPT_CHANNELS_MAX; i++) {
        if (rig->channels[i].has_joined && rig->channels[i].rank == 0)
            channel_send(rig->channels[i].channel, &message);
    }
}

void script_fail_job(struct service_rig *rig, int code, const char *text)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__JobFailure failure = GRADPOOL__WIRE__JOB_FAILURE__INIT;
    failure.code = code;
    failure.text = (char *)text;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_JOB_FAILURE;
    message.job_failure = &failure;
    script_send_all(rig, &message);
}

void script_fail_tensor(struct service_rig *rig, uint32_t tensor, int code, const char *text)
{
    envelope message = GRADPOOL__WIRE__ENVELOPE__INIT;
    Gradpool__Wire__TensorFailure failure = GRADPOOL__WIRE__TENSOR_FAILURE__INIT;
    failure.tensor = tensor;
    failure.code = code;
    failure.text = (char *)text;
    message.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_TENSOR_FAILURE;
    message.tensor_failure = &failure;
    script_send_all(rig, &message);
}

void script_start(struct service_rig *rig, uint32_t workers)
{
    pthread_condattr_t attributes;
    memset(rig, 0, sizeof *rig);
    rig->workers = workers;
    rig->version = CHANNEL_VERSION;
    rig->pieces_per_tensor = rig->lanes_used = rig->tables.lanes = 1;
    /* A failed test may have left the mutex locked. With this type of mutex, the teardown ends even
     * then. */
    pthread_mutexattr_t checks;
    pthread_mutexattr_init(&checks);
    pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&rig->lock, &checks);
    pthread_mutexattr_destroy(&checks);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&rig->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    rig->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rig->host = "127.0.0.1";
    listen_again(rig);
    snprintf(rig->endpoint, sizeof rig->endpoint, "gradpool://127.0.0.1:%u", rig->port);
    for (uint32_t i = 0; i < SCRIPT_LANES_MAX; i++)
        script_lane_start(rig, i);
    assert_int_equal(pthread_create(&rig->thread, NULL, script_main, rig), 0);
}

void script_stop(struct service_rig *rig)
{
    script_lock(rig);
    rig->is_stopping = true;
    script_unlock(rig);
    pthread_join(rig->thread, NULL);
    for (uint32_t i = 0; i < SCRIPT_LANES_MAX; i++)
        fabric_close(rig->lanes[i].fabric);
    if (rig->listen_fd >= 0)
        script_drop_control(rig);
    close(rig->wake_fd);
    pthread_cond_destroy(&rig->changed);
    pthread_mutex_destroy(&rig->lock);
}
