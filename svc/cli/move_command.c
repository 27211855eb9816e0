/* gradpool move: moves tasks of a job to another lane while the job trains. */
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"

#include <errno.h>
#include <string.h>

enum { TENANT = OPERATOR_KNOBS };

const struct knob move_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a sentence"},
    [TENANT] = {OPERATOR_TENANT_KNOB},
    {0},
};

struct move {
    struct operator_options options;
    const char *what, *lane, *tenant;
};

static int set(void *context, int index, const char *value, struct err *err)
{
    struct move *m = context;
    if (index < OPERATOR_KNOBS)
        return operator_set(&m->options, index, value, err);
    m->tenant = value;
    return 0;
}

static int set_operand(void *context, const char *value, struct err *err)
{
    struct move *m = context;
    if (m->lane)
        return err_set(err, -EINVAL,
                       "'%s': one argument too many; give the job or task, and the lane", value);
    *(m->what ? &m->lane : &m->what) = value;
    return 0;
}

static void parse(int argc, char **argv, struct move *ret_move)
{
    static const struct knob_command command = {
        .name = "gradpool move",
        .operands = "[job:]JOB|[task:]TASK LANE",
        .knobs = move_knobs,
        .set = set,
        .operand = set_operand,
        .before = "Moves all tasks of a job, or one task, to a lane. The job continues to train; "
                  "a round of a moving tensor may take slightly longer. `gradpool explain JOB' "
                  "shows the tasks of a job, `gradpool status' shows the lanes.",
        .after = "Examples:\n"
                 "  gradpool move resnet-7 3     all tasks of job resnet-7 to lane 3\n"
                 "  gradpool move 12 3           task 12, if no job is called 12\n"
                 "  gradpool move task:12 3      task 12 in any case\n"
                 "  gradpool move job:12 3       all tasks of the job called 12\n\n"
                 "Exit code: 0 all tasks are on the lane; 1 failed, or some tasks were not "
                 "moved; 2 a mistake on the command line; 3 no service there, or no such job, "
                 "task or lane."};
    *ret_move = (struct move){
        .options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT, .timeout_ms = OPERATOR_PATIENCE_MS}};
    knobs_parse(&command, argc, argv, ret_move);
}

/* Returns the text after `prefix`, or NULL if `text` does not begin with `prefix`. */
static const char *after_prefix(const char *text, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

/* Parses the operand. A bare number may be a job or a task, so it is sent as both: only the service
 * knows the names of jobs. */
static bool read_what(const char *what, Gradpool__Wire__MoveRequest *ask)
{
    const char *job = after_prefix(what, "job:"), *task = after_prefix(what, "task:");
    unsigned long long number = 0;
    struct err err;
    if (!job) {
        bool is_number = knobs_number(task ? task : what, 1, UINT32_MAX, &number, &err) == 0;
        if (task && !is_number)
            return false;
        job = task ? "" : what;
    }
    ask->job = (char *)job;
    ask->task = (uint32_t)number;
    return *job || number;
}

static int complain(const char *wrong, const char *what)
{
    return knobs_mistake("gradpool move",
                         "%s: %s: expected JOB or TASK, then LANE, a lane's number", wrong, what);
}

int cli_move(int argc, char **argv)
{
    struct move m;
    unsigned long long lane = 0;
    struct err err;
    Gradpool__Wire__MoveRequest ask = MESSAGE_PART(MoveRequest, move_request);
    parse(argc, argv, &m);
    if (!m.lane)
        return complain("missing", m.what ? "LANE" : "JOB or TASK");
    if (knobs_number(m.lane, 1, UINT32_MAX, &lane, &err) < 0)
        return complain("not a lane", m.lane);
    if (!read_what(m.what, &ask))
        return complain("neither a job nor a task", m.what);
    ask.lane = (uint32_t)lane;
    ask.tenant = (char *)m.tenant;
    return operator_order(&m.options, &ENVELOPE(0, MOVE_REQUEST, move_request, &ask));
}
