/* Reasons for placements, as texts for views and the log. Decides nothing. */
#include "svc/coordinator/placement/reason.h"

#include "svc/coordinator/placement/ask_packer.h"
#include "svc/coordinator/service.h"

#include "svc/base/log.h"
#include "svc/base/text.h"

#define LANES_NAMED 8
#define SENTENCE_BYTES 640
#define PPM_PER_PERCENT 1e4

const char *share_why(enum share_how how)
{
    switch (how) {
    case SHARE_BY_POLICY: return "chosen by the policy";
    case SHARE_ALONE: return "a free lane, so that the job is measured without others";
    case SHARE_BESIDE:
        return "no lane was free for a job that is not measured yet: this lane had the least load";
    case SHARE_FITS: return "every job stays within its loss limit there";
    case SHARE_OVER:
        return "no lane is known to keep every job within its loss limit: this lane had the least "
               "load";
    case SHARE_MOVED:
        return "the former lane was lost, and no lane keeps all limits: this lane had the least "
               "load";
    case SHARE_DRAINED:
        return "the former lane was drained, and no lane keeps all limits: this lane had the least "
               "load";
    case SHARE_ORDERED: return "an operator moved the task to this lane";
    case SHARE_GATHERED:
        return "growth emptied the former lane; every job stays within its limit here";
    case SHARE_RELIEVED:
        return "on the former lane a job lost more than its limit; every job stays within its "
               "limit here";
    case SHARE_NARROWED: return "growth tests how many lanes the job needs";
    case SHARE_SHIFTED:
        return "the former lane was slow for the job, or an experiment uses this lane";
    case SHARE_UNKNOWN: break;
    }
    return "chosen before this start of the service";
}

/* Writes a list such as "lanes 1, 4, 7 and 12 more". */
static void name_lanes(const struct packer_plan *plan, char *text)
{
    text_append(text, SENTENCE_BYTES, "lane%s ", plan->shares_count == 1 ? "" : "s");
    for (size_t i = 0; i < plan->shares_count && i < LANES_NAMED; i++)
        text_append(text, SENTENCE_BYTES, "%s%u", i ? ", " : "", plan->shares[i].lane);
    if (plan->shares_count > LANES_NAMED)
        text_append(text, SENTENCE_BYTES, " and %zu more", plan->shares_count - LANES_NAMED);
}

/* Writes the largest predicted loss on any lane, if the plan has predictions. */
static void name_losses(const struct packer_plan *plan, char *text)
{
    uint32_t own_ppm = 0, others_ppm = 0;
    for (size_t i = 0; i < plan->shares_count; i++) {
        const struct packer_share *share = &plan->shares[i];
        own_ppm = share->loss_ppm > own_ppm ? share->loss_ppm : own_ppm;
        others_ppm = share->worst_ppm > others_ppm ? share->worst_ppm : others_ppm;
    }
    if (own_ppm || others_ppm)
        text_append(text, SENTENCE_BYTES,
                    " (predicted loss %.1f %%, of others there at most %.1f %%)",
                    own_ppm / PPM_PER_PERCENT, others_ppm / PPM_PER_PERCENT);
}

void deciding_log(const struct job *job, const char *one, const char *many, size_t count,
                  bool is_first, const struct answer *answer)
{
    char text[SENTENCE_BYTES] = "", prefix[TENANT_PREFIX_BYTES];
    name_lanes(&answer->plan, text);
    text_append(text, sizeof text, ": %s", share_why(answer->how));
    name_losses(&answer->plan, text);
    log_write(is_first ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "job %s%s, policy %s: %zu %s to %s",
              tenant_prefix(job->tenant, prefix), job->name, job->service->options->policy, count,
              count == 1 ? one : many, text);
}
