/* Gathers from the modules what each knows of its libraries, kernels and fabrics, for people who
 * are shown it. Owns the texts. */
#include "svc/build_facts.h"

#include "svc/channel/channel.h"
#include "svc/channel/tls.h"
#include "svc/coordinator/settings.h"
#include "svc/coordinator/store/store.h"
#include "svc/fabric/fabric.h"
#include "svc/fabric/ofi/ofi.h"
#include "svc/host/cores.h"
#include "svc/lane/memory/arena.h"
#include "svc/reduce/reduce.h"

#include <stdio.h>
#include <string.h>

#define LIBRARIES 6
#define KERNELS (REDUCE_SETS - 1)
#define FABRICS 2
#define TEXT_BYTES 192

#ifdef __clang__
#define COMPILER __VERSION__ /* begins with the name */
#else
#define COMPILER "gcc " __VERSION__
#endif

static struct library libraries[LIBRARIES];
static struct view_library library_views[LIBRARIES];
static struct view_ability kernels[KERNELS], fabrics[FABRICS];
static char fabric_texts[FABRICS][TEXT_BYTES];

static void ask_libraries(void)
{
    fabric_ofi_library(&libraries[0]);
    channel_library(&libraries[1]);
    tls_library(&libraries[2]);
    arena_library(&libraries[3]);
    cores_library(&libraries[4]);
    store_sqlite_library(&libraries[5]);
    for (size_t i = 0; i < LIBRARIES; i++)
        library_views[i] =
            (struct view_library){libraries[i].name, libraries[i].built, libraries[i].running};
}

static void ask_kernels(const char *best)
{
    static const char *const names[KERNELS] = {"c", "avx2", "avx512"};
    for (size_t i = 0; i < KERNELS; i++) {
        enum reduce_set set;
        bool is_there = reduce_set_find(names[i], &set) == 0;
        bool is_best = is_there && strcmp(reduce_set_name(set), best) == 0;
        kernels[i] = (struct view_ability){.name = names[i],
                                           .is_there = is_there,
                                           .text = is_best    ? "used unless told otherwise"
                                                   : is_there ? "can be asked for"
                                                              : "not on this machine"};
    }
}

static void ask_fabric(const char *kind, const char *name, struct view_ability *ret_fabric,
                       char *text)
{
    struct fabric *fabric = NULL;
    struct fabric_options options = {0};
    int error = fabric_open(kind, &options, &fabric);
    snprintf(text, TEXT_BYTES, "%s", error < 0 ? err_text(error) : fabric_describe(fabric));
    *ret_fabric = (struct view_ability){.name = name, .is_there = error == 0, .text = text};
    fabric_close(fabric);
}

const struct view_build *build_facts(void)
{
    static struct view_build facts;
    const char *best = reduce_set_name(REDUCE_BEST);
    ask_libraries();
    ask_kernels(best);
    ask_fabric("shm", "shm", &fabrics[0], fabric_texts[0]);
    ask_fabric("ofi", "tcp", &fabrics[1], fabric_texts[1]);
    facts = (struct view_build){.version = GRADPOOL_VERSION,
                                .commit = coordinator_commit,
                                .compiler = COMPILER,
                                .best_kernels = best,
                                .protocol = CHANNEL_VERSION,
                                .libraries = library_views,
                                .libraries_count = LIBRARIES,
                                .kernels = kernels,
                                .kernels_count = KERNELS,
                                .fabrics = fabrics,
                                .fabrics_count = FABRICS};
    return &facts;
}

int build_facts_cores(size_t *ret_count, struct err *err)
{
    struct cores *cores;
    int error = cores_create(NULL, &cores, err);
    if (error < 0)
        return error;
    *ret_count = cores_count(cores);
    cores_destroy(cores);
    return 0;
}
