/* Texts for errors that mean an exhausted limit of the kernel: they name the limit and the way to
 * raise it. */
#ifndef GRADPOOL_BASE_SYSTEM_SHORTAGE_H
#define GRADPOOL_BASE_SYSTEM_SHORTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHORTAGE_BYTES 256

/* The resource that was requested: one errno code stands for different limits. */
enum shortage_of {
    SHORTAGE_OTHER,   /* descriptors, memory, files: the code alone identifies the limit */
    SHORTAGE_THREADS, /* threads and processes: EAGAIN means the limit */
};

/* Returns err_text(code). If the code means a limit, its name, its value and the way to raise it
 * follow. The text is in the buffer. */
const char *shortage_text(int code, enum shortage_of what, char *buffer, size_t buffer_bytes);

/* Returns true when a file may grow to `bytes` (RLIMIT_FSIZE). Callers check this before the file
 * grows: a longer file would end a program that does not ignore SIGXFSZ. */
bool shortage_file_fits(uint64_t bytes);

/* Returns true for -EPERM and -ENOSYS: a sandbox (seccomp) or an old kernel refuses the system
 * call. */
bool shortage_is_refusal(int code);

#endif
