/* Whether the tensors of a snapshot stand between the same two iterations: only how far one tensor
 * gets while all others are held can tell. Decides who goes on and for how long; must never let a
 * snapshot be taken that was not shown to be of one iteration. README: K47. */
#include "svc/base/cleanup.h"
#include "svc/coordinator/saving_types.h"

#include <errno.h>
#include <inttypes.h>

#define LEAD 0                  /* the piece that goes on alone */
#define AHEAD 2                 /* updates of it that show where all others are */
#define STEP_NS (2 * NS_PER_MS) /* until who is behind is looked at again */
#define SPELL_NS_LEAST (5 * NS_PER_MS)
#define SPELL_NS_MOST (5 * NS_PER_S)
#define GAP_NS (20 * NS_PER_MS) /* where lanes know none */
#define TRIES 3                 /* spells, each twice as long as the one before */

/* --- who goes on --- */

bool saving_goes(const struct saving *sv, size_t at)
{
    const struct saved_piece *p = &sv->pieces[at];
    switch (sv->phase) {
    case SAVING_OTHERS: return at != LEAD;
    case SAVING_LEAD: return at == LEAD;
    case SAVING_LAST: return p->round < p->goal.round;
    default: return true;
    }
}

/* As long as an iteration takes, and some more. */
static uint64_t spell_ns(const struct saving *sv)
{
    uint64_t gap_ns = sv->gap_ns > 0 ? sv->gap_ns : GAP_NS;
    uint64_t spell = (gap_ns + gap_ns / 2) << sv->tries;
    spell = spell > SPELL_NS_LEAST ? spell : SPELL_NS_LEAST;
    return spell < SPELL_NS_MOST ? spell : SPELL_NS_MOST;
}

static void let(struct saving *sv, enum saving_phase phase)
{
    sv->phase = phase;
    saving_go_on_for(sv, spell_ns(sv));
}

/* --- what has been shown --- */

static const char *name_of(const struct saving *sv, const struct job *job, size_t at)
{
    const struct tensor *tensor = NULL;
    for (size_t i = 0; i < sv->tensors_count; i++)
        if (at >= sv->tensors[i].first && at < sv->tensors[i].first + sv->tensors[i].count)
            tensor = jobs_tensor(job, sv->tensors[i].tensor);
    return tensor ? tensor->name : "?";
}

/* So many updates since then, if rounds were nothing else: -1 (a tensor was broadcast, say). */
static int64_t updates_since(const struct saving_mark *then, const struct saving_mark *now)
{
    bool are_updates = now->round - then->round == now->steps - then->steps;
    return are_updates && now->round >= then->round ? (int64_t)(now->round - then->round) : -1;
}

static struct saving_mark mark_of(const struct saving *sv, size_t at)
{
    return (struct saving_mark){sv->pieces[at].round, sv->pieces[at].steps};
}

static void refuse(struct saving *sv, const struct job *job, size_t at, int64_t updates,
                   int64_t of_lead)
{
    saving_break(sv, -EOPNOTSUPP,
                 "job %.64s: tensor '%.255s' had %" PRId64 " updates while '%.255s' had %" PRId64
                 ": they are not updated once an iteration each, so only its ranks know when one "
                 "ends (gp_job_snapshot())",
                 job->name, name_of(sv, job, at), updates, name_of(sv, job, LEAD), of_lead);
}

static bool are_even(const struct saving *sv)
{
    for (size_t i = 1; i < sv->pieces_count; i++)
        if (sv->pieces[i].steps != sv->pieces[0].steps)
            return false;
    return true;
}

/* What else could not be shown may be so the next time. */
static void not_shown(struct saving *sv, const struct job *job)
{
    struct err err;
    err_set(&err, -EAGAIN,
            "job %.64s: that its tensors are of one iteration could not be shown: its workers wait "
            "for one before they push another, or do not train on, or take more than some seconds "
            "for an iteration; its ranks can make a snapshot (gp_job_snapshot())",
            job->name);
    saving_hindered(sv, &err);
}

static void begin_last(struct saving *sv)
{
    sv->phase = SAVING_LAST;
    sv->until_ns = clock_now_ns() + 2 * SPELL_NS_MOST;
}

static void set_goal(struct saving *sv, size_t at, uint64_t updates)
{
    struct saved_piece *p = &sv->pieces[at];
    p->goal = (struct saving_mark){p->round + updates, p->steps + updates};
}

static void finish(struct saving *sv)
{
    for (size_t i = 0; i < sv->pieces_count; i++)
        set_goal(sv, i, i == LEAD ? 0 : 1);
    begin_last(sv);
    saving_go_on_for(sv, 0);
}

/* The lead has done two updates while all others were held. No worker pushes for an iteration
 * before it has all results of the one before: so the others have that of the first behind them,
 * and, since the lead was held while they went on, nothing beyond it. */
static void shown(struct saving *sv, const struct job *job)
{
    struct saving_mark lead = mark_of(sv, LEAD);
    lead.round--;
    lead.steps--;
    int64_t of_lead = sv->is_marked ? updates_since(&sv->pieces[LEAD].mark, &lead) : 0;
    for (size_t i = 0; i < sv->pieces_count; i++) {
        struct saving_mark now = i == LEAD ? lead : mark_of(sv, i);
        int64_t updates = sv->is_marked ? updates_since(&sv->pieces[i].mark, &now) : 0;
        if (updates < 0 || of_lead < 0)
            return not_shown(sv, job);
        if (updates != of_lead)
            return refuse(sv, job, i, updates, of_lead);
        sv->pieces[i].mark = now;
    }
    if (sv->is_marked)
        return finish(sv);
    sv->is_marked = true; /* that each has one an iteration is seen at the second time */
    let(sv, SAVING_OTHERS);
}

static void lead_went(struct saving *sv, const struct job *job)
{
    struct saving_mark now = mark_of(sv, LEAD);
    int64_t updates = updates_since(&sv->lead, &now);
    if (updates == AHEAD)
        return shown(sv, job);
    if (updates > AHEAD)
        return refuse(sv, job, LEAD + 1, 0, updates);
    if (updates < 0 || ++sv->tries == TRIES)
        return not_shown(sv, job);
    let(sv, SAVING_OTHERS);
}

/* --- the way to it --- */

/* Pieces of one tensor are updated together, so equal ones are of one iteration; and so are all
 * tensors with as many updates each, where the job does not train. */
static void all_stand(struct saving *sv)
{
    uint64_t most = 0;
    if (sv->is_quiet && are_even(sv))
        return saving_stand(sv);
    sv->is_marked = false;
    sv->tries = 0;
    if (sv->tensors_count > 1)
        return let(sv, SAVING_OTHERS);
    for (size_t i = 0; i < sv->pieces_count; i++)
        most = sv->pieces[i].steps > most ? sv->pieces[i].steps : most;
    for (size_t i = 0; i < sv->pieces_count; i++)
        set_goal(sv, i, most - sv->pieces[i].steps);
    begin_last(sv);
    saving_settled(sv);
}

static void last_went(struct saving *sv, const struct job *job)
{
    bool are_there = true;
    for (size_t i = 0; i < sv->pieces_count; i++) {
        const struct saved_piece *p = &sv->pieces[i];
        bool is_there = p->round == p->goal.round;
        if (p->round > p->goal.round || (is_there && p->steps != p->goal.steps))
            return not_shown(sv, job);
        are_there = are_there && is_there;
    }
    if (are_there)
        saving_stand(sv);
    else if (clock_now_ns() < sv->until_ns)
        saving_look_again(sv, STEP_NS);
    else
        not_shown(sv, job);
}

/* False: who has asked was told, or it is tried again. */
static bool have_parameters(struct saving *sv, const struct job *job)
{
    struct err err;
    for (size_t i = 0; i < sv->pieces_count; i++) {
        if (sv->pieces[i].steps > 0)
            continue;
        if (sv->is_recovering)
            err_set(&err, -EAGAIN,
                    "tensor '%.255s' of job %.64s: its lane has died, and its workers have not all "
                    "said what there is of it",
                    name_of(sv, job, i), job->name);
        else
            err_set(&err, -ENODATA,
                    "tensor '%.255s' of job %.64s has no parameters: nothing was broadcast yet, or "
                    "they died with their lane",
                    name_of(sv, job, i), job->name);
        saving_hindered(sv, &err);
        return false;
    }
    return true;
}

void saving_settled(struct saving *sv)
{
    const struct job *job = jobs_find_id(sv->service, sv->job);
    if (!job)
        return saving_break(sv, -ECONNRESET, "the job has ended");
    if (!have_parameters(sv, job))
        return;
    switch (sv->phase) {
    case SAVING_ALL: return all_stand(sv);
    case SAVING_OTHERS: sv->lead = mark_of(sv, LEAD); return let(sv, SAVING_LEAD);
    case SAVING_LEAD: return lead_went(sv, job);
    case SAVING_LAST: return last_went(sv, job);
    }
}
