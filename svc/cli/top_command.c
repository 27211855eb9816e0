/* gradpool top: lanes, jobs and cores, updated each second. Owns the terminal while it runs, and
 * restores it at the end, also after Ctrl-C. With --once, with --json, or if the output is not a
 * terminal, the command prints once. */
#include "svc/base/cleanup.h"
#include "svc/base/clock.h"
#include "svc/cli/cli.h"
#include "svc/cli/internal.h"
#include "svc/cli/operator.h"
#include "svc/ops/answer/answer.h"
#include "svc/ops/report/report.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>

#define PERIOD_NS NS_PER_S
#define ENTER_SCREEN "\x1b[?1049h\x1b[?25l"
#define LEAVE_SCREEN "\x1b[?25h\x1b[?1049l"
#define ROWS_DEFAULT 24
#define COLUMNS_DEFAULT 80

enum { ONCE = OPERATOR_KNOBS };

const struct knob top_knobs[] = {
    [OPERATOR_ENDPOINT] = {OPERATOR_ENDPOINT_KNOB},
    [OPERATOR_JSON] = {"json", NULL, "print JSON, once"},
    [ONCE] = {"once", NULL, "print once (default: when standard output is no terminal)"},
    {0},
};

struct top {
    struct operator_options options;
    bool once;
    struct channel *channel; /* NULL: not connected */
    struct snapshot *last;
};

static int set(void *context, int index, const char *value, struct err *err)
{
    struct top *t = context;
    if (index < OPERATOR_KNOBS)
        return operator_set(&t->options, index, value, err);
    t->once = true;
    return 0;
}

/* --- requests --- */

static int ask_both(struct channel *channel, envelope *replies[2], struct err *err)
{
    int error =
        operator_call(channel, &MESSAGE(0, STATUS_REQUEST, status_request), &replies[0], err);
    if (error < 0)
        return error;
    error = operator_call(channel, &MESSAGE(0, JOBS_REQUEST, jobs_request), &replies[1], err);
    if (error < 0)
        gradpool__wire__envelope__free_unpacked(replies[0], NULL);
    return error;
}

static void disconnect(struct top *t)
{
    channel_destroy(t->channel);
    t->channel = NULL;
}

/* Fetches the newest view of the service into `last`. */
static int look(struct top *t, struct err *err)
{
    envelope *replies[2];
    struct snapshot *now;
    int error = t->channel ? 0 : operator_open(t->options.endpoint, &t->channel, err);
    if (error == 0)
        error = ask_both(t->channel, replies, err);
    if (error < 0) {
        disconnect(t);
        return error;
    }
    error = snapshot_create(replies[0], replies[1], &now);
    if (error < 0) {
        gradpool__wire__envelope__free_unpacked(replies[0], NULL);
        gradpool__wire__envelope__free_unpacked(replies[1], NULL);
        return err_set(err, error,
                       "this program cannot read the service's reply: %s; use the gradpool of the "
                       "service's host",
                       err_text(error));
    }
    snapshot_compare(t->last, now);
    snapshot_destroy(t->last);
    t->last = now;
    return 0;
}

static void wait_until(uint64_t deadline_ns)
{
    for (int ms; (ms = clock_poll_ms(deadline_ns, clock_now_ns())) > 0;)
        if (poll(NULL, 0, ms) < 0 && errno != EINTR)
            return;
}

/* --- the terminal --- */

/* Prints the rows that fit on the terminal. Each row is cut to the terminal's width. */
static void print_cut(const char *text, FILE *out)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
        size = (struct winsize){.ws_row = ROWS_DEFAULT, .ws_col = COLUMNS_DEFAULT};
    fputs("\x1b[H", out);
    int column = 0, row = 1;
    for (; *text; text++) {
        bool is_start = (*text & 0xc0) != 0x80;
        if (*text == '\n') {
            if (row++ == size.ws_row)
                break;
            fputs("\x1b[K\n", out);
            column = 0;
        } else if ((column += is_start) <= size.ws_col) {
            fputc(*text, out);
        }
    }
    fputs("\x1b[K\x1b[J", out);
    fflush(out);
}

static void restore_and_end(int number)
{
    ssize_t ignored = write(STDOUT_FILENO, LEAVE_SCREEN, sizeof LEAVE_SCREEN - 1);
    (void)ignored;
    sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    raise(number);
}

static void show(struct top *t, const char *failure)
{
    _cleanup_free_ char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return;
    if (*failure)
        fprintf(out, "gradpool: %s\n\n", failure);
    if (t->last)
        ops_top_text(t->last, out);
    if (fclose(out) == 0 && text)
        print_cut(text, stdout);
}

/* Shows views until a signal arrives or the terminal is closed. */
static int watch(struct top *t)
{
    struct sigaction end = {.sa_handler = restore_and_end};
    for (int i = 0, ends[] = {SIGINT, SIGTERM, SIGHUP}; i < 3; i++)
        sigaction(ends[i], &end, NULL);
    fputs(ENTER_SCREEN, stdout);
    while (!ferror(stdout)) {
        uint64_t next_ns = clock_now_ns() + PERIOD_NS;
        struct err err = {0};
        show(t, look(t, &err) < 0 ? err.text : "");
        wait_until(next_ns);
    }
    return CLI_FAILED;
}

/* Fetches two views, because rates are differences, and prints the second. */
static int print_once(struct top *t)
{
    struct err err = {0};
    int error = look(t, &err);
    if (error == 0)
        wait_until(clock_now_ns() + PERIOD_NS);
    if (error == 0)
        error = look(t, &err);
    if (error < 0) {
        fprintf(stderr, "gradpool: %s\n", err.text);
        return error == -EHOSTDOWN ? CLI_NOTHING : CLI_FAILED;
    }
    error = (t->options.json ? ops_top_json : ops_top_text)(t->last, stdout);
    return error < 0 ? CLI_FAILED : CLI_OK;
}

int cli_top(int argc, char **argv)
{
    static const struct knob_command command = {
        .name = "gradpool top",
        .knobs = top_knobs,
        .set = set,
        .before = "Shows lanes and jobs, updated each second until Ctrl-C: how busy each lane is "
                  "and with which jobs, and the cores that jobs have allocated, use and save "
                  "compared with dedicated servers.",
        .after = "Examples:\n  gradpool top\n  gradpool top --once\n  gradpool top --json\n\n"
                 "Exit code: 0 shown; 1 failed; 2 a mistake on the command line; 3 no service "
                 "there."};
    struct top t = {.options = {.endpoint = OPERATOR_ENDPOINT_DEFAULT}};
    knobs_parse(&command, argc, argv, &t);
    bool is_live = !t.once && !t.options.json && isatty(STDOUT_FILENO);
    int code = is_live ? watch(&t) : print_once(&t);
    disconnect(&t);
    snapshot_destroy(t.last);
    return code;
}
