"""Tests python3 -m gradpool.elastic: the workers of a script on this host. One case trains with a
real service; the others run scripts without PyTorch, which send the messages of a Run."""
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

import harness
import tap
from harness import BUILD, Service, is_alive, until

SOURCE = pathlib.Path(__file__).resolve().parents[3]
TRAINS_S = 180      # several processes import torch on a busy host
BATCH = 24

# The lowest worker writes the number of the last epoch when the test requests the end.
TRAIN = """
import json, os, pathlib, sys, torch, gradpool.elastic
torch.set_num_threads(1)
torch.manual_seed(1)
folder, rank = pathlib.Path(sys.argv[1]), os.environ['RANK']
x = torch.randn(600, 4)
y = x.sum(1, keepdim=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
run = gradpool.elastic.Run(model, optimizer, samples=600, batch=24, epochs=100000)
def say(**line):
    with open(folder / rank, 'a') as log:
        log.write(json.dumps({'pid': os.getpid(), **line}) + '\\n')
def last_epoch(epoch):
    end = folder / 'end'
    if run.is_first and (folder / 'stop').exists() and not end.exists():
        (folder / 'new').write_text(str(epoch + 2))
        (folder / 'new').rename(end)
    return int(end.read_text()) if end.exists() else epoch + 1
for epoch in run.epochs():
    if last_epoch(epoch) <= epoch:
        break
    for step in run:
        loss = (model(x[step.indices]) - y[step.indices]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(number=step.number, epoch=epoch, weight=step.weight, batch=step.batch,
            indices=step.indices.tolist()[:step.weight],
            bits=model.weight.detach().numpy().tobytes().hex())
run.close()
say(ending=run.ending)
"""

# Scripts without a job: they write their pid and the pid of a child, and wait for a signal.
WAIT = """
import os, pathlib, subprocess, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ['RANK']
child = subprocess.Popen(['sleep', '1000'])
(folder / ('new' + rank)).write_text(f'{os.getpid()} {child.pid}')
try:
    (folder / ('new' + rank)).rename(folder / rank)
    while True:
        time.sleep(0.02)
except KeyboardInterrupt:
    (folder / ('saved' + rank)).write_text(sys.argv[2])
"""
STUBBORN = 'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n' + WAIT
# A script that reports one step to its runner, as a training worker does, and never leaves its job.
# Its simulated job refuses more than two workers.
TRAINS = """
from gradpool.elastic import control
from gradpool.errors import GradpoolError
class Job:
    def resize(self, workers, timeout_ms):
        if workers > 2:
            raise GradpoolError(22, 'the limit is two')
        (folder / f'resized{workers}').touch()
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
control.link().attach(Job())
control.link().send(step=1)
""" + WAIT
# Rank 1 begins the first step when the test creates a file, and rank 0 follows. The first process
# of rank 1 fails before the step.
BEGINS = TRAINS.replace('control.link().send(step=1)', """
import time
rank = os.environ['RANK']
if rank == '1' and not (folder / 'failed').exists():
    (folder / 'begun').touch()
    while not (folder / 'failed').exists():
        time.sleep(0.02)
    sys.exit(3)
(folder / f'ready{rank}').touch()
while not (folder / ('go' if rank == '1' else 'trains1')).exists():
    time.sleep(0.02)
(folder / f'trains{rank}').touch()
control.link().send(step=1)""")


class Rig(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(harness.tempfile.mkdtemp(prefix='gradpool-test-'))
        self.addCleanup(harness.shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, script, *options, arguments=(), endpoint='gradpool://127.0.0.1:1'):
        (self.folder / 'script.py').write_text(script)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(('GRADPOOL_', 'OMP_'))}
        runner = harness.Process(
            [sys.executable, '-m', 'gradpool.elastic', '--endpoint', endpoint, *options,
             self.folder / 'script.py', self.folder, *arguments], self.folder, 'runner',
            {**dict.fromkeys(os.environ.keys() - kept.keys(), ''), **kept,
             'PYTHONPATH': str(SOURCE / 'client/python'),
             'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so')})
        self.addCleanup(runner.kill)
        return runner

    def pids(self, runner, ranks):
        """Returns the pids of all workers and their children, once they are written."""
        files = [self.folder / str(rank) for rank in range(ranks)]
        until(lambda: all(file.exists() for file in files) or runner.child.poll() is not None,
              'the workers run', process=runner)
        return [int(word) for file in files for word in file.read_text().split()]

    def await_end(self, pids):
        until(lambda: not any(map(is_alive, pids)), f'{pids} have ended')


class Ends(Rig):
    def test_a_ctrl_c_reaches_each_worker_and_ends_all_processes(self):
        runner = self.start(WAIT, '--workers', 2, arguments=['mine'])
        pids = self.pids(runner, 2)
        runner.signal(signal.SIGINT)
        self.assertEqual(runner.wait(), 130)
        self.await_end(pids)
        self.assertEqual([(self.folder / f'saved{rank}').read_text() for rank in range(2)],
                         ['mine', 'mine'])

    def test_a_worker_that_ignores_a_ctrl_c_is_killed(self):
        runner = self.start(STUBBORN, '--workers', 2)
        pids = self.pids(runner, 2)
        runner.signal(signal.SIGINT)
        self.assertEqual(runner.wait(), 130)
        self.await_end(pids)

    def test_workers_end_with_a_killed_runner(self):
        runner = self.start(WAIT, '--workers', 2)
        workers = self.pids(runner, 2)[::2]
        runner.kill()
        self.await_end(workers)

    def test_a_script_that_fails_is_started_three_times_and_gives_its_exit_code(self):
        runner = self.start('raise SystemExit(7)')
        self.assertEqual(runner.wait(), 7)
        for words in ('rank 0 ended with exit code 7; a new process starts in 1 s',
                      'rank 0 ended with exit code 7; a new process starts in 2 s',
                      'rank 0 ended with exit code 7 before its first step, the last of 3 ',
                      ' processes; all are ended. Look at its output'):
            self.assertIn(words, runner.text())

    def test_a_rank_that_never_trains_is_given_up_and_the_others_train_on(self):
        runner = self.start("import os, pathlib, sys, time\nif os.environ['RANK'] == '1':\n"
                            "    while not pathlib.Path(sys.argv[1], '0').exists():\n"
                            "        time.sleep(0.02)\n    raise SystemExit(3)\n"
                            + TRAINS, '--workers', 2)
        pids = self.pids(runner, 1)
        runner.wait_for('; the others train on. Look at its output; SIGUSR1 and SIGUSR2 start ')
        self.assertTrue(is_alive(pids[0]))
        runner.signal(signal.SIGINT)
        self.assertEqual(runner.wait(), 130)

    def test_a_worker_that_fails_after_the_end_gives_its_exit_code(self):
        runner = self.start("import os, pathlib, sys, time\nif os.environ['RANK'] == '1':\n"
                            "    pathlib.Path(sys.argv[1], '1').touch()\n"
                            "    while not pathlib.Path(sys.argv[1], 'end').exists():\n"
                            "        time.sleep(0.02)\n    raise SystemExit(4)", '--workers', 2)
        until((self.folder / '1').exists, 'rank 1 runs', process=runner)
        until(lambda: len(harness.children(runner.pid)) == 1, 'rank 0 ends', process=runner)
        (self.folder / 'end').touch()
        self.assertEqual(runner.wait(), 4)
        self.assertIn(' after the end of the training; look at its output', runner.text())

    def test_a_worker_that_never_steps_is_ended_after_the_others(self):
        runner = self.start("import os, sys\nif os.environ['RANK'] == '0': sys.exit()\n" + WAIT,
                            '--workers', 2, '--leave-timeout', '0.5')
        self.assertEqual(runner.wait(), 0)
        self.assertIn('rank 1 had not begun a step at the end of the training, and is ended; ',
                      runner.text())

    def test_a_script_that_ends_is_not_started_again(self):
        runner = self.start('', '--workers', 2)
        self.assertEqual((runner.wait(), runner.text()), (0, ''))

    def test_a_worker_without_a_step_is_ended_at_the_start_timeout(self):
        runner = self.start(WAIT, '--start-timeout', '0.5')
        self.assertEqual(runner.wait(), 143)
        for words in ('rank 0 has not begun a step within 0.5 s, and is ended; look at its',
                      'rank 0 was ended by signal 15 (Terminated); a new process starts in 1 s'):
            self.assertIn(words, runner.text())


class Numbers(Rig):
    def test_a_worker_that_does_not_leave_is_ended(self):
        runner = self.start(TRAINS, '--workers', 2, '--leave-timeout', '0.5')
        pids = self.pids(runner, 2)
        runner.signal(signal.SIGUSR2)
        runner.wait_for('rank 1 has not left within 0.5 s, and is ended; to wait longer raise')
        self.await_end(pids[2:])
        until((self.folder / 'resized1').exists, 'the job is resized', process=runner)
        self.assertTrue(is_alive(pids[0]))
        runner.signal(signal.SIGUSR2)
        runner.wait_for('a job of 1 workers cannot have 0, expected 1 to 2; --workers-max sets')

    def await_files(self, runner, *names):
        for name in names:
            until((self.folder / name).exists, name, process=runner)

    def test_a_worker_that_the_first_step_awaits_leaves_after_that_step(self):
        runner = self.start(BEGINS, '--workers', 2, '--leave-timeout', '0.5')
        self.await_files(runner, 'begun')
        runner.signal(signal.SIGUSR2)
        runner.wait_for('1 workers, from 2')
        (self.folder / 'failed').touch()    # the runner then starts a new process
        self.await_files(runner, 'ready0', 'ready1')
        (self.folder / 'go').touch()
        self.await_files(runner, 'trains0', 'trains1', 'resized1')
        runner.wait_for('rank 1 has not left within 0.5 s, and is ended; to wait longer raise')

    def test_a_refused_number_is_reported_and_the_new_worker_is_ended(self):
        runner = self.start("import os, time\nif os.environ['RANK'] == '2': time.sleep(1000)\n"
                            + TRAINS, '--workers', 2, '--workers-max', 3)
        pids = self.pids(runner, 2)
        runner.signal(signal.SIGUSR1)
        runner.wait_for('no 3 workers, still 2: the limit is two')
        until(lambda: not set(harness.children(runner.pid)) - set(pids), 'rank 2 has ended',
              process=runner)
        self.assertTrue(all(map(is_alive, pids)))

    def test_a_killed_worker_is_replaced(self):
        runner = self.start(TRAINS, '--workers', 2)
        pids = self.pids(runner, 2)
        os.kill(pids[2], signal.SIGKILL)
        self.await_end(pids[2:])    # the child of the killed worker ends, too
        runner.wait_for('rank 1 was ended by signal 9 (Killed); a new process starts in 1 s')
        until(lambda: self.pids(runner, 2)[2:] != pids[2:], 'a new process of rank 1',
              process=runner)
        self.assertEqual(self.pids(runner, 2)[:2], pids[:2])


class Mistakes(Rig):
    def check(self, words, *command, **environment):
        done = harness.run([sys.executable, '-m', 'gradpool.elastic', *command],
                           capture_output=True, text=True, env={
                               'PATH': os.environ['PATH'],
                               'PYTHONPATH': str(SOURCE / 'client/python'),
                               'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so'),
                               **environment})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertTrue(done.stderr.startswith('gradpool: python3 -m gradpool.elastic: '))
        self.assertIn(words, done.stderr)

    def test_wrong_command_lines_are_refused_with_advice(self):
        script = str(self.folder / 'script.py')
        pathlib.Path(script).touch()
        for words, command in (
                (' are required: SCRIPT', ()),
                ("script '/no/script.py' does not exist; give the path of a Python script",
                 ('/no/script.py',)),
                ('--workers 0 and --workers-max 0: expected 1 to 768', ('--workers', '0', script)),
                ('--workers 3 and --workers-max 2: expected 1 to 768, and no more workers than ',
                 ('--workers', '3', '--workers-max', '2', script)),
                ("invalid int value: 'two'; see python3 -m gradpool.elastic --help",
                 ('--workers', 'two', script)),
                ('--leave-timeout -1.0: expected 0 to 1000000 seconds; change it',
                 ('--leave-timeout', '-1', script)),
                ('no service is named; give --endpoint gradpool://HOST:PORT, or set ', (script,))):
            with self.subTest(command):
                self.check(words, *command)


class Trains(Rig):
    def lines(self, rank):
        path = self.folder / str(rank)
        text = path.read_text() if path.exists() else ''
        return [json.loads(line) for line in text.splitlines(True) if line.endswith('\n')]

    def await_share(self, runner, rank, but=()):
        """Waits until a process of the rank has trained samples. Returns its pid. `but`: pids that
        are ignored."""
        def found():
            return [line['pid'] for line in self.lines(rank)
                    if line.get('weight', 0) > 0 and line['pid'] not in but]
        until(lambda: found() or runner.child.poll() is not None, f'rank {rank} trains', TRAINS_S,
              runner)
        self.assertTrue(found(), runner.tail())
        return found()[0]

    def check_models(self):
        """Checks that all workers have the same model after each step. Returns how often each
        sample was used in each epoch."""
        models, used = collections.defaultdict(set), collections.Counter()
        for rank in range(3):
            for line in self.lines(rank):
                if 'bits' in line:
                    models[line['number']].add(line['bits'])
                    used.update((line['epoch'], index) for index in line['indices'])
        self.assertEqual({number for number, bits in models.items() if len(bits) > 1}, set())
        return used

    def test_workers_join_leave_and_are_replaced_during_training(self):
        service = Service()
        self.addCleanup(service.end)
        runner = self.start(TRAIN, '--workers', 2, '--workers-max', 3, '--leave-timeout', 600,
                            endpoint=service.endpoint)
        pids = [self.await_share(runner, rank) for rank in range(2)]
        runner.signal(signal.SIGUSR1)
        pids.append(self.await_share(runner, 2))
        os.kill(pids[0], signal.SIGKILL)
        pids.append(self.await_share(runner, 0, pids))
        runner.signal(signal.SIGUSR2)
        until(lambda: self.lines(2)[-1].get('ending') == 'left', 'rank 2 leaves', TRAINS_S, runner)
        (self.folder / 'stop').touch()
        self.assertEqual(runner.wait(TRAINS_S), 0)
        for rank in range(2):
            self.assertEqual(self.lines(rank)[-1]['ending'], 'closed')
        self.await_end(pids)
        used = self.check_models()
        whole = max(epoch for epoch, _ in used)
        self.assertEqual(len(used), 600 * (whole + 1))
        self.assertLessEqual(sum(used.values()) - len(used), 2 * BATCH // 2)


if __name__ == '__main__':
    sys.exit(tap.main())
