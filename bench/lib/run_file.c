/* Writes the page of a run. Owns the file during the write. Must never remove the named file, which
 * may be a device. */
#include "bench/lib/run_file.h"

#include "svc/ops/report/run_report.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern const char bench_commit[]; /* commit of the source, set at build time */

void run_fact(struct run_facts *facts, const char *name, const char *format, ...)
{
    va_list arguments;
    assert(facts->count < RUN_FACTS_MAX);
    char *value = facts->values[facts->count];
    va_start(arguments, format);
    vsnprintf(value, RUN_FACT_BYTES, format, arguments);
    va_end(arguments);
    facts->facts[facts->count++] = (struct view_fact){name, value};
}

void run_facts_of_host(struct run_facts *facts)
{
    struct utsname host;
    struct tm tm;
    time_t now = time(NULL);
    char date[32] = "";
    double load[1] = {0};
    uname(&host);
    (void)!getloadavg(load, 1);
    if (gmtime_r(&now, &tm))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &tm);
    run_fact(facts, "machine", "%ld cores, Linux %s, %s; load %.2f", sysconf(_SC_NPROCESSORS_ONLN),
             host.release, host.machine, load[0]);
    run_fact(facts, "commit", "%s", bench_commit);
    run_fact(facts, "date", "%s", date);
}

static int complain(const char *path, int error)
{
    fprintf(stderr, "gradpool-bench: %s cannot be written: %s\n", path, strerror(-error));
    return error;
}

/* Opens the file for appending, so that an earlier page exists until the new one is written. */
int run_can_write(const char *path)
{
    FILE *out = fopen(path, "ae");
    if (!out)
        return complain(path, -errno);
    fclose(out);
    return 0;
}

int run_write(const struct view_run *run, const char *path)
{
    FILE *out = fopen(path, "we");
    int error = out ? run_report_page(run, out) : -errno;
    if (out && fclose(out) == EOF && error == 0)
        error = -EIO;
    return error < 0 ? complain(path, error) : 0;
}
