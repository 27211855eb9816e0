/* Restores signals whose handlers a library below libfabric replaces (O11). Debian's libfabric
 * loads PSM, for an InfiniPath card that few hosts have. PSM's constructor installs handlers for
 * SIGINT, SIGTERM, SIGABRT, SIGBUS, SIGILL and SIGSEGV that print a backtrace and exit. */
#include "svc/fabric/ofi/door/signals.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Beginnings of file names: PSM of InfiniPath (two libraries), PSM2 of Omni-Path. */
static const char *const takers[] = {"libinfinipath.", "libpsm_infinipath.", "libpsm2."};

static bool is_taker(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
        if (strncmp(name, takers[i], strlen(takers[i])) == 0)
            return true;
    }
    return false;
}

static bool is_taken(const struct sigaction *action)
{
    void *handler;
    Dl_info library;
    _Static_assert(sizeof handler == sizeof action->sa_handler, "both members lie at one place");
    memcpy(&handler, &action->sa_handler, sizeof handler);
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN &&
           dladdr(handler, &library) != 0 && library.dli_fname && is_taker(library.dli_fname);
}

void ofi_signals_keep(struct ofi_signals *ret_kept)
{
    *ret_kept = (struct ofi_signals){0};
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, NULL, &ret_kept->actions[number]);
}

void ofi_signals_give_back(const struct ofi_signals *kept)
{
    struct sigaction action;
    for (int number = 1; number < NSIG; number++) {
        if (sigaction(number, NULL, &action) == 0 && is_taken(&action))
            (void)sigaction(number, &kept->actions[number], NULL);
    }
}
