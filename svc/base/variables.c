/* Warns about GRADPOOL_ variables that no program reads, which are usually typing errors, and names
 * the most similar known variable. A client also knows the variables of the service, because one
 * shell may set the variables of both. */
#include "svc/base/variables.h"

#include "svc/base/log.h"
#include "svc/base/text.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "GRADPOOL_"
#define PREFIX_BYTES (sizeof PREFIX - 1)
#define TEST_PREFIX "TEST_" /* prefix of variables of the test command */
#define WORD_MAX 48

/* Known names without GRADPOOL_: options of subcommands (test_variables compares them), and
 * variables of the client library, the Python package, the log and the tests. */
static const char *const known[] = {
    "ADVERTISE",
    "AGGREGATORS",
    "AGGREGATORS_MIN",
    "AGGREGATOR_TIMEOUT",
    "ALLOW_UID",
    "BUILD",
    "CONNECT_TIMEOUT_MS",
    "CORES",
    "DATA_PORT",
    "DURABILITY",
    "EAGER_BYTES",
    "ENDPOINT",
    "EXPLORE",
    "GRANT",
    "HTTP",
    "IDLE_CONNECTIONS_MAX",
    "INCARNATION",
    "INTERFACE",
    "JOB",
    "JOB_BYTES_MAX",
    "JOB_LENT_MAX",
    "JOB_MEMORY_MAX",
    "JOB_PIECES_MAX",
    "JOB_REGIONS_MAX",
    "JOB_REQUESTS_MAX",
    "JOB_TABLE_BYTES_MAX",
    "JOB_TENSORS_MAX",
    "JOB_WORKERS_MAX",
    "JOIN",
    "KERNELS",
    "KEY",
    "KEY_FILE",
    "LANES_MAX",
    "LANES_MIN",
    "LANES_PER_CORE",
    "LANES_SPARE",
    "LANE_MEMORY_MAX",
    "LANE_POLICY",
    "LEAVE_TIMEOUT",
    "LIBRARY",
    "LISTEN",
    "LOG_LEVEL",
    "LOSS_LIMIT",
    "MASTER",
    "NAME",
    "NETWORK_GBIT",
    "NODE",
    "NODES",
    "ORDER_HOLD",
    "ORPHAN_TIMEOUT",
    "PIECE_MAX",
    "POLICY",
    "PROGRESS_SECONDS",
    "PROVIDER",
    "RANK",
    "REQUIRE_TLS",
    "SCALE",
    "SCALE_HOLD",
    "SERVICE",
    "SIZE",
    "STALL_MS",
    "STATE_DIR",
    "STOP",
    "TENANT_BYTES_MAX",
    "TENANT_CONNECTIONS_MAX",
    "TENANT_CPU_MAX",
    "TENANT_JOBS_MAX",
    "TENANT_LENT_MAX",
    "TENANT_MESSAGES_MAX",
    "TENANT_PIECES_MAX",
    "TENANT_REGIONS_MAX",
    "TENANT_TABLE_BYTES_MAX",
    "TENANT_TENSORS_MAX",
    "TENANT_WORKERS_MAX",
    "TIMELINE",
    "TIMEOUT_MS",
    "TRANSPORT",
    "WORKER_SLOTS",
    "WORKERS_MAX",
    "WORKER_TIMEOUT",
    NULL,
};

/* Variables that earlier versions read. Their options now exist only on the command line, because
 * every child process inherits a variable, whether the variable is intended for the child or
 * not. */
static const char *const removed[] = {
    "INSECURE", "JSON",    "LANE_TIME", "ONCE", "OPERATOR", "OUTPUT", "PERIOD",
    "PLAIN",    "SECONDS", "TENANT",    "UNDO", "WORKERS",  NULL,
};

/* Returns the number of edits (insert, delete, replace) that convert one word to the other. */
static size_t distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1], length = strlen(b);
    if (strlen(a) > WORD_MAX || length > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t above = row[j];
            size_t least = diagonal + (a[i - 1] != b[j - 1]);
            least = above + 1 < least ? above + 1 : least;
            row[j] = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            diagonal = above;
        }
    }
    return row[length];
}

const char *variables_closest(const char *word, const char *const *names)
{
    const char *closest = NULL;
    size_t least = 1 + strlen(word) / 3;
    for (; *names; names++) {
        size_t edits = distance(word, *names);
        if (edits <= least && (!closest || edits < least)) {
            closest = *names;
            least = edits;
        }
    }
    return closest;
}

static bool is_one_of(const char *const *names, const char *setting)
{
    size_t length = strcspn(setting, "=");
    for (; *names; names++)
        if (strlen(*names) == length && strncmp(*names, setting, length) == 0)
            return true;
    return false;
}

static void check(const char *setting)
{
    char word[64] = "";
    size_t length = strcspn(setting, "=");
    memcpy(word, setting, length < sizeof word ? length : sizeof word - 1);
    bool is_for_tests = strncmp(setting, TEST_PREFIX, strlen(TEST_PREFIX)) == 0;
    if (is_for_tests || is_one_of(known, setting))
        return;
    const char *closest = variables_closest(word, known);
    log_warn("gradpool has no environment variable " PREFIX "%s%s%s%s", word,
             closest ? "; did you mean " PREFIX : "", closest ? closest : "", closest ? "?" : "");
}

void variables_check(void)
{
    char typed[512] = "";
    for (char **setting = environ; setting && *setting; setting++) {
        if (strncmp(*setting, PREFIX, PREFIX_BYTES) != 0)
            continue;
        const char *word = *setting + PREFIX_BYTES;
        if (is_one_of(removed, word))
            text_append(typed, sizeof typed, "%s" PREFIX "%.*s", *typed ? ", " : "",
                        (int)strcspn(word, "="), word);
        else
            check(word);
    }
    if (*typed)
        log_warn("gradpool does not read these environment variables: %s; give the options on the "
                 "command line",
                 typed);
}
