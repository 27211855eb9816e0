/* Measures the steps of a pool's job, for the curve of its speed (F1 of packer/elastic). Uses the
 * lane counters that folder measure/ has stored; sends no request. */
#include "svc/coordinator/job/members.h"
#include "svc/coordinator/slots/internal.h"

#include <math.h>

/* number of rounds after a change of workers that are not measured */
#define SLOTS_ROUNDS_SKIPPED 2
#define SLOTS_ROUNDS_MEASURED 8 /* number of rounds in one measured point of the curve */

/* Returns the counters of a lane that has measured rounds of the job; NULL: no lane has measured
 * rounds yet. */
static const struct seen *slots_seen(const struct job *of)
{
    for (size_t i = 0; i < of->shares_count; i++)
        if (of->shares[i].pieces > 0 && of->shares[i].seen.reference > 0)
            return &of->shares[i].seen;
    return NULL;
}

/* Returns the number of workers that take part in rounds. A late worker is not counted before its
 * entry. */
static uint32_t slots_training_workers(const struct job *of)
{
    if (!of->terms->is_elastic || of->tensors_count == 0)
        return members_training(of);
    return ranks_count(of->tensors[0]->members);
}

static void slots_send_point(struct slots_job *job, const struct seen *seen)
{
    const struct slots_speed *speed = job->speed;
    double step_s = (double)(seen->begun_ns - speed->begun_ns) / (double)NS_PER_S /
                    (double)(seen->rounds - speed->rounds);
    slots_decide(job->pool->site, (struct scheduler_event){.kind = SCHEDULER_MEASURED,
                                                           .job = job->id,
                                                           .workers = speed->workers,
                                                           .step_s = step_s});
}

/* Sends the number of rounds, and the trial's report, to the scheduler. */
static void slots_send_report(struct slots_job *job, const struct seen *seen)
{
    slots_decide(job->pool->site, (struct scheduler_event){
                                      .kind = SCHEDULER_REPORTED,
                                      .job = job->id,
                                      .step = seen->rounds,
                                      .rung = job->rest->rung,
                                      .value = job->rest->has_standing ? job->rest->value : NAN});
    job->speed->has_reported = true;
}

static void slots_begin_point(struct slots_speed *speed, const struct seen *seen)
{
    speed->rounds = seen->rounds;
    speed->begun_ns = seen->begun_ns;
    speed->is_measuring = true;
}

void slots_look_at_speed(struct slots_job *job, const struct job *of)
{
    struct slots_speed *speed = job->speed;
    const struct seen *seen = slots_seen(of);
    uint32_t workers = slots_training_workers(of);
    if (!seen || workers == 0)
        return;
    if (seen->rounds > speed->first_rounds)
        job->failures = 0;
    if (!speed->has_reported && seen->rounds > 0)
        slots_send_report(job, seen);
    if (speed->workers != workers || speed->reference != seen->reference ||
        seen->rounds < speed->first_rounds) {
        *speed = (struct slots_speed){.workers = workers,
                                      .reference = seen->reference,
                                      .first_rounds = seen->rounds,
                                      .has_reported = speed->has_reported};
        return;
    }
    if (!speed->is_measuring && seen->rounds >= speed->first_rounds + SLOTS_ROUNDS_SKIPPED)
        return slots_begin_point(speed, seen);
    if (!speed->is_measuring || seen->rounds < speed->rounds + SLOTS_ROUNDS_MEASURED)
        return;
    slots_send_report(job, seen);
    slots_send_point(job, seen);
    slots_begin_point(speed, seen);
}
