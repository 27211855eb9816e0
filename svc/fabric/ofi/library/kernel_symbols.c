/* Defines fopen(). In all libraries of a program, the program's own definition replaces the C
 * library's definition (meson.build exports the name). When libfabric initializes its providers,
 * `verbs` searches the whole table of the kernel's symbols for the function with which a driver
 * registers memory of GPUs: 0.07 s of CPU in each process. The fabric sends no memory of a GPU, so
 * this file need not be read. A libfabric that ignores the definition only starts slower. */
#include "svc/fabric/ofi/library/kernel_symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SYMBOLS_FILE "/proc/kallsyms"

typedef FILE *fopen_fn(const char *path, const char *mode);

static _Thread_local bool symbols_are_hidden;

void kernel_symbols_hide(bool is_hidden) { symbols_are_hidden = is_hidden; }

static fopen_fn *fopen_of_libc(void)
{
    static _Atomic(fopen_fn *) found;
    if (!found)
        found = (fopen_fn *)dlsym(RTLD_NEXT, "fopen");
    return found;
}

/* The symbol is `fopen`, which libfabric uses. With 64-bit offsets, the compiler gives calls of
 * fopen() in this program another symbol. */
__attribute__((visibility("default"))) FILE *kernel_symbols_open(const char *path,
                                                                 const char *mode) __asm__("fopen");
FILE *kernel_symbols_open(const char *path, const char *mode)
{
    if (symbols_are_hidden && strcmp(path, SYMBOLS_FILE) == 0) {
        errno = ENOENT;
        return NULL;
    }
    return fopen_of_libc()(path, mode);
}
