/* Copies of tables: for each lane with tables of a job that has durability replica, a lane of
 * another aggregator reads the log of changed rows. After the loss of the owner this replica lane
 * serves the shards. README: K167 to K172. */
#ifndef GRADPOOL_COORDINATOR_COPIES_COPIES_H
#define GRADPOOL_COORDINATOR_COPIES_COPIES_H

#include "svc/coordinator/job/table.h"

/* Continues all copies of the job: begins, stores, repeats requests. Called whenever a lane, a
 * shard or a table may have changed. */
void table_copies_check(struct job *job);
void table_copies_check_all(struct service *s);
/* Handles the loss of an aggregator. Shards of its lanes that a whole copy contains leave their
 * lanes, and their copies are promoted; all other shards keep their lost lane, and the caller fails
 * their tables. */
void table_copies_aggregator_lost(struct job *job, const struct aggregator *a);
/* Orders lanes to drop the copies of a job that ends. */
void table_copies_end(struct job *job);
/* Frees all copies of the job, without messages. */
void table_copies_free(struct job *job);
/* Returns whether lanes of the aggregator have, or will have, copies of the job's tables on `lane`
 * (NULL: on any lane). */
bool table_copies_are_at(const struct job *job, const struct aggregator *a,
                         const struct lane *lane);
/* Handles TableLogReport. */
void table_copies_handle_report(struct peer *p, const envelope *message);
/* Gives up all copies of the job before rows are imported, because imported rows are not in the
 * log. The lanes hold the tables. Returns 0, or -EAGAIN if "no copy" could not be stored yet. */
int table_copies_forget(struct job *job);
/* Returns whether the rows of the table survive the loss of one aggregator now. `ret_fault`: reason
 * for which there is no whole copy, valid until the next change; "": none. */
WIRE(TableCopyState) table_copies_state(const struct job_table *table, const char **ret_fault);
/* Finds the copies of a restored job. Called when all shards are restored. */
void table_copies_restore(struct job *job);
/* Sends the routes of all tables, of ready shards, to a session; NULL: to all sessions of the
 * job. */
void tables_send_routes(struct job *job, const struct session *to);

#endif
