/* Copies of tables, for jobs with durability replica. The tables of a job on one lane, the owner,
 * are copied to a lane of another aggregator, the replica lane, which receives each changed row
 * from the owner. After the loss of the owner, the replica lane serves the shards. README.md: K167
 * to K182. */
#ifndef GRADPOOL_COORDINATOR_COPIES_COPIES_H
#define GRADPOOL_COORDINATOR_COPIES_COPIES_H

#include "svc/coordinator/job/table.h"

/* Begins the missing copies of the job, and continues all others with their next step. Called
 * whenever a lane, a shard or a table may have changed. */
void table_copies_check(struct job *job);
void table_copies_check_all(struct service *s);
/* Called when an aggregator is lost. Each shard of its lanes with a whole copy is detached from its
 * lane, and the copy is promoted. All other shards keep their lost lane; the caller fails their
 * tables. */
void table_copies_aggregator_lost(struct job *job, const struct aggregator *a);
/* Orders lanes to drop the copies of a job that ends. */
void table_copies_end(struct job *job);
/* Frees all copies of the job, without messages. */
void table_copies_free(struct job *job);
/* Returns whether lanes of the aggregator have, or will have, copies of the job's tables on `lane`
 * (NULL: on any lane). */
bool table_copies_are_at(const struct job *job, const struct aggregator *a,
                         const struct lane *lane);
/* Handles TableLogReport: the owner or the replica lane reports that a copy is whole or has
 * ended. */
void table_copies_handle_report(struct peer *p, const envelope *message);
/* Ends all copies of the job before rows are imported, because the owner's log does not contain
 * imported rows. The lanes must hold the tables. Returns 0, or -EAGAIN if "no copy" could not be
 * stored yet. */
int table_copies_forget(struct job *job);
/* Returns the state of the table's copies. If several lanes have shards of the table, the worst
 * state is returned. `ret_fault`: reason for which there is no whole copy, valid until the next
 * change; "": none. */
WIRE(TableCopyState) table_copies_state(const struct job_table *table, const char **ret_fault);
/* Restores the copies of a job from the store. Called when all shards of the job are restored. */
void table_copies_restore(struct job *job);
/* Sends the routes of all tables to a session; NULL: to all sessions of the job. Sends nothing if
 * no table of the job was promoted. A shard that no lane serves now has lane 0 in its route. */
void tables_send_routes(struct job *job, const struct session *to);

#endif
