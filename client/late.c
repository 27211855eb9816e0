/* Knowledge of the coordinator about ranks that others wait for: not started, away, stopped, at
 * work. Owns the question, one at a time; must not delay the end of a wait for longer than a
 * moment. README: L59. */
#include "client/job.h"
#include "svc/base/clock.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_WAIT_NS NS_PER_S

/* In the control thread. */
static void told(struct control_call *call, const envelope *reply, const struct err *err)
{
    struct late *late = container_of(call, struct late, call);
    struct gp_job *job = container_of(late, struct gp_job, late);
    pthread_mutex_lock(&job->lock);
    late->is_asked = false;
    if (reply && reply->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_LATE_REPLY)
        snprintf(late->text, sizeof late->text, "%s", reply->late_reply->text);
    engine_kick(&job->engine);
    pthread_mutex_unlock(&job->lock);
}

static void ask(struct gp_job *job, const uint64_t *ranks)
{
    struct late *late = &job->late;
    memcpy(late->ranks, ranks, sizeof late->ranks);
    gradpool__wire__late_request__init(&late->request);
    late->request.ranks.data = (uint8_t *)late->ranks;
    late->request.ranks.len = sizeof late->ranks;
    late->call.request = (envelope)GRADPOOL__WIRE__ENVELOPE__INIT;
    late->call.request.body_case = GRADPOOL__WIRE__ENVELOPE__BODY_LATE_REQUEST;
    late->call.request.late_request = &late->request;
    late->call.done = told;
    late->is_asked = true;
    control_post(job->control, &late->call);
}

static bool is_over(void *context)
{
    const struct gp_request *q = context;
    return request_is_over(q) || !list_is_empty(&q->landed) || !q->job->late.is_asked;
}

void late_ask(struct gp_request *q)
{
    struct gp_job *job = q->job;
    job->late.text[0] = 0;
    if (job->late.is_asked || !control_is_up(job->control))
        return;
    ask(job, q->missing);
    engine_run(&job->engine, clock_now_ns() + ANSWER_WAIT_NS, is_over, q);
}
