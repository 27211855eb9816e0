/* Determines which aggregators end with this process, and which jobs can continue without the
 * process. The only state, service_end.takes_along and service_end.ends_container, is set when the
 * service starts (RULES.md: K93, K107). */
#include "svc/coordinator/order/outliving.h"

#include "svc/base/system/process.h"
#include "svc/base/text.h"
#include "svc/coordinator/job/table.h"
#include "svc/coordinator/service.h"

#include <errno.h>
#include <stdlib.h>

/* Inode of the host's first PID namespace (PROC_PID_INIT_INO in the kernel). */
#define HOST_NAMESPACE UINT64_C(0xeffffffc)

/* Returns whether the container ends with this process: the process is the first of the container,
 * or a child of a first process such as tini. */
static bool is_first_of_container(void)
{
    uint64_t namespace = process_namespace();
    bool is_inside = namespace != 0 && namespace != HOST_NAMESPACE;
    return getpid() == 1 || (is_inside && getppid() == 1);
}

/* Returns whether this is the main process of a systemd unit. The unit's KillMode, which is unknown
 * here, decides whether the unit's other processes are killed. */
static bool is_main_of_unit(void)
{
    const char *told = getenv("SYSTEMD_EXEC_PID");
    uint64_t pid;
    return told && text_parse_u64(told, 1, UINT32_MAX, &pid) == 0 && pid == (uint64_t)getpid();
}

int outliving_create(struct service *s)
{
    s->ending = calloc(1, sizeof *s->ending);
    if (!s->ending)
        return -ENOMEM;
    s->ending->service = s;
    timer_init(&s->ending->drain_timer, NULL); /* stopping.c sets the functions of these timers */
    timer_init(&s->ending->give_up_timer, NULL);
    s->ending->ends_container = is_first_of_container();
    if (s->ending->ends_container)
        s->ending->takes_along =
            "local aggregators end with this process, the first of its container";
    else if (is_main_of_unit())
        s->ending->takes_along =
            "local aggregators may end with this systemd unit; with KillMode=process they stay: "
            "then give --stop service";
    return 0;
}

void outliving_destroy(struct service *s)
{
    if (!s->ending)
        return;
    timer_stop(&s->ending->drain_timer);
    timer_stop(&s->ending->give_up_timer);
    free(s->ending);
}

/* Returns whether the aggregator ends with this process. A pidfd of the aggregator shows that both
 * are in the same PID namespace, and so in the same container. */
bool ends_with_service(const struct aggregator *a)
{
    bool is_local = a->slot > 0 || a->former_slot > 0;
    return is_local || (a->service->ending->ends_container && a->process.fd >= 0);
}

bool outliving_has_any(const struct service *s)
{
    list_for_each_entry (const struct aggregator, a, &s->aggregators, link)
        if (a->state != AGGREGATOR_LOST && !a->is_stopping && !ends_with_service(a))
            return true;
    return false;
}

static bool is_bound(const struct tensor *tensor, const struct aggregator *a)
{
    for (size_t i = 0; i < tensor->pieces_count && !tensor->failure; i++)
        if (tensor->pieces[i].lane && tensor->pieces[i].lane->aggregator == a)
            return true;
    return false;
}

static bool table_is_bound(const struct job_table *table, const struct aggregator *a)
{
    table_each_shard(shard, table) if (!table->failure && shard->lane &&
                                       shard->lane->aggregator == a) return true;
    return false;
}

size_t outliving_count_bound(const struct job *job, const struct aggregator *a)
{
    size_t count = 0;
    for (size_t t = 0; t < job->tensors_count; t++)
        count += is_bound(job->tensors[t], a);
    job_each_table(table, job) count += table_is_bound(table, a);
    return count;
}
