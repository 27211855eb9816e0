/* Copies states of tensors with update rules between lanes and memory. gp_job_read() reads states
 * for one rank, through the coordinator. gp_save() and gp_restore() transfer states in rounds of
 * all ranks, tensor by tensor. Owns the connection of a read. Never delays the end of a job.
 * README: L90, L91. */
#include "client/lib/state/state.h"

#include "client/lib/round/push_pull.h"
#include "client/lib/session/process.h"
#include "client/lib/state/checksum.h"
#include "svc/state/state_fetch.h"
#include "svc/state/state_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- read by one rank ---- */

struct reading {
    struct gp_job *job;
    gp_state *states;
    size_t count;
    struct state_fetch conversation;
    gp_state **sorted; /* sorted by name */
    char **names;      /* names of the tensors, sorted */
    uint64_t *have;    /* received bytes of each state, sorted by name */
    struct err err;
};

static int check_states(const struct gp_job *job, const gp_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct gp_tensor *t = states[i].tensor;
        if (!t || t->job != job)
            return client_error(
                -EINVAL,
                "state %zu: the tensor is not of job '%s'; pass a handle that this job declared", i,
                job->name);
        if (!t->terms.rule)
            return client_error(-EINVAL,
                                "tensor '%s' was declared without an update rule, so lanes keep no "
                                "state; declare the tensor with a rule",
                                t->name);
        if (t->elements > 0 && !states[i].arrays)
            return client_error(-EINVAL,
                                "tensor '%s': the pointer to the arrays of its state is NULL; pass "
                                "memory for the state",
                                t->name);
    }
    return 0;
}

static int compare_states(const void *a, const void *b)
{
    const gp_state *const *left = a, *const *right = b;
    return strcmp((*left)->tensor->name, (*right)->tensor->name);
}

/* Sorts the states in the order of the reply. */
static int sort_states(struct reading *r)
{
    r->sorted = calloc(r->count, sizeof *r->sorted);
    r->names = calloc(r->count, sizeof *r->names);
    r->have = calloc(r->count, sizeof *r->have);
    if (!r->sorted || !r->names || !r->have)
        return err_set(
            &r->err, -ENOMEM,
            "job '%s': this process has no memory for %zu states; raise its memory limit",
            r->job->name, r->count);
    for (size_t i = 0; i < r->count; i++)
        r->sorted[i] = &r->states[i];
    qsort(r->sorted, r->count, sizeof *r->sorted, compare_states);
    for (size_t i = 0; i < r->count; i++)
        r->names[i] = r->sorted[i]->tensor->name;
    return 0;
}

static int check_reply(struct reading *r)
{
    const Gradpool__Wire__SnapshotReply *what = r->conversation.what;
    if (what->n_tensors != r->count)
        return err_set(
            &r->err, -EINVAL,
            "gp_job_read: the list of %zu tensors names some tensors twice: only %zu are "
            "different; name each tensor once",
            r->count, what->n_tensors);
    for (size_t i = 0; i < r->count; i++) {
        const Gradpool__Wire__SnapshotTensor *found = what->tensors[i];
        const struct gp_tensor *t = r->sorted[i]->tensor;
        if (strcmp(found->name, t->name) != 0 || found->elements != t->elements ||
            found->rule != t->terms.rule)
            return err_set(&r->err, -EPROTO,
                           "tensor '%s' has another size or update rule in the service than in "
                           "this process; install one version of gradpool on all hosts",
                           t->name);
        r->sorted[i]->steps = found->steps;
    }
    return 0;
}

static int take_part(void *context, size_t tensor, uint64_t offset, const void *data, size_t bytes,
                     struct err *err)
{
    struct reading *r = context;
    uint64_t most = tensor < r->count ? tensor_state_bytes(r->sorted[tensor]->tensor) : 0;
    if (tensor >= r->count || bytes == 0 || offset > most || bytes > most - offset ||
        bytes > most - r->have[tensor])
        return err_set(err, -EBADMSG,
                       "gp_job_read: the service sent bytes beyond the end of a tensor; install "
                       "one version of gradpool on all hosts");
    memcpy((char *)r->sorted[tensor]->arrays + offset, data, bytes);
    r->have[tensor] += bytes;
    return 0;
}

static int check_whole(struct reading *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct gp_tensor *t = r->sorted[i]->tensor;
        if (r->have[i] != tensor_state_bytes(t))
            return err_set(
                &r->err, -EBADMSG,
                "gp_job_read: the service did not send all bytes of tensor '%s'; call again",
                t->name);
    }
    return 0;
}

static int converse(struct reading *r)
{
    const struct state_wish wish = {.job = r->job->name,
                                    .tenant = client_tenant(r->job->client),
                                    .is_between = true,
                                    .tensors = r->names,
                                    .tensors_count = r->count};
    int64_t count;
    int result = state_fetch_begin(&r->conversation, &wish, &r->err);
    if (result == 0)
        result = check_reply(r);
    if (result < 0)
        return result;
    while ((count = state_fetch_next(&r->conversation, take_part, r, &r->err)) > 0)
        continue;
    result = count < 0 ? (int)count : check_whole(r);
    return result < 0 ? result : state_fetch_end(&r->conversation, &r->err);
}

bool state_take_turn(struct gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool may = !job->is_leaving && !job->is_reading;
    if (may) {
        job->is_reading = true;
        job->users++;
    }
    pthread_mutex_unlock(&job->lock);
    return may;
}

bool state_is_left(struct gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool is_leaving = job->is_leaving;
    pthread_mutex_unlock(&job->lock);
    return is_leaving;
}

void state_end_turn(struct gp_job *job, struct channel *channel)
{
    pthread_mutex_lock(&job->lock);
    client_disconnect_operator(&job->read_fd, channel);
    job->is_reading = false;
    job_end_use(job);
}

/* Ends the read. The service lets the rounds of the job continue when the connection of the read
 * ends, also after an error. */
static void reading_end(struct reading *r)
{
    state_end_turn(r->job, r->conversation.channel);
    state_fetch_free(&r->conversation);
    free(r->sorted);
    free(r->names);
    free(r->have);
}

int gp_job_read(gp_job *job, gp_state *states, size_t count)
{
    int error = job_check(job);
    if (error == 0 && count > 0 && !states)
        error = client_error(
            -EINVAL, "gp_job_read: count is %zu, but states is NULL; pass count states", count);
    if (error == 0)
        error = check_states(job, states, count);
    if (error < 0 || count == 0)
        return error;
    if (!state_take_turn(job))
        return client_error(-EBUSY,
                            "gp_job_read: job '%s' is being left, or another thread is in "
                            "gp_job_read(); call from one thread at a time",
                            job->name);
    struct reading reading = {.job = job, .states = states, .count = count};
    error = sort_states(&reading)
                ?: client_connect_operator(job->client, &job->lock, &job->read_fd,
                                           &reading.conversation.channel, &reading.err);
    /* gp_job_leave() may have run before the socket existed */
    if (error == 0 && !state_is_left(job))
        error = converse(&reading);
    if (state_is_left(job))
        error = err_set(&reading.err, -ECANCELED, "the job was left");
    if (error < 0)
        client_error(error, "job '%s': the parameters on lanes were not read: %s", job->name,
                     reading.err.text[0] ? reading.err.text : err_text(error));
    reading_end(&reading);
    return error;
}

void state_cancel_read(struct gp_job *job)
{
    if (job->read_fd >= 0)
        shutdown(job->read_fd, SHUT_RDWR);
}

void state_abandon_read_in_child(struct gp_job *job)
{
    if (job->read_fd >= 0)
        close(job->read_fd);
}

/* ---- by all ranks ---- */

static int check_kept(const gp_tensor *t)
{
    int error = tensor_check(t);
    if (error == 0 && !t->terms.rule)
        error =
            client_error(-EINVAL,
                         "tensor '%s' was declared without an update rule, so lanes keep no state; "
                         "declare the tensor with a rule",
                         t->name);
    return error;
}

int gp_save(gp_tensor *tensor, float *arrays, gp_request **ret_request)
{
    int error = check_kept(tensor);
    if (error == 0 && tensor->round == 0)
        error = client_error(-ENODATA, "tensor '%s' has no parameters yet: broadcast them first",
                             tensor->name);
    return error < 0 ? error : push_save(tensor, arrays, ret_request);
}

int gp_restore(gp_tensor *tensor, const float *arrays, float *parameters, uint32_t root,
               uint64_t steps, gp_request **ret_request)
{
    int error = check_kept(tensor);
    if (error == 0 && root >= tensor->job->workers)
        error = client_error(
            -EINVAL,
            "tensor '%s': root %u is no rank of a job of %u workers; name a rank of the job",
            tensor->name, root, tensor->job->workers);
    return error < 0 ? error : push_restore(tensor, root, arrays, parameters, steps, ret_request);
}

uint64_t gp_checksum(const void *const *arrays, const size_t *bytes, size_t count)
{
    uint64_t sum = count;
    for (size_t i = 0; i < count; i++)
        sum = checksum(sum, arrays[i], bytes[i]);
    return sum;
}
