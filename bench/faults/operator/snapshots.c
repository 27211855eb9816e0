/* Orders snapshots and compares them with a replay. Owns the running command and the file. Must
 * never compare with memory of the job's workers, because a snapshot contains the lanes' state. */
#include "bench/faults/operator/snapshots.h"

#include "bench/faults/worker/replay.h"
#include "bench/faults/worker/timed.h"
#include "bench/faults/worker/victim.h"
#include "svc/state/state_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the file --- */

static void complain(struct snapshots *s, uint64_t wrong, const char *tensor, const char *what)
{
    fprintf(stderr, "# snapshot of %s, %s: %s\n", s->job, tensor, what);
    s->wrong += wrong;
}

static uint64_t count_different(const float *a, const float *b, uint64_t elements)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < elements; i++)
        count += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return count;
}

/* Returns the round of the last broadcast. The service counts rounds from 1, the bench from 0. */
static uint64_t set_round_of(const struct state_tensor *t) { return t->round - 1 - t->steps; }

/* Compares the tensor with a replay of all steps since its last broadcast. Moments before the first
 * step are undefined and not compared. */
static uint64_t count_wrong(struct replay *r, const struct state_tensor *t, float *saved)
{
    uint64_t set_round = set_round_of(t), wrong;
    size_t arrays = state_tensor_bytes(t) / sizeof *saved / t->elements;
    float *spare = calloc(t->elements, sizeof *spare);
    if (!spare)
        return t->elements;
    replay_set(r, set_round, spare);
    for (uint64_t step = 1; step <= t->steps; step++)
        replay_step(r, set_round + step);
    wrong = count_different(saved, r->parameters, t->elements);
    for (size_t i = 1; t->steps > 0 && i < arrays; i++)
        wrong += count_different(saved + i * t->elements, r->moments[i - 1], t->elements);
    free(spare);
    return wrong;
}

static void check_arrays(struct snapshots *s, size_t tensor, const struct state_file *file,
                         const struct state_tensor *t)
{
    struct err err = {0};
    struct replay replay = {.rule = (enum update_rule)t->rule,
                            .seed = s->seed,
                            .tensor = tensor,
                            .elements = t->elements,
                            .workers = s->workers};
    float *saved = malloc(state_tensor_bytes(t));
    if (!saved || replay_init(&replay) < 0)
        complain(s, t->elements, t->name, "the bench has no memory to check the tensor");
    else if (state_file_read(file, t, saved, &err) < 0)
        complain(s, t->elements, t->name, err.text);
    else {
        uint64_t wrong = count_wrong(&replay, t, saved);
        if (wrong > 0)
            complain(s, wrong, t->name, "its bits differ from the replay of its steps");
    }
    s->elements_checked += t->elements;
    replay_fini(&replay);
    free(saved);
}

static void check_tensor(struct snapshots *s, size_t tensor, const struct state_file *file)
{
    struct victim_rule rule;
    char name[16];
    snprintf(name, sizeof name, "tensor.%zu", tensor);
    victim_rule(tensor, &rule);
    const struct state_tensor *t = state_file_find(file, name);
    if (!t || t->elements != rule.elements || t->rule != (uint8_t)rule.rule)
        complain(s, rule.elements, name, "the tensor is missing, or has another size or rule");
    else if (t->steps != file->tensors[0].steps || t->round != file->tensors[0].round)
        complain(s, rule.elements, name,
                 "its steps or round differ from those of the first tensor");
    else if (t->steps >= VICTIM_SET_ROUNDS || set_round_of(t) % VICTIM_SET_ROUNDS != 0)
        complain(s, rule.elements, name, "no round has this number of steps");
    else
        check_arrays(s, tensor, file, t);
}

static void check(struct snapshots *s)
{
    struct state_file file;
    struct victim_rule rule;
    struct err err = {0};
    if (state_file_open(s->path, &file, &err) < 0) {
        complain(s, 1, "file", err.text);
        return;
    }
    for (size_t tensor = 1; victim_rule(tensor, &rule); tensor++)
        check_tensor(s, tensor, &file);
    state_file_close(&file);
    s->done++;
}

/* --- the command --- */

static void take(struct snapshots *s, int code)
{
    const char *text = s->errand.text;
    if (code == 0) {
        check(s);
        return;
    }
    bool is_clear = call_names_a_cause(text) || strstr(text, "job") || strstr(text, "tensor");
    s->refused++;
    s->unnamed += !is_clear;
    fprintf(stderr, "# snapshot of %s: %s%s\n", s->job, text, is_clear ? "" : "   <- unclear");
    if (access(s->path, F_OK) == 0)
        complain(s, 1, "file", "it is there, though the command has failed");
}

void snapshots_step(struct snapshots *s, const char *job, uint64_t seed, uint32_t workers)
{
    const char *const arguments[] = {"snapshot", s->job, "--output", s->path, NULL};
    int code = errand_end(&s->errand, false);
    if (code == ERRAND_RUNS)
        return;
    if (code >= 0)
        take(s, code);
    snprintf(s->job, sizeof s->job, "%s", job);
    snprintf(s->path, sizeof s->path, "%s/taken", s->errand.service->folder);
    s->seed = seed;
    s->workers = workers;
    unlink(s->path);
    errand_begin(&s->errand, arguments);
}

void snapshots_end(struct snapshots *s)
{
    int code = errand_end(&s->errand, true);
    if (code >= 0)
        take(s, code);
}
