/* gradpool run: starts the workers of a job on this host. Each worker's environment has its rank
 * and the endpoint of the service, in the variables that PyTorch, MPI programs and the client
 * library read. */
#include "svc/base/system/unique.h"
#include "svc/cli/cli.h"
#include "svc/cli/run/run.h"
#include "svc/cli/run/run_children.h"
#include "svc/endpoint/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORKERS_MAX 768
#define HERE "127.0.0.1"
#define LEAVE_MAX_S 1000000
#define LEAVE_DEFAULT_MS 30000

enum {
    WORKERS,
    MOST,
    FOLDER,
    LEAVE,
    PRELOAD,
    SITE,
    STUDY,
    REST,
    ANNOUNCE,
    ENGINE,
    SLURM,
    ENDPOINT,
    JOB,
    NODES,
    NODE,
    MASTER,
    PLAIN
};

const struct knob run_knobs[] = {
    [WORKERS] = {"workers", "N", "workers on this host (default: 1)"},
    [MOST] = {"workers-max", "N", "the job may grow to this number of workers: see below"},
    [FOLDER] = {"folder", "DIR",
                "with --workers-max: folder of logs and state (default: gradpool-JOB)"},
    [LEAVE] = {"leave-timeout", "S",
               "with --workers-max: seconds in which a removed worker leaves (default: 30)"},
    [PRELOAD] = {"preload", "MODULE,...",
                 "with --workers-max: import these Python modules once, and fork the workers "
                 "(default: none)"},
    [SITE] = {"site", "NAME",
              "with --workers-max: site whose slots the workers use (default: this host, if the "
              "service has slots for it)"},
    [STUDY] = {"study", "NAME",
               "with --site: jobs of one study share the measured shape of their speed (default: "
               "none)"},
    [REST] =
        {"rest", NULL,
         "with --site: the job may rest, to make room for others; its workers sleep meanwhile"},
    [ANNOUNCE] =
        {"announce", "N",
         "with --study: number of jobs of the study that you submit next; their slots stay "
         "free for 10 s (default: 0)"},
    [ENGINE] = {"engine", "NAME",
                "with --workers-max: local, processes on this host; slurm, jobs of Slurm, or steps "
                "of the allocation of this command (default: local)"},
    [SLURM] = {"slurm", "OPTION",
               "with --engine slurm: an option for srun or sbatch, such as "
               "--slurm=--cpus-per-task=4; may be given again",
               .may_repeat = true},
    [ENDPOINT] = {"endpoint", "URL", "the service, for the workers' GRADPOOL_ENDPOINT",
                  KNOB_VARIABLE},
    [JOB] = {"job", "NAME", "the job's name (default: a new one; needed with --nodes)",
             KNOB_VARIABLE},
    [NODES] = {"nodes", "N", "number of hosts, each with --workers workers (default: 1)",
               KNOB_VARIABLE},
    [NODE] = {"node", "I", "number of this host among --nodes, from 0 (default: 0)", KNOB_VARIABLE},
    [MASTER] = {"master", "HOST:PORT",
                "address at which PyTorch's ranks find each other: a free port of node 0 "
                "(default: a port of this host; needed with --nodes)",
                KNOB_VARIABLE},
    [PLAIN] = {"plain", NULL,
               "workers write directly to standard output and error of this command, without "
               "their rank"},
    {0},
};

struct run {
    uint32_t workers, nodes, node;
    struct run_pool pool;
    const char *endpoint, *job, *master, *port;
    char name[UNIQUE_BYTES], host[256], free_port[8];
    bool is_plain;
};

/* --- the command line --- */

static int set_number(const char *value, unsigned long long least, uint32_t *ret, struct err *err)
{
    unsigned long long number = 0;
    int error = knobs_number(value, least, WORKERS_MAX, &number, err);
    *ret = (uint32_t)number;
    return error;
}

static int set_master(struct run *run, const char *value, struct err *err)
{
    const char *colon = strrchr(value, ':');
    unsigned long long port;
    size_t bytes = colon ? (size_t)(colon - value) : 0;
    if (bytes < 1 || bytes >= sizeof run->host ||
        knobs_number(colon + 1, 1, UINT16_MAX, &port, err) < 0)
        return err_set(err, -EINVAL, "'%.64s': expected HOST:PORT, such as node0:29500", value);
    memcpy(run->host, value, bytes);
    run->host[bytes] = '\0';
    run->master = run->host;
    run->port = colon + 1;
    return 0;
}

static int set(void *context, int index, const char *value, struct err *err)
{
    struct run *run = context;
    struct endpoint endpoint;
    switch (index) {
    case WORKERS: return set_number(value, 1, &run->workers, err);
    case MOST: return set_number(value, 1, &run->pool.workers_max, err);
    case FOLDER: run->pool.folder = value; return 0;
    case LEAVE: return knobs_seconds(value, LEAVE_MAX_S, &run->pool.leave_ms, err);
    case PRELOAD: run->pool.preload = value; return 0;
    case SITE: run->pool.site = value; return 0;
    case STUDY: run->pool.study = value; return 0;
    case REST: run->pool.may_rest = true; return 0;
    case ANNOUNCE: return set_number(value, 0, &run->pool.followers, err);
    case ENGINE: return engine_set(&run->pool.engine, value, err);
    case SLURM: return engine_add_slurm(&run->pool.engine, value, err);
    case NODES: return set_number(value, 1, &run->nodes, err);
    case NODE: return set_number(value, 0, &run->node, err);
    case MASTER: return set_master(run, value, err);
    case JOB: run->job = value; return 0;
    case PLAIN: run->is_plain = true; return 0;
    default: run->endpoint = value; return endpoint_parse(value, &endpoint, err);
    }
}

static void set_program(void *context, char **program)
{
    ((struct run *)context)->pool.program = program;
}

static void parse(int argc, char **argv, struct run *ret_run)
{
    static const struct knob_command command = {
        .name = "gradpool run",
        .operands = "PROGRAM [ARGUMENT...]",
        .knobs = run_knobs,
        .set = set,
        .program = set_program,
        .before = "Runs a program once for each worker. Each worker has the variables RANK, "
                  "LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as "
                  "with torchrun, and GRADPOOL_JOB and GRADPOOL_ENDPOINT. Each line of a "
                  "worker's output begins with its rank. If a worker fails, the other workers "
                  "are ended. If this command ends, all workers are ended (except with "
                  "--workers-max).",
        .after = "Examples:\n"
                 "  gradpool run --workers 4 python3 train.py --epochs 3\n"
                 "  gradpool run --nodes 2 --node 1 --master node0:29500 --job big --workers 8 "
                 "python3 train.py\n\n"
                 "torchrun can be used instead; on Debian 12 (PyTorch 1.13) torchrun starts only "
                 "with `-r 1 -t 1'. With more than one worker OMP_NUM_THREADS is 1, unless the "
                 "variable is set.\n\n"
                 "A line is printed when it ends, with LF or CR (a progress bar). An unfinished "
                 "line is printed after half a second, or at 1 MiB. If another worker prints a "
                 "line before the rest arrives, the rest is a line of its own.\n\n"
                 "Ctrl-C, SIGTERM and SIGHUP are sent to each worker. Workers that still run "
                 "receive SIGTERM 10 s later, and SIGKILL after 5 s more; each further signal "
                 "starts the next of these steps at once. If a worker has failed, the other "
                 "workers receive SIGTERM at once.\n\n"
                 "With --workers-max the job can change its size while it trains: `gradpool "
                 "resize JOB N'. The program must allow workers to join and leave "
                 "(gradpool.elastic.Run). Workers write to files in the folder. A worker that "
                 "dies is started again after 1, 2, 4, ... 60 s, but not after three failures "
                 "without a step. If this command is killed, its workers continue to train, and "
                 "the same command with the same --folder adopts them. On a site with slots "
                 "(gradpool serve --worker-slots) the service chooses the number of workers.\n\n"
                 "Exit code: that of the first worker that failed; 128 plus the number of the "
                 "signal that has ended a worker or this command; 0 no worker has failed; 2 a "
                 "mistake on the command line."};
    *ret_run = (struct run){.workers = 1, .nodes = 1, .pool.leave_ms = LEAVE_DEFAULT_MS};
    knobs_parse(&command, argc, argv, ret_run);
}

static const char *find_mistake(const struct run *run)
{
    if (!run->pool.program)
        return "missing: PROGRAM";
    if (run->pool.workers_max == 0 && run->pool.folder)
        return "--folder is for a job that may grow: give --workers-max, too";
    if (run->pool.workers_max == 0 && run->pool.preload)
        return "--preload is for a job that may grow: give --workers-max, too";
    if (run->pool.workers_max == 0 && run->pool.site)
        return "--site is for a job that may grow: give --workers-max, too";
    if (run->pool.study && !run->pool.site)
        return "--study is for the scheduler of a site: give --site, too";
    if (run->pool.may_rest && !run->pool.site)
        return "--rest is for the scheduler of a site: give --site, too";
    if (run->pool.followers && !run->pool.study)
        return "--announce counts jobs of a study: give --study, too";
    if (run->pool.workers_max == 0 && run->pool.engine.name)
        return "--engine is for a job that may grow: give --workers-max, too";
    if (engine_find_mistake(&run->pool.engine, run->pool.preload))
        return engine_find_mistake(&run->pool.engine, run->pool.preload);
    if (run_check_job(run->job))
        return run_check_job(run->job);
    if (run->pool.workers_max > 0 && run->workers > run->pool.workers_max)
        return "--workers-max is the larger number: raise it, or start fewer --workers";
    if (run->pool.workers_max > 0 && (run->nodes > 1 || run->master || run->is_plain))
        return "--workers-max is for one host and for logs in files: leave out --nodes, --master "
               "and --plain";
    if (run->node >= run->nodes)
        return "--node counts from 0 and is below --nodes";
    if (run->nodes * run->workers > WORKERS_MAX)
        return "a job has at most 768 workers in all";
    if (run->nodes > 1 && (!run->master || !run->job))
        return "with --nodes the hosts have to agree: --master and --job are needed";
    return NULL;
}

/* --- variables of each worker --- */

/* Finds a port that is free now. If another process uses the port before rank 0 does, rank 0 fails
 * with an error. */
static int find_port(struct run *run)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, bytes) < 0 ||
        getsockname(fd, (struct sockaddr *)&here, &bytes) < 0) {
        int error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    close(fd);
    snprintf(run->free_port, sizeof run->free_port, "%u", ntohs(here.sin_port));
    run->master = HERE;
    run->port = run->free_port;
    return 0;
}

static void set_variable(const char *name, uint32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static void prepare(const struct run_plan *plan, uint32_t index)
{
    const struct run *run = plan->context;
    set_variable("RANK", plan->first + index);
    set_variable("LOCAL_RANK", index);
    set_variable("WORLD_SIZE", run->nodes * run->workers);
    set_variable("LOCAL_WORLD_SIZE", run->workers);
    set_variable("GROUP_RANK", run->node);
    setenv("MASTER_ADDR", run->master, 1);
    setenv("MASTER_PORT", run->port, 1);
    setenv("GRADPOOL_JOB", run->job, 1);
    /* removed, because they would take precedence over the variables of `run` */
    unsetenv("GRADPOOL_RANK");
    unsetenv("GRADPOOL_SIZE");
    if (run->endpoint)
        setenv("GRADPOOL_ENDPOINT", run->endpoint, 1);
    if (run->workers > 1)
        setenv("OMP_NUM_THREADS", "1", 0);
}

int cli_run(int argc, char **argv)
{
    struct run run;
    parse(argc, argv, &run);
    const char *mistake = find_mistake(&run);
    if (mistake)
        return knobs_mistake("gradpool run", "%s", mistake);
    if (run.pool.workers_max > 0) {
        run.pool.workers = run.workers;
        run.pool.endpoint = run.endpoint;
        run.pool.job = run.job;
        return run_pool(&run.pool);
    }
    run.job = run.job ? run.job : unique_name("run", run.name, sizeof run.name);
    int error = run.master ? 0 : find_port(&run);
    if (error < 0) {
        fprintf(stderr, "gradpool run: no free port on " HERE ": %s\n", strerror(-error));
        return CLI_FAILED;
    }
    const struct run_plan plan = {.program = run.pool.program,
                                  .first = run.node * run.workers,
                                  .count = run.workers,
                                  .is_plain = run.is_plain,
                                  .prepare = prepare,
                                  .context = &run};
    return run_children(&plan);
}
