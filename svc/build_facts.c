/* Collects the versions of libraries and the instruction sets of the kernels for `gradpool doctor`.
 * Owns the texts. */
#include "svc/build_facts.h"

#include "svc/base/text.h"
#include "svc/channel/channel.h"
#include "svc/channel/tls.h"
#include "svc/coordinator/settings.h"
#include "svc/coordinator/store/store.h"
#include "svc/fabric/ofi/ofi.h"
#include "svc/host/cores.h"
#include "svc/lane/memory/arena.h"
#include "svc/reduce/reduce.h"

#include <stdio.h>
#include <string.h>

#define LIBRARIES 6
#define TEXT_BYTES 64

#ifdef __clang__
#define COMPILER __VERSION__ /* begins with the compiler's name */
#else
#define COMPILER "gcc " __VERSION__
#endif

static struct library libraries[LIBRARIES];
static struct view_library library_views[LIBRARIES];

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

/* Returns the instruction sets of this machine, fastest first, such as "avx2, c". */
static const char *ask_kernels(void)
{
    static const char *const names[] = {"avx512", "avx2", "c"};
    static char text[TEXT_BYTES];
    snprintf(text, sizeof text, "%s", reduce_set_name(REDUCE_BEST));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum reduce_set set;
        if (reduce_set_find(names[i], &set) == 0 &&
            strcmp(names[i], reduce_set_name(REDUCE_BEST)) != 0)
            text_append(text, sizeof text, ", %s", names[i]);
    }
    return text;
}

const struct view_build *build_facts(void)
{
    static struct view_build facts;
    ask_libraries();
    facts = (struct view_build){.version = GRADPOOL_VERSION,
                                .commit = coordinator_commit,
                                .compiler = COMPILER,
                                .kernels = ask_kernels(),
                                .protocol = CHANNEL_VERSION,
                                .libraries = library_views,
                                .libraries_count = LIBRARIES};
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
