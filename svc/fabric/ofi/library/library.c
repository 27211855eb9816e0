/* Loads libfabric with dlopen(), and passes calls of its exported functions on. Owns the handle and
 * the addresses, which do not change after the load. A symbol version of libfabric implies a layout
 * of structs. Each function is therefore looked up with the version to which the linker would have
 * bound this program (symbols.py); without this version nothing is called. */
#include "svc/fabric/ofi/library/library.h"

#include "libfabric_symbols.h"
#include "svc/base/log.h"
#include "svc/fabric/ofi/door/signals.h"
#include "svc/fabric/ofi/library/kernel_symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_version) *version;
    __typeof__(fi_strerror) *strerror;
} calls;

static const struct {
    const char *name, *version; /* version "": this libfabric has no symbol versions */
    void *place;                /* entry of `calls` in which the function's address is stored */
} symbols[] = {
    {"fi_getinfo", LIBFABRIC_fi_getinfo, &calls.getinfo},
    {"fi_freeinfo", LIBFABRIC_fi_freeinfo, &calls.freeinfo},
    {"fi_dupinfo", LIBFABRIC_fi_dupinfo, &calls.dupinfo},
    {"fi_fabric", LIBFABRIC_fi_fabric, &calls.fabric},
    {"fi_version", LIBFABRIC_fi_version, &calls.version},
    {"fi_strerror", LIBFABRIC_fi_strerror, &calls.strerror},
};
#define SYMBOLS (sizeof symbols / sizeof *symbols)

/* Names libfabric to packaging tools, which read the libraries that a program loads by itself from
 * this section (UAPI group, "dlopen() metadata for ELF files"). ldd shows only libraries that are
 * loaded at the start. */
__attribute__((used, section(".note.dlopen"), aligned(4))) static const struct {
    uint32_t owner_bytes, text_bytes, type;
    char owner[4];
    char text[(sizeof LIBFABRIC_NOTE + 3) / 4 * 4];
} library_note = {4, sizeof LIBFABRIC_NOTE, 0x407c0c0a, "FDO", LIBFABRIC_NOTE};

/* A constructor of a library may fork, in the thread that has locked this mutex. A mutex of this
 * kind then returns an error instead of waiting forever. */
#define LIBRARY_UNLOCKED ((pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP)
#define FORK_WAIT_S 2

/* protects `calls` until the library is loaded */
static pthread_mutex_t library_lock = LIBRARY_UNLOCKED;
static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static _Atomic bool library_is_loaded;
/* this thread is in fork(), and has locked library_lock */
static _Thread_local bool library_fork_locks;

/* Returns whether to log the reason of an error. Each attempt of each connection loads again, so
 * the reason is logged once. */
static bool library_error_is_new(int error)
{
    static int logged;
    bool is_new = error != logged;
    logged = error;
    return is_new;
}

static int library_find_all(void *library)
{
    void *found[SYMBOLS];
    for (size_t i = 0; i < SYMBOLS; i++) {
        const char *version = symbols[i].version;
        found[i] =
            *version ? dlvsym(library, symbols[i].name, version) : dlsym(library, symbols[i].name);
        if (!found[i] && library_error_is_new(-ELIBBAD))
            log_error("transport=ofi library=" LIBFABRIC_SONAME " error=\"the library has no "
                      "function %s of version %s, for which gradpool was compiled\" next=\"install "
                      "libfabric %d.%d or a later version, or compile gradpool on this host\"",
                      symbols[i].name, *version ? version : "(none)", FI_MAJOR_VERSION,
                      FI_MINOR_VERSION);
        if (!found[i])
            return -ELIBBAD;
    }
    for (size_t i = 0; i < SYMBOLS; i++)
        memcpy(symbols[i].place, &found[i], sizeof found[i]);
    return 0;
}

/* Returns why a file cannot be opened: the lack of descriptors or memory, which may end, or
 * -ELIBACC. */
static int library_lack(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : -ELIBACC;
    close(fd);
    return -ELIBACC;
}

static int library_open(void)
{
    void *library = dlopen(LIBFABRIC_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (library)
        return library_find_all(library);
    const char *why = dlerror();
    int lack = library_lack();
    if (lack == -ELIBACC && library_error_is_new(lack))
        log_error("transport=ofi library=" LIBFABRIC_SONAME " error=\"loading the library failed: "
                  "%s\" next=\"install libfabric (Debian: libfabric1), or name its folder in "
                  "LD_LIBRARY_PATH\"",
                  why);
    return lack;
}

/* Initializes the providers, at the first call of fi_getinfo(). */
static void library_warm(void)
{
    struct fi_info *providers = NULL;
    kernel_symbols_hide(true);
    if (calls.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), NULL, NULL, FI_PROV_ATTR_ONLY,
                      NULL, &providers) == 0)
        calls.freeinfo(providers);
    kernel_symbols_hide(false);
}

/* Signals are blocked in this thread, and its handlers are restored, because constructors below
 * libfabric install handlers (O11). */
static int library_load_quietly(void)
{
    struct ofi_signals kept;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    ofi_signals_keep(&kept);
    int error = library_open();
    if (error == 0)
        library_warm();
    ofi_signals_give_back(&kept);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* A fork() waits for the end of a load. Otherwise the child would have half of the libraries, and
 * handlers of PSM. After FORK_WAIT_S the fork continues, because the loading thread may wait for a
 * lock of the forking thread. */
static void library_fork_begins(void)
{
    struct timespec until;
    if (library_is_loaded)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FORK_WAIT_S;
    library_fork_locks = pthread_mutex_timedlock(&library_lock, &until) == 0;
}

static void library_fork_ends(void)
{
    if (library_fork_locks)
        pthread_mutex_unlock(&library_lock);
    library_fork_locks = false;
}

/* Unlocks the mutex of the child, because the thread that may have locked it does not exist in the
 * child. */
static void library_fork_in_child(void)
{
    library_lock = LIBRARY_UNLOCKED;
    library_fork_locks = false;
}

static void library_watch_forks(void)
{
    pthread_atfork(library_fork_begins, library_fork_ends, library_fork_in_child);
}

void ofi_library_watch_forks(void) { pthread_once(&library_once, library_watch_forks); }

int ofi_library_load(void)
{
    int error = 0;
    if (library_is_loaded)
        return 0;
    ofi_library_watch_forks();
    pthread_mutex_lock(&library_lock);
    if (!library_is_loaded)
        error = library_load_quietly();
    library_is_loaded = error == 0;
    pthread_mutex_unlock(&library_lock);
    return error;
}

/* --- functions of <rdma/fabric.h> ------------------------------------------------------------- */

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
               const struct fi_info *hints, struct fi_info **ret_info)
{
    return calls.getinfo ? calls.getinfo(version, node, service, flags, hints, ret_info)
                         : -FI_ENOSYS;
}

void fi_freeinfo(struct fi_info *info)
{
    if (calls.freeinfo)
        calls.freeinfo(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    return calls.dupinfo ? calls.dupinfo(info) : NULL;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **ret_fabric, void *context)
{
    return calls.fabric ? calls.fabric(attr, ret_fabric, context) : -FI_ENOSYS;
}

uint32_t fi_version(void) { return calls.version ? calls.version() : 0; }

const char *fi_strerror(int error)
{
    return calls.strerror ? calls.strerror(error) : "libfabric is not loaded";
}
