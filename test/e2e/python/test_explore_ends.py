"""Tests that no process of a study stays behind: Ctrl-C at bad moments, an output without a reader,
and pools that are killed."""
import fcntl
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import harness
import tap
from gradpool.errors import Mismatch
from gradpool.explore import ending, locks, slurm, store as stores
from gradpool.explore.engine import Engine
from gradpool.explore.fleet import Fleet
from gradpool.explore.rules import Never
from gradpool.explore.trial import Trial
from harness import GRADPOOL, until
from test_explore import ENVIRONMENT, STUDY_S

# Reports until a file `end` is there.
TRIAL = '''
import os, sys, time
from gradpool import explore
while not os.path.exists('end'):
    explore.report(loss=1)
    time.sleep(0.05)
'''
SWEEP = '''
import sys
from gradpool.explore import Study
study = Study('digits', [sys.executable, 'trial.py'])
study.submit({})
study.submit({})
study.run()
'''
SETTINGS = {'name': 'digits', 'command': ['x'], 'metric': 'loss', 'mode': 'min', 'workers': [1, 1],
            'rule': '', 'rule_state': {}}


class Ends(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.results = self.folder / 'gradpool-digits'
        self.addCleanup(lambda: harness.kill_all(self.workers()))
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        (self.folder / 'trial.py').write_text(TRIAL)
        (self.folder / 'sweep.py').write_text(SWEEP)

    def start(self, slots=2, words=('sweep.py',)):
        process = harness.Process(
            ['env', '-C', self.folder, '-u', 'GRADPOOL_ENDPOINT', GRADPOOL, 'explore', *words,
             *(['--slots', slots] if slots else [])], self.folder, words[0], ENVIRONMENT)
        self.addCleanup(process.kill)
        return process

    def workers(self):
        """Returns the processes that run trials of this folder."""
        mark, found = f'_GRADPOOL_TRIAL={self.results}/'.encode(), []
        for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
            try:
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                pass
        return [pid for pid in found if harness.is_alive(pid)]

    def check_nothing_runs(self):
        until(lambda: not self.workers(), 'the workers have ended', STUDY_S)
        until(lambda: not harness.running(str(self.results)), 'the service and the pools have '
              'ended', STUDY_S)

    def await_reports(self, process=None):
        until(lambda: all((self.results / name / 'reports').exists() for name in ('0001', '0002')),
              'both trials report', STUDY_S, process)

    def test_ctrl_c_while_the_service_starts(self):
        process = self.start()
        until(lambda: harness.running('serve', str(self.results)), 'the service starts', STUDY_S,
              process)
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(STUDY_S), 130, process.text())
        self.check_nothing_runs()

    def test_ctrl_c_again_and_again(self):
        process = self.start()
        self.await_reports(process)

        def is_over():
            process.signal(signal.SIGINT)
            return process.child.poll() is not None
        until(is_over, 'the study ends', STUDY_S, process)
        self.check_nothing_runs()

    def test_a_resumed_study_needs_no_certain_port(self):
        process = self.start()
        self.await_reports(process)
        log = (self.results / 'service.log').read_text()
        port = int(re.search(r'gradpool://127.0.0.1:([1-9]\d*)', log)[1])
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(STUDY_S), 130, process.text())
        (self.folder / 'end').touch()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(('127.0.0.1', port))
            other.listen()
            second = self.start(None, ('--resume', self.results))
            self.assertEqual(second.wait(STUDY_S), 0, second.text())
        self.check_nothing_runs()

    def start_with_pipe(self):
        """Starts the study. Returns it and the read end of its output."""
        read, write = os.pipe()
        child = subprocess.Popen(
            ['env', '-u', 'GRADPOOL_ENDPOINT', GRADPOOL, 'explore', 'sweep.py', '--slots', '2'],
            cwd=self.folder, stdout=write, stderr=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT})
        self.addCleanup(child.kill)
        os.close(write)
        return child, read

    def check_broken(self, child):
        _, said = child.communicate(timeout=STUDY_S)
        self.assertEqual(child.returncode, 1, said)
        self.assertIn(b'Broken pipe', said)
        self.check_nothing_runs()

    def test_an_output_without_a_reader(self):
        child, read = self.start_with_pipe()
        os.close(read)
        self.check_broken(child)

    def test_the_reader_of_the_output_ends_while_trials_train(self):
        child, read = self.start_with_pipe()
        self.await_reports()
        os.close(read)
        # an end is printed, unless the first reports were printed after the close
        harness.run([GRADPOOL, 'trials', 'kill', '1', self.results], capture_output=True,
                    env={**os.environ, **ENVIRONMENT})
        self.check_broken(child)

    def test_a_pool_that_is_killed_too_often(self):
        (self.folder / 'sweep.py').write_text(SWEEP.replace('study.submit({})\n', '', 1))
        process, lock, killed = self.start(1), self.results / '0001/lock', set()

        def pool():
            """Returns a pool that holds the lock and has not been killed yet; None: none."""
            text = lock.read_text() if lock.exists() else ''
            return int(text) if text.isdigit() and int(text) not in killed else None
        for _ in range(4):
            until(pool, 'a pool runs', STUDY_S, process)
            until(lambda: (self.results / '0001/reports').exists(), 'a worker runs', STUDY_S,
                  process)
            killed.add(found := pool())
            os.kill(found, signal.SIGKILL)
        self.assertEqual(process.wait(STUDY_S), 0, process.text())
        self.assertIn('trial 1 failed', process.text())
        self.check_nothing_runs()


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_searcher_is_asked_again_when_the_database_can_be_written(self):
        searcher = mock.Mock(ask=mock.Mock(side_effect=[{'lr': 1}, None]))
        store = stores.Store.create(self.folder, SETTINGS)
        engine = Engine(self.folder, store, Never(), searcher, None, {'ahead': 2}, mock.Mock())
        with mock.patch.object(store, 'write', side_effect=stores.Failure(28, 'full')):
            engine.turn()
        with mock.patch.object(engine, '_act'):
            engine.turn()
            engine.turn()
        self.assertEqual([one.parameters for one in engine.trials], [{'lr': 1}])

    def test_only_the_study_itself_counts_as_running(self):
        held = locks.lock(self.folder)
        self.assertTrue(locks.is_locked(self.folder))
        fcntl.flock(held, fcntl.LOCK_SH)    # as another process that asks
        self.assertFalse(locks.is_locked(self.folder))
        os.close(held)

    def test_a_signal_waits_for_the_end_of_a_block(self):
        done = []
        with self.assertRaises(KeyboardInterrupt):
            with ending.held():
                signal.raise_signal(signal.SIGINT)
                done.append('block')
        with ending.held(lambda: done.append('act')):
            signal.raise_signal(signal.SIGINT)
        self.assertEqual(done, ['block', 'act'])

    def end_on_slurm(self, squeue):
        """Ends the workers of trial 1, with a stand-in for squeue. Returns the lines for the user,
        the arguments of scancel, and whether a second call is due."""
        trial, commands = pathlib.Path(self.folder) / '0001', pathlib.Path(self.folder) / 'bin'
        trial.mkdir()
        commands.mkdir()
        (trial / 'state').write_text('gradpool-pool 1\npool 00000000000000ab\n')
        for name, text in ('squeue', squeue), ('scancel', f'echo "$@" >>{commands}/log'):
            (commands / name).write_text(f'#!/bin/sh\n{text}\n')
            (commands / name).chmod(0o700)
        said, log = [], commands / 'log'
        fleet = Fleet(lambda trial: f'{self.folder}/{trial.number:04d}',
                      {**SETTINGS, 'engine': 'slurm'}, {}, None, said.append)
        with mock.patch.dict(os.environ, PATH=f'{commands}:{os.environ["PATH"]}'):
            until(lambda: fleet.end_workers(Trial(1, {})) or said, 'Slurm has answered')
        ended = log.read_text().splitlines() if log.exists() else []
        return said, ended, fleet.is_ending(Trial(1, {}))

    def test_jobs_and_steps_of_a_killed_pool_are_ended_by_their_names(self):
        said, ended, is_due = self.end_on_slurm(
            'case "$*" in *--steps*) set -- 8.1 9.2;; *) set -- 17 18;; esac\n'
            'printf "%-80s%-40s\\n" gradpool-00000000000000ab-0-3 $1 '
            'gradpool-00000000000000ac-0-3 $2')
        self.assertEqual((said, is_due), ([], False))
        self.assertEqual(ended, ['--quiet --signal=KILL --full 17', '--quiet 17', '--quiet 8.1'])

    def test_a_slurm_that_does_not_end_workers_is_shown(self):
        said, ended, is_due = self.end_on_slurm('echo no controller >&2; exit 1')
        self.assertEqual(said, ['trial 1: its workers were not ended: no controller; the study '
                                'tries again, or end the jobs gradpool-00000000000000ab-* of '
                                'Slurm with scancel'])
        self.assertEqual((ended, is_due), ([], True))

    def resumed(self, squeue, **environment):
        """Returns the refusal of a resume with a stand-in for squeue; '': none."""
        commands = pathlib.Path(self.folder) / 'bin'
        commands.mkdir(exist_ok=True)
        (commands / 'squeue').write_text(f'#!/bin/sh\n{squeue}\n')
        (commands / 'squeue').chmod(0o700)
        environment['PATH'] = f'{commands}:{os.environ["PATH"]}'
        with mock.patch.dict(os.environ, environment):
            try:
                slurm.check_way({**SETTINGS, 'engine': 'slurm'}, {'00000000000000ab'})
            except Mismatch as error:
                return str(error)
        return ''

    def test_a_study_is_not_resumed_where_its_workers_cannot_be_adopted(self):
        step = ('case "$*" in *--steps*) printf "%-80s%-40s\\n" gradpool-00000000000000ab-0-3 8.1;;'
                ' esac')
        self.assertIn('study digits: job 8.1 of Slurm is a worker of a trial, and runs inside an '
                      'allocation; resume the study there, or end the worker with scancel',
                      self.resumed(step))
        self.assertEqual(self.resumed(step, SLURM_JOB_ID='8'), '')
        self.assertIn('study digits: squeue does not show its workers: no controller; resume the '
                      'study when Slurm answers',
                      self.resumed('echo no controller >&2; exit 1'))


if __name__ == '__main__':
    sys.exit(tap.main())
