/* Computes medians over windows and over the iterations without a migration. Time in which workers
 * were stopped must never count as hidden. */
#include "bench/migrate/reckon.h"

#include "bench/savings/statistics.h"

static double longest_ms(const struct crowd *c, const struct migrate_window *w)
{
    double longest = 0;
    for (uint32_t i = w->first; i <= w->last; i++) {
        double ms = crowd_lap_ms(c, i);
        longest = ms > longest ? ms : longest;
    }
    return longest;
}

static bool is_near(const struct migrate_window *windows, size_t count, uint32_t iteration)
{
    for (size_t i = 0; i < count; i++)
        if (windows[i].migrates && iteration >= windows[i].first && iteration <= windows[i].last)
            return true;
    return false;
}

/* Adds iterations without a migration, including those of windows without a migration. */
static void note_quiet(const struct crowd *c, const struct migrate_window *windows, size_t count,
                       struct migrate_row *row)
{
    static double laps[TRAINEE_ITERATIONS_MAX], fractions[TRAINEE_ITERATIONS_MAX];
    size_t quiet = 0;
    for (uint32_t i = RECKON_WARM; i < crowd_iterations(c); i++)
        if (!is_near(windows, count, i)) {
            laps[quiet] = crowd_lap_ms(c, i);
            fractions[quiet] = crowd_aggregation_ms(c, i) / laps[quiet];
            quiet++;
        }
    row->iteration_ms = quiet ? statistics_quantile(laps, quiet, 0.5) : 0;
    row->aggregation_fraction = quiet ? statistics_quantile(fractions, quiet, 0.5) : 0;
}

static double median_pause(const struct crowd *c, const struct migrate_window *windows,
                           size_t count, double quiet_ms, bool migrates)
{
    double pauses[RECKON_WINDOWS_MAX];
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (windows[i].migrates == migrates)
            pauses[found++] = (longest_ms(c, &windows[i]) - quiet_ms) / quiet_ms;
    return statistics_interval(pauses, found).median;
}

static double taken_ms(const struct crowd *c, const struct migrate_window *w)
{
    return w->stands ? crowd_pause_ms(c, w->stood_in) : w->answer_ms;
}

/* Returns the part of the migration time that lengthens no iteration near the migration. */
static double hidden_ms(const struct crowd *c, const struct migrate_window *w, double quiet_ms)
{
    double seen = longest_ms(c, w) - quiet_ms;
    double hidden = w->answer_ms - (seen > 0 ? seen : 0);
    return w->stands || hidden < 0 ? 0 : hidden;
}

static void note_times(const struct crowd *c, const struct migrate_window *windows, size_t count,
                       struct migrate_row *row)
{
    double taken[RECKON_WINDOWS_MAX], hidden[RECKON_WINDOWS_MAX];
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (windows[i].migrates) {
            taken[found] = taken_ms(c, &windows[i]);
            hidden[found++] = hidden_ms(c, &windows[i], row->iteration_ms);
        }
    row->migration_ms = statistics_interval(taken, found).median;
    row->hidden_ms = statistics_interval(hidden, found).median;
}

void reckon(const struct crowd *c, const struct migrate_window *windows, size_t count,
            struct migrate_row *row)
{
    note_quiet(c, windows, count, row);
    row->visible_pause_fraction = median_pause(c, windows, count, row->iteration_ms, true);
    row->control_fraction = median_pause(c, windows, count, row->iteration_ms, false);
    note_times(c, windows, count, row);
}
