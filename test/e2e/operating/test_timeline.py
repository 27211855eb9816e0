"""Tests gradpool timeline. Starts and stops a recording while two workers train, and reads the file
as a trace viewer does."""
import collections
import json
import os
import pathlib
import signal
import subprocess
import unittest
import unittest.mock

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import progress
import gradpool

WORKERS = 2
SIZES = {'layer "one"': 1000, 'two': 1500000}   # the second tensor has two pieces
AGGREGATORS_FROM = 100000
AHEAD_S = 86400
LANE_STEPS = ['announcements', 'queue', 'read and sum', 'write']
SHORT = range(500)   # allowed gaps in ns between two steps: very short steps are omitted
WORKER_STEPS = ['queued', 'copy in', 'wait', 'landed', 'copy out']


def rank_trains(rank, workers):
    """Trains until the file `stop` exists. Rank 0 checks for the file; the other ranks receive the
    answer in a sum."""
    folder = pathlib.Path(os.environ['TEST_FOLDER'])
    client = gradpool.connect()
    job = client.join(os.environ['TEST_JOB'], rank, workers)
    tensors = [job.declare(name, size) for name, size in SIZES.items()]
    values = [numpy.empty(size, numpy.float32) for size in SIZES.values()]
    wrong = 0
    while True:
        for value in values:
            value[:] = rank + 1
        values[0][0] = rank == 0 and (folder / 'stop').exists()
        job.push_pull_group(list(zip(tensors, values, values)), operation='sum').wait(20000)
        wrong += sum(int((value[1:] != workers * (workers + 1) / 2).sum()) for value in values)
        if rank == 0:
            (folder / 'trains').touch()
        if values[0][0]:
            job.leave()
            return {'wrong': wrong}


class Trace:
    """Reads a file: the name of each process, and its rounds with their steps."""

    def __init__(self, path):
        self.whole = json.loads(path.read_text())
        self.names, self.threads, self.clocks, self.rounds = {}, {}, {}, []
        self.error_ns = 0    # largest error of the estimates of clock offsets in all batches
        for event in self.whole['traceEvents']:
            getattr(self, 'take_' + event['ph'])(event)

    def take_M(self, event):
        kept = {'process_name': self.names, 'clock': self.clocks}.get(event['name'])
        if kept is not None:
            kept[event['pid']] = event['args'].get('name', event['args'])
        if event['name'] == 'clock':
            self.error_ns = max(self.error_ns, 1000 * event['args']['error'])
        if event['name'] == 'thread_name':
            self.threads[event['pid'], event['tid']] = event['args']['name']

    def take_X(self, event):
        if 'bytes' in event['args']:
            self.rounds.append({**event, 'steps': {}})
        else:
            self.rounds[-1]['steps'][event['name']] = event

    def take_i(self, event):
        self.rounds[-1]['steps'][event['name']] = event

    def of(self, kind):
        return [r for r in self.rounds if (r['pid'] >= AGGREGATORS_FROM) == (kind == 'lane')]


def begin(event):
    return round(event['ts'] * 1000)


def end(event):
    return begin(event) + round(event.get('dur', 0) * 1000)


class Timelines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = harness.Service('--require-tls', aggregators=2)
        cls.acme = cls.service.tenant_key('acme')
        cls.other = cls.service.tenant_key('other')

    @classmethod
    def tearDownClass(cls):
        cls.service.end()

    def setUp(self):
        self.folder = self.service.folder / self._testMethodName
        self.folder.mkdir()
        self.file = self.folder / 'trace.json'

    def train(self, job='job', prefixes=None, **environment):
        processes = ranks.start_ranks('rank_trains', WORKERS, prefixes,
                                      TEST_FOLDER=str(self.folder),
                                      GRADPOOL_ENDPOINT=self.service.endpoint, TEST_JOB=job,
                                      **self.acme, **environment)
        self.addCleanup(lambda: [p.kill() for p in processes])
        harness.until(lambda: (self.folder / 'trains').exists(), 'the job trains')
        return processes

    def finish(self, processes):
        (self.folder / 'stop').touch()
        for said in ranks.finish_ranks(processes):
            self.assertEqual(said['wrong'], 0)

    def timeline(self, *options, key=None, endpoint=None, job='job'):
        where = ['--endpoint', endpoint or f'unix:{self.service.state}/control.sock']
        return subprocess.Popen([str(harness.GRADPOOL), 'timeline', job, *where, '--output',
                                 str(self.file), *options], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**os.environ, **(key or {})})

    def ask(self, *options, **how):
        process = self.timeline(*options, **how)
        out, errors = harness.finish(process, harness.WAIT_S)
        return process.returncode, out, errors

    # --- checks of a trace ---

    def check_rounds(self, trace):
        """Checks that the steps of a round follow each other without a gap, and that rounds of a
        row do not overlap."""
        rows = collections.defaultdict(list)
        for r in trace.rounds:
            steps = [s for name, s in r['steps'].items() if name != 'commit']
            expected = LANE_STEPS if r['pid'] >= AGGREGATORS_FROM else WORKER_STEPS
            self.assertLessEqual(set(s['name'] for s in steps), set(expected))
            at = begin(r)
            for step in steps:
                self.assertIn(begin(step) - at, SHORT, r)
                self.assertGreater(step['dur'], 0)
                self.assertEqual(step['args']['round'], r['args']['round'])
                at = end(step)
            self.assertIn(end(r) - at, SHORT, r)
            self.assertIn(r['name'], SIZES)
            rows[r['pid'], r['tid']].append(r)
        for row in rows.values():
            row.sort(key=begin)
            for before, after in zip(row, row[1:]):
                self.assertLessEqual(end(before), begin(after))

    def check_names(self, trace):
        host = os.uname().nodename
        for rank in range(WORKERS):
            self.assertEqual(trace.names[rank], f'rank {rank} on {host}')
        self.assertEqual(len(trace.names), WORKERS + 2)
        lanes = {name for (pid, _), name in trace.threads.items() if pid >= AGGREGATORS_FROM}
        self.assertGreaterEqual(len({name.split(' (')[0] for name in lanes}), 2)
        self.assertEqual({r['args']['bytes'] for r in trace.of('worker')},
                         {4 * size for size in SIZES.values()})
        for clock in trace.clocks.values():   # all processes run on one host with one clock
            self.assertEqual(clock['offset'], 0)
            self.assertGreater(clock['error'], 0)
            self.assertLess(clock['error'], 1e6)

    def check_order(self, trace, error=0):
        """Checks that a lane's sum lies between the last announcement and the first result. `error`
        is the allowed clock error in ns."""
        workers = collections.defaultdict(dict)
        for r in trace.of('worker'):
            workers[r['name'], r['args']['round']][r['pid']] = r
        seen = 0
        for r in trace.of('lane'):
            ranks_of = workers[r['name'], r['args']['round']]
            if len(ranks_of) < WORKERS:
                continue   # rounds at the start and end of the recording are incomplete
            summed, steps = r['steps']['read and sum'], [w['steps'] for w in ranks_of.values()]
            self.assertGreaterEqual(begin(summed) + error, max(begin(s['wait']) for s in steps))
            self.assertLessEqual(end(summed) - error, min(end(s['wait']) for s in steps))
            last = max(ranks_of, key=lambda rank: begin(ranks_of[rank]['steps']['wait']))
            if 'announcements' in r['steps']:
                self.assertIn(r['steps']['announcements']['args']['last_rank'], range(WORKERS))
                seen += r['steps']['announcements']['args']['last_rank'] == last
            self.assertEqual(begin(r['steps']['commit']), end(r))
        return seen

    # --- cases ---

    def test_a_job_that_trains_is_recorded_on_one_clock_from_a_start_to_a_stop(self):
        processes = self.train()
        watch = progress.Stopwatch()
        code, out, errors = self.ask('--seconds', '1', '--json')
        self.assertEqual((code, errors), (0, ''))
        pressed_s = watch.pressed_s()
        self.assertLess(watch.seconds(), 10)
        said, trace = json.loads(out), Trace(self.file)
        self.assertEqual((said['workers'], said['lanes'], said['damaged']), (2, 2, 0))
        self.assertEqual(said['rounds'], len(trace.rounds))
        self.assertEqual(trace.whole['otherData']['dropped'], str(said['dropped']))
        self.check_rounds(trace)
        self.check_names(trace)
        self.assertGreater(self.check_order(trace), 0)
        last = max(end(r) for r in trace.rounds)
        self.assertGreater(min(begin(r) for r in trace.rounds), -1e6)
        self.assertLess(last - 1e9 * pressed_s, 1.5e9)
        self.assertGreater(last + 1e9 * pressed_s, 0.5e9)
        self.check_ctrl_c_ends_it_early_with_a_whole_file()
        self.check_a_second_one_is_refused_and_one_that_is_killed_leaves_nothing()
        self.finish(processes)

    def check_ctrl_c_ends_it_early_with_a_whole_file(self):
        self.file.unlink()
        process = self.timeline('--seconds', '60')
        harness.until(lambda: self.rounds_so_far() > 10, 'rounds are in the file')
        process.send_signal(signal.SIGINT)
        out, errors = harness.finish(process, harness.WAIT_S)
        self.assertEqual((process.returncode, errors), (0, ''))
        trace = Trace(self.file)
        self.assertRegex(out, f': {len(trace.rounds)} rounds of 2 workers and 2 lanes of job job, '
                         r'\d+ dropped')
        self.check_rounds(trace)

    def rounds_so_far(self):
        """Returns the rounds recorded so far. Between two writes of a process, the file is always
        valid."""
        try:
            return int(json.loads(self.file.read_text())['otherData']['rounds'])
        except (ValueError, OSError):
            return 0

    def has_rounds_of(self, rank):
        """Returns whether the file has rounds that this rank has recorded."""
        try:
            trace = Trace(self.file)
        except (ValueError, OSError):
            return False
        return any(trace.names[r['pid']].startswith(f'rank {rank}') for r in trace.of('rank'))

    def check_a_second_one_is_refused_and_one_that_is_killed_leaves_nothing(self):
        self.file.unlink()
        first = self.timeline('--seconds', '60')
        harness.until(lambda: self.rounds_so_far() > 10, 'rounds are in the file')
        recorded = self.file
        self.file = self.folder / 'second.json'
        code, _, errors = self.ask('--seconds', '0.1')
        self.assertEqual(code, 1)
        self.assertIn('a timeline of job job is being recorded already', errors)
        self.assertIn(' is being recorded already: try again when that timeline has ended', errors)
        self.assertFalse(self.file.exists())
        self.stop(first)    # the kernel may cut a write of a process that is killed
        first.kill()
        first.communicate()
        self.check_rounds(Trace(recorded))
        harness.until(lambda: self.ask('--seconds', '0.1')[0] == 0, 'a new one may begin')
        self.check_rounds(Trace(self.file))

    @staticmethod
    def stop(process):
        process.send_signal(signal.SIGSTOP)
        stat = pathlib.Path('/proc', str(process.pid), 'stat')
        harness.until(lambda: stat.read_text().rsplit(')', 1)[1].split()[0] == 'T', 'it stops')

    def test_a_worker_that_is_stopped_and_a_job_that_ends_leave_whole_files(self):
        processes = self.train('short')
        process = self.timeline('--seconds', '60', job='short')
        harness.until(lambda: self.has_rounds_of(1), 'rounds of rank 1 are in the file')
        self.stop(processes[1])
        process.send_signal(signal.SIGINT)
        out, errors = harness.finish(process, harness.WAIT_S)
        self.assertEqual(errors, 'gradpool: rank 1: no answer at the end, so its last rounds are '
                                 'missing\n')
        self.assertEqual(process.returncode, 0)
        self.check_rounds(Trace(self.file))
        processes[1].send_signal(signal.SIGCONT)
        self.file.unlink()
        process = self.timeline('--seconds', '60', job='short')
        harness.until(lambda: self.rounds_so_far() > 10, 'rounds are in the file')
        for rank in processes:
            rank.kill()
        out, errors = harness.finish(process, harness.WAIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn('the job has ended', errors)
        self.assertIn('of job short', out)
        self.check_rounds(Trace(self.file))

    def both_are_recorded(self):
        if self.ask('--seconds', '0.2')[0] != 0:
            return False
        return {r['pid'] for r in Trace(self.file).of('worker')} == {0, 1}

    def test_a_coordinator_that_dies_leaves_a_whole_file_and_a_job_that_trains(self):
        service = harness.Service(aggregators=1)
        self.addCleanup(service.end)
        self.acme = {}
        with unittest.mock.patch.object(self, 'service', service):
            processes = self.train()
            process = self.timeline('--seconds', '60')
            harness.until(lambda: self.rounds_so_far() > 10, 'rounds are in the file')
            service.serve.kill()
            out, errors = harness.finish(process, harness.WAIT_S)
            self.assertEqual(process.returncode, 1)
            self.assertIn('the service at', errors)
            self.assertIn('of job job', out)
            self.check_rounds(Trace(self.file))
            service.start('again')
            harness.until(self.both_are_recorded, 'a new one has both workers, which are back')
            self.check_rounds(Trace(self.file))
            self.finish(processes)

    def test_a_variable_makes_a_worker_record_its_job_from_the_start(self):
        processes = self.train('own', GRADPOOL_TIMELINE=str(self.file))
        harness.until(lambda: self.rounds_so_far() > 10, 'rounds are in the file')
        own, self.file = self.file, self.folder / 'second.json'
        code, _, errors = self.ask('--seconds', '0.1', job='own')
        self.assertEqual(code, 1)
        self.assertIn('a timeline of job own is being recorded already', errors)
        self.finish(processes)
        trace = Trace(own)
        self.check_rounds(trace)
        self.check_names(trace)

    def test_times_of_another_clock_are_moved_to_the_coordinators(self):
        there = ['unshare', '--time', '--fork', '--kill-child', '--monotonic', str(AHEAD_S)]
        if subprocess.run([*there, 'true'], capture_output=True, check=False).returncode:
            self.skipTest('a time namespace needs root')
        processes = self.train('far', {1: there})
        code, _, errors = self.ask('--seconds', '0.5', job='far')
        self.assertEqual((code, errors), (0, ''))
        trace = Trace(self.file)
        self.check_rounds(trace)
        self.assertEqual(trace.clocks[0]['offset'], 0)
        clock = trace.clocks[1]
        self.assertLessEqual(abs(clock['offset'] + AHEAD_S * 1e6), clock['error'])
        self.assertLess(clock['error'], 1e6)
        self.check_order(trace, 2 * trace.error_ns)
        self.finish(processes)

    def test_a_timeline_without_rights_or_job_is_refused(self):
        endpoint = self.service.endpoint
        processes = self.train('secret')
        code, _, errors = self.ask(key=self.other, endpoint=endpoint, job='secret')
        self.assertEqual((code, errors),
                         (3, 'gradpool: there is no job secret; see gradpool jobs\n'))
        self.assertFalse(self.file.exists())
        code, _, errors = self.ask('--seconds', '0.2', key=self.acme, endpoint=endpoint,
                                   job='secret')
        self.assertEqual((code, errors), (0, ''))
        self.file.write_text('mine')
        code, _, errors = self.ask(job='nobody')
        self.assertEqual((code, errors),
                         (3, 'gradpool: there is no job nobody; see gradpool jobs\n'))
        self.assertEqual(self.file.read_text(), 'mine')
        self.file = self.folder / 'no' / 'such'
        code, _, errors = self.ask()
        self.assertEqual(code, 1)
        self.assertRegex(errors, 'the timeline .*/no/such cannot be written: No such file')
        self.file = pathlib.Path('/dev/full')
        code, out, errors = self.ask(job='secret')
        self.assertEqual((code, out), (1, ''))
        self.assertRegex(errors, '^gradpool: the timeline /dev/full could not be written: '
                                 'No space left')
        for options in (['--seconds', '0'], ['--seconds', 'x'], ['--seconds', '4000']):
            code, _, errors = self.ask(*options)
            self.assertEqual(code, 2, errors)
            self.assertIn('--seconds', errors)
        self.finish(processes)


if __name__ == '__main__':
    ranks.main(globals())
