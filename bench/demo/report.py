"""Output of the demo: a progress line during the run, a table and one JSON line at the end."""
import json
import os
import sys
import time

PLAIN_EVERY_S = 5.0
TTY_EVERY_S = 0.2
# number of cores of a dedicated parameter server; a job has one server for each worker
CORES_A_SERVER = 1


class Progress:
    """A progress line on standard error. A terminal shows one changing line; other output gets a
    new line from time to time."""

    def __init__(self):
        self._is_tty = sys.stderr.isatty()
        self._every_s = TTY_EVERY_S if self._is_tty else PLAIN_EVERY_S
        self._begin_s = time.monotonic()
        self._said_s = 0.0
        self._phase, self._runs = '', ()

    def phase(self, name, runs=()):
        self._phase, self._runs = name, runs
        self._say(time.monotonic())

    def tick(self, now_s):
        if now_s - self._said_s >= self._every_s:
            self._say(now_s)

    def end(self):
        if self._is_tty:
            print('\r\033[K', end='', file=sys.stderr, flush=True)

    def _say(self, now_s):
        self._said_s = now_s
        line = f'[{now_s - self._begin_s:3.0f} s] {self._phase}'
        if self._runs:
            line += ': ' + ', '.join(run.progress() for run in self._runs)
        print(f'\r{line}\033[K' if self._is_tty else line, end='' if self._is_tty else '\n',
              file=sys.stderr, flush=True)


class Stopped:
    """Result of a stop of the service while a job trains."""

    def __init__(self, exit_code, failures, left):
        self.exit_code, self.failures, self.left = exit_code, failures, left

    def holds(self):
        return (self.exit_code == 0 and not self.left and
                all(failure and failure['kind'] == 'PeerLost' for failure in self.failures))


class Result:
    """All results. holds() returns whether the demo succeeded."""

    def __init__(self, where, lanes):
        self._where, self._lanes = where, lanes
        self._alone, self._together, self._accuracy, self._jobs = {}, {}, {}, {}
        self._digests = {}
        self._more = {}         # further values of the JSON line
        self._checks = []       # (statement, whether it is true, detail)

    def alone(self, run, rates):
        self._alone.update(rates)
        self._digests[run.job.name] = run.digests()

    def together(self, runs, rates, cpu_s, elapsed_s):
        self._together, self._cpu_s, self._elapsed_s = rates, cpu_s, elapsed_s
        self._equal = all(len(run.digests()) == 1 for run in runs)
        for run in runs:
            job = self._jobs[run.job.name] = run.job
            self._accuracy[job.name] = found = run.accuracy()
            self._check(f'{job.name} reaches its accuracy', found >= job.accuracy,
                        f'{found:.4f} held out, at least {job.accuracy}')
        self._check('replicas are equal to the last bit', self._equal)
        self._check('a job ends with the same bits alone and beside another',
                    all(run.digests() == self._digests[run.job.name] for run in runs))

    def cut(self, pauses_s, cut_s):
        detail = ', '.join(f'{name} paused {pause:.1f} s' for name, pause in pauses_s.items())
        self._check(f'both jobs stop while a link is cut for {cut_s:.0f} s, and continue',
                    all(pause >= 0.75 * cut_s for pause in pauses_s.values()), detail)

    def disturbed(self, runs, seen, pause_s):
        self._check('tasks move to another process under training', seen['tasks'] > 0,
                    f"all of {runs[0].job.name} (tasks: {seen['tasks']}), aggregator "
                    f"{seen['source']} to {seen['target']}, {seen['longest_ns'] / 1e6:.1f} ms")
        self._check('the aggregator with the moved tasks is killed',
                    seen['killed'] == seen['target'],
                    f"kill -9 of aggregator {seen['killed']}, longest step {pause_s:.2f} s")
        self._check('both jobs end with the same bits all the same',
                    all(run.digests() == self._digests[run.job.name] for run in runs))
        self._more['tasks_moved'] = seen['tasks']

    def elastic(self, job, compared):
        """`job`: the elastic job after its training; `compared`: counts of its reference."""
        found, least = job.accuracy()
        longest_s, median_s = job.longest_step_s()
        counts = job.workers()
        self._check('a worker joins a job in training, and leaves', counts == [2, 3, 2],
                    f"workers: {', '.join(map(str, counts))}; {compared['steps']} steps, longest "
                    f'{longest_s:.2f} s, median {median_s * 1e3:.0f} ms')
        self._check('the job whose workers change reaches its accuracy', found >= least,
                    f'{found:.4f} held out, at least {least}')
        self._check('each sample is trained once in an epoch',
                    compared['lost'] == compared['doubled'] == 0,
                    f"{compared['lost']} lost, {compared['doubled']} doubled in "
                    f"{compared['epochs']} epochs")
        self._check('its workers end with the bits of one process', compared['wrong'] == 0,
                    f"{compared['wrong']} of {compared['elements']} elements differ")
        self._more['workers'] = counts

    def reported(self, path):
        self._more['report'] = str(path)

    def compared(self, wrong, elements):
        self._wrong = wrong
        steps = ' and '.join(str(job.steps) for job in self._jobs.values())
        self._check('parameters equal a one-process reference', wrong == 0,
                    f'{wrong} of {elements} elements differ after {steps} steps')

    def stopped(self, stopped):
        texts = {f"{f['kind']}: {f['text']}" if f else 'a worker said nothing'
                 for f in stopped.failures}
        self._check('without the service nothing trains', stopped.holds(), '; '.join(
            [f'serve ended with {stopped.exit_code}', *sorted(texts),
             *(f'process {pid} is left' for pid in stopped.left)]))

    def _check(self, statement, holds, detail=''):
        self._checks.append((statement, bool(holds), detail))

    def holds(self):
        return all(holds for _, holds, _ in self._checks)

    def _workers(self):
        return sum(job.workers for job in self._jobs.values())

    def _dedicated(self):
        return CORES_A_SERVER * self._workers()

    def print(self):
        """Prints the table, the checks and the JSON line."""
        print(f'\ngradpool demo on {self._where}\n')
        print(f'{"job":30} {"workers":>7} {"steps/s alone":>14} {"together":>9} {"accuracy":>9}')
        for name, job in self._jobs.items():
            print(f'{name + ": " + job.text:30} {job.workers:7} {self._alone[name]:14.1f} '
                  f'{self._together[name]:9.1f} {self._accuracy[name]:9.4f}')
        used = self._cpu_s / self._elapsed_s
        print(f'\nservice, both jobs training: {self._cpu_s:.2f} CPU s in {self._elapsed_s:.1f} s '
              f'= {used:.2f} cores used, of {self._lanes} lanes that may open')
        print(f'dedicated servers would hold {self._dedicated()} cores '
              f'(one server a worker, {CORES_A_SERVER} core each)')
        print(f'the {self._workers()} workers compute on the same {len(os.sched_getaffinity(0))} '
              'cores, so jobs that train together are slower\n')
        for statement, holds, detail in self._checks:
            print(f'{"ok  " if holds else "FAIL"} {statement}{": " + detail if detail else ""}')
        if 'report' in self._more:
            print(f'\npage with the cores saved, by the service: {self._more["report"]}')
        print(json.dumps({
            'replicas_equal': self._equal, 'reference_equal': self._wrong == 0,
            'accuracy': self._accuracy, 'steps_per_s_alone': _rounded(self._alone),
            'steps_per_s_together': _rounded(self._together),
            'service_cpu_s': round(self._cpu_s, 3), 'cores_used': round(used, 3),
            'cores_dedicated': self._dedicated(), 'wrong': self._wrong, **self._more}), flush=True)


def _rounded(values):
    return {name: round(value, 2) for name, value in values.items()}
