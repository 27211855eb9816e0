"""The order of programs: as many run at the same time as the cores permit, measured by the
programs' use of cores.

While a program waits, another may use its core. A program that computes, or is slowed down by other
load, delays the queue. So about as many programs compute as the host has cores, and no program
needs a setting."""
import os
import time

import progress

LOOK_S = 0.02
SAMPLE_S = 0.4
YOUNG_S = 0.75      # the use of cores of a younger program is not known
YOUNG_CORES = 0.5
MORE_CORES = 0.4    # programs may use this many more cores than exist, because they sometimes wait
# number of idle cores needed for one more program, because running programs have bursts
IDLE_CORES = 0.3
AT_ONCE = 12        # maximum number of programs for each core
# maximum number of programs with torch: such a program has one process for each rank, and each
# process imports torch
TORCH_AT_ONCE = 2


class Schedule:
    """Runs programs in the given order, and calls done(program, outcome) at each end."""

    def __init__(self, programs, done, environment):
        # Sanitizer builds slow down all other programs. Programs with deadlines therefore start
        # first. Programs that need the host alone start last, so that no other program waits for
        # them.
        self.queue = sorted(programs, key=lambda p: (p.is_alone, p.build.name != 'plain', p.order))
        self.running, self.done = [], done
        self.environment = environment
        self.cores = len(os.sched_getaffinity(0))
        self.activity, self.sampled = progress.Activity(), time.monotonic()
        self.idle_s, self.has_idle_core = progress.idle_s(), False

    def run(self):
        try:
            while self.queue or self.running:
                self.start_what_fits()
                time.sleep(LOOK_S)
                self.collect()
                if time.monotonic() - self.sampled >= SAMPLE_S:
                    self.sample()
        finally:
            for program, pids in self.trees().items():
                program.end('the run was interrupted', pids)

    def start_what_fits(self):
        for program in list(self.queue):
            if self.is_full():
                return
            if self.fits(program):
                self.queue.remove(program)
                program.start(self.environment)
                self.has_idle_core = False
                self.running.append(program)

    def is_full(self):
        wants_all = self.wanted() > self.cores + MORE_CORES - YOUNG_CORES
        return (wants_all and not self.has_idle_core
                or len(self.running) >= AT_ONCE * self.cores
                or any(program.is_alone for program in self.running))

    def wanted(self):
        return sum(max(p.cores, YOUNG_CORES) if p.age_s < YOUNG_S else p.cores
                   for p in self.running)

    def fits(self, program):
        if program.is_alone:
            return not self.running
        torch = sum('torch' in other.suites for other in self.running)
        return 'torch' not in program.suites or torch < TORCH_AT_ONCE

    def collect(self):
        for program in list(self.running):
            if program.has_ended():
                self.running.remove(program)
                self.done(program, program.finish())

    def trees(self):
        roots = {program.pid: program for program in self.running}
        trees = {program: [] for program in self.running}
        for pid, root in progress.owners(set(roots), progress.processes()).items():
            trees[roots[root]].append(pid)
        return trees

    def sample(self):
        trees, now = self.trees(), time.monotonic()
        used = self.activity.sample({pid: p.pid for p, pids in trees.items() for pid in pids})
        elapsed, self.sampled = now - self.sampled, now
        before_s, self.idle_s = self.idle_s, progress.idle_s()
        self.has_idle_core = self.idle_s - before_s > IDLE_CORES * elapsed
        for program, pids in trees.items():
            program.note_use(used.get(program.pid, 0.0), elapsed, pids)
            if reason := program.stands_still():
                program.end(reason, pids)
