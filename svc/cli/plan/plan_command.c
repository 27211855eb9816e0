/* gradpool plan: shows where the service would place a job now, with the predicted losses of this
 * job and others, or why the job would be refused. Nothing changes. */
#include "svc/base/text.h"
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/cli/plan/plan.h"
#include "svc/cli/plan/plan_file.h"
#include "svc/ops/answer/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS_MAX 768
#define JOB_NAME_BYTES_MAX 127
#define MS_MIN 1e-6 /* one nanosecond, in milliseconds */
#define MS_MAX 86400000.0

enum { WORKERS = OPERATOR_KNOBS, PERIOD, LANE_TIME, LOSS_LIMIT, JOB };

const struct knob plan_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of tables"},
    [WORKERS] = {"workers", "N", "number of workers of the job (default: 2)"},
    [PERIOD] = {"period", "MS",
                "time of a round without other jobs (default: the time measured when the job of "
                "this name ran before; the service measures an unknown job first)"},
    [LANE_TIME] = {"lane-time", "MS",
                   "lane time of a round, summed over all lanes (default: computed from the "
                   "bytes, with the lane time a byte of the other jobs)"},
    [LOSS_LIMIT] = {"loss-limit", "PERCENT", "loss limit of the job (default: none)"},
    [JOB] = {"job", "NAME", "name under which the job has run before", KNOB_VARIABLE},
    {0},
};

struct plan {
    /* in this command the field `job` has the path of the CSV file */
    struct operator_options options;
    Gradpool__Wire__PlanRequest request;
};

static int set_ms(const char *value, uint64_t *ret_ns, struct err *err)
{
    char *end;
    double ms = strtod(value, &end);
    if (end == value || *end || !(ms >= MS_MIN && ms <= MS_MAX))
        return err_set(err, -EINVAL, "'%s': expected milliseconds, as in 120 or 4.5: %g to %.0f",
                       value, MS_MIN, MS_MAX);
    *ret_ns = (uint64_t)(ms * 1e6);
    return 0;
}

static int set_job(Gradpool__Wire__PlanRequest *request, const char *value, struct err *err)
{
    if (!*value || strlen(value) > JOB_NAME_BYTES_MAX || !text_is_utf8(value))
        return err_set(err, -EINVAL, "expected a job's name: 1 to %d bytes of UTF-8",
                       JOB_NAME_BYTES_MAX);
    request->job = (char *)value;
    return 0;
}

static int set(void *context, int index, const char *value, struct err *err)
{
    struct plan *p = context;
    unsigned long long workers;
    int error;
    switch (index) {
    case WORKERS:
        error = knobs_number(value, 1, WORKERS_MAX, &workers, err);
        p->request.workers = error < 0 ? p->request.workers : (uint32_t)workers;
        return error;
    case PERIOD: return set_ms(value, &p->request.period_ns, err);
    case LANE_TIME: return set_ms(value, &p->request.lane_ns, err);
    case LOSS_LIMIT: return knobs_percent(value, &p->request.loss_limit_ppm, err);
    case JOB: return set_job(&p->request, value, err);
    default: return operator_set(&p->options, index, value, err);
    }
}

static int set_file(void *context, const char *value, struct err *err)
{
    struct plan *p = context;
    if (p->options.job)
        return err_set(err, -EINVAL, "'%s': one argument too many; give one file", value);
    p->options.job = value;
    return 0;
}

static int show_reply(const struct plan *p, const envelope *reply)
{
    if (reply->body_case != GRADPOOL__WIRE__ENVELOPE__BODY_PLAN_REPLY)
        return CLI_FAILED;
    const Gradpool__Wire__PlanReply *plan = reply->plan_reply;
    if (plan->code == -EINVAL) { /* the request itself is wrong, so every service would refuse it */
        fprintf(stderr, "gradpool plan: %s\n", plan->why);
        return CLI_USAGE;
    }
    int error = (p->options.json ? ops_plan_json : ops_plan_text)(plan, stdout);
    if (p->request.period_ns && plan->period_ns != p->request.period_ns)
        fprintf(stderr,
                "gradpool plan: --period is not used, because no measured job trains here that "
                "shows the lane time of these bytes; give --lane-time, too\n");
    return error < 0 ? CLI_FAILED : plan->code < 0 ? CLI_NOTHING : CLI_OK;
}

static int ask(struct plan *p)
{
    envelope *reply;
    struct err err;
    if (plan_file_read(p->options.job, &p->request, &err) < 0) {
        fprintf(stderr, "gradpool plan: %s\n", err.text);
        return CLI_USAGE;
    }
    int error =
        operator_ask(&p->options, &ENVELOPE(0, PLAN_REQUEST, plan_request, &p->request), &reply);
    plan_file_free(&p->request);
    if (error < 0)
        return error == -EHOSTDOWN ? CLI_NOTHING : error == -EINVAL ? CLI_USAGE : CLI_FAILED;
    int code = show_reply(p, reply);
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    return code;
}

/* Returns a mistake in the combination of options, or NULL. */
static const char *fault_of(const struct plan *p)
{
    if (!p->options.job)
        return "missing: FILE, the table of tensors";
    if (p->request.lane_ns && !p->request.period_ns)
        return "missing: --period, which --lane-time needs";
    if (p->request.lane_ns / WORKERS_MAX > p->request.period_ns)
        return "--lane-time is more than the lanes of the largest job have in one --period; "
               "correct one of the two";
    return NULL;
}

int cli_plan(int argc, char **argv)
{
    static const struct knob_command command = {
        .name = "gradpool plan",
        .operands = "FILE",
        .knobs = plan_knobs,
        .set = set,
        .operand = set_file,
        .before = "Shows on which lanes a job with the tensors of FILE would be placed now, and "
                  "how much slower this job and the other jobs there would become; or why the "
                  "job would be refused. The service does not change. FILE is CSV. Its first "
                  "line names the columns: `name`, `elements` and, if wanted, `dtype`, as in "
                  "bench/models.",
        .after =
            "Examples:\n"
            "  gradpool plan model.csv --workers 4 --period 120 --lane-time 40\n"
            "  gradpool plan model.csv --job resnet-7 --json\n\n"
            "Exit code: 0 the job would be placed; 1 failed; 2 a mistake on the command line or "
            "in the file; 3 the job would be refused, or no service there."};
    struct plan p = {.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT},
                     .request = MESSAGE_PART(PlanRequest, plan_request, .workers = 2)};
    knobs_parse(&command, argc, argv, &p);
    const char *fault = fault_of(&p);
    return fault ? knobs_mistake("gradpool plan", "%s", fault) : ask(&p);
}
