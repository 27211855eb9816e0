/* Data of the replica holder, private to this folder. Ownership: holder > job > link, copy. The
 * holder's lock protects all of it. */
#ifndef GRADPOOL_REPLICA_INTERNAL_H
#define GRADPOOL_REPLICA_INTERNAL_H

#include "svc/fabric/engine.h"
#include "svc/fabric/slab.h"
#include "svc/replica/holder.h"

#define HOLDER_NAME_BYTES 128

struct holder {
    struct holder_options options;
    pthread_mutex_t lock;
    struct engine engine;
    struct list jobs;
};

struct kept_job {
    struct list node; /* node in holder.jobs */
    struct holder *holder;
    uint32_t id;
    char name[HOLDER_NAME_BYTES];
    struct slabs slabs;
    struct kept_copy **copies; /* copies; the index is the number of the piece; NULL: no copy */
    size_t copies_room;
    struct list links;
    bool is_over; /* the job has ended, and is freed when its last connection has closed */
};

enum holder_link_state {
    LINK_IDLE,   /* no ticket is requested, because the last request was refused */
    LINK_ASKING, /* a ticket is or will soon be requested */
    LINK_CONNECTING,
    LINK_OPEN,
    LINK_CLOSING, /* this end is closing the connection */
};

/* The connection to one lane. */
struct holder_link {
    struct list node; /* node in job.links */
    struct kept_job *job;
    uint32_t lane;
    enum holder_link_state state;
    struct fabric_conn *conn;
    bool is_ofi;        /* the connection uses the network */
    bool wants_ofi;     /* the last attempt over shared memory has failed */
    bool wants_open;    /* the link is opened again after its connection has closed */
    uint32_t lent;      /* the lane can write to slabs 0 to lent-1 by this connection */
    uint32_t copies;    /* number of stored copies of the lane's pieces, plus 1 for a ring in use */
    uint32_t failures;  /* number of consecutive failed connections */
    bool is_asked;      /* the request for a ticket was sent and is not answered yet */
    uint64_t ask_at_ns; /* earliest time of the request */
    uint64_t open_by_ns; /* deadline of the attempt to connect, in state LINK_CONNECTING */
    uint64_t opened_ns;
    /* copies that must still be offered to the lane (list of copy.unoffered) */
    struct list unoffered;
    struct kept_ring *ring; /* ring.h; NULL: none; counted in `copies` unless is_over */
};

/* Ring for the log of the tables of a lane. */
struct kept_ring {
    uint32_t copy;
    uint64_t bytes;
    char *memory;
    /* positions: reported by the owner; passed on to the lane of this process; applied there;
     * reported to the owner */
    uint64_t logged, passed_on, taken, told;
    bool is_offered; /* on this connection */
    bool is_over;    /* no lane of this process reads the ring; freed once its owner cannot write */
};

/* Memory for two states of a piece, each followed by its stamp. */
struct kept_copy {
    struct list unoffered; /* node in link.unoffered while the copy is to be offered to the lane */
    uint32_t piece, epoch;
    uint32_t note;  /* number of assignments to a lane; identifies the offer */
    uint64_t bytes; /* length of one state */
    char *memory;
    struct holder_link *link;  /* link to the lane that serves the piece */
    struct holder_link *fence; /* link to a former lane that may still write; NULL: none */
    /* whether the copy is still stored; otherwise its memory is freed when the lane's connection
     * has ended */
    bool is_kept;
    bool begins; /* the stored states are invalid, and are wiped once no lane can write to them */
    bool is_offered; /* the copy was offered on this connection, so the lane may write to it */
};

/* copy.c: finds a copy. Returns NULL if there is none. */
struct kept_copy *kept_copy_find(const struct kept_job *job, uint32_t piece);
/* Creates the copy, or uses an existing copy. The copy's states are invalid if `spec->begins` is
 * set, or if the copy was not stored before. Returns 0, -EINVAL if the length differs, -ENOMEM or
 * -ENOSPC. */
int kept_copy_make(struct kept_job *job, const struct holder_copy *spec,
                   struct kept_copy **ret_copy);
void kept_copy_free(struct kept_job *job, struct kept_copy *copy);
/* Wipes the stamps of a copy that begins. No lane can write to the copy at this time (J2). */
void kept_copy_wipe(struct kept_copy *copy);
/* Fills in the offer for the copy's lane, from the stamps. */
void kept_copy_describe(const struct kept_job *job, const struct kept_copy *copy,
                        struct record_backup *ret_offer);

/* link.c: finds or creates the link. Returns NULL if memory is missing. */
struct holder_link *holder_link_get(struct kept_job *job, uint32_t lane);
/* Assigns the copy to the link's lane. `has_let_go`: the former lane has released the piece. */
void holder_link_take(struct holder_link *l, struct kept_copy *copy, bool has_let_go);
/* Connects with a ticket. After an error another ticket is requested later. */
void holder_link_connect(struct holder_link *l, const char *shm, const char *ofi,
                         const struct record_connect *ticket);
/* Requests a ticket after `delay_ns`. */
void holder_link_ask(struct holder_link *l, uint64_t delay_ns);
/* Returns the time of the next request for a ticket, or of the end of the attempt to connect;
 * UINT64_MAX: neither. */
uint64_t holder_link_due_ns(const struct holder_link *l);
/* Ends an attempt to connect that took too long. */
void holder_link_give_up(struct holder_link *l);
/* Makes memory accessible to the lane, and sends offers of copies, while the send queue has
 * room. */
void holder_link_flush(struct holder_link *l);
/* Closes the link. Without a connection, the link and its dropped copies are freed at once. */
void holder_link_end(struct holder_link *l);
/* Opens the link, or sends what is due if it is open. */
void holder_link_use(struct holder_link *l);
/* Ends the connection. The lane may be alive, and cannot write once the link is closed (J3). */
void holder_link_fence(struct holder_link *l);
/* Ends the link's ring, which is freed when the lane cannot write any more. The link may be freed
 * on return. */
void holder_link_end_ring(struct holder_link *l);
/* Drops the copy. Its memory is freed when no lane can write to it. */
void holder_link_drop(struct kept_copy *copy);
/* ring.c: frees the ring of a link that is closed. Without a ring the call has no effect. */
void kept_ring_free(struct holder_link *l);
/* Handles the end of the connection. */
void kept_ring_closed(struct holder_link *l);
/* Sends the offer and the report that are due. Returns 0 or an error of fabric_send(). */
int kept_ring_flush(struct holder_link *l);
void kept_ring_logged(struct holder_link *l, const struct record_logged *logged);

/* holder.c: finds or creates a job. NULL: memory is missing. */
struct kept_job *holder_get_job(struct holder *k, uint32_t id, const char *name);
struct holder_link *holder_find_link(struct holder *k, uint32_t job, uint32_t lane);
/* Frees a job without links, and its copies. */
void kept_job_release(struct kept_job *job);
void holder_link_event(void *holder, const struct fabric_event *event);

#endif
