/* Recording and replay of stages. A file contains one line for each stage, with number, cursor,
 * steps of a trial, ranks and name. With GP_BSP the results of a replay have the same bits as those
 * of the recorded run, because ranks and steps are the same. Rank 0 reads and writes the files. */
#include "client/lib/border/internal.h"
#include "client/lib/session/process.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 8192 /* 768 ranks and a name */

#define RECORD_VARIABLE "GRADPOOL_STAGES_RECORD"
#define REPLAY_VARIABLE "GRADPOOL_STAGES_REPLAY"

/* Returns the path in a variable; NULL: this rank neither records nor replays. */
static const char *script_path(const struct gp_job *job, const char *variable)
{
    const char *path = job->rank == 0 ? getenv(variable) : NULL;
    return path && *path ? path : NULL;
}

static int script_refuse(const char *variable, const char *path, int code, const char *what)
{
    return client_error(code, "%s: file '%.300s' %s: %s; name another file, or unset the variable",
                        variable, path, what, err_text(code));
}

/* ---- replay ---- */

static bool line_read_ranks(char *text, uint64_t *ret_ranks)
{
    for (char *rest = NULL, *word = strtok_r(text, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest)) {
        char *end;
        unsigned long rank = strtoul(word, &end, 10);
        if (*end || end == word || rank >= RANKS_WORDS * 64)
            return false;
        ranks_add(ret_ranks, (uint32_t)rank);
    }
    return !ranks_are_none(ret_ranks);
}

/* Reads "NUMBER CURSOR STEPS RANKS NAME". */
static bool line_read(char *line, struct stage_line *ret_line, const char **ret_name)
{
    char *rest = NULL;
    line[strcspn(line, "\n")] = '\0';
    const char *number = strtok_r(line, " ", &rest), *cursor = strtok_r(NULL, " ", &rest);
    const char *steps = strtok_r(NULL, " ", &rest);
    char *ranks = strtok_r(NULL, " ", &rest);
    if (!number || !cursor || !ranks)
        return false;
    *ret_line =
        (struct stage_line){.trial_steps = (uint32_t)strtoul(steps, NULL, 10), .is_there = true};
    *ret_name = rest ? rest : "";
    return line_read_ranks(ranks, ret_line->ranks);
}

/* Finds the line of stage `number`. Returns false if the file has none. */
static bool script_find(FILE *file, uint64_t number, char *line, struct stage_line *ret_line,
                        const char **ret_name)
{
    while (fgets(line, LINE_BYTES, file))
        if (strtoull(line, NULL, 10) == number)
            return line_read(line, ret_line, ret_name);
    return false;
}

int script_next(const struct stage_call *call, struct stage_line *ret_line)
{
    const char *path = script_path(call->job, REPLAY_VARIABLE), *name = "";
    const char *wanted = call->spec ? call->spec->name : "";
    uint64_t number = call->stage->now.number + 1;
    char line[LINE_BYTES];
    *ret_line = (struct stage_line){0};
    if (!path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return script_refuse(REPLAY_VARIABLE, path, -errno, "cannot be opened");
    bool is_found = script_find(file, number, line, ret_line, &name);
    fclose(file);
    if (!is_found || strcmp(name, wanted) != 0)
        return client_error(-EINVAL,
                            "%s: file '%.200s' has no line for stage %" PRIu64
                            " '%.127s'; replay the script that was recorded",
                            REPLAY_VARIABLE, path, number, wanted);
    return 0;
}

/* ---- recording ---- */

static void script_write(FILE *file, const struct job_stage *stage)
{
    bool is_first = true;
    fprintf(file, "%" PRIu64 " %" PRIu64 " %u ", stage->now.number, stage->now.cursor,
            stage->trial_steps);
    for (uint32_t rank = 0; rank < RANKS_WORDS * 64; rank++) {
        if (!ranks_have(stage->members, rank))
            continue;
        fprintf(file, "%s%u", is_first ? "" : ",", rank);
        is_first = false;
    }
    fprintf(file, " %s\n", stage->name);
}

int script_note(const struct gp_job *job, const struct job_stage *stage)
{
    const char *path = script_path(job, RECORD_VARIABLE);
    if (!path)
        return 0;
    FILE *file = fopen(path, stage->now.number == 1 ? "we" : "ae");
    if (!file)
        return script_refuse(RECORD_VARIABLE, path, -errno, "cannot be opened");
    script_write(file, stage);
    return fclose(file) == 0 ? 0
                             : script_refuse(RECORD_VARIABLE, path, -errno, "cannot be written");
}
