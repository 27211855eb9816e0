/* Plants a mistake: a rank receives COMMIT as soon as its own result is posted. The results of
 * other ranks may be missing. Linked with --wrap=fabric_write_word,--wrap=fabric_notify. */
#include "svc/fabric/fabric.h"
#include "svc/lane/types.h"

int __real_fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                             size_t bytes, uint32_t word, void *context);
int __wrap_fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                             size_t bytes, uint32_t word, void *context);
int __real_fabric_notify(struct fabric_conn *c, uint32_t word, void *context);
int __wrap_fabric_notify(struct fabric_conn *c, uint32_t word, void *context);

/* Only lanes post words. Each word belongs to the next rank of a transfer. */
static int commit(struct transfer *t, int posted)
{
    struct rank *rank = &t->piece->ranks[t->next_rank];
    if (posted >= 0)
        tell_commit(rank->worker, rank->part);
    return posted;
}

int __wrap_fabric_write_word(struct fabric_conn *c, uint32_t id, uint64_t offset, const void *local,
                             size_t bytes, uint32_t word, void *context)
{
    return commit(context, __real_fabric_write_word(c, id, offset, local, bytes, word, context));
}

int __wrap_fabric_notify(struct fabric_conn *c, uint32_t word, void *context)
{
    return commit(context, __real_fabric_notify(c, word, context));
}
