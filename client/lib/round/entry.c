/* Requests the entry of a late worker, once at a time. The reply arrives after the routes with which
 * the worker enters. Owns struct entry. */
#include "client/lib/round/entry.h"

#include "client/lib/job/piece.h"

static bool entry_is_due(const struct gp_job *job)
{
    for_each_piece_in (p, job) {
        if (p->is_outside && !p->tensor->failure.code)
            return true;
    }
    return false;
}

/* Runs in the control thread. */
static void entry_answered(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct entry *entry = container_of(call, struct entry, call);
    struct gp_job *job = container_of(entry, struct gp_job, entry);
    pthread_mutex_lock(&job->lock);
    entry->is_asking = false;
    pthread_mutex_unlock(&job->lock);
}

void entry_ask(struct gp_job *job)
{
    struct entry *entry = &job->entry;
    if (!job->join_is_late || entry->is_asking || !entry_is_due(job))
        return;
    entry->body = (Gradpool__Wire__EnterRequest)GRADPOOL__WIRE__ENTER_REQUEST__INIT;
    entry->call.request = ENVELOPE(0, ENTER_REQUEST, enter_request, &entry->body);
    entry->call.done = entry_answered;
    entry->is_asking = true;
    control_post(job->control, &entry->call);
}
