/* The folder of a pool: its lock, its state, and the logs of its workers. The state survives the
 * pool, so that the next pool in the folder continues. */
#ifndef GRADPOOL_POOL_FOLDER_H
#define GRADPOOL_POOL_FOLDER_H

#include "svc/base/err.h"
#include "svc/pool/ranks.h"

#include <limits.h>
#include <sys/types.h>

#define FOLDER_JOB_BYTES 128 /* with the zero byte */
#define FOLDER_SITE_BYTES 65 /* with the zero byte */
#define FOLDER_ENGINE_BYTES 16
#define FOLDER_NAME_BYTES 32 /* longest name of a file */

struct pool_folder {
    char path[PATH_MAX - FOLDER_NAME_BYTES - 1];
    int lock_fd;
    uint64_t pool;    /* random number of this folder */
    uint64_t program; /* hash of the program and its arguments */
    char job[FOLDER_JOB_BYTES];
    char site[FOLDER_SITE_BYTES];     /* "": the workers were started without orders */
    char engine[FOLDER_ENGINE_BYTES]; /* "": local */
    bool was_over; /* the last pool of the folder ended by itself, after its workers */
    uint32_t founders;
    bool rests;      /* the message that the job rests was printed; not stored */
    bool has_result; /* the workers have ended, and `result` is valid; not set by folder_open() */
    int result;      /* exit code of the pool */
    uint64_t incarnations[POOL_RANKS_MAX]; /* number of the newest start of each rank; 0: none */
    pid_t pids[POOL_RANKS_MAX];            /* process of that start; 0: not known */
    uint64_t identities[POOL_RANKS_MAX];   /* its process_identity() */
    char *waits[POOL_RANKS_MAX]; /* reason for which the rank does not run yet; NULL: none */
};

/* Creates the folder if it is missing, locks it, and reads its state. A new folder has an empty
 * job. -EEXIST: another pool uses the folder; the text has the process number of this pool. */
int folder_open(const char *path, struct pool_folder *ret_folder, struct err *err);
void folder_close(struct pool_folder *folder);
/* Replaces the stored state. */
int folder_store(const struct pool_folder *folder, struct err *err);
/* Writes the path of a rank's log. */
void folder_log_path(const struct pool_folder *folder, uint32_t rank, char path[PATH_MAX]);
/* Opens a file of the folder for appending. Returns a descriptor or a negative errno. */
int folder_open_file(const struct pool_folder *folder, const char *name, struct err *err);
/* Opens the log for appending. Returns a descriptor or a negative errno. */
int folder_open_log(const struct pool_folder *folder, uint32_t rank, struct err *err);

#endif
