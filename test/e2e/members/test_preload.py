"""Tests gradpool run --preload: a parent imports modules once, and forks the workers. A forked
worker is compared with one that was started directly."""
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import types
import unittest
import unittest.mock
import zipfile

import harness
import tap
import test_pool
from harness import BUILD, GRADPOOL, Service, is_alive, until

CLIENT = pathlib.Path(__file__).parents[3] / 'client/python'
sys.path.insert(0, str(CLIENT))
os.environ['GRADPOOL_LIBRARY'] = str(BUILD / 'client/libgradpool.so')
from gradpool._preload import command, modules  # noqa: E402
from gradpool._preload.refusal import Refusal  # noqa: E402
ENVIRONMENT = {'PYTHONPATH': str(CLIENT), 'CUDA_VISIBLE_DEVICES': '',
               'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so')}
IMPORT_S = 300      # torch, on a cold disk
FACTS = '''
import json, os, re, signal, sys, threading
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
cookie = os.environ.pop('_GRADPOOL_WORKER').split(':')
assert int(cookie[3]) == os.getpid(), cookie
facts = {
    'argv': sys.argv, 'orig_argv': sys.orig_argv, 'path': sys.path, 'cwd': os.getcwd(),
    'flags': str(sys.flags), 'warnings': sys.warnoptions, 'xoptions': sys._xoptions,
    'executable': sys.executable, 'prefix': sys.prefix,
    'main': {name: re.sub('0x[0-9a-f]+', '', repr(globals()[name])) for name in (
             '__name__', '__file__', '__doc__', '__package__', '__spec__', '__cached__')
             if name in globals()},
    'is_main': sys.modules['__main__'].__dict__ is globals(), 'builtins': repr(__builtins__),
    'environment': dict(sorted(os.environ.items())),
    'signals': {name: status[name] for name in ('SigBlk', 'SigIgn', 'SigCgt')},
    'handlers': [str(signal.getsignal(signal.SIGINT)), str(signal.getsignal(signal.SIGTERM))],
    'files': {fd: os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')
              if os.path.exists(f'/proc/self/fd/{fd}')},
    'leads': [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    'threads': [threading.current_thread().name, len(os.listdir('/proc/self/task'))],
    'streams': [(one.encoding, one.errors, one.line_buffering, one.write_through)
                for one in (sys.stdin, sys.stdout, sys.stderr)],
    'umask': os.umask(0o22), 'oom': open('/proc/self/oom_score_adj').read(),
    'command': open('/proc/self/cmdline').read().rstrip('\\0').split('\\0'),
    'parent': os.getppid() == int(os.popen(f'ps -o ppid= {os.getpid()}').read()),
    'comm': open('/proc/self/comm').read()}
print('FACTS', json.dumps(facts))
'''


class Preloads(unittest.TestCase):
    """Runs scripts without a service."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def pool(self, *words, name='pool', workers=1, preload=None, environment=None):
        """Starts a pool in its own folder. `preload`: modules; None: no --preload."""
        options = ['--preload', preload] if preload else []
        pool = harness.Process(
            ['env', '-C', self.folder, GRADPOOL, 'run', '--job', 'same', '--folder', name,
             '--endpoint', 'gradpool://127.0.0.1:1', '--workers', workers, '--workers-max',
             workers, *options, *words], self.folder, name, {**ENVIRONMENT, **(environment or {})})
        pool.place = self.folder / name
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        self.addCleanup(pool.kill)
        return pool

    def log_of(self, pool, rank=0):
        path = pool.place / f'rank-{rank}.log'
        return path.read_text(errors='replace') if path.exists() else ''

    def compare(self, commands):
        """Runs commands, each directly and with --preload. Returns pairs of logs.

          commands  [(words, expected exit code)]"""
        pools = [[self.pool(*words, name=f'{how}{i}', preload=how and 'json')
                  for how in ('', 'json')] for i, (words, _) in enumerate(commands)]
        logs = []
        for (words, code), pair in zip(commands, pools):
            for pool in pair:
                self.assertEqual(pool.wait(IMPORT_S), code, pool.text() + self.log_of(pool))
                self.assertNotIn('Workers are started without', pool.text())
            logs.append([self.log_of(pool).replace(f'/{pool.place.name}/', '/place/')
                         for pool in pair])
        return logs

    def compare_facts(self, commands):
        self.maxDiff = None
        for logs in self.compare([(words, 0) for words in commands]):
            direct, forked = (json.loads(log.split('FACTS ')[1]) for log in logs)
            self.assertEqual(forked, direct)
            self.assertEqual(direct['threads'], ['MainThread', 1])


class Forks(Preloads):
    def test_a_forked_worker_has_the_state_of_a_worker_that_was_started_directly(self):
        script = self.write('sub/facts.py', FACTS)
        self.compare_facts([[sys.executable, *options, script, 'one', '--two', '']
                            for options in ([], ['-u'], ['-W', 'ignore', '-Xdev', '-B', '-s'])])

    def test_a_module_a_folder_and_an_archive_run_as_with_python(self):
        self.write('package/__init__.py', '')
        self.write('package/__main__.py', FACTS)
        self.write('plain.py', FACTS)
        with zipfile.ZipFile(self.folder / 'archive.zip', 'w') as archive:
            archive.writestr('__main__.py', FACTS)
        self.compare_facts([[sys.executable, *words] for words in (
            ['-m', 'package', 'x'], ['-m', 'plain', '-m'], ['package', 'y'], ['archive.zip', 'z'])])

    def test_the_end_of_a_script_is_that_of_python(self):
        ends = {'raise': ('def f():\n    raise ValueError("no")\n\n\nf()\n', 1),
                'cause': ('try:\n    1 / 0\nexcept ZeroDivisionError as e:\n'
                          '    raise KeyError(1) from e\n', 1),
                'syntax': ('x = (\n', 1), 'text': ('import sys\nsys.exit("words")\n', 1),
                'code': ('import sys\nsys.exit(7)\n', 7),
                'hook': ('import sys\nsys.excepthook = lambda *a: print("hook", a[1])\nx\n', 1),
                'exit': ('import atexit, threading\natexit.register(print, "exit", __name__)\n'
                         'threading.Thread(target=lambda: print("thread")).start()\n', 0),
                'unflushed': ('print("words", end="")\n', 0), 'full': (
                    'import sys\nsys.stdout = open("/dev/full", "w")\nprint(1)\n', 120),
                'objects': ('class A:\n    def __del__(self): print("del", self.name)\n'
                            'a = A()\na.name = a\na.name = "cycle"\nb = [a]\nb.append(b)\n'
                            'import sys\nsys.exit(3)\n', 3),
                'file': ('import types\nm = types.ModuleType("m")\nimport sys\n'
                         'sys.modules["m"] = m\nm.f = open("words.txt", "w")\n'
                         'm.f.write("words")\n', 0),
                'daemon': ('import threading, time\nfrom math import sqrt\ndef f():\n'
                           '    while True: sqrt(2); time.sleep(0)\n'
                           'threading.Thread(target=f, daemon=True).start()\n', 0),
                'interrupt': ('raise KeyboardInterrupt\n', 130),
                'pickle': ('import pickle\nclass A: pass\nprint(pickle.dumps(A()))\n', 0)}
        commands = [([sys.executable, self.write(f'end-{name}.py', text)], code)
                    for name, (text, code) in ends.items()]
        commands += [([sys.executable, 'absent.py'], 2), ([sys.executable, '-m', 'absent'], 1)]
        logs = self.compare(commands)
        for direct, forked in logs:
            self.assertEqual(forked, direct)
        self.assertEqual((self.folder / 'words.txt').read_text(), 'words')
        self.assertIn(": can't open file '", logs[-2][1])

    def test_finalizers_of_a_failed_script_know_the_failure(self):
        script = self.write('fails.py', 'import os, sys\nfrom gradpool._native import failing\n'
                            'class A:\n    def __del__(self, of=failing, say=os.write):\n'
                            '        say(1, b"failed %d" % of._ends_with_error)\n'
                            'a = A()\nsys.exit(3)\n')
        pool = self.pool(sys.executable, script, preload='json')
        self.assertEqual(pool.wait(IMPORT_S), 3, pool.text())
        self.assertIn('failed 1', self.log_of(pool))

    def test_ranks_have_random_numbers_of_their_own(self):
        script = self.write('draw.py', '''
import random, sys, os, multiprocessing
import numpy, torch
assert 'torch' in sys.modules
print('DRAWN', random.random(), numpy.random.rand(), torch.rand(1).item(),
      multiprocessing.current_process().authkey.hex())
''')
        pool = self.pool(sys.executable, script, workers=3, preload='torch,multiprocessing')
        self.assertEqual(pool.wait(IMPORT_S), 0, pool.text())
        self.assertNotIn('Workers are started without', pool.text())
        drawn = [self.log_of(pool, rank).split('DRAWN ')[1].split() for rank in range(3)]
        for values in zip(*drawn):
            self.assertEqual(len(set(values)), 3, drawn)

    def test_workers_are_forked_once_the_modules_are_imported(self):
        self.write('once.py', 'import os\nprint("imported by", os.getpid(), flush=True)\n')
        script = self.write('use.py', 'import once, sys\nprint("has", "once" in sys.modules)\n')
        pool = self.pool(sys.executable, script, workers=3, preload='once')
        self.assertEqual(pool.wait(), 0, pool.text())
        self.assertEqual((pool.place / 'preload.log').read_text().count('imported by'), 1)
        for rank in range(3):
            self.assertNotIn('imported by', self.log_of(pool, rank))
        self.assertEqual(harness.running(str(self.folder)), [])


class Refusals(Preloads):
    def start(self, preload, *words):
        """Starts a pool with a script that trains. Returns the pool."""
        script = self.write('plain.py', 'print("trained")\n')
        return self.pool(*(words or [sys.executable, script]), preload=preload,
                         name=f'place-{len(list(self.folder.iterdir()))}')

    def check(self, pool, text):
        """Checks the reason why no worker was forked, and that one was started directly."""
        self.assertEqual(pool.wait(IMPORT_S), 0, pool.text())
        self.assertIn(text, pool.text())
        self.assertEqual(pool.text().count('Workers are started without --preload'), 1)
        self.assertIn('trained', self.log_of(pool))

    def test_a_module_that_cannot_be_forked_is_named_and_workers_start_without(self):
        cases = {
            'absent': (None, "module 'absent' cannot be imported: ModuleNotFoundError: No module "
                       "named 'absent'; see preload.log, and correct --preload"),
            'raises': ('raise ValueError("bad\\x1b words\\nsecond")', 'ValueError: bad? words; '
                       'see'),
            'exits': ('import sys; sys.exit(3)', "module 'exits' cannot be imported: SystemExit"),
            'dies': ('import os; os._exit(3)', 'the process that imports modules has ended; see '
                     'preload.log'),
            'threads': ('import threading, time\nthreading.Thread(target=time.sleep, args=[60],'
                        'daemon=True).start()', "module 'threads' has started 1 threads, which a "
                        'forked worker would lack; leave the module out'),
            'children': ('import subprocess\nsubprocess.Popen(["sleep", "600"])',
                         "module 'children' has started 1 processes, which all workers would "
                         'share; leave the module out'),
            'draws': ('import random\nrandom.random()', "module 'draws' uses random numbers of "
                      'random while it is imported, and workers get random numbers of their own; '
                      'leave the module out'),
            'seeds': ('import numpy\nnumpy.random.seed(1)', 'uses random numbers of numpy.random'),
            'manual': ('import torch\ntorch.manual_seed(1)', 'uses random numbers of torch')}
        pools = []
        for name, (text, words) in cases.items():
            if text is not None:
                self.write(f'{name}.py', text + '\n')
            pools.append((self.start(f'numpy,{name}' if name == 'seeds' else name), words))
        for pool, words in pools:
            self.check(pool, words)
        self.assertEqual(harness.running(str(self.folder)), [])

    def test_a_command_that_cannot_be_forked_is_named_and_workers_start_without(self):
        end = 'cannot be used with --preload; give a script, or -m and a module'
        self.check(self.start('json', sys.executable, '-c', 'print("trained")'),
                   f"option '-c' of Python {end}")
        script = self.write('first.py', 'a line that Python does not read\nprint("trained")\n')
        self.check(self.start('json', sys.executable, '-x', script),
                   f"option '-x' of Python {end}")
        pool = self.start('json', sys.executable)
        self.assertEqual(pool.wait(), 0)
        self.assertIn(f"command '{sys.executable}' has no script, so no worker can be forked; give "
                      'a script, or -m and a module', pool.text())

    def test_another_program_and_wrong_names_are_mistakes(self):
        script = self.write('plain.py', '')
        for preload, words, text in (
                ('json', ['sh', '-c', 'true'], '--preload is for programs in Python: give python3 '
                 'and a script, or leave out --preload'),
                ('a,,b', [sys.executable, script], '--preload: expected names of Python modules, '
                 'such as torch,numpy'),
                ('a b', [sys.executable, script], '--preload: expected names of Python modules')):
            pool = self.pool(*words, preload=preload)
            self.assertEqual(pool.wait(), 2)
            self.assertIn(text, pool.text())
        done = harness.run([GRADPOOL, 'run', '--preload', 'json', sys.executable, script],
                           capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn('--preload is for a job that may grow: give --workers-max, too', done.stderr)

    def test_a_study_may_name_another_program_and_modules_that_have_used_cuda(self):
        # Studies do not check the program themselves.
        with self.assertRaisesRegex(Refusal, "program 'sh' is not Python, so its workers cannot be "
                                    'forked; give python3 and a script'):
            command.parse(['sh', 'train.sh'])
        fake = types.SimpleNamespace(_is_in_bad_fork=lambda: True)
        with unittest.mock.patch.dict(sys.modules, {'torch.cuda': fake}), \
                self.assertRaisesRegex(Refusal, 'one of the modules json has used CUDA while it '
                                       'was imported, so forked workers could not use CUDA; leave '
                                       'the module out'):
            modules._check_cuda(['json'])

    def test_a_python_without_the_package_starts_its_workers_directly(self):
        script = self.write('plain.py', 'print("trained")\n')
        pool = self.pool(sys.executable, '-I', script, preload='json')
        self.assertEqual(pool.wait(), 0, pool.text())
        self.assertIn('the process that imports modules has ended; see preload.log', pool.text())
        self.assertIn('trained', self.log_of(pool))


STAY = 'import os, sys, time\nprint("ready", flush=True)\n' \
       'while not os.path.exists("go"): time.sleep(.02)\n' \
       'sys.exit(3 if os.path.exists("fail") and not os.path.exists("failed")' \
       ' and not open("failed", "w").close() else 0)\n'


class Ends(Preloads):
    def await_workers(self, pool, count, times=1):
        until(lambda: all(self.log_of(pool, rank).count('ready') >= times
                          for rank in range(count)), 'workers are ready', process=pool)
        found = test_pool.carriers(self.number_of(pool))
        self.parents = [pid for pid, (rank, _) in found.items() if rank >= count]
        return [pid for pid, (rank, _) in found.items() if rank < count]

    def number_of(self, pool):
        lines = (pool.place / 'state').read_text().splitlines()
        return next(line.split()[1] for line in lines if line.startswith('pool '))

    def await_none(self):
        until(lambda: not harness.running(str(self.folder / 'stay.py')), 'no process is left')

    def test_workers_train_on_without_their_parent_and_the_next_one_starts_directly(self):
        script = self.write('stay.py', STAY)
        pool = self.pool(sys.executable, script, preload='json', workers=2)
        workers = self.await_workers(pool, 2)
        self.assertEqual(len(self.parents), 1)
        os.kill(self.parents[0], signal.SIGKILL)
        pool.wait_for('--preload json: the process that forks workers has ended. Workers are '
                      'started without --preload')
        self.assertEqual(sorted(self.await_workers(pool, 2)), sorted(workers))
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: sum(self.log_of(pool, rank).count('ready') for rank in range(2)) == 3,
              'another worker starts', process=pool)
        (self.folder / 'go').touch()
        self.assertEqual(pool.wait(), 0, pool.text())
        self.await_none()

    def test_a_parent_that_hangs_is_replaced_by_direct_starts(self):
        script = self.write('stay.py', STAY)
        pool = self.pool(sys.executable, script, preload='json')
        workers = self.await_workers(pool, 1)
        os.kill(self.parents[0], signal.SIGSTOP)
        os.kill(workers[0], signal.SIGKILL)
        pool.wait_for('--preload json: no worker was forked within 10 s. Workers are started '
                      'without --preload')
        self.await_workers(pool, 1, times=2)
        (self.folder / 'go').touch()
        self.assertEqual(pool.wait(), 0, pool.text())
        self.await_none()

    def test_a_worker_that_dies_is_replaced_by_a_forked_one(self):
        script = self.write('stay.py', STAY)
        (self.folder / 'fail').touch()
        pool = self.pool(sys.executable, script, preload='json')
        worker, = self.await_workers(pool, 1)
        os.kill(worker, signal.SIGTERM)
        pool.wait_for('rank 0: the worker was ended by signal 15')
        other, = set(self.await_workers(pool, 1, times=2)) - {worker}
        (self.folder / 'go').touch()
        pool.wait_for('rank 0: the worker ended with exit code 3')
        self.assertEqual(pool.wait(), 0, pool.text())
        self.await_none()

    def test_the_next_pool_adopts_forked_workers(self):
        script = self.write('stay.py', STAY)
        words = (sys.executable, script)
        pool = self.pool(*words, preload='json', workers=2)
        workers = self.await_workers(pool, 2)
        parent, = self.parents
        pool.kill()
        until(lambda: not is_alive(parent), 'the parent ends with its pool')
        self.assertTrue(all(map(is_alive, workers)))
        second = harness.Process(
            ['env', '-C', self.folder, GRADPOOL, 'run', '--job', 'same', '--folder', 'pool',
             '--endpoint', 'gradpool://127.0.0.1:1', '--workers-max', 2, '--preload', 'json',
             *words], self.folder, 'second', ENVIRONMENT)
        self.addCleanup(second.kill)
        second.wait_for('job same: adopted 2 workers')
        second.signal(signal.SIGTERM)
        self.assertEqual(second.wait(), 143, second.text())
        self.assertFalse(any(map(is_alive, workers)))
        self.await_none()

    def test_a_signal_during_the_import_ends_the_pool_at_once(self):
        self.write('slow.py', 'import time\nprint("imports", flush=True)\ntime.sleep(600)\n')
        script = self.write('stay.py', STAY)
        pool = self.pool(sys.executable, script, preload='slow')
        log = pool.place / 'preload.log'
        until(lambda: log.exists() and 'imports' in log.read_text(), 'the import', process=pool)
        pool.signal(signal.SIGINT)
        self.assertEqual(pool.wait(), 130, pool.text())
        self.assertEqual(self.log_of(pool), '')
        self.await_none()


TRAIN = '''
import os, sys
import torch
import gradpool.elastic

model = torch.nn.Linear(4, 1)
run = gradpool.elastic.Run(model, torch.optim.SGD(model.parameters(), .1), samples=64, batch=8,
                           epochs=1)
for step in run:
    model(torch.ones(len(step.indices), 4)).mean().backward()
    if step.number == 1:
        ticks = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19])
        uptime = float(open('/proc/uptime').read().split()[0])
        print('STEP', uptime - ticks / os.sysconf('SC_CLK_TCK'), run.ending, flush=True)
'''


class Torch(Preloads):
    def test_a_preloaded_worker_makes_its_first_step_earlier(self):
        service = Service()
        self.addCleanup(service.end)
        script = self.write('train.py', TRAIN)
        times = {}
        for preload in None, 'torch', None, 'torch':    # the first import may read from the disk
            name = f'place-{len(list(self.folder.iterdir()))}'
            options = ['--preload', preload] if preload else []
            pool = harness.Process(
                [GRADPOOL, 'run', '--endpoint', service.endpoint, '--folder', self.folder / name,
                 '--workers', 2, '--workers-max', 2, *options, sys.executable, script],
                self.folder, name, ENVIRONMENT)
            self.addCleanup(pool.kill)
            self.assertEqual(pool.wait(IMPORT_S), 0, pool.text())
            logs = [(self.folder / name / f'rank-{rank}.log').read_text() for rank in range(2)]
            times[preload] = max(float(log.split('STEP ')[1].split()[0]) for log in logs)
        print(f'# seconds from the start of the process to step 1: {times}')
        self.assertLess(times['torch'], times[None] / 2)


SWEEP = '''
import sys
from gradpool.explore import Study
study = Study('s', [sys.executable, 'train.py', '{a}'], workers=(1, 2))
for a in 1, 2, 3, 4:
    study.submit({'a': a})
study.run()
print('states', sorted(trial.state for trial in study.trials))
'''
TRIAL = '''
import os, sys, once
from gradpool.explore import report, parameters
assert parameters == {'a': int(sys.argv[1])}
print('process', os.getpid(), os.getcwd(), flush=True)
report(loss=1 / int(sys.argv[1]))
sys.exit(7 if sys.argv[1] == '4' else 0)
'''


class Studies(Preloads):
    def study(self, preload):
        self.write('once.py', 'import os\nprint("imported by", os.getpid(), flush=True)\n')
        self.write('train.py', TRIAL)
        script = self.write('sweep.py', SWEEP)
        study = harness.Process(
            ['env', '-C', self.folder, GRADPOOL, 'explore', '--slots', 2, '--folder', 'study',
             '--preload', preload, script], self.folder, 'explore', ENVIRONMENT)
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        self.addCleanup(study.kill)
        return study

    def test_a_study_imports_modules_once_for_all_trials(self):
        study = self.study('once')
        self.assertEqual(study.wait(IMPORT_S), 0, study.text())
        self.assertNotIn('without --preload', study.text())
        place = self.folder / 'study'
        self.assertEqual((place / 'preload.log').read_text().count('imported by'), 1)
        for number in range(1, 5):
            log = (place / f'{number:04d}/rank-0.log').read_text()
            self.assertIn(f' {self.folder}\n', log.split('process ')[1])
            self.assertNotIn('imported by', log)
        trials = json.loads((place / 'trials.json').read_text())['trials']
        self.assertEqual([trial['state'] for trial in trials], 3 * ['trained'] + ['failed'])
        self.assertIn('exit code 7', trials[3]['reason'])
        until(lambda: not harness.running(str(self.folder)), 'no process is left')

    def test_a_study_whose_modules_cannot_be_imported_starts_its_trials_directly(self):
        study = self.study('absent')
        self.assertEqual(study.wait(IMPORT_S), 0, study.text())
        self.assertIn("--preload absent: module 'absent' cannot be imported: ModuleNotFoundError",
                      study.text())
        self.assertEqual(study.text().count('Trials are started without --preload'), 1)
        trials = json.loads((self.folder / 'study/trials.json').read_text())['trials']
        self.assertEqual([trial['state'] for trial in trials], 3 * ['trained'] + ['failed'])

    def test_a_study_whose_parent_was_killed_starts_its_trials_directly(self):
        study = self.study('once')
        log = self.folder / 'study/preload.log'
        until(lambda: log.exists() and re.match(r'imported by \d+\n', log.read_text()),
              'the import', process=study)
        os.kill(int(log.read_text().split()[2]), signal.SIGKILL)
        self.assertEqual(study.wait(IMPORT_S), 0, study.text())
        self.assertRegex(study.text(), '--preload once: the process that (imports modules has '
                         'ended; see preload.log|forks workers has ended). Trials are started '
                         'without --preload')
        until(lambda: not harness.running(str(self.folder)), 'no process is left')


if __name__ == '__main__':
    sys.exit(tap.main())
