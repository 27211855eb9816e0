/* The replica holder's data, for the files of this folder only. Ownership: holder > job > link,
 * copy; the holder's lock guards all of it. */
#ifndef GRADPOOL_REPLICA_INTERNAL_H
#define GRADPOOL_REPLICA_INTERNAL_H

#include "svc/fabric/engine.h"
#include "svc/fabric/slab.h"
#include "svc/replica/holder.h"

#define KEEPER_NAME_BYTES 128

struct holder {
    struct holder_options options;
    pthread_mutex_t lock;
    struct engine engine;
    struct list jobs;
};

struct kept_job {
    struct list node; /* in holder.jobs */
    struct holder *keeper;
    uint32_t id;
    char name[KEEPER_NAME_BYTES];
    struct slabs slabs;
    struct kept_copy **copies; /* indexed by the piece's number; NULL: no copy */
    size_t copies_room;
    struct list links;
    bool is_over; /* freed when its last connection has closed */
};

enum holder_link_state {
    LINK_IDLE,   /* no ticket is requested: the last answer was a refusal */
    LINK_ASKING, /* a ticket is requested, or about to be */
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSING, /* closing, by this side */
};

/* A connection to one lane. */
struct holder_link {
    struct list node; /* in job.links */
    struct kept_job *job;
    uint32_t lane;
    enum holder_link_state state;
    struct fabric_conn *conn;
    bool is_ofi;         /* the connection is over the network */
    bool wants_ofi;      /* the last attempt over shared memory has failed */
    bool wants_open;     /* to be opened again once closed */
    uint32_t lent;       /* slabs 0 .. lent-1 are lent on this connection */
    uint32_t copies;     /* stored copies of the pieces of this lane */
    uint32_t failures;   /* failed attempts to connect, in a row */
    bool is_asked;       /* the request for a ticket was sent, and has no answer */
    uint64_t ask_at_ns;  /* earliest time of the request */
    uint64_t open_by_ns; /* LINK_CONNECTING: end of the attempt */
    uint64_t opened_ns;
    struct list unsaid; /* copies (copy.unsaid) to be offered to the lane */
};

/* Memory for two states of a piece, each with its stamp behind it. */
struct kept_copy {
    struct list unsaid; /* in link.unsaid while the copy is to be offered to the lane */
    uint32_t piece, epoch;
    uint32_t note;  /* counts the lanes that the copy was assigned to: identifies the offer */
    uint64_t bytes; /* length of one state */
    char *memory;
    struct holder_link *link;  /* link to the lane that serves the piece */
    struct holder_link *fence; /* link to a former lane that may still write; NULL: none */
    bool is_kept;              /* false: the memory is freed when the lane's connection has ended */
    bool begins;  /* the stored states are void, and are wiped once no lane can write */
    bool is_told; /* the copy was offered on the present connection: the lane may write */
};

/* copy.c */
struct kept_copy *kept_copy_find(const struct kept_job *job, uint32_t piece);
/* Makes the copy, or takes up an existing one; its states are void if it `begins`, or was not
 * stored. -EINVAL: another length; -ENOMEM, -ENOSPC. */
int kept_copy_make(struct kept_job *job, const struct holder_copy *spec,
                   struct kept_copy **ret_copy);
void kept_copy_free(struct kept_job *job, struct kept_copy *copy);
/* Wipes the stamps of a copy that begins. No lane can write to it now (J2). */
void kept_copy_wipe(struct kept_copy *copy);
/* Fills in the offer for the copy's lane, from the stamps. */
void kept_copy_describe(const struct kept_job *job, const struct kept_copy *copy,
                        struct record_backup *ret_told);

/* link.c */
struct holder_link *holder_link_get(struct kept_job *job,
                                    uint32_t lane); /* made if necessary; NULL: no memory */
/* Assigns the copy to the lane of this link. `has_let_go`: the former lane has released the
 * piece. */
void holder_link_take(struct holder_link *l, struct kept_copy *copy, bool has_let_go);
/* Connects with a ticket; on an error requests another one later. */
void holder_link_connect(struct holder_link *l, const char *shm, const char *ofi,
                         const struct record_connect *ticket);
/* Requests a ticket after `delay_ns`. */
void holder_link_ask(struct holder_link *l, uint64_t delay_ns);
/* Time of the next request for a ticket, or end of the attempt to connect; UINT64_MAX: neither. */
uint64_t holder_link_due_ns(const struct holder_link *l);
/* Gives up an attempt to connect that took too long. */
void holder_link_give_up(struct holder_link *l);
/* Lends memory and sends offers, as far as the send queue takes them. */
void holder_link_flush(struct holder_link *l);
/* Closes the link; without a connection frees it at once, with its dropped copies. */
void holder_link_end(struct holder_link *l);
/* Drops the copy; its memory is freed once no lane can write to it. */
void holder_link_drop(struct kept_copy *copy);
/* Frees a job without links, and its copies. */
void kept_job_release(struct kept_job *job);
void holder_link_event(void *keeper, const struct fabric_event *event);

#endif
