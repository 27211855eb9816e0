/* Texts of errors that mean that a limit of the kernel was exceeded. Each text names the limit and
 * the way to raise it. */
#ifndef GRADPOOL_BASE_SYSTEM_SHORTAGE_H
#define GRADPOOL_BASE_SYSTEM_SHORTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHORTAGE_BYTES 256

/* The resource that the failed call requested. The caller passes this value, because one errno
 * value can mean different limits. */
enum shortage_of {
    SHORTAGE_OTHER,   /* descriptors, memory, files: the errno value identifies the limit */
    SHORTAGE_THREADS, /* threads and processes: EAGAIN means that the limit is exceeded */
};

/* Returns err_text(code). If the code means that a limit was exceeded, the text also has the
 * limit's name, its value and how to raise the limit. The text is in the buffer. */
const char *shortage_text(int code, enum shortage_of what, char *buffer, size_t buffer_bytes);

/* Returns whether a file may grow to `bytes` (RLIMIT_FSIZE). Callers check this first, because
 * exceeding the limit ends a program that does not ignore SIGXFSZ. */
bool shortage_file_fits(uint64_t bytes);

/* Returns whether the code is -EPERM or -ENOSYS, which mean that a sandbox (seccomp) or an old
 * kernel refuses the system call. */
bool shortage_is_refusal(int code);

#endif
