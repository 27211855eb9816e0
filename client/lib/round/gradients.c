/* Several gradients of this rank in one round. Each gradient is copied to its own slot, and only
 * the hidden tensor is announced again. Lanes read only the slots of the gradients that the set
 * counts, so a rank may write a further gradient to its slot while lanes read the others (L120). */
#include "client/lib/round/gradients.h"

#include "client/lib/job/piece.h"
#include "client/lib/link/copy.h"
#include "client/lib/link/link.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define LINE_BYTES 64 /* slots begin at cache lines */

/* ---- slots ---- */

uint32_t gradients_most(const struct gp_job *job)
{
    return job->join_backup.gradients > 1 ? job->join_backup.gradients : 1;
}

bool gradients_have_slots(const struct gp_tensor *t, uint8_t operation)
{
    return gradients_most(t->job) > 1 && t->elements > 0 && tensor_follows(t, operation);
}

static uint64_t slot_bytes(const struct gp_tensor *t)
{
    return (t->bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

uint64_t gradients_stride(const struct gp_tensor *t, uint8_t operation)
{
    return gradients_have_slots(t, operation) ? slot_bytes(t) : 0;
}

uint64_t gradients_staging(const struct gp_tensor *t)
{
    bool has_slots = gradients_most(t->job) > 1 && terms_are_following(&t->terms);
    return has_slots ? gradients_most(t->job) * slot_bytes(t) : 0;
}

/* ---- requests of the leader lane ---- */

uint8_t gradients_announced(const struct gp_job *job)
{
    const struct gp_request *q = job->backup.request;
    return q && q->gradient > RECORD_GRADIENT ? q->gradient : RECORD_GRADIENT;
}

uint8_t gradients_pushed(const struct gp_job *job)
{
    for_each_tensor (t, job) {
        if (terms_are_following(&t->terms) && t->request && t->request->gradient > 0)
            return t->request->gradient;
    }
    return RECORD_GRADIENT;
}

void gradients_hear(struct link *l, const struct record_go_on *record)
{
    struct gp_job *job = l->job;
    struct backup_rounds *b = &job->backup;
    bool is_of_leader = b->leader && b->leader->pieces && b->leader->pieces->link == l;
    bool is_next =
        record->gradient == gradients_announced(job) + 1 && record->gradient <= gradients_most(job);
    bool is_open = b->phase == BACKUP_ANNOUNCED && record->round == b->held + 1;
    bool is_copied = b->copied == record->round;
    if (is_of_leader && is_next && is_open && !is_copied)
        b->phase = BACKUP_WANTED;
    else
        job->stale++;
}

/* ---- another push ---- */

bool gradients_are_more(const struct gp_job *job, const gp_item *item, uint8_t operation)
{
    const struct gp_tensor *t = item->tensor;
    return job->backup.phase == BACKUP_AGAIN && t && t->job == job && tensor_follows(t, operation);
}

static size_t request_count_tensors(const struct gp_request *q)
{
    size_t count = 0;
    list_for_each (node, &q->waiting)
        count++;
    list_for_each (node, &q->landed)
        count++;
    list_for_each (node, &q->copying)
        count++;
    list_for_each (node, &q->done)
        count++;
    return count;
}

static int gradients_check_item(const struct gp_job *job, const gp_item *item, size_t i,
                                uint8_t operation, const struct update_settings *settings)
{
    const struct gp_tensor *t = item->tensor;
    uint32_t number = gradients_announced(job) + 1u;
    if (!t || t->job != job || !t->request)
        return client_error(-EINVAL,
                            "item %zu has no tensor with a gradient in round %" PRIu64
                            " of job '%s'; push the same groups for each gradient of a round",
                            i, job->backup.held + 1, job->name);
    if (t->failure.code)
        return client_error_from(&t->failure);
    if (t->request->gradient == number)
        return client_error(-EBUSY,
                            "tensor '%s': gradient %u of round %" PRIu64
                            " is pushed already; call gp_round_end()",
                            t->name, number, job->backup.held + 1);
    bool is_same = operation == t->open.operation && item->result == t->open.result &&
                   (!settings || memcmp(settings, &t->open.settings, sizeof *settings) == 0);
    if (!item->gradient || !is_same)
        return client_error(-EINVAL,
                            "tensor '%s': gradient %u of round %" PRIu64
                            " differs from gradient 1 in operation, result or settings; push all "
                            "gradients of a round alike",
                            t->name, number, job->backup.held + 1);
    return 0;
}

static int gradients_check(const struct gp_job *job, const gp_item *items, size_t count,
                           uint8_t operation, const struct update_settings *settings)
{
    for (size_t i = 0; i < count; i++) {
        int error = gradients_check_item(job, &items[i], i, operation, settings);
        bool is_other = error == 0 && items[i].tensor->request != items[0].tensor->request;
        for (size_t k = 0; k < i && error == 0; k++)
            is_other |= items[k].tensor == items[i].tensor;
        if (error < 0)
            return error;
        if (is_other || request_count_tensors(items[0].tensor->request) != count)
            return client_error(-EINVAL,
                                "tensor '%s': its first gradient of round %" PRIu64
                                " was pushed in another group; push the same groups for each "
                                "gradient of a round",
                                items[i].tensor->name, job->backup.held + 1);
    }
    return 0;
}

/* Copies a gradient to its slot. No lane reads the slot before the gradient is announced, so the
 * lock may be released during the copy. */
static void gradients_copy(struct gp_tensor *t, const void *gradient, uint32_t number)
{
    struct gp_job *job = t->job;
    bool is_long = t->open.gradient_bytes > COPY_LOCKED_BYTES;
    char *slot = (char *)slabs_at(&job->slabs, t->open.input) + (number - 1) * slot_bytes(t);
    size_t streams_from = copy_streams_from(job->staged_bytes);
    if (is_long)
        pthread_mutex_unlock(&job->lock);
    copy_to_wire(slot, gradient, t->open.gradient_bytes, (struct copy_dtypes){t->values, t->dtype},
                 streams_from);
    if (is_long)
        pthread_mutex_lock(&job->lock);
}

int gradients_push(struct gp_job *job, const gp_item *items, size_t count, uint8_t operation,
                   const struct update_settings *settings, struct gp_request **ret_request)
{
    uint8_t number = (uint8_t)(gradients_announced(job) + 1);
    int error = gradients_check(job, items, count, operation, settings);
    if (error < 0)
        return error;
    items[0].tensor->request->gradient = number;
    for (size_t i = 0; i < count; i++)
        gradients_copy(items[i].tensor, items[i].gradient, number);
    *ret_request = items[0].tensor->request;
    return 0;
}

/* ---- the announcement ---- */

static int gradients_check_pushed(const struct gp_job *job, uint32_t number, bool *ret_any)
{
    const struct gp_tensor *lacking = NULL;
    *ret_any = false;
    for_each_tensor (t, job) {
        if (!terms_are_following(&t->terms))
            continue;
        if (t->request && t->request->gradient == number)
            *ret_any = true;
        else
            lacking = t;
    }
    if (!*ret_any || !lacking)
        return 0;
    return client_error(-EINVAL,
                        "tensor '%s' lacks gradient %u of round %" PRIu64
                        ", which other tensors have; push each tensor once, then call "
                        "gp_round_end()",
                        lacking->name, number, job->backup.held + 1);
}

int gradients_announce(struct gp_job *job)
{
    struct backup_rounds *b = &job->backup;
    struct piece *p = b->leader->pieces;
    bool is_pushed;
    uint8_t number = (uint8_t)(gradients_announced(job) + 1);
    int error = gradients_check_pushed(job, number, &is_pushed);
    if (error < 0)
        return error;
    b->phase = BACKUP_ANNOUNCED;
    if (!is_pushed)
        return 0;
    b->request->gradient = number;
    if (p->standing == PIECE_ANNOUNCED) {
        link_announce(p->link, p);
    } else {
        b->report = REPORT_LATE;
        link_flush(p->link);
    }
    engine_flush(&job->engine);
    return 0;
}
