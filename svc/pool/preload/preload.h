/* The parent of workers with preloaded modules (--preload): a Python process with one thread that
 * imports the modules once, and forks the workers. A forked worker is a child of the pool, because
 * the pool adopts orphans, and has a cookie as any other worker. If the parent has failed or was
 * killed, workers are started directly. */
#ifndef GRADPOOL_POOL_PRELOAD_PRELOAD_H
#define GRADPOOL_POOL_PRELOAD_PRELOAD_H

#include "svc/pool/folder.h"
#include "svc/pool/process.h"

/* Checks the names of modules, "MODULE[,MODULE]", and the program (NULL: not known). Returns a text
 * about the first mistake; NULL: there is none. */
const char *preload_find_mistake(const char *modules, char *const *program);
/* Returns whether a study has forked this process together with its parent of workers. */
bool preload_is_inherited(void);
/* Starts the parent of this process's workers, or uses the parent that a study has started. Called
 * once, after the adoption of workers of an earlier pool. `modules` has to exist until
 * preload_end(). `variables`: as in struct process_spec. A failure is printed. */
void preload_begin(const char *modules, char **program, char *const *variables,
                   const struct pool_folder *folder);
/* Ends the parent. Its workers continue. */
void preload_end(void);
/* Returns a descriptor for preload_turn(), readable after the import and at the end of the parent;
 * -1: none. */
int preload_fd(void);
/* Returns whether the modules are being imported: workers wait for the end of the import. */
bool preload_is_importing(void);
/* Returns the time at which preload_turn() ends a parent that has not imported its modules;
 * UINT64_MAX: none. */
uint64_t preload_due(void);
/* Reads the message of the parent. If the parent has failed or ended, prints this, and workers are
 * then started directly. */
void preload_turn(void);
/* Like process_start(), but the parent forks the process if the parent runs. */
int preload_start_process(const struct process_spec *spec, const struct cookie *cookie,
                          struct pool_process *ret_process, bool *ret_is_final, struct err *err);

#endif
