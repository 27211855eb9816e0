#!/usr/bin/env python3
"""Two jobs of one period that push everything at the end of their step, half a period apart: how
many lanes they need under `shared` and under `phased`, and what they lose.

    bench/phased.py BUILD [--compute-ms 75] [--elements 64000000] [--seconds 40]

Each policy has a service of its own with two lanes. The jobs compute (sleep) and push for real;
the second is stopped once, for so long that its pushes begin half a period after the first one's.
Prints a line a second on standard error, and one JSON line a policy. Wants a quiet machine: what
else runs moves phases.
"""
import argparse
import contextlib
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

START_S, PHASE_S, HOLD_S = 60, 90, 5
NS_PER_S = 1_000_000_000


class Service:
    def __init__(self, build, policy):
        self.build, self.folder = build, pathlib.Path(tempfile.mkdtemp(prefix='gradpool-phased-'))
        self.children = []
        self.log = open(self.folder / 'log', 'wb')
        self.start('gradpool', 'serve', '--policy', policy, '--loss-limit', '5%', '--scale-hold',
                   HOLD_S, '--aggregators', 1, '--listen', 'gradpool://127.0.0.1:0', '--state-dir',
                   self.folder / 'state')
        wait(lambda: self.status() is not None, START_S, 'the service starts')
        self.endpoint = self.status()['endpoint']

    def start(self, program, *arguments):
        command = [str(a) for a in (self.build / program, *arguments)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log,
                                 stderr=subprocess.STDOUT)
        self.children.append(child)
        return child

    def ask(self, *command):
        socket = f'unix:{self.folder}/state/control.sock'
        answer = subprocess.run([str(self.build / 'gradpool'), *command, '--json', '--endpoint',
                                 socket], capture_output=True, text=True, timeout=30, check=False)
        return json.loads(answer.stdout) if answer.stdout.strip() else None

    def status(self):
        status = self.ask('status')
        return status if status and any(a['state'] == 'up' for a in status['aggregators']) else None

    def job(self, name):
        explained = self.ask('explain', name)
        return explained['jobs'][0] if explained else {}

    def end(self):
        service, *workers = self.children
        for child in workers:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGCONT)
                child.terminate()
            child.wait(60)
        with contextlib.suppress(ProcessLookupError):
            service.send_signal(signal.SIGINT)  # SIGTERM would leave jobs to a next start
        service.wait(60)
        self.log.close()
        shutil.rmtree(self.folder)


def wait(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f'not within {seconds} s: {what}')
        time.sleep(0.2)


def lag(first, second):
    """Of the second's bursts after the first's, in periods."""
    return (second['phase']['offset_ns'] - first['phase']['offset_ns']) \
        % first['period_ns'] / first['period_ns']


def put_half_a_period_after(first, process):
    """It stands while it would compute, and pushes when it goes on."""
    process.send_signal(signal.SIGSTOP)
    period_ns, now_ns = first['period_ns'], time.monotonic_ns()
    rounds = (now_ns - first['phase']['offset_ns']) // period_ns + 3
    at_ns = first['phase']['offset_ns'] + rounds * period_ns + period_ns // 2
    time.sleep((at_ns - now_ns) / NS_PER_S)
    process.send_signal(signal.SIGCONT)


def tell(jobs, since):
    cells = []
    for job in jobs:
        phase = job['phase']
        burst = f'window {phase["window_ns"] / 1e6:.1f} ms' if phase['is_steady'] else 'not steady'
        cells.append(f'{job.get("period_ns", 0) / 1e6:.2f} ms, lost '
                     f'{job.get("loss_ppm", 0) / 1e4:.2f} %, lanes '
                     f'{[lane["lane"] for lane in job["lanes"]]}, {burst}')
    apart = f'{lag(*jobs):.3f}' if all(j['phase']['is_steady'] for j in jobs) else '-'
    print(f'{time.monotonic() - since:6.1f} s  ' + '  |  '.join(cells) + f'  |  {apart} apart',
          file=sys.stderr, flush=True)


def run(service, options):
    push = ['push', '--endpoint', service.endpoint, '--workers', 1, '--rank', 0, '--rounds', 10**6,
            '--compute-ms', options.compute_ms, '--tensors', 8, '--elements', options.elements // 8,
            '--in-place', '--no-check']
    workers = [service.start('bench/gradpool-bench', *push, '--job', name) for name in 'ab']
    since, seen, lanes = time.monotonic(), [], set()

    def look():
        seen[:] = [service.job('a'), service.job('b')]
        if all('phase' in job for job in seen):
            tell(seen, since)
        time.sleep(1)
        return seen

    def are_steady():
        return all(job.get('phase', {}).get('is_steady') for job in look())

    wait(are_steady, PHASE_S, 'both phases are steady')
    put_half_a_period_after(seen[0], workers[1])
    alone_ns = [job['alone_period_ns'] for job in seen]
    deadline = time.monotonic() + options.seconds
    gathered = None
    while time.monotonic() < deadline:
        lanes = {lane['lane'] for job in look() for lane in job['lanes']}
        if len(lanes) == 1:
            gathered = gathered or time.monotonic() - since
    return {'lanes': len(lanes), 'gathered_after_s': gathered,
            'alone_ms': [a / 1e6 for a in alone_ns],
            'jobs': [{'period_ms': j['period_ns'] / 1e6, 'lane_ms': j['lane_ns'] / 1e6,
                      'share': j['lane_ns'] / j['alone_period_ns'],
                      'lost_percent': j['loss_ppm'] / 1e4,
                      'predicted_percent': j.get('predicted_loss_ppm', 0) / 1e4,
                      'phase': j['phase']} for j in seen]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('build', type=pathlib.Path)
    parser.add_argument('--compute-ms', type=int, default=75)
    parser.add_argument('--elements', type=int, default=64_000_000)
    parser.add_argument('--seconds', type=int, default=40)
    options = parser.parse_args()
    for policy in 'shared', 'phased':
        service = Service(options.build.resolve(), policy)
        try:
            print(json.dumps({'policy': policy, **run(service, options)}), flush=True)
        finally:
            service.end()


if __name__ == '__main__':
    main()
