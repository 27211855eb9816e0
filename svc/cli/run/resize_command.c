/* gradpool resize: changes the number of workers of an elastic job while it trains. */
#include "svc/cli/cli.h"
#include "svc/cli/operator.h"
#include "svc/cli/run/run.h"
#include "svc/wire/ranks.h"

#include <errno.h>
#include <stdio.h>

enum { TENANT = OPERATOR_ENDPOINT + 1 };

const struct knob resize_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [TENANT] = {OPERATOR_TENANT_KNOB},
    {0},
};

struct resize {
    struct operator_options options;
    const char *workers, *tenant;
};

static int resize_set(void *context, int index, const char *value, struct err *err)
{
    struct resize *r = context;
    if (index == OPERATOR_ENDPOINT)
        return operator_set(&r->options, index, value, err);
    r->tenant = value;
    return 0;
}

static int resize_set_operand(void *context, const char *value, struct err *err)
{
    struct resize *r = context;
    if (!r->options.job)
        return operator_set_job(r, value, err);
    if (r->workers)
        return err_set(err, -EINVAL,
                       "'%s': one argument too many; give the job and its number of workers",
                       value);
    r->workers = value;
    return 0;
}

static void resize_parse(int argc, char **argv, struct resize *ret_resize)
{
    static const struct knob_command command = {
        .name = "gradpool resize",
        .operands = "JOB WORKERS",
        .knobs = resize_knobs,
        .set = resize_set,
        .operand = resize_set_operand,
        .before = "Changes the number of workers of a job in training. If the number falls, the "
                  "highest ranks leave after their step. If the number grows, `gradpool run "
                  "--workers-max' starts the missing ranks; without it, start them by hand. The "
                  "command does not wait for the ranks: see `gradpool jobs JOB'.",
        .after = "Examples:\n"
                 "  gradpool resize digits 4\n\n"
                 "The largest number is the workers_max with which the job has joined. Exit "
                 "code: 0 the number was changed; 1 failed; 2 a mistake on the command line; 3 "
                 "no service there, or no such job."};
    *ret_resize = (struct resize){.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT}};
    knobs_parse(&command, argc, argv, ret_resize);
}

static int resize_complain(const char *what)
{
    return knobs_mistake("gradpool resize", "%s: expected JOB, then WORKERS, a number", what);
}

int cli_resize(int argc, char **argv)
{
    struct resize r;
    unsigned long long workers = 0;
    struct err err;
    envelope *reply;
    resize_parse(argc, argv, &r);
    if (!r.workers)
        return resize_complain(r.options.job ? "missing: WORKERS" : "missing: JOB");
    if (knobs_number(r.workers, 1, RANKS_WORDS * 64, &workers, &err) < 0)
        return resize_complain(r.workers);
    int error =
        operator_ask(&r.options,
                     &MESSAGE(0, RESIZE_REQUEST, resize_request, .workers = (uint32_t)workers,
                              .job = (char *)r.options.job, .tenant = (char *)r.tenant),
                     &reply);
    if (error < 0)
        return error == -EHOSTDOWN || error == -ENOENT ? CLI_NOTHING : CLI_FAILED;
    gradpool__wire__envelope__free_unpacked(reply, NULL);
    printf("job %s: %llu workers\n", r.options.job, workers);
    return CLI_OK;
}
