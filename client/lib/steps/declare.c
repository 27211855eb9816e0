/* Sets the weight and the deal of a job. Weight and deal are freed at the end of the job. */
#include "client/lib/declare/declare.h"

#include "client/lib/job/tensor.h"
#include "client/lib/session/process.h"
#include "client/lib/steps/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

_Static_assert(GP_WEIGHT_MAX == RECORD_WEIGHT_MAX, "the limit of gradpool_elastic.h is the wire's");

#define HIDDEN 3 /* number of hidden tensors of a deal */

int steps_fail_memory(void)
{
    return client_error(
        -ENOMEM, "this process has no memory for the deal and its tensors; raise its memory limit");
}

static int steps_create(struct gp_job *job)
{
    if (job->steps)
        return 0;
    job->steps = calloc(1, sizeof *job->steps);
    if (job->steps && !(job->steps->rest = calloc(1, sizeof *job->steps->rest))) {
        free(job->steps);
        job->steps = NULL;
    }
    if (!job->steps)
        return steps_fail_memory();
    job->steps->weight = RECORD_WEIGHT;
    return 0;
}

void steps_free(struct gp_job *job)
{
    if (!job->steps)
        return;
    if (job->steps->deal)
        deal_fini(job->steps->deal);
    free(job->steps->deal);
    free(job->steps->carried);
    free(job->steps->rest);
    free(job->steps);
    job->steps = NULL;
}

static int steps_check_job(const struct gp_job *job)
{
    if (job->backup.count == 0)
        return 0;
    return client_error(-EOPNOTSUPP,
                        "job '%s' has backup workers, whose rounds lack some ranks; weights and "
                        "deals need every rank. Join without gp_job_spec.backup",
                        job->name);
}

int gp_job_weigh(gp_job *job, uint32_t weight)
{
    int error = job_check(job);
    if (error == 0)
        error = steps_check_job(job);
    if (error < 0)
        return error;
    if (weight > GP_WEIGHT_MAX)
        return client_error(-EINVAL, "job '%s': weight %u of a gradient, expected at most %d",
                            job->name, weight, GP_WEIGHT_MAX);
    pthread_mutex_lock(&job->lock);
    error = steps_create(job);
    if (error == 0)
        job->steps->weight = weight;
    pthread_mutex_unlock(&job->lock);
    return error;
}

/* ---- the deal ---- */

static int check_batch(const struct gp_job *job, const gp_deal *deal)
{
    uint32_t batch = deal->batch_per_worker ? deal->batch_per_worker : deal->batch;
    /* the last step of an epoch may have share_least - 1 samples more */
    uint32_t more = deal->share_least > 1 ? deal->share_least - 1 : 0;
    uint32_t most = more < GP_WEIGHT_MAX ? GP_WEIGHT_MAX - more : 0;
    if (batch == 0 || batch > most)
        return client_error(-EINVAL,
                            "job '%s': a deal with a batch of %u samples, expected 1 to %u",
                            job->name, batch, most);
    if (deal->batch_per_worker && deal->batch)
        return client_error(-EINVAL,
                            "job '%s': a deal with batch %u and batch_per_worker %u; set one of "
                            "them to 0",
                            job->name, deal->batch, deal->batch_per_worker);
    if (deal->share_least > batch || deal->share_least > deal->samples)
        return client_error(-EINVAL,
                            "job '%s': the deal has %" PRIu64 " samples and a batch of %u, but "
                            "share_least is %u; lower share_least, or raise the batch",
                            job->name, deal->samples, batch, deal->share_least);
    return 0;
}

static int check_deal(const struct gp_job *job, const gp_deal *deal)
{
    if (!deal)
        return client_error(-EINVAL, "gp_deal_declare: the deal is NULL; pass a gp_deal");
    if (deal->samples == 0 || deal->epochs == 0)
        return client_error(-EINVAL,
                            "job '%s': a deal of %" PRIu64 " samples in %" PRIu64
                            " epochs, expected at least one of each",
                            job->name, deal->samples, deal->epochs);
    int error = check_batch(job, deal);
    if (error < 0)
        return error;
    if (deal->prefetch > DEAL_PREFETCH_MAX)
        return client_error(-EINVAL, "job '%s': a deal with prefetch %u, expected at most %d",
                            job->name, deal->prefetch, DEAL_PREFETCH_MAX);
    return steps_check_job(job);
}

/* Begins the deal. Its first members are all ranks with which the job starts, even ranks that never
 * join. */
static int deal_begin(struct gp_job *job, const struct deal_spec *spec)
{
    struct job_steps *s = job->steps;
    uint64_t founders[RANKS_WORDS] = {0};
    for (uint32_t rank = 0; rank < job->join.workers; rank++)
        ranks_add(founders, rank);
    s->holds = !job->join_is_late;
    s->deal->spec = *spec;
    int error = s->holds ? deal_init(s->deal, spec, founders) : 0;
    if (error == 0)
        return 0;
    deal_fini(s->deal);
    return steps_fail_memory();
}

static int take_deal(struct gp_job *job, const gp_deal *deal, gp_tensor *const *hidden)
{
    struct job_steps *s = job->steps;
    const struct deal_spec spec = {.samples = deal->samples,
                                   .epochs = deal->epochs,
                                   .seed = deal->seed,
                                   .batch = deal->batch,
                                   .batch_per_worker = deal->batch_per_worker,
                                   .prefetch = deal->prefetch,
                                   .share_least = deal->share_least};
    if (!s->deal && !(s->deal = calloc(1, sizeof *s->deal)))
        return steps_fail_memory();
    int error = deal_begin(job, &spec);
    if (error < 0)
        return error;
    s->record = hidden[0];
    s->carry = hidden[1];
    s->end = hidden[2];
    return 0;
}

static int deal_reserve(struct gp_job *job)
{
    pthread_mutex_lock(&job->lock);
    int error = steps_create(job);
    if (error == 0 && job->steps->record)
        error = client_error(-EEXIST, "job '%s' has a deal already; call gp_deal_declare() once",
                             job->name);
    pthread_mutex_unlock(&job->lock);
    return error;
}

int gp_deal_declare(gp_job *job, const gp_deal *deal, const gp_tensor_spec *specs, size_t count,
                    gp_tensor **ret_tensors)
{
    static const gp_tensor_spec hidden[HIDDEN] = {
        {.name = STEPS_RECORD_NAME, .dtype = GP_I64, .elements = STEP_WORDS_COUNT},
        {.name = STEPS_CARRY_NAME, .dtype = GP_I64, .elements = STEPS_CARRY_WORDS},
        {.name = STEPS_END_NAME, .dtype = GP_I64, .elements = 1}};
    int error = job_check(job);
    if (error == 0 && count > 0 && !ret_tensors)
        error = client_error(-EINVAL,
                             "gp_deal_declare: ret_tensors is NULL; pass memory for the handles");
    if (error == 0)
        error = check_deal(job, deal);
    if (error == 0)
        error = deal_reserve(job);
    if (error < 0)
        return error;
    gp_tensor **all = calloc(HIDDEN + count, sizeof *all);
    if (!all)
        return steps_fail_memory();
    error = declare_together(job, hidden, HIDDEN, specs, count, all);
    pthread_mutex_lock(&job->lock);
    if (error == 0)
        error = take_deal(job, deal, all);
    pthread_mutex_unlock(&job->lock);
    for (size_t i = 0; error == 0 && i < count; i++)
        ret_tensors[i] = all[HIDDEN + i];
    free(all);
    return error;
}
