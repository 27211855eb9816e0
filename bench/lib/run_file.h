/* Writes a run of the bench as a page of svc/ops, with machine and settings. */
#ifndef GRADPOOL_BENCH_LIB_RUN_FILE_H
#define GRADPOOL_BENCH_LIB_RUN_FILE_H

#include "svc/view/run.h"

#define RUN_FACTS_MAX 32
#define RUN_FACT_BYTES 128

struct run_facts {
    struct view_fact facts[RUN_FACTS_MAX];
    char values[RUN_FACTS_MAX][RUN_FACT_BYTES];
    size_t count;
};

/* Adds a fact to the page. `name` is not copied. More than RUN_FACTS_MAX facts are an error of the
 * program. */
void run_fact(struct run_facts *facts, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds machine, load, commit and date. */
void run_facts_of_host(struct run_facts *facts);

/* Checks that run_write() can open the file. Called before a run, which lasts for minutes. Returns
 * a negative errno, with a text on standard error. */
int run_can_write(const char *path);
int run_write(const struct view_run *run, const char *path);

#endif
