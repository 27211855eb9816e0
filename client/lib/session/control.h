/* The control connection of one job: a thread that sleeps on the socket, hands replies to their
 * calls and unasked messages to the job, and connects again to a coordinator that died (L7).
 * Locks: a job's lock may be held in calls of these functions; callbacks run without any. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_CONTROL_H
#define GRADPOOL_CLIENT_LIB_SESSION_CONTROL_H

#include "svc/base/err.h"
#include "svc/base/list.h"
#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct control;

/* One request without a reply. The caller keeps the memory until `done` has run. */
struct control_call {
    struct list node;
    envelope request; /* filled by the caller, but for the id; its pointers must stay valid too */
    /* In the control thread, in the order of the coordinator's messages. `reply` is NULL when `err`
     * is set; the callee does not free it. */
    void (*done)(struct control_call *call, const envelope *reply, const struct err *err);
    bool is_over; /* for control_wait() */
};

struct control_options {
    const struct endpoint_addresses *addresses; /* of the last lookup; copied */
    const struct endpoint *endpoint; /* lent for the life of the connection, as are the next four */
    const struct key *key;           /* NULL: in plain */
    const char *endpoint_text;
    const char *program;
    Gradpool__Wire__JoinRequest *join; /* session and job_id are filled in once known */
    bool *join_is_late;                /* filled in with the first reply */
    /* Unasked messages, in the control thread; not freed by the callee. */
    void (*unasked)(void *context, const envelope *message);
    uint64_t tick_ns;            /* how often `tick` is called, in the control thread; 0: never */
    void (*tick)(void *context); /* without any lock */
    void *context;
};

/* Not connected yet, but fork.c may hold it. -ENOMEM, -EMFILE, with text. */
int control_create(const struct control_options *options, struct control **ret_control,
                   struct err *err);
/* Connects and joins; on success the thread runs. Once only. Errors: those of
 * endpoint_connect_to(), channel_greet() and of the coordinator's refusal, with text. */
int control_connect(struct control *c, uint64_t deadline_ns, struct err *err);
/* Ends thread and connection. Calls under way end with -ECANCELED. */
void control_stop(struct control *c);
/* After control_stop(), or instead of control_connect(). NULL is fine. */
void control_destroy(struct control *c);

/* Sends a request; `done` runs later, also when the coordinator has to come back first. */
void control_post(struct control *c, struct control_call *call);
/* Waits until a posted call is over. -ETIMEDOUT: the call is dropped, `done` does not run any more.
 * Not with the job's lock held. */
int control_wait(struct control *c, struct control_call *call, uint64_t deadline_ns);
/* Posts a request and waits for an answer of which only a refusal counts: `err->code` is set then.
 * -ETIMEDOUT: no answer. Not with the job's lock held. */
int control_ask(struct control *c, const envelope *request, uint64_t deadline_ns, struct err *err);
/* Whether the coordinator can be reached right now. */
bool control_is_up(struct control *c);

/* For fork.c: nothing changes between these two; the child closes what it inherited. */
void control_hold(struct control *c);
void control_let_go(struct control *c);
void control_abandon_in_child(struct control *c);

#endif
