/* The program `gradpool`: passes the options of each subcommand (svc/cli) to the module that does
 * the work, and converts errors to exit codes. */
#include "packer/packer.h"
#include "svc/aggregator/aggregator.h"
#include "svc/base/clock.h"
#include "svc/base/log.h"
#include "svc/base/system/signals.h"
#include "svc/base/system/slice.h"
#include "svc/base/variables.h"
#include "svc/build_facts.h"
#include "svc/cli/cli.h"
#include "svc/coordinator/coordinator.h"
#include "svc/web_display.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static void start_log(const char *who)
{
    log_init(who);
    variables_check();
    if (cli_config_file())
        log_info("configuration file %s", cli_config_file());
}

/* Time slices. A thread with a shorter slice than the running thread gets the core at once when
 * the thread wakes up, so a round waits for no other process. The coordinator also leaves the core
 * soon: a long request of one tenant does not delay rounds of another. With a slice of 0.1 ms a
 * lane would interrupt its workers between two announcements, and rounds of 4 KiB would need 1.2
 * times the CPU time. */
#define COORDINATOR_SLICE_NS (100 * NS_PER_US)
#define AGGREGATOR_SLICE_NS (500 * NS_PER_US)

/* Blocks the signals that the coordinator reads from a descriptor. Also ignores SIGPIPE and
 * SIGXFSZ, so that a write to a lost peer or beyond the limit of a file (ulimit -f) returns an
 * error instead of ending the program. */
static void prepare_signals(void)
{
    sigset_t set = signals_that_end();
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
}

/* Returns the exit code. -EINVAL and -ENODEV mean wrong options that could be detected only on this
 * host. */
static int exit_code(int error)
{
    return error == 0 ? CLI_OK : error == -EINVAL || error == -ENODEV ? CLI_USAGE : CLI_FAILED;
}

/* Warns about options that have no effect under this policy. Both options may come from an
 * environment that was made for another policy, so the program continues. */
static void warn_without_limit(const struct cli_serve *o)
{
    const struct packer_resident nobody = {0};
    double none;
    if (packer_losses(o->policy, &nobody, 0, &none) == 0)
        return;
    if (o->loss_limit_ppm > 0)
        log_warn("--loss-limit does nothing: policy %s has no loss limit; omit the option, or use "
                 "--policy shared",
                 o->policy);
    if (o->names_scale)
        log_warn("--scale on does nothing: policy %s has no loss limit; omit the option, or use "
                 "--policy shared",
                 o->policy);
}

static int serve(int argc, char **argv)
{
    struct cli_serve o;
    struct coordinator *coordinator;
    struct err err;
    cli_serve_parse(argc, argv, packer_offered_policies(), &o);
    start_log("coordinator");
    slice_set(COORDINATOR_SLICE_NS);
    struct coordinator_options options = {.state_dir = o.state_dir,
                                          .operators = o.operators,
                                          .listen = o.listen,
                                          .name = o.name,
                                          .insecure = o.insecure,
                                          .require_tls = o.require_tls,
                                          .advertise = o.lanes.advertise,
                                          .interface_name = o.lanes.interface_name,
                                          .aggregators = o.aggregators,
                                          .aggregator_timeout_ns =
                                              o.aggregator_timeout_ms * NS_PER_MS,
                                          .local_timeout_ns = o.local_timeout_ms * NS_PER_MS,
                                          .worker_timeout_ns = o.worker_timeout_ms * NS_PER_MS,
                                          .scales = o.scales,
                                          .worker_slots = o.worker_slots,
                                          .explores = (enum coordinator_exploring)o.explores,
                                          .piece_bytes_max = o.piece_bytes_max,
                                          .scale_hold_ns = o.scale_hold_s * NS_PER_S,
                                          .order_hold_ns = o.order_hold_s * NS_PER_S,
                                          .aggregators_min = o.aggregators_min,
                                          .lanes_min = o.lanes_min,
                                          .lanes_max = o.lanes_max,
                                          .lanes_spare = o.lanes_spare,
                                          .limits = o.limits,
                                          .cores = o.lanes.cores,
                                          .policy = o.policy,
                                          .loss_limit_ppm = o.loss_limit_ppm,
                                          .durability = o.durability,
                                          .lanes_per_core = o.lanes.lanes_per_core,
                                          .data_port = o.lanes.data_port,
                                          .allow_uids = o.lanes.allow_uids,
                                          .network_gbit = o.lanes.network_gbit,
                                          .ends_jobs = o.ends_jobs,
                                          .keeps_jobs = o.keeps_jobs,
                                          .orphan_timeout_ns = o.lanes.orphan_timeout_s * NS_PER_S,
                                          .leave_timeout_ns = o.lanes.leave_timeout_s * NS_PER_S};
    prepare_signals();
    int error = web_display_open(o.http, &options.display, &err)
                    ?: coordinator_create(&options, &coordinator, &err);
    if (error < 0) {
        char origin[ERR_TEXT_BYTES];
        log_error("%s%s", err.text, cli_explain_options(err.text, origin, sizeof origin));
        return exit_code(error);
    }
    warn_without_limit(&o);
    int ended = coordinator_run(coordinator);
    coordinator_destroy(coordinator);
    return ended < 0 ? CLI_FAILED : ended == 0 ? CLI_OK : 128 + ended;
}

/* Saves 16 MiB a lane. Before a receive is posted, libfabric 2 reserves 16 KiB for each of 1,024
 * messages that may arrive on a lane's first connection. gradpool's messages are shorter. The value
 * 0 reserves the length of an inline message, as libfabric 1 did. */
static void limit_message_memory(void) { (void)setenv("FI_TCP_MAX_RX_SIZE", "0", 0); }

static int aggregator(int argc, char **argv)
{
    struct cli_aggregator o;
    cli_aggregator_parse(argc, argv, &o);
    limit_message_memory();
    start_log("aggregator");
    slice_set(AGGREGATOR_SLICE_NS);
    struct aggregator_options options = {.join = o.join,
                                         .service = o.service,
                                         .cores = o.lanes.cores,
                                         .lanes_per_core = o.lanes.lanes_per_core,
                                         .advertise = o.lanes.advertise,
                                         .interface_name = o.lanes.interface_name,
                                         .data_port = o.lanes.data_port,
                                         .provider = o.provider,
                                         .grant = o.grant,
                                         .kernels = o.kernels,
                                         .lane_policy = o.lane_policy,
                                         .allowed_uids = o.lanes.uids,
                                         .allowed_uids_count = o.lanes.uids_count,
                                         .network_bytes_per_s =
                                             o.lanes.network_gbit * UINT64_C(125000000),
                                         .orphan_timeout_ns = o.lanes.orphan_timeout_s * NS_PER_S,
                                         .leave_timeout_ns = o.lanes.leave_timeout_s * NS_PER_S};
    int ended;
    while ((ended = aggregator_run(&options)) == -ESTALE && !o.grant)
        log_warn("this aggregator counted as lost, so it joins as a new one; its former tasks have "
                 "other lanes");
    return exit_code(ended);
}

static const struct cli_machine machine = {.build = build_facts, .cores = build_facts_cores};

static int doctor(int argc, char **argv) { return cli_doctor(argc, argv, &machine); }

static int version(int argc, char **argv)
{
    puts("gradpool " GRADPOOL_VERSION);
    return CLI_OK;
}

static const struct cli_command commands[] = {
    {"serve", "run a service: the coordinator and its local aggregators", serve, true, false},
    {"aggregator", "add this host's cores to a service", aggregator, true, false},
    {"status", "show a service, its aggregators and lanes", cli_status, true, true},
    {"jobs", "show the jobs of a service", cli_jobs, true, true},
    {"explain", "say why each task of a job is where it is, and what sharing costs it", cli_explain,
     true, true},
    {"table", "list, export or import tables of keyed rows", cli_table, true, true},
    {"top", "watch lanes and jobs, and the cores they save, second by second", cli_top, true, true},
    {"plan", "a dry run: where a job would be placed now, and what it would cost whom", cli_plan,
     true, true},
    {"report", "write a page or JSON: cores, lanes and jobs, and what is saved", cli_report, true,
     true},
    {"move", "move a job's tasks to another lane while it trains", cli_move, true, true},
    {"snapshot", "write a job's parameters and moments to a file while it trains", cli_snapshot,
     true, true},
    {"timeline", "write what workers and lanes do, round by round, to a file for a trace viewer",
     cli_timeline, true, true},
    {"drain", "empty lanes while jobs train, and keep them empty", cli_drain, true, true},
    {"stop", "end a service: its jobs, its aggregators, then itself", cli_stop, true, true},
    {"tenant", "make, list and revoke the keys of tenants", cli_tenant, true, true},
    {"run", "run the workers of a job on this host, each with its rank", cli_run, true, true},
    {"resize", "change the number of workers of a job while it trains", cli_resize, true, true},
    {"explore", "run a study: many configurations, of which the good ones train on", cli_explore,
     true, true},
    {"trials", "show the trials of a study, or end one", cli_trials, true, true},
    {"doctor", "look at this host, Python and a service, and say what to do", doctor, true, true},
    {"version", "print the version", version, false, false},
    {0},
};

/* Protects processes that may have keys: other processes of the user cannot read their memory, they
 * write no core dump, and their children gain no privileges. `run` and `explore` start programs of
 * the user, so they are not protected; a pool of workers protects its own memory. */
static void harden(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "run") == 0 || strcmp(argv[1], "explore") == 0))
        return;
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int main(int argc, char **argv)
{
    harden(argc, argv);
    return cli_main(argc, argv, commands);
}
