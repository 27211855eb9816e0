/* Prints a simulation, with every assumption on which the figures depend. */
#include "bench/simulate/simulate_report.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

double simulate_saving(const struct simulated *result, double cores)
{
    return result->dedicated > 0 ? 1 - result->allocated / (cores * result->dedicated) : 0;
}

double simulate_moves_per_hour(const struct simulated *result)
{
    return result->hours > 0 ? (double)result->moves / result->hours : 0;
}

static double to_fluid(const struct simulated *result)
{
    return result->fluid > 0 ? result->allocated / result->fluid : 0;
}

static void print_jobs(const struct simulate_report *report)
{
    const struct workload *w = report->workload;

    printf("jobs       %s: %zu of two or more workers (%zu of one left out) in %.1f hours\n",
           report->traces ? report->traces : "drawn from the seed", w->count, w->single,
           (double)w->end_ns / (double)NS_PER_HOUR);
    printf("           step times of a V100; a third of a step is the forward pass; run times as "
           "given, whatever is lost\n");
}

void simulate_report_start(const struct simulate_report *report)
{
    const struct setting *s = report->setting;
    struct utsname host;

    if (report->is_json)
        return;
    uname(&host);
    printf("machine    %ld cores, Linux %s, %s\n", sysconf(_SC_NPROCESSORS_ONLN), host.release,
           host.machine);
    print_jobs(report);
    printf("X          %.3f GiB/s of pushed gradients a core, %s\n", s->x_gib_per_s,
           report->is_x_given ? "given"
                              : "measured now: a lane over tcp, 4 workers, tasks of 4 MiB");
    printf("wire       f%u, lines of %g Gbit/s to each worker and %g to each lane; pieces go out "
           "during the backward pass\n",
           s->element_bytes * 8, s->line_gbit_per_s, SETTING_LANE_LINES * s->line_gbit_per_s);
    printf("jitter     %g of a worker's step time, independent; a round waits for the slowest\n",
           s->jitter);
    printf("placing    policy %s, limit %g %%, pieces of %llu KiB, jobs are measured on lanes of "
           "their own first; tasks %s\n",
           s->policy, s->loss_limit_ppm / 1e4, (unsigned long long)s->piece_bytes_max / 1024,
           s->moves ? "move when a job leaves" : "stay");
    printf("loss       event simulation by chunks of 2 MiB, %u windows of %g s, seed %llu; not the "
           "packer's formula\n\n",
           s->windows, s->window_s, (unsigned long long)s->seed);
}

static void print_cores(const struct simulated *r)
{
    printf("%-34s %12s %10s\n", "core-hours", "", "saved");
    printf("%-34s %12.1f\n", "  fluid bound", r->fluid);
    printf("%-34s %12.1f\n", "  allocated", r->allocated);
    printf("%-34s %12.1f\n", "    of these to measure new jobs", r->measuring);
    printf("%-34s %12.2f\n", "  allocated / fluid", to_fluid(r));
    printf("%-34s %12.1f %9.1f%%\n", "  fixed pool at the peak", r->peak * r->hours,
           100 * (1 - r->allocated / (r->peak > 0 ? r->peak * r->hours : 1)));
    for (int cores = 1; cores <= 4; cores *= 2)
        printf("  a server a worker, %d core%s %*s %12.1f %9.1f%%\n", cores, cores > 1 ? "s" : "",
               cores > 1 ? 5 : 6, "", cores * r->dedicated, 100 * simulate_saving(r, cores));
}

static void print_losses(const struct simulated *r, const struct setting *s)
{
    char within[64];

    printf("\nloss of %llu jobs seen in %u windows\n", (unsigned long long)r->sampled, r->windows);
    printf("%-34s %11.2f%%\n", "  mean", 100 * r->loss_mean);
    printf("%-34s %11.2f%%\n", "    of it without other jobs", 100 * r->loss_own);
    printf("%-34s %11.2f%%\n", "  mean predicted", 100 * r->loss_predicted);
    printf("%-34s %11.2f%%\n", "  mean by the rule of placement", 100 * r->loss_counted);
    printf("%-34s %11.2f%%\n", "  p99", 100 * r->loss_p99);
    printf("%-34s %11.2f%%\n", "  worst job", 100 * r->loss_worst);
    snprintf(within, sizeof within, "  jobs within %g %%", s->loss_limit_ppm / 1e4);
    printf("%-34s %11.1f%%\n", within, 100 * r->within_limit);
    printf("%-34s %11.1f%%\n", "  jobs predicted to 2 points", 100 * r->predicted_near);
}

void simulate_report_result(const struct simulate_report *report, const struct simulated *result)
{
    if (report->is_json)
        return;
    print_cores(result);
    print_losses(result, report->setting);
    printf("\njobs placed %llu, refused %llu, over before they were measured %llu; moves %.1f an "
           "hour; peak %.0f cores\n",
           (unsigned long long)result->placed, (unsigned long long)result->refused,
           (unsigned long long)result->brief, simulate_moves_per_hour(result), result->peak);
    fflush(stdout);
}

/* --- other assumptions --- */

static void print_row(const char *name, const struct simulated *r)
{
    printf("%-26s %10.1f %10.1f %6.2f %7.1f%% %7.1f%% %8.2f%% %8.2f%% %8.1f%% %6llu\n", name,
           r->allocated, r->fluid, to_fluid(r), 100 * simulate_saving(r, 1),
           100 * simulate_saving(r, 4), 100 * r->loss_mean, 100 * r->loss_p99,
           100 * r->within_limit, (unsigned long long)r->refused);
    fflush(stdout);
}

#define ROWS 13

/* Changes one assumption and returns its name. */
static const char *change(int row, struct setting *s)
{
    switch (row) {
    case 0: s->x_gib_per_s /= 2; return "X / 2";
    case 1: s->x_gib_per_s *= 2; return "X x 2";
    case 2: s->element_bytes = 2; return "wire f16";
    case 3: s->loss_limit_ppm = 20000; return "limit 2 %";
    case 4: s->loss_limit_ppm = 100000; return "limit 10 %";
    case 5: s->line_gbit_per_s = 10; return "lines of 10 Gbit/s";
    case 6: s->line_gbit_per_s = 100; return "lines of 100 Gbit/s";
    case 7: s->jitter = 0; return "no jitter";
    case 8: s->jitter = 0.2; return "jitter 0.2";
    case 9: s->overlaps = false; return "all sent at the end";
    case 10: s->moves = false; return "tasks stay";
    case 11: s->jitter = 0, s->overlaps = false; return "no jitter, at the end";
    default: s->policy = "rate"; return "rate";
    }
}

int simulate_report_rows(const struct simulate_report *report, const struct simulated *usual,
                         char *error)
{
    printf("\n%-26s %10s %10s %6s %8s %8s %9s %9s %9s %6s\n", "assumption", "allocated", "fluid",
           "ratio", "saved c1", "saved c4", "loss", "p99", "within", "refused");
    print_row("as above", usual);
    for (int row = 0; row < ROWS; row++) {
        struct setting setting = *report->setting;
        const char *name = change(row, &setting);
        struct simulated result;
        int r = simulate(report->workload, &setting, NULL, &result, error);

        if (r < 0)
            return r;
        print_row(name, &result);
    }
    return 0;
}

void simulate_report_json(const struct simulate_report *report, const struct simulated *r)
{
    printf("{\"allocated_core_hours\": %.3f, \"fluid_core_hours\": %.3f, "
           "\"jobs_within_limit_fraction\": %.5f, \"saving_c1\": %.5f, \"saving_c2\": %.5f, "
           "\"saving_c4\": %.5f, \"loss_mean\": %.6f, \"loss_p99\": %.6f, \"loss_model\": %.6f, "
           "\"windows\": %u, \"jobs_placed\": %llu, \"jobs_refused\": %llu, "
           "\"moves_per_hour\": %.3f, \"x_gib_per_s\": %.4f, \"loss_counted\": %.6f, "
           "\"predicted_near_fraction\": %.5f}\n",
           r->allocated, r->fluid, r->within_limit, simulate_saving(r, 1), simulate_saving(r, 2),
           simulate_saving(r, 4), r->loss_mean, r->loss_p99, r->loss_predicted, r->windows,
           (unsigned long long)r->placed, (unsigned long long)r->refused,
           simulate_moves_per_hour(r), report->setting->x_gib_per_s, r->loss_counted,
           r->predicted_near);
}
