/* Ends of processes in place of a sleep, when a job rests: the cursor with which a later job
 * continues the deal. */
#include "client/lib/elastic/resume.h"
#include "client/lib/session/process.h"
#include "client/lib/steps/internal.h"

#include <errno.h>
#include <limits.h>

static bool cursor_has_begun(const struct job_steps *s)
{
    return s->number > 0 || s->phase != STEPS_NEXT || s->rest->is_used;
}

static int cursor_describe(const struct gp_job *job, int error)
{
    if (error == -EINVAL)
        return client_error(error,
                            "gp_deal_rests: job '%s': the cursor was stored by a deal with other "
                            "values; restore the gp_deal, or begin without the cursor",
                            job->name);
    if (error == -EBADMSG)
        return client_error(error,
                            "gp_deal_rests: job '%s': the words are no cursor of a deal; pass the "
                            "words of gp_deal_cursor()",
                            job->name);
    return steps_fail_memory();
}

/* Begins the deal at the cursor. A late worker uses only the number of earlier steps from the
 * cursor, because another rank sends the deal to this worker. */
static int cursor_begin(struct gp_job *job, const uint64_t *words, size_t count)
{
    struct job_steps *s = job->steps;
    struct step_deal deal;
    uint64_t before, founders[RANKS_WORDS] = {0};
    for (uint32_t rank = 0; rank < job->join.workers; rank++)
        ranks_add(founders, rank);
    int error = resume_read(words, count, &s->deal->spec, founders, &deal, &before);
    if (error < 0)
        return cursor_describe(job, error);
    s->rest->before = before;
    s->rest->print = resume_print(words, count);
    struct step_deal unused = s->holds ? *s->deal : deal;
    if (s->holds)
        *s->deal = deal;
    deal_fini(&unused);
    return 0;
}

int gp_deal_rests(gp_job *job, const uint64_t *cursor, size_t count)
{
    int error = job_check(job);
    if (error < 0)
        return error;
    if (!cursor && count > 0)
        return client_error(-EINVAL, "gp_deal_rests: cursor is NULL; pass the words, or count 0");
    pthread_mutex_lock(&job->lock);
    struct job_steps *s = job->steps;
    if (!s || !s->record)
        error =
            client_error(-EINVAL, "job '%s' has no deal; call gp_deal_declare() first", job->name);
    else if (cursor_has_begun(s))
        error = client_error(-EINVAL,
                             "gp_deal_rests: job '%s' has begun its steps; make this call before "
                             "the first gp_step_begin()",
                             job->name);
    else if (count > 0)
        error = cursor_begin(job, cursor, count);
    if (error == 0)
        s->rest->may_end = true;
    pthread_mutex_unlock(&job->lock);
    return error;
}

int gp_deal_cursor(gp_job *job, uint64_t *ret_words, size_t room)
{
    int result = job_check(job);
    if (result < 0)
        return result;
    if (!ret_words && room > 0)
        return client_error(-EINVAL, "gp_deal_cursor: ret_words is NULL; pass memory for words");
    pthread_mutex_lock(&job->lock);
    const struct job_steps *s = job->steps;
    bool is_offered = s && s->record && s->rest->is_offered;
    size_t count = is_offered ? resume_words(s->deal) : 0;
    if (is_offered && count <= room)
        resume_write(s->deal, s->rest->before, ret_words);
    if (!is_offered || count > INT_MAX)
        result = client_error(-EINVAL,
                              "gp_deal_cursor: job '%s' does not rest; call gp_deal_cursor() only "
                              "after GP_RESTS",
                              job->name);
    else
        result = (int)count;
    pthread_mutex_unlock(&job->lock);
    return result;
}
