/* Owns hwloc's topology and the list of cores that this process may use. Only this file includes
 * hwloc (C5). Nothing changes after cores_create(), so any thread may read the list and bind
 * itself. */
#include "svc/host/cores.h"

#include "svc/base/cleanup.h"
#include "svc/host/cores_list.h"

#include <assert.h>
#include <errno.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>

struct cores {
    hwloc_topology_t topology;
    bool real; /* false: a synthetic machine, to which no thread can be bound (C4) */
    size_t count;
    struct core *list;
};

static void cleanup_bitmap(hwloc_bitmap_t *bitmap) { hwloc_bitmap_free(*bitmap); }

static void cleanup_cores(struct cores **c) { cores_destroy(*c); }

static int hwloc_error(struct err *err, const char *what)
{
    int code = errno > 0 ? -errno : -EIO;
    return err_set(err, code, "hwloc cannot %s: %s", what, err_text(code));
}

/* Loads the topology. The topology includes cores that this process may not use. A core therefore
 * has the same index for every process on the machine, in any cgroup (C2). */
static int load_topology(struct cores *c, struct err *err)
{
    if (hwloc_topology_init(&c->topology) < 0)
        return hwloc_error(err, "start");
    if (hwloc_topology_set_flags(c->topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) < 0 ||
        hwloc_topology_load(c->topology) < 0)
        return hwloc_error(err, "discover the machine");
    c->real = hwloc_topology_is_thissystem(c->topology);
    return 0;
}

/* Finds the PUs that this process may use. hwloc knows the cgroup's cpuset, but not the affinity
 * mask (C1). */
static int find_allowed(const struct cores *c, hwloc_bitmap_t allowed, struct err *err)
{
    _cleanup_(cleanup_bitmap) hwloc_bitmap_t affinity = hwloc_bitmap_alloc();
    if (!affinity || hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(c->topology)) < 0)
        return err_set(err, -ENOMEM, "this process has no memory for the list of cores");
    if (!c->real)
        return 0;
    /* Uses the affinity of this thread, because helper threads of libraries may have another
     * affinity. */
    if (hwloc_get_cpubind(c->topology, affinity, HWLOC_CPUBIND_THREAD) < 0)
        return hwloc_error(err, "read the affinity mask");
    hwloc_bitmap_and(allowed, allowed, affinity);
    return 0;
}

static hwloc_obj_t node_of(const struct cores *c, hwloc_const_cpuset_t cpuset)
{
    return hwloc_get_next_obj_covering_cpuset_by_type(c->topology, cpuset, HWLOC_OBJ_NUMANODE,
                                                      NULL);
}

/* Returns the size of the last-level cache: the last cache on the path to the root. */
static uint64_t cache_bytes(hwloc_obj_t object)
{
    uint64_t bytes = 0;
    for (; object; object = object->parent)
        if (hwloc_obj_type_is_dcache(object->type))
            bytes = object->attr->cache.size;
    return bytes;
}

static struct core describe(const struct cores *c, hwloc_obj_t object, unsigned pu)
{
    struct core core = {
        .index = object->logical_index, .pu = pu, .numa = -1, .cache_bytes = cache_bytes(object)};
    hwloc_obj_t node = node_of(c, object->cpuset);
    if (node) {
        core.numa = (int32_t)node->os_index;
        core.numa_memory_bytes = node->attr->numanode.local_memory;
    }
    return core;
}

static int by_node_then_index(const void *left, const void *right)
{
    const struct core *a = left, *b = right;
    if (a->numa != b->numa)
        return a->numa < b->numa ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Collects the cores. Each core is used through its first allowed PU; further PUs of the core (SMT
 * siblings) are not used (C3). */
static void collect(struct cores *c, int depth, hwloc_const_bitmap_t allowed)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_depth(c->topology, depth, object))) {
        if (!hwloc_bitmap_intersects(object->cpuset, allowed))
            continue;
        int pu = hwloc_bitmap_first(object->cpuset);
        while (!hwloc_bitmap_isset(allowed, (unsigned)pu))
            pu = hwloc_bitmap_next(object->cpuset, pu);
        c->list[c->count++] = describe(c, object, (unsigned)pu);
    }
    qsort(c->list, c->count, sizeof(*c->list), by_node_then_index);
}

static int list_cores(struct cores *c, struct err *err)
{
    _cleanup_(cleanup_bitmap) hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    /* Some virtual machines report PUs but no cores; each PU then counts as a core. */
    int depth = hwloc_get_type_or_below_depth(c->topology, HWLOC_OBJ_CORE);
    c->list = calloc(hwloc_get_nbobjs_by_depth(c->topology, depth), sizeof(*c->list));
    if (!allowed || !c->list)
        return err_set(err, -ENOMEM, "this process has no memory for the list of cores");
    int error = find_allowed(c, allowed, err);
    if (error < 0)
        return error;
    collect(c, depth, allowed);
    return c->count
               ? 0
               : err_set(err, -ENOENT,
                         "the cpuset and the affinity mask of this process have no core in common");
}

int cores_create(const char *list, struct cores **ret_cores, struct err *err)
{
    _cleanup_(cleanup_cores) struct cores *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, -ENOMEM, "this process has no memory for the list of cores");
    int error = load_topology(c, err) ?: list_cores(c, err);
    if (error == 0 && list)
        error = cores_list_narrow(list, c->list, &c->count, err);
    if (error < 0)
        return error;
    *ret_cores = take_ptr(c);
    return 0;
}

void cores_destroy(struct cores *c)
{
    if (!c)
        return;
    if (c->topology)
        hwloc_topology_destroy(c->topology);
    free(c->list);
    free(c);
}

size_t cores_count(const struct cores *c) { return c->count; }

uint64_t cores_memory_bytes(const struct cores *c)
{
    return hwloc_get_root_obj(c->topology)->total_memory;
}

struct core cores_at(const struct cores *c, size_t position)
{
    assert(position < c->count);
    return c->list[position];
}

const char *cores_format(const struct cores *c, size_t first, size_t count, char *buffer,
                         size_t buffer_bytes)
{
    assert(first <= c->count && count <= c->count - first);
    return cores_list_format(c->list + first, count, buffer, buffer_bytes);
}

static bool has_one_node(const struct cores *c)
{
    return hwloc_get_nbobjs_by_type(c->topology, HWLOC_OBJ_NUMANODE) <= 1;
}

/* Returns the core's NUMA node, or NULL if it is unknown. */
static hwloc_const_nodeset_t nodeset_of(const struct cores *c, size_t position)
{
    hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(c->topology, cores_at(c, position).pu);
    hwloc_obj_t node = pu ? node_of(c, pu->cpuset) : NULL;
    return node ? node->nodeset : NULL;
}

/* Returns -EPERM or -EINVAL for a failed binding. hwloc sets several codes for "not supported"; all
 * of these become -EINVAL. */
static int bind_error(void) { return errno == EPERM ? -EPERM : -EINVAL; }

int cores_bind_thread(const struct cores *c, size_t position)
{
    struct core core = cores_at(c, position);
    hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(c->topology, core.pu);
    if (!c->real)
        return -ENOTSUP;
    if (!pu)
        return -EINVAL;
    if (hwloc_set_cpubind(c->topology, pu->cpuset, HWLOC_CPUBIND_THREAD) < 0)
        return bind_error();
    hwloc_const_nodeset_t nodes = has_one_node(c) ? NULL : nodeset_of(c, position);
    /* Containers often forbid this call. The bound thread's first access then still allocates
     * memory of its node. */
    if (nodes)
        (void)hwloc_set_membind(c->topology, nodes, HWLOC_MEMBIND_BIND,
                                HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    return 0;
}

int cores_bind_memory(const struct cores *c, size_t position, void *base, size_t bytes)
{
    if (!c->real || has_one_node(c))
        return 0;
    hwloc_const_nodeset_t nodes = nodeset_of(c, position);
    if (nodes && hwloc_set_area_membind(c->topology, base, bytes, nodes, HWLOC_MEMBIND_BIND,
                                        HWLOC_MEMBIND_BYNODESET) < 0)
        return bind_error();
    return 0;
}

static void format_api(unsigned version, char *buffer, size_t buffer_bytes)
{
    snprintf(buffer, buffer_bytes, "%u.%u", version >> 16, version >> 8 & 0xff);
}

void cores_library(struct library *ret_row)
{
    ret_row->name = "hwloc";
    format_api(HWLOC_API_VERSION, ret_row->built, sizeof ret_row->built);
    format_api(hwloc_get_api_version(), ret_row->running, sizeof ret_row->running);
}
