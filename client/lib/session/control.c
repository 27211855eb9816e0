/* Owns a job's control connection and its thread. While the coordinator is not connected, calls
 * stay in the list; they are sent again after a resume of the session. Only the deadline of the
 * caller ends a waiting call. No callback is called with the lock held. */
#include "client/lib/session/control.h"

#include "client/lib/session/patience.h"
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/system/shortage.h"
#include "svc/base/system/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Pause before the second attempt, longest pause after doublings, and longest attempt. */
#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MAX_NS (1000 * NS_PER_MS)
#define ATTEMPT_NS (1000 * NS_PER_MS)
/* Time for a name lookup within an attempt. */
#define LOOKUP_NS (ATTEMPT_NS / 2)
/* Number of the first call. The channel numbers its own calls (greeting, join) from 1. */
#define CALL_ID_FIRST (UINT64_C(1) << 32)

struct control {
    struct control_options options;
    pthread_t thread;
    int wake_fd;
    uint64_t tick_at_ns; /* the thread owns this field and the fields above */
    /* owned by the caller of control_connect() until the thread starts, then by the thread */
    struct endpoint_names names;
    pthread_mutex_t lock;    /* protects all fields below */
    pthread_cond_t over;     /* signalled when a call is over */
    struct channel *channel; /* NULL while the coordinator is not connected */
    int fd;          /* socket, for a forked child to close; set before the channel is complete */
    bool is_running; /* the thread is running */
    struct list calls;
    uint64_t last_id;
    struct err refusal; /* error of the last attempt to resume; code 0: none */
    bool is_stopping;
    char reason[400]; /* the coordinator's reason why the job waits; "": none */
};

static void wake(struct control *c) { eventfd_write(c->wake_fd, 1); }

static void drain_wake(struct control *c)
{
    eventfd_t value;
    eventfd_read(c->wake_fd, &value);
}

static bool is_stopping(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    bool stopping = c->is_stopping;
    pthread_mutex_unlock(&c->lock);
    return stopping;
}

/* Clears `fd` and closes the socket. Called with the lock held, so that no fork happens between
 * these two steps. */
static void drop_channel(struct control *c, struct channel *channel)
{
    c->fd = -1;
    channel_destroy(channel);
}

static void drop_socket(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    close(c->fd);
    c->fd = -1;
    pthread_mutex_unlock(&c->lock);
}

/* ---- connecting ---- */

static void pass_on(void *context, envelope *message)
{
    struct control *c = context;
    c->options.unasked(c->options.context, message);
}

static int say_join(struct control *c, struct channel *channel, uint64_t deadline_ns,
                    struct err *err)
{
    Gradpool__Wire__JoinRequest *join = c->options.join;
    envelope *reply;
    int error = channel_call(channel, &ENVELOPE(0, JOIN_REQUEST, join_request, join), deadline_ns,
                             pass_on, c, &reply, err);
    if (error < 0)
        return error;
    if (reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_JOIN_REPLY) {
        if (join->session == 0)
            *c->options.join_is_late = reply->join_reply->is_late;
        join->session = reply->join_reply->session;
        if (join->job_id != reply->join_reply->job_id)
            /* set at the first join only; gp_job_join() reads the number after this join */
            join->job_id = reply->join_reply->job_id;
        if (join->durability != reply->join_reply->durability)
            /* set at the first join only, whose reply has the durability */
            join->durability = reply->join_reply->durability;
        if (reply->join_reply->membership)
            pass_on(c, &ENVELOPE(0, MEMBERSHIP, membership, reply->join_reply->membership));
    } else {
        error = err_set(err, -EPROTO,
                        "the coordinator at %s did not answer the join request with a JoinReply; "
                        "install one version of gradpool on all hosts",
                        c->options.endpoint_text);
    }
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return error;
}

/* Returns whether the coordinator has refused the call. The two other codes mean that the
 * connection has ended, or that no coordinator has answered. */
static bool is_refusal(int code) { return code != -ECONNRESET && code != -ETIMEDOUT; }

/* Adds the coordinator's name to the text about the end of a connection. */
static void name_coordinator(const struct control *c, const struct channel *channel,
                             struct err *err)
{
    struct err bare = *err;
    err_set(err, bare.code, "the coordinator at %s: %s", c->options.endpoint_text,
            channel_bare_text(channel, bare.text[0] ? bare.text : err_text(bare.code)));
}

static int shake_hands(struct control *c, struct channel *channel, uint64_t deadline_ns,
                       bool *ret_refused, struct err *err)
{
    uint64_t incarnation;
    if (c->options.key)
        /* the error is ignored here, and channel_greet() reports it */
        (void)channel_use_key(channel, c->options.key);
    int error = channel_greet(channel, GRADPOOL__WIRE__ROLE__ROLE_CLIENT, c->options.program,
                              deadline_ns, &incarnation, err)
                    ?: say_join(c, channel, deadline_ns, err);
    *ret_refused = error < 0 && is_refusal(error);
    if (error < 0 && !*ret_refused)
        name_coordinator(c, channel, err);
    return error;
}

/* Creates a channel. Resolves the host name again, because a coordinator that was started on
 * another host has another address (L13). */
static int make_channel(struct control *c, uint64_t deadline_ns, struct channel **ret_channel,
                        bool *ret_refused, struct err *err)
{
    *ret_refused = false;
    struct channel *channel;
    const struct endpoint_slot slot = {&c->lock, &c->fd};
    int fd;
    endpoint_names_refresh(c->options.endpoint, &c->names, clock_now_ns() + LOOKUP_NS);
    int error =
        endpoint_connect_to(c->options.endpoint, &c->names.known, deadline_ns, &slot, &fd, err);
    if (error < 0)
        return error;
    endpoint_names_rest(&c->names);
    error = channel_create(fd, &channel);
    if (error < 0) {
        drop_socket(c);
        return err_set(err, error, "%s: %s", c->options.endpoint_text, err_text(error));
    }
    error = shake_hands(c, channel, deadline_ns, ret_refused, err);
    if (error < 0) {
        pthread_mutex_lock(&c->lock);
        drop_channel(c, channel);
        pthread_mutex_unlock(&c->lock);
        return error;
    }
    *ret_channel = channel;
    return 0;
}

/* ---- calls ---- */

/* Wakes the waiting thread after the unlock. With the lock held the thread would wake up, wait for
 * the lock, and wake up again. */
static void finish(struct control *c, struct control_call *call, const envelope *reply,
                   const struct err *err)
{
    call->done(call, reply, err);
    pthread_mutex_lock(&c->lock);
    call->is_over = true;
    pthread_mutex_unlock(&c->lock);
    pthread_cond_broadcast(&c->over);
}

static struct control_call *take_call(struct control *c, uint64_t id)
{
    struct control_call *found = NULL;
    pthread_mutex_lock(&c->lock);
    list_for_each_entry (struct control_call, call, &c->calls, node) {
        if (id == 0 || call->request.id == id) {
            found = call;
            break;
        }
    }
    if (found)
        list_remove(&found->node);
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void finish_all(struct control *c, const struct err *err)
{
    struct control_call *call;
    while ((call = take_call(c, 0)))
        finish(c, call, NULL, err);
}

/* Sends a call. Called with the lock held. The thread detects a broken channel by itself, but must
 * be woken to send remaining bytes. */
static void send_call(struct control *c, struct control_call *call)
{
    if (!c->channel)
        return;
    if (channel_send(c->channel, &call->request) < 0 || channel_events(c->channel) & POLLOUT)
        wake(c);
}

void control_post(struct control *c, struct control_call *call)
{
    pthread_mutex_lock(&c->lock);
    call->is_over = false;
    call->request.id = ++c->last_id;
    list_append(&c->calls, &call->node);
    send_call(c, call);
    if (c->refusal.code)
        wake(c); /* the thread refuses the call at once */
    pthread_mutex_unlock(&c->lock);
}

int control_wait(struct control *c, struct control_call *call, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    int error = 0;
    pthread_mutex_lock(&c->lock);
    while (!call->is_over) {
        bool is_waiting = !list_is_empty(&call->node);
        if (is_waiting && clock_now_ns() >= deadline_ns) {
            list_remove(&call->node);
            error = -ETIMEDOUT;
            break;
        }
        if (is_waiting)
            pthread_cond_timedwait(&c->over, &c->lock, &until);
        else
            /* `done` is running; the deadline does not end it */
            pthread_cond_wait(&c->over, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return error;
}

struct control_question {
    struct control_call call;
    struct err *err;
};

static void answered(struct control_call *call, const envelope *reply, const struct err *err)
{
    if (err)
        *container_of(call, struct control_question, call)->err = *err;
}

int control_ask(struct control *c, const envelope *request, uint64_t deadline_ns, struct err *err)
{
    struct control_question q = {.call = {.request = *request, .done = answered}, .err = err};
    control_post(c, &q.call);
    return control_wait(c, &q.call, deadline_ns);
}

bool control_is_up(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    bool up = c->channel != NULL;
    pthread_mutex_unlock(&c->lock);
    return up;
}

void control_note(struct control *c, const char *reason)
{
    pthread_mutex_lock(&c->lock);
    snprintf(c->reason, sizeof c->reason, "%s", reason);
    pthread_mutex_unlock(&c->lock);
}

bool control_has_reason(struct control *c, char *buffer, size_t buffer_bytes)
{
    pthread_mutex_lock(&c->lock);
    snprintf(buffer, buffer_bytes, "%s", c->channel ? c->reason : "");
    pthread_mutex_unlock(&c->lock);
    return *buffer;
}

/* ---- the thread ---- */

static void dispatch(struct control *c, const envelope *message)
{
    struct control_call *call = message->id ? take_call(c, message->id) : NULL;
    if (!message->id) {
        c->options.unasked(c->options.context, message);
    } else if (call && message->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_FAILURE) {
        struct err err;
        int code = message->failure->code < 0 ? message->failure->code : -EPROTO;
        err_set(&err, code, "%s", message->failure->text);
        finish(c, call, NULL, &err);
    } else if (call) {
        finish(c, call, message, NULL);
    }
}

static int receive(struct control *c, envelope **ret_message)
{
    pthread_mutex_lock(&c->lock);
    int error = channel_flush(c->channel) ?: channel_receive(c->channel, ret_message);
    pthread_mutex_unlock(&c->lock);
    return error;
}

/* Ends holds and recordings, because a disconnected coordinator can neither end its hold nor
 * request rounds. */
static void end_wishes(struct control *c)
{
    pass_on(c, &MESSAGE(0, HOLD, hold, .is_over = true));
    pass_on(c, &MESSAGE(0, TIMELINE_TAKE, timeline_take));
}

static void lose_channel(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    struct channel *channel = take_ptr(c->channel);
    log_info("the connection to the coordinator at %s has ended (%s); training continues, and this "
             "worker connects again",
             c->options.endpoint_text, channel_failure(channel));
    drop_channel(c, channel);
    pthread_mutex_unlock(&c->lock);
    end_wishes(c);
}

/* Calls `tick` if it is due. Returns the milliseconds until the next call; -1: none. */
static int tick(struct control *c)
{
    uint64_t now_ns = clock_now_ns();
    if (c->options.tick_ns == 0)
        return -1;
    if (now_ns >= c->tick_at_ns) {
        c->tick_at_ns = now_ns + c->options.tick_ns;
        c->options.tick(c->options.context);
    }
    return (int)((c->tick_at_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void sleep_until_news(struct control *c)
{
    int left_ms = tick(c);
    pthread_mutex_lock(&c->lock);
    struct pollfd fds[] = {
        {.fd = channel_fd(c->channel), .events = (short)channel_events(c->channel)},
        {.fd = c->wake_fd, .events = POLLIN}};
    pthread_mutex_unlock(&c->lock);
    poll(fds, 2, left_ms);
    if (fds[1].revents)
        drain_wake(c);
}

/* Handles received messages before the thread sleeps. The channel may have read a message together
 * with the reply to the join; the socket is then not readable, so poll() would not report this
 * message. */
static void serve(struct control *c)
{
    envelope *message;
    int error;
    while ((error = receive(c, &message)) == 0) {
        dispatch(c, message);
        gradpool__wire__envelope__free_unpacked(message, NULL);
    }
    if (error == -EAGAIN)
        sleep_until_news(c);
    else
        lose_channel(c);
}

static void publish(struct control *c, struct channel *channel)
{
    pthread_mutex_lock(&c->lock);
    c->channel = channel;
    c->refusal.code = 0;
    list_for_each_entry (struct control_call, call, &c->calls, node)
        send_call(c, call);
    pthread_mutex_unlock(&c->lock);
    log_info("this worker is connected to the coordinator at %s again", c->options.endpoint_text);
}

static void refuse_calls(struct control *c, const struct err *err)
{
    pthread_mutex_lock(&c->lock);
    if (!c->refusal.code)
        log_warn("the coordinator at %s refuses the return of job '%s' rank %u: %s",
                 c->options.endpoint_text, c->options.join->job, c->options.join->rank, err->text);
    c->refusal = *err;
    pthread_mutex_unlock(&c->lock);
    finish_all(c, err);
}

/* Connects again and resumes the session, with growing pauses between attempts. */
static void resume(struct control *c)
{
    uint64_t pause_ns = BACKOFF_FIRST_NS;
    while (!is_stopping(c)) {
        struct channel *channel = NULL;
        struct err err = {0};
        bool refused;
        int error = make_channel(c, clock_now_ns() + ATTEMPT_NS, &channel, &refused, &err);
        if (error == 0) {
            publish(c, channel);
            return;
        }
        err.code = error;
        if (refused)
            refuse_calls(c, &err);
        /* calls end with this error at once, without waiting for their time-outs */
        if (error == -ESTALE)
            pass_on(c, &MESSAGE(0, JOB_FAILURE, job_failure, .code = error, .text = err.text));
        tick(c);
        struct pollfd wait = {.fd = c->wake_fd, .events = POLLIN};
        poll(&wait, 1, (int)(pause_ns / NS_PER_MS));
        if (wait.revents)
            drain_wake(c);
        pause_ns = pause_ns * 2 < BACKOFF_MAX_NS ? pause_ns * 2 : BACKOFF_MAX_NS;
    }
}

static void *control_main(void *context)
{
    struct control *c = context;
    c->tick_at_ns = clock_now_ns() + c->options.tick_ns;
    while (!is_stopping(c)) {
        if (c->channel) /* only this thread changes the channel */
            serve(c);
        else
            resume(c);
    }
    return NULL;
}

/* ---- life ---- */

int control_create(const struct control_options *options, struct control **ret_control,
                   struct err *err)
{
    char lack[SHORTAGE_BYTES];
    struct control *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, -ENOMEM,
                       "this process has no memory for the connection to the coordinator; raise "
                       "its memory limit");
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0) {
        int error = -errno;
        free(c);
        return err_set(err, error, "job '%s': no eventfd: %s", options->join->job,
                       shortage_text(error, SHORTAGE_OTHER, lack, sizeof lack));
    }
    c->options = *options;
    c->names.known = *options->addresses;
    c->last_id = CALL_ID_FIRST;
    c->fd = -1;
    list_init(&c->calls);
    pthread_mutex_init(&c->lock, NULL);
    thread_condition_init(&c->over);
    *ret_control = c;
    return 0;
}

int control_connect(struct control *c, uint64_t deadline_ns, struct err *err)
{
    bool refused;
    char lack[SHORTAGE_BYTES];
    struct patience patience = {.endpoint = c->options.endpoint_text,
                                .deadline_ns = deadline_ns,
                                .timeout_ns = deadline_ns - clock_now_ns()};
    int error;
    do
        error = make_channel(c, deadline_ns, &c->channel, &refused, err);
    while (error < 0 && !refused && patience_try_again(&patience, error, err));
    if (error < 0) {
        patience_explain(&patience, &error, err);
        return error;
    }
    error = thread_start(&c->thread, control_main, c);
    if (error < 0)
        return err_set(err, error, "job '%s': no thread: %s", c->options.join->job,
                       shortage_text(error, SHORTAGE_THREADS, lack, sizeof lack));
    c->is_running = true;
    return 0;
}

void control_stop(struct control *c)
{
    static const struct err canceled = {-ECANCELED, "the job was left; join the job again"};
    pthread_mutex_lock(&c->lock);
    c->is_stopping = true;
    pthread_mutex_unlock(&c->lock);
    wake(c);
    if (c->is_running)
        pthread_join(c->thread, NULL);
    c->is_running = false;
    endpoint_names_rest(&c->names);
    finish_all(c, &canceled);
    pthread_mutex_lock(&c->lock);
    drop_channel(c, take_ptr(c->channel));
    pthread_mutex_unlock(&c->lock);
}

void control_destroy(struct control *c)
{
    if (!c)
        return;
    close(c->wake_fd);
    pthread_cond_destroy(&c->over);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- fork ---- */

void control_hold(struct control *c) { pthread_mutex_lock(&c->lock); }
void control_let_go(struct control *c) { pthread_mutex_unlock(&c->lock); }

void control_abandon_in_child(struct control *c)
{
    if (c->fd >= 0)
        close(c->fd);
    close(c->wake_fd);
}
