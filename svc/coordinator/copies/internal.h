/* States of copies, private to this room. */
#ifndef GRADPOOL_COORDINATOR_COPIES_INTERNAL_H
#define GRADPOOL_COORDINATOR_COPIES_INTERNAL_H

#include "svc/coordinator/copies/copies.h"
#include "svc/coordinator/loop/loop.h"

enum copy_state {
    COPY_ABSENT,  /* no copy, and no replica lane is chosen yet */
    COPY_BEGUN,   /* the owner receives the number of the copy */
    COPY_PLACING, /* the replica lane receives the tables */
    COPY_COPYING, /* the owner copies its rows */
    COPY_WHOLE,   /* stored: after the loss of the owner the copy is promoted */
    COPY_LOST,    /* the copy is lost; "no copy" is not stored yet */
    /* "no copy" is stored; the owner is ordered to complete pushes without waiting for a copy */
    COPY_ENDING,
    COPY_PROMOTED,  /* the owner is lost; the route to the replica lane is not stored yet */
    COPY_PROMOTING, /* the route is stored; the replica lane has not confirmed yet */
    COPY_FAILED,    /* the tables have failed; the timer removes the entry */
};

/* All tables of a job on one lane, the owner. */
struct shards_copy {
    struct list link; /* node in table_list.copies */
    struct job *job;
    uint32_t owner, replica; /* numbers of lanes; replica 0: not chosen */
    uint32_t copy;           /* number of the copy, unique in the service; 0: none */
    enum copy_state state;
    uint32_t asked;         /* requests without an answer */
    bool is_whole;          /* the owner has reported that the copy is whole */
    bool is_repeated;       /* an answer was missing or asked for a repetition */
    uint32_t failures;      /* number of consecutive copies that ended with a fault */
    uint64_t whole_ns;      /* time at which the copy became whole; 0: the copy is not whole */
    char fault[96];         /* reason for which the last copy ended; "": none */
    bool is_lacking;        /* the missing second aggregator was logged */
    uint64_t not_before_ns; /* earliest time of the next attempt */
    struct timer timer;     /* fires when the next attempt is due */
};

/* Returns the lane of the owner or of the replica; NULL: the lane is unknown. */
struct lane *copy_owner(const struct shards_copy *copy);
struct lane *copy_replica(const struct shards_copy *copy);
/* Attempts the next step after `delay_ns`. */
void copy_later(struct shards_copy *copy, uint64_t delay_ns);
/* Gives up the present copy: stores "no copy" if a whole copy is stored, informs the owner, and
 * begins another copy later. `is_fault`: the next copy may end for the same reason (K182). */
void copy_lose(struct shards_copy *copy, const char *why, bool is_fault);
/* Stores the reason for which the copy has ended, and counts a fault (K182). */
void copy_note_end(struct shards_copy *copy, const char *why, bool is_fault);
/* Returns the time until the next copy may begin (K182). */
uint64_t copy_pause_ns(const struct shards_copy *copy);
/* Finds the copy of the tables on lane `owner`; NULL: none. */
struct shards_copy *copy_at(const struct job *job, uint32_t owner);
void copy_step(struct shards_copy *copy);
/* Removes an entry. */
void copy_remove(struct shards_copy *copy);

/* calls.c: requests to lanes. */
void copy_tell_log(struct shards_copy *copy, bool begins);
void copy_tell_tables(struct shards_copy *copy);
void copy_tell_end(const struct shards_copy *copy);
void copy_tell_promotion(struct shards_copy *copy);

/* promote.c */
/* Detaches the shards from the lost owner, and continues with promote_store(). */
void promote_begin(struct shards_copy *copy);
/* Stores the new routes, and attaches the shards to the replica lane. */
void promote_store(struct shards_copy *copy);
/* Called when the replica lane has confirmed the shards. Sends the routes to the workers, and
 * removes the entry. */
void promote_done(struct shards_copy *copy);
/* Fails all tables of the copy, because their rows are lost. The entry is removed later, by
 * promote_forget(), because the caller may be in a loop over the entries of the job. */
void promote_fail(struct shards_copy *copy, const char *why);
/* Removes the entry of a failed promotion, and answers the declares that waited for its tables. */
void promote_forget(struct shards_copy *copy);

#endif
