/* Named maxima of a job, a tenant and a lane. The table below generates the options of `gradpool
 * serve`, the checks, the texts of refusals, and the limits in `jobs --json`. */
#ifndef GRADPOOL_WIRE_LIMIT_H
#define GRADPOOL_WIRE_LIMIT_H

#include "svc/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Columns: identifier; name (the option is --NAME-max); counted things; default as typed; smallest,
 * largest and default value; whether the value is in bytes. A tenant may have values of its own for
 * the limits of LIMIT_TENANT_TABLE. LENT and REGIONS limit the memory that all workers together
 * lend to one lane or aggregator (the kernel allows a process 65,530 mappings). PIECES limits the
 * tasks, too, because a task has at least one piece. REQUESTS limits the number of requests that
 * the coordinator has not answered yet. TABLE_BYTES limits the allowances of lanes (K145). */
/* clang-format off */
#define LIMIT_TENANT_TABLE(X)                                                                   \
    X(JOB_WORKERS, "job-workers", "workers of one job", "768", 1, 768, 768, false)              \
    X(JOB_TENSORS, "job-tensors", "tensors of one job", "262144", 1, 262144, 262144, false)     \
    X(JOB_PIECES, "job-pieces", "pieces (and so tasks) of one job", "524288", 1, 1 << 23,       \
      1 << 19, false)                                                                           \
    X(JOB_BYTES, "job-bytes", "bytes of one job's tensors", "1T", 1, LIMIT_TIB * 64, LIMIT_TIB, \
      true)                                                                                     \
    X(JOB_TABLE_BYTES, "job-table-bytes", "bytes of memory granted to lanes for rows of one "   \
      "job's tables", "64G", UINT64_C(1) << 20, LIMIT_TIB * 64, LIMIT_TIB / 16, true)           \
    X(JOB_LENT, "job-lent", "bytes of memory that one job's workers share with one lane", "4T", \
      1,                                                                                        \
      LIMIT_TIB * 768, LIMIT_TIB * 4, true)                                                     \
    X(JOB_REGIONS, "job-regions", "regions lent by one job's workers to one lane", "8192", 1,   \
      1 << 24, 8192, false)                                                                     \
    X(JOB_MEMORY, "job-memory", "bytes of memory of one lane, for one job", "512M",             \
      UINT64_C(1) << 20, LIMIT_TIB, UINT64_C(1) << 29, true)                                    \
    X(JOB_REQUESTS, "job-requests", "open control requests of one job", "4096", 1, 1 << 20,     \
      4096, false)                                                                              \
    X(TENANT_JOBS, "tenant-jobs", "jobs of one tenant", "1024", 1, 1 << 20, 1024, false)        \
    X(TENANT_WORKERS, "tenant-workers", "workers of one tenant", "16384", 1, 1 << 20, 1 << 14,  \
      false)                                                                                    \
    X(TENANT_TENSORS, "tenant-tensors", "tensors of one tenant", "4194304", 1, 1 << 30,         \
      1 << 22, false)                                                                           \
    X(TENANT_PIECES, "tenant-pieces", "pieces (and so tasks) of one tenant", "8388608", 1,      \
      1 << 30, 1 << 23, false)                                                                  \
    X(TENANT_BYTES, "tenant-bytes", "bytes of one tenant's tensors", "64T", 1,                  \
      LIMIT_TIB * 1024, LIMIT_TIB * 64, true)                                                   \
    X(TENANT_TABLE_BYTES, "tenant-table-bytes", "bytes of memory granted to lanes for rows "    \
      "of one tenant's tables", "256G", UINT64_C(1) << 20, LIMIT_TIB * 1024, LIMIT_TIB / 4,     \
      true)                                                                                     \
    X(TENANT_LENT, "tenant-lent", "bytes of memory that one tenant's workers share with one "   \
      "aggregator", "16T", 1, LIMIT_TIB * 768, LIMIT_TIB * 16, true)                            \
    X(TENANT_REGIONS, "tenant-regions", "regions lent by one tenant's workers to one lane",     \
      "16384", 1, 1 << 24, 16384, false)                                                        \
    X(TENANT_CONNECTIONS, "tenant-connections", "control connections of one tenant", "20480",   \
      1, 1 << 20, 20480, false)                                                                 \
    X(TENANT_CPU, "tenant-cpu", "percent of the coordinator's core for one tenant's "          \
      "requests, while others have requests", "25", 1, 100, 25, false)                          \
    X(TENANT_MESSAGES, "tenant-messages", "bytes of one tenant's control messages that are "    \
      "not whole yet", "256M", UINT64_C(1) << 24, UINT64_C(1) << 40, UINT64_C(1) << 28, true)
#define LIMIT_SERVICE_TABLE(X)                                                                  \
    X(LANE_MEMORY, "lane-memory", "bytes of memory of one lane, for all its jobs", "1G",        \
      UINT64_C(1) << 20, LIMIT_TIB, UINT64_C(1) << 30, true)                                    \
    X(IDLE_CONNECTIONS, "idle-connections", "control connections that have joined nothing",     \
      "1024", 1, 1 << 20, 1024, false)
/* clang-format on */
#define LIMIT_TABLE(X) LIMIT_TENANT_TABLE(X) LIMIT_SERVICE_TABLE(X)
#define LIMIT_TIB (UINT64_C(1) << 40)

/* Largest loss limit in millionths. A job that lost its whole speed would have 1,000,000. */
#define LOSS_LIMIT_PPM_MAX 999999u

enum limit {
#define LIMIT_ENUM(id, ...) LIMIT_##id,
    LIMIT_TABLE(LIMIT_ENUM)
#undef LIMIT_ENUM
        LIMITS,
    /* the limits of a tenant are the first values of the enum */
    LIMITS_OF_TENANT = LIMIT_LANE_MEMORY,
};

struct limit_about {
    const char *name, *what, *preset;
    uint64_t least, most, value;
    bool is_bytes;
};

const struct limit_about *limit_about(enum limit limit);

/* Limits of one service or of one of its tenants, indexed by enum limit. */
struct limits {
    uint64_t most[LIMITS];
    uint32_t own;       /* bit i: the tenant has its own value for limit i */
    const char *tenant; /* name of the tenant that owns these limits; NULL: none */
};
void limits_init(struct limits *limits);
/* Finds a limit by its name. Returns LIMITS if no limit has this name. */
enum limit limit_find(const char *name);
/* Sets a limit. Returns 0, or -EINVAL with a text if the value is not a number (of bytes: "64G")
 * within the bounds. */
int limits_set(struct limits *limits, enum limit limit, const char *value, struct err *err);

/* Sets a limit of a tenant. With `value` "default" the limit of the service applies to the tenant
 * again. */
int limits_set_own(struct limits *limits, const struct limits *service, enum limit limit,
                   const char *value, struct err *err);
/* limits_write_own() writes the tenant's own limits as a text such as "job-bytes=1024
 * tenant-jobs=2"; limits_read_own() reads this text. -EBADMSG: a name or a value is invalid. */
void limits_write_own(const struct limits *limits, char *text, size_t text_bytes);
int limits_read_own(struct limits *limits, const char *text);
#define LIMITS_TEXT_BYTES 1024

/* Checks whether `used` plus `more` is within the limit. Returns 0, or -EDQUOT if the sum exceeds
 * the limit; the text names `who` (such as "job resnet"), the amounts, the limit and its option. */
int limits_check(const struct limits *limits, enum limit limit, const char *who, uint64_t used,
                 uint64_t more, struct err *err);

#endif
