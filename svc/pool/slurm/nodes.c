/* Nodes on which workers have failed. After three consecutive failures no worker starts on the node
 * for a minute, if workers can start on another node. Each further failure doubles this time, up to
 * ten minutes. */
#include "svc/base/text.h"
#include "svc/pool/slurm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILURES_MAX 3
#define PAUSE_NS (60 * NS_PER_S)
#define PAUSE_MAX_NS (600 * NS_PER_S)

/* Returns the record of the node. A node without a record gets a free record, or the record whose
 * pause ends first. */
static struct slurm_node *nodes_find(struct slurm *s, const char *name)
{
    struct slurm_node *oldest = &s->nodes[0];
    for (size_t i = 0; i < SLURM_NODES_MAX; i++) {
        if (strcmp(s->nodes[i].name, name) == 0)
            return &s->nodes[i];
        if (*oldest->name && (!*s->nodes[i].name || s->nodes[i].until_ns < oldest->until_ns))
            oldest = &s->nodes[i];
    }
    *oldest = (struct slurm_node){0};
    snprintf(oldest->name, sizeof oldest->name, "%s", name);
    return oldest;
}

/* Returns whether workers can start on another node. salloc and sbatch set SLURM_JOB_NUM_NODES. */
static bool nodes_has_other(const struct slurm *s, uint64_t now_ns)
{
    const char *text = getenv("SLURM_JOB_NUM_NODES");
    unsigned long nodes = text ? strtoul(text, NULL, 10) : 1, left_out = 0;
    for (size_t i = 0; i < SLURM_NODES_MAX; i++)
        left_out += s->nodes[i].until_ns > now_ns;
    return !s->has_steps || left_out + 1 < nodes;
}

void nodes_ended(struct slurm *s, const char *node, bool has_failed, uint64_t now_ns)
{
    if (!*node)
        return;
    struct slurm_node *found = nodes_find(s, node);
    if (!has_failed) {
        found->failures = 0;
        found->pause_ns = found->until_ns = 0;
        return;
    }
    if (++found->failures < FAILURES_MAX || !nodes_has_other(s, now_ns))
        return;
    found->pause_ns = found->pause_ns == 0                 ? PAUSE_NS
                      : 2 * found->pause_ns < PAUSE_MAX_NS ? 2 * found->pause_ns
                                                           : PAUSE_MAX_NS;
    found->until_ns = now_ns + found->pause_ns;
    snprintf(
        s->saying, sizeof s->saying,
        "%u workers in a row have failed on node %s, so no worker starts there for %llu s; see "
        "the logs of their ranks",
        found->failures, node, (unsigned long long)(found->pause_ns / NS_PER_S));
}

void nodes_excluded(const struct slurm *s, uint64_t now_ns, char *ret_text, size_t text_bytes)
{
    *ret_text = '\0';
    for (size_t i = 0; i < SLURM_NODES_MAX; i++)
        if (s->nodes[i].until_ns > now_ns)
            text_append(ret_text, text_bytes, "%s%s", *ret_text ? "," : "", s->nodes[i].name);
}
