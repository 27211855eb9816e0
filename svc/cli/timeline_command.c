/* gradpool timeline: writes the rounds of a job's workers and lanes to a file for trace viewers.
 * Records are fetched and written until the time has passed or a signal arrives.
 * svc/coordinator/RULES.md: K54; svc/timeline/README.md: E1 to E5. */
#include "svc/base/clock.h"
#include "svc/base/text.h"
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/timeline/timeline_fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SECONDS_DEFAULT_MS 5000
#define SECONDS_MAX (TIMELINE_NS_MAX / NS_PER_S)

enum { TENANT = OPERATOR_KNOBS, OUTPUT, SECONDS };

const struct knob timeline_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON instead of a sentence"},
    [TENANT] = {OPERATOR_TENANT_KNOB},
    [OUTPUT] = {"output", "FILE", "file that is written"},
    [SECONDS] = {"seconds", "N", "duration of the recording, at most 3600 (default: 5)"},
    {0},
};

struct request {
    /* first field, because operator_set_job() casts the context to this type */
    struct operator_options options;
    const char *tenant, *output;
    uint64_t for_ms;
};

/* --- the command line --- */

static int set_seconds(const char *value, uint64_t *ret_ms, struct err *err)
{
    int error = knobs_seconds(value, SECONDS_MAX, ret_ms, err);
    return error == 0 && *ret_ms == 0
               ? err_set(err, -EINVAL, "'%s': expected more than 0 seconds, such as 2 or 1.5",
                         value)
               : error;
}

static int set(void *context, int index, const char *value, struct err *err)
{
    struct request *r = context;
    switch (index) {
    case TENANT: r->tenant = value; return 0;
    case OUTPUT: r->output = value; return 0;
    case SECONDS: return set_seconds(value, &r->for_ms, err);
    default: return operator_set(&r->options, index, value, err);
    }
}

static void parse(int argc, char **argv, struct request *ret_request)
{
    static const struct knob_command command = {
        .name = "gradpool timeline",
        .operands = "JOB",
        .knobs = timeline_knobs,
        .set = set,
        .operand = operator_set_job,
        .before = "Records the rounds of a job while it trains, and writes them in Chrome's "
                  "trace format, on one clock. Each worker has a row (queued, copied in, waited "
                  "for, landed, copied out), and each lane has a row (announced by the first to "
                  "the last rank, read and summed, written, committed). Rounds are named by "
                  "tensor. The job is not restarted, and records no rounds before or afterwards. "
                  "Ctrl-C ends the recording early.",
        .after =
            "Examples:\n"
            "  gradpool timeline resnet-7 --output step.json --seconds 2\n\n"
            "Open the file with ui.perfetto.dev or chrome://tracing. The file can be read while "
            "it is written; a round takes about 560 bytes. If a process has no memory for "
            "further rounds, it drops them and counts them.\n\n"
            "Exit code: 0 written, also if Ctrl-C or SIGTERM ended the recording; 1 failed, or the "
            "job or the service ended early: the file has the rounds received until then; 2 a "
            "mistake on the command line; 3 no service there, or no such job."};
    *ret_request = (struct request){.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT},
                                    .tenant = "",
                                    .for_ms = SECONDS_DEFAULT_MS};
    knobs_parse(&command, argc, argv, ret_request);
}

/* --- the command --- */

static void print_done(const struct request *wanted, const struct timeline_totals *t)
{
    if (wanted->options.json)
        printf("{\"rounds\": %" PRIu64 ", \"dropped\": %" PRIu64 ", \"damaged\": %" PRIu64
               ", \"workers\": %u, \"lanes\": %u}\n",
               t->rounds, t->dropped, t->damaged, t->workers, t->lanes);
    else
        printf("%s: %" PRIu64 " rounds of %u worker%s and %u lane%s of job %s, %" PRIu64
               " dropped\n",
               wanted->output, t->rounds, t->workers, text_plural(t->workers), t->lanes,
               text_plural(t->lanes), wanted->options.job, t->dropped);
    if (t->damaged)
        fprintf(stderr,
                "gradpool: %" PRIu64 " rounds were left out, because their times are invalid\n",
                t->damaged);
    if (*t->failure)
        fprintf(stderr, "gradpool: %s\n", t->failure);
}

/* Blocks the signals, so that a signal ends the recording and not the process. */
static int take_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int run(const struct request *wanted, struct timeline_file *file, bool *ret_is_there,
               struct err *err)
{
    struct channel *channel = NULL;
    uint64_t timeline = 0;
    struct timeline_wish wish = {
        .job = wanted->options.job, .tenant = wanted->tenant, .for_ns = wanted->for_ms * NS_PER_MS};
    int error = operator_open(wanted->options.endpoint, &channel, err);
    if (error < 0)
        return error;
    int stop_fd = take_signals();
    error = timeline_begin(channel, &wish, file, &timeline, err)
                ?: timeline_follow(channel, timeline, stop_fd, file, err);
    *ret_is_there = error != -ENOENT;
    error = operator_explain(wanted->options.endpoint, channel, error, err);
    channel_destroy(channel);
    if (stop_fd >= 0)
        close(stop_fd);
    return error;
}

static int write_it(const struct request *wanted)
{
    struct timeline_file *file = NULL;
    struct timeline_totals totals = {0};
    struct err err = {0}, why = {0};
    bool is_there = true;
    int error = timeline_file_open(wanted->output, &file, &err);
    if (error < 0) {
        fprintf(stderr, "gradpool: %s\n", err.text);
        return CLI_FAILED;
    }
    error = run(wanted, file, &is_there, &err);
    if (error < 0)
        fprintf(stderr, "gradpool: %s\n", err.text);
    int written = timeline_file_close(file, &totals, &why);
    if (written < 0 && written != error)
        fprintf(stderr, "gradpool: %s\n", why.text);
    if (written == 0 && (error == 0 || totals.rounds > 0))
        print_done(wanted, &totals);
    if (error == -EHOSTDOWN || !is_there)
        return CLI_NOTHING;
    return error < 0 || written < 0 ? CLI_FAILED : CLI_OK;
}

int cli_timeline(int argc, char **argv)
{
    struct request wanted;
    parse(argc, argv, &wanted);
    if (wanted.options.job && wanted.output)
        return write_it(&wanted);
    return knobs_mistake("gradpool timeline", "missing: %s",
                         wanted.options.job ? "--output FILE" : "JOB");
}
