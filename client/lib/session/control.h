/* The control connection of one job. Its thread sleeps on the socket, passes replies to their calls
 * and other messages to the job, and reconnects after a failure of the coordinator (L7). Locks:
 * these functions may be called with a job's lock held; callbacks run without any lock. */
#ifndef GRADPOOL_CLIENT_LIB_SESSION_CONTROL_H
#define GRADPOOL_CLIENT_LIB_SESSION_CONTROL_H

#include "svc/base/err.h"
#include "svc/base/list.h"
#include "svc/channel/channel.h"
#include "svc/endpoint/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

struct control;

/* A request that waits for its reply. The caller keeps the memory until `done` has run. */
struct control_call {
    struct list node;
    /* filled by the caller, without the id; its pointers must stay valid until `done` has run */
    envelope request;
    /* Called in the control thread, in the order of the coordinator's messages. If `err` is set,
     * `reply` is NULL. The callee does not free `reply`. */
    void (*done)(struct control_call *call, const envelope *reply, const struct err *err);
    bool is_over; /* the call has ended; read by control_wait() */
};

struct control_options {
    const struct endpoint_addresses *addresses; /* results of the last lookup; copied */
    /* this pointer and the next four stay valid as long as the connection exists */
    const struct endpoint *endpoint;
    const struct key *key; /* NULL: without TLS */
    const char *endpoint_text;
    const char *program;
    Gradpool__Wire__JoinRequest *join; /* session and job_id are set at the first join */
    bool *join_is_late;                /* set by the first reply */
    /* Handles messages that are not replies, in the control thread. The callee does not free
     * them. */
    void (*unasked)(void *context, const envelope *message);
    uint64_t tick_ns;            /* period of `tick` calls in the control thread; 0: none */
    void (*tick)(void *context); /* called regularly by the control thread, without any lock */
    void *context;
};

/* Creates a control connection and adds it to the list for forks, without connecting. -ENOMEM,
 * -EMFILE, with text. */
int control_create(const struct control_options *options, struct control **ret_control,
                   struct err *err);
/* Connects and joins; called once. After success the thread runs. Errors, with text: those of
 * endpoint_connect_to() and channel_greet(), and the coordinator's refusal. */
int control_connect(struct control *c, uint64_t deadline_ns, struct err *err);
/* Ends the thread and the connection. Calls without a reply end with -ECANCELED. */
void control_stop(struct control *c);
/* Frees the connection: after control_stop(), or without a control_connect(). NULL is fine. */
void control_destroy(struct control *c);

/* Sends a request. `done` runs later. While the coordinator is not connected, the request waits. */
void control_post(struct control *c, struct control_call *call);
/* Waits for the end of a posted call. -ETIMEDOUT: the call is dropped, and `done` will not run.
 * Called without the job's lock. */
int control_wait(struct control *c, struct control_call *call, uint64_t deadline_ns);
/* Posts a request and waits for the reply. A refusal is stored in `err`; the contents of a reply
 * are ignored. -ETIMEDOUT: no reply. Called without the job's lock. */
int control_ask(struct control *c, const envelope *request, uint64_t deadline_ns, struct err *err);
/* Returns whether the coordinator is connected now. */
bool control_is_up(struct control *c);
/* Stores the coordinator's reason why the job waits; "": none. */
void control_note(struct control *c, const char *reason);
/* Copies the reason. Returns false without a reason, or if the coordinator is disconnected. */
bool control_has_reason(struct control *c, char *buffer, size_t buffer_bytes);

/* Called by fork.c: between control_hold() and control_let_go() the connection does not change. A
 * child closes the descriptors that it has inherited. */
void control_hold(struct control *c);
void control_let_go(struct control *c);
void control_abandon_in_child(struct control *c);

#endif
