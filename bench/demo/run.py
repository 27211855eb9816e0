#!/usr/bin/python3
"""The demo: two PyTorch jobs at the same time on one shared service.

A small CNN on handwritten digits (2 workers) and an MLP on the breast-cancer set (3 workers) train
with DistributedDataParallel, and the service averages their gradients. The jobs train alone, then
together, and then while tasks move from one aggregator process to the other. The other aggregator
is then killed. A third job trains with two, three and again two workers. The demo checks that the
accuracy is reached; that the parameters of a job have the same bits on all ranks and in all runs;
that they equal the parameters of a reference in one process; that each sample is trained once in an
epoch of the third job; and that no job trains without the service.

Exit code: 0 all checks hold, 1 a check failed, 2 the demo cannot run like this, 130 Ctrl-C. The
last line of standard output is JSON."""
import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import numpy

import datasets
import elastic
import jobs
import report
from children import Children, Failed, Interrupted
from network import Host, Nodes
from service import Meter, Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
CUT_S = 2.0
CUT_NODE = 'c'
# Fractions of the training at which workers wait for a disturbance. Otherwise the jobs could end on
# a busy host before the command of the disturbance.
CUT_HOLDS, DISTURB_HOLDS = (0.5,), (0.5, 0.75, 1)
STEPS_BEFORE_STOP = 40
STEPS_WITHOUT_END = 1000000
# SIGINT needs a handler, too: a background job of a script starts with SIGINT ignored.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stage:
    """Environment of the demo: folder, children, network, service."""

    def __init__(self, options):
        self.here = pathlib.Path(__file__).resolve().parent
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-demo-'))
        self.data = self.folder / 'data.npz'
        self.progress = report.Progress()
        self.children = Children(self.folder, self.progress.tick)
        self.network = Nodes() if options.nodes == 3 else Host()
        self.program = options.build / 'gradpool'
        self.environment = jobs.environment(options.build / 'client' / 'libgradpool.so',
                                            ROOT / 'client' / 'python', options.transport)
        self.report = options.build / 'demo-report.html'
        self.service = None

    def begin(self):
        """Creates the data, the network and the service."""
        self.progress.phase('data, service')
        numpy.savez(self.data, **datasets.prepare())
        if isinstance(self.network, Nodes):
            self.network.create()
        self.service = Service(self.program, self.folder, self.children, self.network)

    def end(self):
        """Removes every process, namespace and file of the demo."""
        self.progress.end()
        self.children.kill_all()
        self.network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def let_go(runs):
    for run in runs:
        run.let_go()


def train(stage, phase, some_jobs, during=None, holds=()):
    """Trains these jobs at the same time. Returns (runs, CPU seconds of the service, seconds,
    result of `during`). `holds`: fractions of the training at which the workers wait for
    `during`."""
    runs = [jobs.Run(job, phase, stage, holds=holds) for job in some_jobs]
    stage.progress.phase(phase, runs)
    jobs.wait_ready(runs)
    meter = Meter(stage.service.pids())
    let_go(runs)
    seen = during(stage, runs) if during else None
    jobs.wait_over(runs)
    return runs, *meter.read(), seen


def cut_link(stage, runs):
    """Disconnects a node for a while, when all jobs train and the first job has done a quarter of
    its steps."""
    workers = [worker for run in runs for worker in run.workers]
    stage.children.wait('a quarter of the training', lambda: (
        all(run.reached(1) for run in runs) and any(run.reached(run.steps // 4) for run in runs)),
        workers, jobs.TRAIN_TIMEOUT_S)
    stage.network.cut(CUT_NODE)
    let_go(runs)
    until_s = time.monotonic() + CUT_S
    stage.children.wait('the link is down', lambda: time.monotonic() >= until_s, workers,
                        2 * CUT_S)
    stage.network.restore(CUT_NODE)


def disturb(stage, runs):
    """Disturbs two jobs in training: moves all tasks of the first job to the other aggregator,
    kills this aggregator, and then writes the page about saved cores. Returns the output of the
    move."""
    first, workers = runs[0], [worker for run in runs for worker in run.workers]
    service = stage.service

    def wait(share):
        stage.children.wait(f'{share:.0%} of the training', lambda: first.reached(
            int(share * first.steps)), workers, jobs.TRAIN_TIMEOUT_S)

    wait(0.25)
    home = service.home_of(first.job.name)
    target = next(a for a in service.status()['aggregators']
                  if a['aggregator'] != home['aggregator'] and a['state'] == 'up')
    moved = service.move(first.job.name, target)
    let_go(runs)
    wait(0.5)
    killed = service.home_of(first.job.name)
    os.kill(killed['pid'], signal.SIGKILL)
    let_go(runs)
    wait(0.75)
    service.write_report(stage.report)
    let_go(runs)
    return {**moved, 'source': home['aggregator'], 'killed': killed['aggregator'],
            'target': target['aggregator']}


def compare(stage, runs):
    """Compares the runs with references that train in one process. Returns the number of wrong
    elements, and the number of compared elements."""
    stage.progress.phase('reference')
    references = [run.start_reference() for run in runs]
    stage.children.wait('the references', lambda: all(r.last('compared') for r in references),
                        references, jobs.TRAIN_TIMEOUT_S)
    compared = [reference.last('compared') for reference in references]
    return sum(c['wrong'] for c in compared), sum(c['elements'] for c in compared)


def train_elastic(stage):
    """Trains the job whose workers join and leave. Returns the job, and the counts of its
    reference."""
    job = elastic.Elastic(stage)
    stage.progress.phase('workers join and leave', [job])
    job.train()
    stage.progress.phase('reference')
    return job, job.compare()


def stop_in_mid_run(stage):
    """Stops the service while a job trains; returns the reports of its workers."""
    run = jobs.Run(jobs.JOBS[0], 'stopped', stage, STEPS_WITHOUT_END)
    stage.progress.phase('service stopped', [run])
    jobs.wait_ready([run])
    run.let_go()
    stage.children.wait('some steps', lambda: run.reached(STEPS_BEFORE_STOP), run.workers,
                        jobs.TRAIN_TIMEOUT_S)
    code = stage.service.stop()
    stage.children.wait_ended(run.workers, jobs.START_TIMEOUT_S)
    return report.Stopped(code, [worker.last('failed') for worker in run.workers],
                          stage.children.orphans())


def demonstrate(stage):
    """All phases in order; returns a report.Result."""
    stage.begin()
    result = report.Result(stage.network.text, stage.service.lanes())
    for job in jobs.JOBS:
        (run,), *_ = train(stage, 'alone', [job])
        result.alone(run, jobs.steps_per_s([run]))
    runs, cpu_s, elapsed_s, _ = train(stage, 'together', jobs.JOBS,
                                      *((cut_link, CUT_HOLDS) if stage.network.can_cut else ()))
    result.together(runs, jobs.steps_per_s(runs), cpu_s, elapsed_s)
    if stage.network.can_cut:
        result.cut({run.job.name: jobs.longest_pause_s(run) for run in runs}, CUT_S)
    else:
        # this separate run keeps the effect of the move and the kill out of the figures above
        disturbed, *_, seen = train(stage, 'disturbed', jobs.JOBS, disturb,
                                     DISTURB_HOLDS)
        result.disturbed(disturbed, seen, max(map(jobs.longest_pause_s, disturbed)))
        result.reported(stage.report)
        result.elastic(*train_elastic(stage))
    result.compared(*compare(stage, runs))
    result.stopped(stop_in_mid_run(stage))
    return result


def parse():
    parser = argparse.ArgumentParser(prog='bench/demo.sh', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--transport', choices=('auto', 'shm', 'tcp'), default='auto',
                        help='how workers reach the lanes (default: auto: shared memory on the '
                             'same host, tcp otherwise)')
    parser.add_argument('--nodes', type=int, choices=(1, 3), default=1,
                        help='3: coordinator, aggregators and workers in network namespaces of '
                             'their own, one link cut and restored in mid-run; needs root')
    parser.add_argument('--build', type=pathlib.Path, default=ROOT / 'build',
                        help='the build folder (default: build)')
    options = parser.parse_args()
    if options.nodes == 3 and os.geteuid() != 0:
        parser.error('--nodes 3 makes network namespaces, which takes root: run it with sudo')
    if options.nodes == 3 and options.transport == 'shm':
        parser.error('--nodes 3 needs tcp between its nodes: leave --transport out')
    options.build = options.build.resolve()
    if not (options.build / 'gradpool').exists():
        parser.error(f'{options.build}/gradpool is not there: build first (bench/demo.sh does)')
    return options


def main():
    options = parse()
    stage = Stage(options)
    for number in ENDING_SIGNALS:
        signal.signal(number, stage.children.interrupt)
    try:
        result = demonstrate(stage)
    except Failed as problem:
        print(f'\ndemo: {problem}', file=sys.stderr)
        return 1
    except Interrupted:
        print('\ndemo: interrupted', file=sys.stderr)
        return 130
    finally:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        stage.end()
    result.print()
    return 0 if result.holds() else 1


if __name__ == '__main__':
    sys.exit(main())
