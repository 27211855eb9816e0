/* Says in the log which lanes a job was given and why. Owns the sentences; decides nothing. */
#include "svc/coordinator/asking.h"
#include "svc/coordinator/service.h"

#include "svc/base/log.h"
#include "svc/base/text.h"

#include <stdio.h>

#define LANES_NAMED 8
#define SENTENCE_BYTES 640
#define PPM_PER_PERCENT 1e4

const char *share_why(enum share_how how)
{
    switch (how) {
    case SHARE_BY_POLICY: return "as the policy has it";
    case SHARE_ALONE: return "no other job was there, so that it could be measured";
    case SHARE_BESIDE:
        return "it was not measured yet and no lane was free: least was loaded there";
    case SHARE_FITS: return "everybody stays within his loss limit there";
    case SHARE_OVER: return "no lane kept everybody within his loss limit: least was loaded there";
    case SHARE_MOVED:
        return "its lane was lost and no lane kept all limits: least was loaded there";
    case SHARE_DRAINED:
        return "its lane was drained and no lane kept all limits: least was loaded there";
    case SHARE_ORDERED: return "an operator moved it there";
    case SHARE_GATHERED:
        return "its lane was emptied by growth; everybody stays within his limit here";
    case SHARE_RELIEVED:
        return "on the lane it left a job lost more than its limit; here everybody stays within "
               "his";
    case SHARE_NARROWED: return "it is seen here how many lanes it needs";
    case SHARE_SHIFTED: return "the lane that it left, or this one, was slow for it";
    case SHARE_UNKNOWN: break;
    }
    return "from before this start";
}

/* "lanes 1, 4, 7 and 12 more" */
static void name_lanes(const struct packer_plan *plan, char *text)
{
    text_append(text, SENTENCE_BYTES, "lane%s ", plan->shares_count == 1 ? "" : "s");
    for (size_t i = 0; i < plan->shares_count && i < LANES_NAMED; i++)
        text_append(text, SENTENCE_BYTES, "%s%u", i ? ", " : "", plan->shares[i].lane);
    if (plan->shares_count > LANES_NAMED)
        text_append(text, SENTENCE_BYTES, " and %zu more", plan->shares_count - LANES_NAMED);
}

/* What the packer expects of it, where it knows: the largest losses over the lanes. */
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

void deciding_log(const struct job *job, const char *what, size_t count, bool is_first,
                  const struct answer *answer)
{
    char text[SENTENCE_BYTES] = "", prefix[TENANT_PREFIX_BYTES];
    name_lanes(&answer->plan, text);
    text_append(text, sizeof text, ": %s", share_why(answer->how));
    name_losses(&answer->plan, text);
    log_write(is_first ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, "job %s%s, policy %s: %zu %s on %s",
              tenant_prefix(job->tenant, prefix), job->name, job->service->options.policy, count,
              what, text);
}
