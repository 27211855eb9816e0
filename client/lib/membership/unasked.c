/* Passes each message that the coordinator sends without a request to the file that handles it. */
#include "client/lib/membership/internal.h"

#include "client/lib/declare/route.h"
#include "client/lib/job/job_tables.h"
#include "client/lib/link/link.h"
#include "client/lib/round/push.h"
#include "client/lib/rows/promotion.h"
#include "svc/base/log.h"

static void fail_tensor(struct gp_job *job, const Gradpool__Wire__TensorFailure *failure)
{
    struct gp_tensor *t = tensor_find_id(job, failure->tensor);
    if (t)
        tensor_break(t, failure->code, failure->text);
}

static void fail_table(struct gp_job *job, const Gradpool__Wire__TableFailure *failure)
{
    struct gp_table *t = job_table_find_number(job, failure->table);
    if (t)
        job_table_break(t, failure->code, failure->text);
}

/* Handles the begin and the end of a wait of pushes for table memory. Requests of tables that reach
 * their deadline meanwhile end with this error. */
static void take_lack(const struct gp_job *job, const Gradpool__Wire__Notice *notice)
{
    struct err *lack = &job->tables->errors->lack;
    if (notice->code < 0)
        log_warn("job %s waits for table memory: %s", job->name, notice->text);
    else
        log_warn("job %s no longer waits for table memory", job->name);
    err_set(lack, notice->code, "%s", notice->text);
}

/* Logs and stores the coordinator's reason why the job waits. */
static void take_notice(const struct gp_job *job, const Gradpool__Wire__Notice *notice)
{
    control_note(job->control, notice->text);
    if (job->tables && (notice->code < 0 || job->tables->errors->lack.code))
        return take_lack(job, notice);
    if (*notice->text)
        log_warn("job %s waits for lanes: %s", job->name, notice->text);
    else
        log_warn("job %s no longer waits for lanes", job->name);
}

static void take_hold(struct gp_job *job, const Gradpool__Wire__Hold *wish)
{
    if (!hold_take(job, wish))
        return;
    push_begin_held(job);
    hold_check(job);
}

static void take_routes(struct gp_job *job, const Gradpool__Wire__RouteChange *change)
{
    if (change->n_tensors > 0)
        route_change(job, change);
    promotion_take(job, change);
}

void unasked_handle(void *context, const envelope *message)
{
    struct gp_job *job = context;
    if (message->body_case == GRADPOOL__WIRE__ENVELOPE__BODY_TIMELINE_TAKE)
        return recorder_take(job, message->timeline_take);
    pthread_mutex_lock(&job->lock);
    switch (message->body_case) {
    case GRADPOOL__WIRE__ENVELOPE__BODY_TENSOR_FAILURE:
        fail_tensor(job, message->tensor_failure);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_TABLE_FAILURE:
        fail_table(job, message->table_failure);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_JOB_FAILURE:
        job_break(job, message->job_failure->code, "%s", message->job_failure->text);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_ROUTE_CHANGE:
        if (!job->is_leaving)
            take_routes(job, message->route_change);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_LANE_AHEAD:
        if (!job->is_leaving)
            link_open_ahead(job, message->lane_ahead->lane);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_MEMBERSHIP:
        membership_take(job, message->membership);
        break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_NOTICE: take_notice(job, message->notice); break;
    case GRADPOOL__WIRE__ENVELOPE__BODY_HOLD: take_hold(job, message->hold); break;
    default: job->stale++;
    }
    engine_flush(&job->engine);
    engine_kick(&job->engine);
    pthread_mutex_unlock(&job->lock);
}
