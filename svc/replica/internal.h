/* The keeper's data, for the files of this folder only. Ownership: keeper > job > link, copy; the
 * keeper's lock guards all of it. */
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
    struct list node; /* in keeper.jobs */
    struct holder *keeper;
    uint32_t id;
    char name[KEEPER_NAME_BYTES];
    struct slabs slabs;
    struct kept_copy **copies; /* by the piece's number; NULL: none */
    size_t copies_room;
    struct list links;
    bool is_over; /* to be freed when its last connection has closed */
};

enum holder_link_state {
    LINK_IDLE,   /* nobody would give a ticket */
    LINK_ASKING, /* for one, or about to */
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSING, /* by us */
};

/* A connection to one lane. */
struct holder_link {
    struct list node; /* in job.links */
    struct kept_job *job;
    uint32_t lane;
    enum holder_link_state state;
    struct fabric_conn *conn;
    bool is_ofi;         /* of the connection */
    bool wants_ofi;      /* shared memory has failed */
    bool wants_open;     /* again, once closed */
    uint32_t lent;       /* slabs 0 .. lent-1 are */
    uint32_t copies;     /* that are kept and lie there */
    uint32_t failures;   /* to connect, in a row */
    bool is_asked;       /* for a ticket, and not answered */
    uint64_t ask_at_ns;  /* not before */
    uint64_t open_by_ns; /* while connecting; then that has failed */
    uint64_t opened_ns;
    struct list unsaid; /* of copy.unsaid */
};

/* Room for two states of a piece, each with its stamp behind it. */
struct kept_copy {
    struct list unsaid; /* in link.unsaid: the lane is to be told where it lies */
    uint32_t piece, epoch;
    uint32_t note;  /* grows each time that it is given to a lane */
    uint64_t bytes; /* of one state */
    char *memory;
    struct holder_link *link;  /* to the lane that has the piece */
    struct holder_link *fence; /* to one that was lost and may still write; NULL: none */
    bool is_kept;              /* else its memory waits for its lane's connection to end */
    bool begins;               /* what lies there is nothing, whoever may still write it */
    bool is_told;              /* to its lane, on the connection that there is: it may write */
};

/* copy.c */
struct kept_copy *kept_copy_find(const struct kept_job *job, uint32_t piece);
/* Made, or taken up again; what lies there is to be wiped if it `begins`, or was not kept. */
int kept_copy_make(struct kept_job *job, const struct holder_copy *spec,
                   struct kept_copy **ret_copy);
void kept_copy_free(struct kept_job *job, struct kept_copy *copy);
/* Of what begins: nothing lies there any more. Nobody may be able to write it (J2). */
void kept_copy_wipe(struct kept_copy *copy);
/* What its lane is told. */
void kept_copy_describe(const struct kept_job *job, const struct kept_copy *copy,
                        struct record_backup *ret_told);

/* link.c */
struct holder_link *holder_link_get(struct kept_job *job,
                                    uint32_t lane); /* made if need be; NULL: no memory */
/* The copy's lane is at the other end of this one from now on. */
void holder_link_take(struct holder_link *l, struct kept_copy *copy, bool has_let_go);
void holder_link_connect(struct holder_link *l, const char *shm, const char *ofi,
                         const struct record_connect *ticket);
void holder_link_ask(struct holder_link *l, uint64_t delay_ns);
/* When it is to be asked for, or has taken too long to connect; UINT64_MAX: neither. */
uint64_t holder_link_due_ns(const struct holder_link *l);
/* It has taken too long to connect. */
void holder_link_give_up(struct holder_link *l);
/* Says what is to be said, as far as the connection takes it. */
void holder_link_flush(struct holder_link *l);
/* Closes it; without a connection it is gone at once, with what was there and is not kept. */
void holder_link_end(struct holder_link *l);
/* The copy is kept no longer; its memory goes when nobody can write it any more. */
void holder_link_drop(struct kept_copy *copy);
/* Frees a job that has no link left, and so no copy. */
void kept_job_release(struct kept_job *job);
void holder_link_event(void *keeper, const struct fabric_event *event);

#endif
