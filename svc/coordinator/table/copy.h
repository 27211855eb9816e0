/* Copies of tables: for each lane with tables of a job that has durability replica, a lane of
 * another aggregator reads the log of changed rows. After the loss of the owner this replica lane
 * serves the shards. RULES.md: K167 to K171. */
#ifndef GRADPOOL_COORDINATOR_TABLE_COPY_H
#define GRADPOOL_COORDINATOR_TABLE_COPY_H

#include "svc/coordinator/job/table.h"
#include "svc/coordinator/loop/loop.h"

enum table_copy_state {
    COPY_ABSENT,  /* no copy; a lane is chosen when one is there */
    COPY_BEGUN,   /* the owner receives the number of the copy */
    COPY_PLACING, /* the replica lane receives the tables */
    COPY_COPYING, /* the owner copies its rows */
    COPY_WHOLE,   /* stored: after the loss of the owner the copy is promoted */
    COPY_LOST,    /* the copy is lost; "no copy" is not stored yet */
    /* "no copy" is stored; the owner is informed, so that words of pushes wait no longer */
    COPY_ENDING,
    COPY_PROMOTED,  /* the owner is lost; the route to the replica lane is not stored yet */
    COPY_PROMOTING, /* the route is stored; the replica lane has not confirmed yet */
};

/* All tables of a job on one lane, the owner. */
struct table_copy {
    struct list link; /* node in table_list.copies */
    struct job *job;
    uint32_t owner, replica; /* lanes; replica 0: not chosen */
    uint32_t copy;           /* number of the copy, unique in the service; 0: none */
    enum table_copy_state state;
    uint32_t asked;   /* requests without an answer */
    bool is_whole;    /* the owner has reported that the copy is whole */
    bool is_repeated; /* an answer asks for a repetition */
    uint32_t failures; /* number of consecutive copies that did not become whole */
    bool is_lacking;  /* the lack of another aggregator is logged */
    uint64_t not_before_ns; /* earliest time of the next attempt */
    struct timer timer;     /* fires when the next attempt is due */
};

/* Continues all copies of the job: begins, stores, repeats requests. Called whenever a lane, a shard
 * or a table may have changed. */
void table_copies_check(struct job *job);
void table_copies_check_all(struct service *s);
/* Handles the loss of an aggregator. Shards of its lanes with a whole copy leave their lanes, and
 * their copies are promoted; all other shards keep their lost lane, and the caller fails their
 * tables. */
void table_copies_aggregator_lost(struct job *job, const struct aggregator *a);
/* Orders lanes to drop the copies of a job that ends. */
void table_copies_end(struct job *job);
/* Frees all copies of the job, without messages. */
void table_copies_free(struct job *job);
/* Returns whether lanes of the aggregator have, or will have, copies of the job's tables on `lane`
 * (NULL: on any lane). */
bool table_copies_are_at(const struct job *job, const struct aggregator *a, const struct lane *lane);
/* Returns whether the shard waits for the promotion of its copy. Such a shard is not placed. */
bool table_copies_have(const struct job_shard *shard);
/* Handles TableLogReport. */
void table_copies_handle_report(struct peer *p, const envelope *message);
/* Finds the copies of a restored job. Called when all shards are restored. */
void table_copies_restore(struct job *job);
/* Sends the routes of all tables, of ready shards, to a session; NULL: to all sessions of the
 * job. */
void tables_send_routes(struct job *job, const struct session *to);

/* ---- between copy.c, copy_calls.c and promote.c ---- */

/* Returns the lane of the owner or of the replica; NULL: the lane is unknown. */
struct lane *copy_owner(const struct table_copy *copy);
struct lane *copy_replica(const struct table_copy *copy);
/* Attempts the next step after `delay_ns`. */
void copy_later(struct table_copy *copy, uint64_t delay_ns);
/* Gives up the present copy: stores "no copy" if a whole copy is stored, informs the owner, and
 * begins another copy later. */
void copy_lose(struct table_copy *copy, const char *why);
void copy_step(struct table_copy *copy);
/* Removes an entry. */
void copy_remove(struct table_copy *copy);

/* copy_calls.c: requests to lanes. */
void copy_tell_log(struct table_copy *copy, bool begins);
void copy_tell_tables(struct table_copy *copy);
void copy_tell_end(const struct table_copy *copy);
void copy_tell_promotion(struct table_copy *copy);

/* promote.c */
/* Takes the shards of the lost owner off their lane. */
void promote_begin(struct table_copy *copy);
/* Stores the new routes, and attaches the shards to the replica lane. */
void promote_store(struct table_copy *copy);
/* Handles the confirmation of the replica lane. */
void promote_done(struct table_copy *copy);
/* Fails all tables of the copy, whose rows are lost. */
void promote_fail(struct table_copy *copy, const char *why);

#endif
