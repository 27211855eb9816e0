/* Sends the request of a late worker to enter the rounds of its tensors. One request at a time has
 * no reply. The reply arrives after the routes with which the worker enters. Owns struct entry. */
#include "client/lib/round/entry.h"

#include "client/lib/job/piece.h"

#include <stdlib.h>

struct entry {
    struct gp_job *job;
    struct control_call call;
    Gradpool__Wire__EnterRequest body;
    bool is_asking; /* the call has no reply yet */
};

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
    pthread_mutex_lock(&entry->job->lock);
    entry->is_asking = false;
    pthread_mutex_unlock(&entry->job->lock);
}

void entry_ask(struct gp_job *job)
{
    bool is_asking = job->entry && job->entry->is_asking;
    if (!job->join_is_late || is_asking || !entry_is_due(job))
        return;
    if (!job->entry && !(job->entry = calloc(1, sizeof *job->entry)))
        return;
    struct entry *entry = job->entry;
    entry->job = job;
    entry->body = (Gradpool__Wire__EnterRequest)GRADPOOL__WIRE__ENTER_REQUEST__INIT;
    entry->call.request = ENVELOPE(0, ENTER_REQUEST, enter_request, &entry->body);
    entry->call.done = entry_answered;
    entry->is_asking = true;
    control_post(job->control, &entry->call);
}

void entry_free(struct gp_job *job) { free(job->entry); }
