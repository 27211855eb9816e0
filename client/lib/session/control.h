/* The control connection of one job. Its thread sleeps on the socket, passes replies to their calls
 * and other messages to the job, and connects again to a coordinator that died (L7). Locks: these
 * functions may be called with a job's lock held; callbacks run without any lock. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_CONTROL_H
#define GRADPOOL_CLIENT_LIB_SESSION_CONTROL_H

#include "svc/base/err.h"
#include "svc/base/list.h"
#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct control;

/* A request that has no reply yet. The caller keeps the memory until `done` has run. */
struct control_call {
    struct list node;
    /* filled by the caller except for the id; its pointers must stay valid, too */
    envelope request;
    /* Called in the control thread, in the order of the coordinator's messages. `reply` is NULL if
     * `err` is set. The callee does not free `reply`. */
    void (*done)(struct control_call *call, const envelope *reply, const struct err *err);
    bool is_over; /* for control_wait() */
};

struct control_options {
    const struct endpoint_addresses *addresses; /* results of the last lookup; copied */
    /* lent as long as the connection exists, as are the next four */
    const struct endpoint *endpoint;
    const struct key *key; /* NULL: without TLS */
    const char *endpoint_text;
    const char *program;
    Gradpool__Wire__JoinRequest *join; /* session and job_id are filled in when they are known */
    bool *join_is_late;                /* set by the first reply */
    /* Receives messages that are not replies, in the control thread. The callee does not free
     * them. */
    void (*unasked)(void *context, const envelope *message);
    uint64_t tick_ns;            /* period of calling `tick` in the control thread; 0: never */
    void (*tick)(void *context); /* called without any lock */
    void *context;
};

/* Creates a control connection that is not connected yet, but is known to fork.c. -ENOMEM, -EMFILE,
 * with text. */
int control_create(const struct control_options *options, struct control **ret_control,
                   struct err *err);
/* Connects and joins, once only. After success the thread is running. Errors, with text: those of
 * endpoint_connect_to() and channel_greet(), and the coordinator's refusal. */
int control_connect(struct control *c, uint64_t deadline_ns, struct err *err);
/* Ends the thread and the connection. Calls without a reply end with -ECANCELED. */
void control_stop(struct control *c);
/* Frees the connection, after control_stop() or instead of control_connect(). NULL is fine. */
void control_destroy(struct control *c);

/* Sends a request. `done` runs later, even if the coordinator is away at first. */
void control_post(struct control *c, struct control_call *call);
/* Waits until a posted call is over. -ETIMEDOUT: the call is dropped, and `done` does not run any
 * more. Called without the job's lock. */
int control_wait(struct control *c, struct control_call *call, uint64_t deadline_ns);
/* Posts a request, and waits for an answer that only matters if it is a refusal: `err->code` is set
 * then. -ETIMEDOUT: no answer. Called without the job's lock. */
int control_ask(struct control *c, const envelope *request, uint64_t deadline_ns, struct err *err);
/* Returns whether the coordinator is connected now. */
bool control_is_up(struct control *c);
/* Stores the coordinator's reason for which the job waits; "": none. */
void control_note(struct control *c, const char *reason);
/* Copies that reason. False: none, or the coordinator is away. */
bool control_has_reason(struct control *c, char *buffer, size_t buffer_bytes);

/* For fork.c: nothing changes between these two calls. The child closes the descriptors that it has
 * inherited. */
void control_hold(struct control *c);
void control_let_go(struct control *c);
void control_abandon_in_child(struct control *c);

#endif
