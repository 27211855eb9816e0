/* Texts between the pool and Slurm. Owns nothing, and makes no system call. */
#include "svc/pool/slurm/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_START "gradpool-"

void slurm_name_write(const struct cookie *cookie, char text[SLURM_NAME_BYTES])
{
    snprintf(text, SLURM_NAME_BYTES, NAME_START "%016" PRIx64 "-%" PRIu32 "-%" PRIu64, cookie->pool,
             cookie->rank, cookie->incarnation);
}

bool slurm_name_parse(const char *text, struct cookie *ret_cookie)
{
    struct cookie found = {0};
    char behind;
    if (sscanf(text, NAME_START "%16" SCNx64 "-%9" SCNu32 "-%20" SCNu64 "%c", &found.pool,
               &found.rank, &found.incarnation, &behind) != 3)
        return false;
    *ret_cookie = found;
    return true;
}

/* Copies the next column of `width` characters without the blanks at its end. A value that fills
 * its column may be cut. Returns the text behind the column. */
static const char *column_take(const char *at, size_t width, char *ret_value, size_t value_bytes)
{
    size_t have = strnlen(at, width), used = have < value_bytes ? have : value_bytes - 1;
    memcpy(ret_value, at, used);
    while (used > 0 && ret_value[used - 1] == ' ')
        used--;
    ret_value[used] = '\0';
    return at + have;
}

static bool state_is_among(const char *state, const char *const *names)
{
    while (*names && strcmp(*names, state) != 0)
        names++;
    return *names;
}

/* A state in none of these lists, for example CONFIGURING or REQUEUED, counts as a state before the
 * start. */
static enum slurm_phase phase_of_state(const char *state)
{
    static const char *const over[] = {"BOOT_FAIL", "CANCELLED",     "COMPLETED", "DEADLINE",
                                       "FAILED",    "NODE_FAIL",     "PREEMPTED", "REVOKED",
                                       "TIMEOUT",   "OUT_OF_MEMORY", NULL};
    static const char *const running[] = {"RUNNING", "RESIZING",  "SIGNALING",
                                          "STOPPED", "SUSPENDED", NULL};
    static const char *const ending[] = {"COMPLETING", "STAGE_OUT", NULL};
    return state_is_among(state, over)      ? SLURM_OVER
           : state_is_among(state, running) ? SLURM_RUNNING
           : state_is_among(state, ending)  ? SLURM_ENDING
                                            : SLURM_PENDING;
}

/* Reads the kind of the end. `status` is a status of waitpid(). If Slurm itself has ended the job,
 * the kind is unknown. */
static void read_status(struct slurm_entry *entry, const char *status)
{
    unsigned long number = strtoul(status, NULL, 10);
    bool is_own = strcmp(entry->state, "COMPLETED") == 0 || strcmp(entry->state, "FAILED") == 0;
    entry->end = !is_own ? END_UNKNOWN : (number & 0x7f) ? END_SIGNAL : END_EXIT;
    entry->number = (int)(entry->end == END_SIGNAL ? number & 0x7f : (number >> 8) & 0xff);
}

bool slurm_line_parse(const char *line, bool is_step, struct slurm_entry *ret_entry)
{
    struct slurm_entry entry = {.is_step = is_step};
    char name[SLURM_NAME_BYTES + 1], status[17] = "";
    const char *at = column_take(line, SLURM_NAME_BYTES, name, sizeof name);
    at = column_take(at, SLURM_ID_BYTES, entry.id, sizeof entry.id);
    at = column_take(at, 32, entry.state, sizeof entry.state);
    if (!is_step)
        at = column_take(at, 16, status, sizeof status);
    at = column_take(at, 128, entry.node, sizeof entry.node);
    if (!is_step)
        column_take(at, 128, entry.reason, sizeof entry.reason);
    bool is_numbered = entry.id[0] >= '0' && entry.id[0] <= '9' &&
                       strspn(entry.id, "0123456789._+") == strlen(entry.id);
    if (!slurm_name_parse(name, &entry.cookie) || !is_numbered || !*entry.state ||
        entry.cookie.rank >= POOL_RANKS_MAX)
        return false;
    entry.phase = phase_of_state(entry.state);
    read_status(&entry, status);
    *ret_entry = entry;
    return true;
}
