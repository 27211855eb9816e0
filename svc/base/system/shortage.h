/* Texts for refusals of the kernel: they name the limit and the way to raise it. */
#ifndef GRADPOOL_BASE_SYSTEM_SHORTAGE_H
#define GRADPOOL_BASE_SYSTEM_SHORTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHORTAGE_BYTES 256

/* The requested resource: the same code means different limits. */
enum shortage_of {
    SHORTAGE_OTHER,   /* descriptors, memory, files: the code is enough */
    SHORTAGE_THREADS, /* threads and processes, where EAGAIN is the limit's code */
};

/* err_text(code), and for a code of a limit its name, its value and what raises it. Returns the
 * buffer. */
const char *shortage_text(int code, enum shortage_of what, char *buffer, size_t buffer_bytes);

/* True when a file may have `bytes` (RLIMIT_FSIZE). A longer one would end a program that does not
 * ignore SIGXFSZ: checked before the file grows. */
bool shortage_file_fits(uint64_t bytes);

/* A sandbox (seccomp) or an old kernel refuses the system call as such: -EPERM or -ENOSYS. */
bool shortage_is_refusal(int code);

#endif
