/* Watches the processes of the service. Waits for the ends of aggregators whose coordinator has
 * ended. Must never miss an end: the service replaces lost processes, so nothing else shows a
 * crash. */
#include "bench/faults/watch.h"

#include "bench/lib/host.h"
#include "svc/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN_MAX 128
#define LINE_BYTES 4096
#define END_NS (20 * NS_PER_S)

struct orphans {
    pid_t pids[CHILDREN_MAX];
    int statuses[CHILDREN_MAX];
    size_t count;
};

int watch_init(struct watch *w, struct service *service, struct company *company)
{
    *w = (struct watch){.service = service, .company = company, .looked_ns = clock_now_ns()};
    return prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ? -errno : 0;
}

/* Records an aggregator's end, which may have happened at any time since the last check. A copy
 * may have been lost at that time. */
static void judge(struct watch *w, pid_t pid, int status)
{
    if (!ends_was_struck(&w->ends, pid) && !ends_was_planned(&w->ends, pid, status))
        blame_ended(&w->company->losses, w->looked_ns, clock_now_ns());
    if (!ends_of_aggregator(&w->ends, pid, status))
        company_note_crash(w->company, "an aggregator", pid, status);
}

/* --- the log --- */

static void take_line(struct watch *w, const char *line)
{
    pid_t pid = 0;
    int status = 0;
    enum ends_news news = ends_read(&w->ends, line, &pid, &status);
    if (news == ENDS_END)
        judge(w, pid, status);
    if (news == ENDS_REPORT) {
        fprintf(stderr, "# the service's log: %.300s   <- a crash\n", line);
        w->company->result->crashes++;
    }
}

/* Reads new lines of the log. An incomplete last line is read again at the next check. */
static void read_log(struct watch *w)
{
    char line[LINE_BYTES];
    if (!w->log && !(w->log = fopen(w->service->log, "re")))
        return;
    clearerr(w->log);
    while (fgets(line, sizeof line, w->log)) {
        size_t bytes = strcspn(line, "\n");
        if (!line[bytes] && bytes < sizeof line - 1) {
            fseek(w->log, -(long)bytes, SEEK_CUR);
            return;
        }
        line[bytes] = 0;
        take_line(w, line);
    }
}

/* --- aggregators of a former coordinator --- */

/* Returns whether a child of this process is an aggregator of a former coordinator. Only such
 * children lead a process group. */
static bool is_orphan(pid_t pid) { return getpgid(pid) == pid; }

/* Handles ended orphans. `ends`: whether to send SIGTERM to running orphans, and later SIGKILL to
 * orphans that still run. */
static void reap_orphans(struct orphans *o, bool ends)
{
    pid_t children[CHILDREN_MAX];
    size_t count = process_children(getpid(), children, CHILDREN_MAX);
    o->count = 0;
    for (size_t i = 0; i < count; i++) {
        siginfo_t end = {0};
        if (!is_orphan(children[i]))
            continue;
        if (ends)
            kill(children[i], SIGTERM);
        else if (waitid(P_PID, (id_t)children[i], &end, WEXITED | WNOHANG | WNOWAIT) < 0 ||
                 end.si_pid == 0)
            continue;
        o->pids[o->count] = children[i];
        o->statuses[o->count++] = process_reap(children[i], clock_now_ns() + END_NS);
    }
}

/* Collects ended processes, then reads the log, then judges. In this order the log already contains
 * the reason of a failed start when the end of its process is judged. */
static void look(struct watch *w, bool ends)
{
    struct orphans orphans;
    reap_orphans(&orphans, ends);
    read_log(w);
    for (size_t i = 0; i < orphans.count; i++)
        judge(w, orphans.pids[i], orphans.statuses[i]);
    w->looked_ns = clock_now_ns();
}

void watch_look(struct watch *w) { look(w, false); }

/* --- strikes, and the end --- */

void watch_strike(struct watch *w, pid_t pid)
{
    uint64_t now_ns = clock_now_ns();
    read_log(w); /* the log may already contain the start of the aggregator */
    ends_strike(&w->ends, pid);
    blame_ended(&w->company->losses, now_ns, now_ns);
}

void watch_retire(struct watch *w, pid_t pid)
{
    read_log(w);
    ends_retire(&w->ends, pid);
}

static bool judge_coordinator(struct watch *w, pid_t pid, int status, int expected)
{
    if (status != expected)
        company_note_crash(w->company, "the coordinator", pid, status);
    return status == expected;
}

bool watch_bury_coordinator(struct watch *w, int expected)
{
    pid_t pid = w->service->coordinator;
    int status = process_reap(pid, clock_now_ns() + END_NS);
    w->service->coordinator = 0;
    return judge_coordinator(w, pid, status, expected);
}

void watch_end(struct watch *w)
{
    pid_t coordinator = w->service->coordinator, missing;
    if (coordinator > 0)
        judge_coordinator(w, coordinator, service_end(w->service), 0);
    look(w, true);
    while ((missing = ends_take_missing(&w->ends)) > 0)
        company_note_crash(w->company, "an aggregator", missing, ENDS_UNKNOWN);
    if (w->log)
        fclose(w->log);
    w->log = NULL;
}
