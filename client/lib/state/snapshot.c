/* Snapshots of a job: copies the states of its tensors with update rules, and the rows of its
 * tables, to a file and back. Every rank takes part, tensor by tensor in order of names; the lowest
 * rank has the file. Before each step all ranks agree on the step and on the absence of errors, so
 * an error of one rank is an error of all. README: L26, L27, L31, L32. */
#include "client/lib/declare/declare.h"
#include "client/lib/round/push_pull.h"
#include "client/lib/session/process.h"
#include "client/lib/state/internal.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(struct gp_tensor *const *)a)->name, (*(struct gp_tensor *const *)b)->name);
}

static int check_tensor(const struct gp_tensor *t, struct err *err)
{
    if (t->failure.code)
        return err_set(err, t->failure.code, "%s", t->failure.text);
    if (!terms_are_for_all(&t->terms))
        return err_set(
            err, -EOPNOTSUPP,
            "tensor '%s' has a set of ranks of its own, which a snapshot cannot contain; "
            "save the tensor in the script",
            t->name);
    if (t->request)
        return err_set(err, -EBUSY, "tensor '%s' has an open request; wait for the request first",
                       t->name);
    return 0;
}

static struct state_tensor describe(const struct gp_tensor *t)
{
    return (struct state_tensor){
        .name = t->name, .dtype = t->dtype, .rule = t->terms.rule, .elements = t->elements};
}

static uint64_t longest(const struct snapshot *s)
{
    uint64_t most = 0;
    for (size_t i = 0; i < s->count; i++) {
        uint64_t bytes = tensor_state_bytes(s->tensors[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Computes one hash over the names and shapes of all tensors. */
static void take_print(struct snapshot *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct gp_tensor *t = s->tensors[i];
        uint64_t words[] = {s->print, state_sum(t->name, strlen(t->name)), t->elements,
                            t->terms.rule};
        s->print = state_sum(words, sizeof words) >> 1;
    }
}

/* Lists all tensors, including failed tensors, because ranks compare their declarations. */
static void find_tensors(struct snapshot *s)
{
    pthread_mutex_lock(&s->job->lock);
    s->tensors = calloc(s->job->by_name.count + 1, sizeof *s->tensors);
    if (!s->tensors)
        err_set(
            &s->err, -ENOMEM,
            "job '%s': this process has no memory for the list of tensors; raise its memory limit",
            s->job->name);
    for_each_tensor (t, s->job) {
        if (t->terms.rule && s->tensors)
            s->tensors[s->count++] = t;
        if (t->terms.rule && s->err.code == 0)
            check_tensor(t, &s->err);
    }
    pthread_mutex_unlock(&s->job->lock);
    if (s->count > 0)
        qsort(s->tensors, s->count, sizeof(struct gp_tensor *), compare_names);
    take_print(s);
    snapshot_tables_find(s);
}

/* ---- together ---- */

static bool is_same_set(void *context)
{
    const struct snapshot *s = context;
    for (size_t i = 0; i < s->count && !s->job->failure.code; i++) {
        const struct gp_tensor *t = s->tensors[i];
        if (t->failure.code)
            continue;
        if (t->entering > 0 ||
            (t->knows_ranks && memcmp(t->ranks, s->agreement->ranks, sizeof t->ranks) != 0))
            return false;
    }
    return true;
}

/* Waits until tensors and agreement have the same set of ranks. A late worker enters the tensors
 * before the agreement. The late worker itself waits until lanes have sent the round numbers of its
 * tensors. */
static int await_all(struct snapshot *s)
{
    gp_job *job = s->job;
    if (!job->is_elastic)
        return 0;
    pthread_mutex_lock(&job->lock);
    uint64_t deadline_ns = clock_now_ns() + job->client->timeout_ns;
    bool is_done = engine_run(&job->engine, deadline_ns, is_same_set, s);
    pthread_mutex_unlock(&job->lock);
    return is_done ? 0
                   : client_error(-ETIMEDOUT,
                                  "job '%s': a late worker has not called gp_job_snapshot() or "
                                  "gp_job_restore() in time; call the function on all ranks",
                                  job->name);
}

/* Stores the open round, in which other ranks wait. The next call ends this round first. */
static void leave_unfinished(const struct snapshot *s)
{
    s->job->unfinished = (struct unfinished){.request = s->unfinished,
                                             .agreement = s->ours,
                                             .state = s->state,
                                             .root = s->root,
                                             .restores = s->restores,
                                             .next = s->next ? s->next->id : 0};
}

static void finish(struct snapshot *s)
{
    free(s->tensors);
    snapshot_tables_end(s);
    if (s->unfinished)
        return leave_unfinished(s);
    gp_free(s->job, s->ours);
    gp_free(s->job, s->state);
}

/* Pushes the next tensor after a time-out of this rank. The agreement was complete, so the other
 * ranks wait in the round of this tensor. */
static int push_next(gp_job *job, struct unfinished *u)
{
    const struct agreement *least = (const struct agreement *)u->agreement + 1;
    pthread_mutex_lock(&job->lock);
    struct gp_tensor *t = u->next ? tensor_find_id(job, u->next) : NULL;
    pthread_mutex_unlock(&job->lock);
    u->next = 0;
    if (!t || !is_agreed(least))
        return -ENOENT;
    if (!u->restores)
        return push_save(t, u->state, &u->request);
    return push_restore(t, u->root, u->state, NULL, (uint64_t)-least->negative_steps, &u->request);
}

/* Ends a call that has timed out before. -ETIMEDOUT: a rank is still late. Other errors of the
 * former call are ignored. */
static int end_unfinished(gp_job *job)
{
    struct unfinished *u = &job->unfinished;
    while (u->request) {
        int error = gp_wait(u->request, GP_TIMEOUT_DEFAULT);
        if (error == -ETIMEDOUT)
            return error;
        u->request = NULL;
        if (error == 0)
            push_next(job, u);
    }
    gp_free(job, u->agreement);
    gp_free(job, u->state);
    *u = (struct unfinished){0};
    return 0;
}

/* Starts a snapshot or restore. Afterwards the rank with the file is known, and has memory for the
 * longest state. */
static int begin(gp_job *job, bool restores, struct snapshot *ret)
{
    *ret = (struct snapshot){.job = job, .restores = restores, .is_over = true};
    int r = end_unfinished(job);
    if (r == -ETIMEDOUT)
        return say_who_is_late(ret);
    if (r == 0)
        r = declare_internal(job, AGREEMENT_NAME, GP_I64, AGREEMENT_WORDS, job->client->timeout_ns,
                             &ret->agreement);
    if (r == 0)
        r = gp_alloc(job, 2 * sizeof *ret->ours, (void **)&ret->ours);
    if (r < 0)
        return r;
    ret->least = ret->ours + 1;
    find_tensors(ret);
    r = await_all(ret) ?: agree(ret, AT_BEGIN, NULL);
    /* this result is the same on every rank, because all ranks have declared the same tensors */
    if (r == 0 && ret->count == 0 && ret->tables.count == 0)
        r = client_error(-EINVAL,
                         "no tensor of job '%s' has an update rule, so a snapshot would be empty; "
                         "save in the script",
                         job->name);
    if (r == 0)
        snapshot_tables_settle(ret);
    if (r == 0 && ret->count > 0 && has_file(ret)) {
        int error = gp_alloc(job, longest(ret), &ret->state);
        if (error < 0)
            err_set(&ret->err, error, "%s", gp_last_error());
    }
    return r;
}

static bool may_begin(void *context)
{
    const gp_job *job = context;
    return job->failure.code || hold_lets_save(job);
}

/* Keeps the set of ranks fixed during the call: a worker that joins meanwhile enters afterwards. */
static int keep_ranks(gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    uint64_t deadline_ns = clock_now_ns() + job->client->timeout_ns;
    hold_note_saving(job, true);
    bool may = engine_run(&job->engine, deadline_ns, may_begin, job);
    pthread_mutex_unlock(&job->lock);
    return may ? 0
               : client_error(-ETIMEDOUT,
                              "job '%s': the coordinator has not permitted gp_job_snapshot() or "
                              "gp_job_restore() in time; call again",
                              job->name);
}

/* maximum number of attempts in one call: other ranks may begin again several times */
#define BEGINNINGS_MAX 4

/* One attempt. -ERESTART: other ranks have timed out and begun again, so all ranks begin again. */
typedef int (*attempt_fn)(struct snapshot *s, const char *path, const gp_item *items, size_t count);

static int carry_out(gp_job *job, bool restores, attempt_fn attempt, const char *path,
                     const gp_item *items, size_t count)
{
    job->users++;
    int error = keep_ranks(job);
    error = error == 0 ? -ERESTART : error;
    for (int i = 0; i < BEGINNINGS_MAX && error == -ERESTART; i++) {
        struct snapshot s;
        error = begin(job, restores, &s) ?: attempt(&s, path, items, count);
        finish(&s);
    }
    if (error == -ERESTART)
        error = client_error(-EINVAL,
                             "job '%s': some ranks called gp_job_snapshot(), others "
                             "gp_job_restore(); call one of them on all ranks",
                             job->name);
    pthread_mutex_lock(&job->lock);
    hold_note_saving(job, false);
    job_end_use(job);
    return error;
}

/* ---- to a file ---- */

static int begin_file(struct snapshot *s, const char *path, struct state_writer *ret_writer)
{
    struct state_tensor *described = calloc(s->count + 1, sizeof *described);
    if (!described)
        return err_set(
            &s->err, -ENOMEM,
            "job '%s': this process has no memory for the list of tensors; raise its memory limit",
            s->job->name);
    for (size_t i = 0; i < s->count; i++)
        described[i] = describe(s->tensors[i]);
    int error = path ? state_write_begin(path, described, s->count, ret_writer, &s->err)
                     : err_set(&s->err, -EINVAL,
                               "gp_job_snapshot: the path of rank %u is NULL or empty; name a file",
                               s->root);
    free(described);
    return error;
}

/* Saves a tensor. An error of the file reaches the other ranks in the next agreement. */
static int save_tensor(struct snapshot *s, size_t i, struct state_writer *w, size_t step)
{
    struct gp_tensor *t = s->tensors[i];
    gp_request *q = NULL;
    /* the largest number of all ranks counts, because some ranks may not know the number; 0: no
     * rank knows the number */
    uint64_t steps = t->knows_steps || s->job->is_elastic ? t->steps[t->round % 3] + 1 : 0;
    s->next = t;
    int error = agree(s, step, &steps);
    if (error == 0 && steps == 0)
        error = client_error(-ENODATA,
                             "tensor '%s': no rank knows its number of updates, because the "
                             "coordinator was started again at a border between stages; save the "
                             "tensor with gp_save()",
                             t->name);
    if (error == 0) {
        s->next = NULL;
        error = wait_for(s, push_save(t, s->state, &q), &q);
    }
    if (error == 0 && has_file(s))
        state_write_put(w, i, steps - 1, t->round, s->state, &s->err);
    return error;
}

static int save_all(struct snapshot *s, struct state_writer *w)
{
    size_t step = AT_FILE;
    int error = agree(s, step++, NULL);
    for (size_t i = 0; i < s->count && error == 0; i++)
        error = save_tensor(s, i, w, step++);
    if (error < 0)
        return error;
    s->next = NULL;
    error = snapshot_tables_copy(s, w, &step);
    /* all ranks agree that the whole file is written */
    if (error == 0)
        error = agree(s, step++, NULL);
    if (error == 0 && has_file(s))
        state_write_finish(w, &s->err);
    return error < 0 ? error : agree(s, step, NULL);
}

/* Checks that every tensor has parameters. If parameters are missing, lanes refuse the round, and
 * the tensor fails (L32). */
static void check_parameters(struct snapshot *s)
{
    pthread_mutex_lock(&s->job->lock);
    for (size_t i = 0; i < s->count && s->err.code == 0; i++) {
        if (s->tensors[i]->round == 0)
            err_set(&s->err, -ENODATA, "tensor '%s' has no parameters yet: broadcast them first",
                    s->tensors[i]->name);
    }
    pthread_mutex_unlock(&s->job->lock);
}

static int save(struct snapshot *s, const char *path, const gp_item *items, size_t count)
{
    struct state_writer w = {.file = {.fd = -1}};
    check_parameters(s);
    if (has_file(s) && s->err.code == 0)
        begin_file(s, path, &w);
    int error = save_all(s, &w);
    state_write_abandon(&w); /* has no effect on a complete file */
    return error;
}

int gp_job_snapshot(gp_job *job, const char *path)
{
    int error = job_check(job);
    return error < 0 ? error : carry_out(job, false, save, path, NULL, 0);
}

/* ---- from a file ---- */

static int check_fits(const struct gp_tensor *t, const struct state_tensor *saved, struct err *err)
{
    if (!saved)
        return err_set(
            err, -EINVAL,
            "the snapshot has no tensor '%s'; restore the file that was saved with this model",
            t->name);
    if (saved->elements != t->elements || saved->rule != t->terms.rule)
        return err_set(err, -EINVAL,
                       "tensor '%s' has %" PRIu64 " elements and rule %s, in the snapshot %" PRIu64
                       " and %s",
                       t->name, t->elements, update_name(t->terms.rule), saved->elements,
                       update_name(saved->rule));
    return 0;
}

static bool is_declared(const struct snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->tensors[i]->name, name) == 0)
            return true;
    }
    return false;
}

/* A file from which all ranks restore. */
struct restoring {
    const char *path; /* of this rank */
    struct state_file file;
    size_t checked; /* number of tensors whose state was read to check the file */
};

static int check_names(struct snapshot *s, const struct state_file *f)
{
    int error = 0;
    for (size_t i = 0; i < s->count && error == 0; i++)
        error = check_fits(s->tensors[i], state_file_find(f, s->tensors[i]->name), &s->err);
    for (size_t i = 0; i < f->count && error == 0 && f->count != s->count; i++) {
        if (!is_declared(s, f->tensors[i].name))
            error = err_set(&s->err, -EINVAL,
                            "tensor '%s' of the snapshot was not declared with an update rule; "
                            "declare the tensors of the saved model",
                            f->tensors[i].name);
    }
    return error;
}

/* Finds all errors of the content of the file before the first restore (L26). See part_fn. */
static int check_part(struct snapshot *s, void *restoring, uint64_t until_ns)
{
    struct restoring *r = restoring;
    const struct state_file *f = &r->file;
    int more = 1;
    while (more > 0 && r->checked < f->count && clock_now_ns() < until_ns)
        more = state_file_read(f, &f->tensors[r->checked++], s->state, &s->err) ?: 1;
    if (more > 0 && r->checked == f->count)
        more = snapshot_tables_check(s, f, until_ns);
    if (more < 0) {
        const struct err why = s->err;
        err_set(&s->err, why.code, "%s: %s", r->path, why.text);
    }
    return more;
}

static int open_file(struct snapshot *s, const char *path, struct state_file *ret_file)
{
    if (!path)
        return err_set(&s->err, -EINVAL,
                       "gp_job_restore: the path of rank %u is NULL or empty; name a file",
                       s->root);
    int error = state_file_open(path, ret_file, &s->err);
    return error < 0 ? error : check_names(s, ret_file);
}

static void *place_of(const struct gp_tensor *t, const gp_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].tensor == t)
            return items[i].result;
    }
    return NULL;
}

static int restore_tensor(struct snapshot *s, size_t i, const struct state_file *f,
                          void *parameters, size_t step)
{
    struct gp_tensor *t = s->tensors[i];
    gp_request *q = NULL;
    uint64_t steps = 0;
    if (has_file(s)) {
        const struct state_tensor *saved = state_file_find(f, t->name);
        steps = saved->steps;
        state_file_read(f, saved, s->state, &s->err);
    }
    s->next = t;
    int error = agree(s, step, &steps);
    if (error == 0) {
        s->next = NULL;
        void *result = has_file(s) ? NULL : parameters;
        error = wait_for(s, push_restore(t, s->root, s->state, result, steps, &q), &q);
    }
    if (error == 0 && has_file(s) && parameters && t->bytes > 0)
        memcpy(parameters, s->state, t->bytes);
    return error;
}

static int restore(struct snapshot *s, const char *path, const gp_item *items, size_t count)
{
    struct restoring r = {.path = path, .file = {.fd = -1}};
    size_t step = RESTORES + AT_FILE;
    if (has_file(s) && s->err.code == 0)
        open_file(s, path, &r.file);
    int error = agree(s, step++, NULL);
    if (error == 0)
        error = agree_in_parts(s, check_part, &r, &step);
    /* rows first: a refusal of their limits then leaves the tensors unchanged */
    if (error == 0)
        error = snapshot_tables_copy(s, NULL, &step);
    for (size_t i = 0; i < s->count && error == 0; i++)
        error = restore_tensor(s, i, &r.file, place_of(s->tensors[i], items, count), step++);
    state_file_close(&r.file);
    return error;
}

int gp_job_restore(gp_job *job, const char *path, const gp_item *items, size_t count)
{
    int error = job_check(job);
    if (error == 0 && count > 0 && !items)
        error = client_error(
            -EINVAL, "gp_job_restore: count is %zu, but items is NULL; pass count items", count);
    return error < 0 ? error : carry_out(job, true, restore, path, items, count);
}
