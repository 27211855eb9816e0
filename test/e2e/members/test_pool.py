"""Tests gradpool run --workers-max: a pool with one job. Workers are real processes. Most of them
train on the samples of a deal, as in test_deal.py."""
import contextlib
import os
import pathlib
import signal
import tempfile
import unittest

import harness
import tap
from harness import GRADPOOL, Process, is_alive, state_of, until
from test_deal import BATCH, SAMPLES, Steps, TOOLS

EPOCHS = 26     # about 4,000 steps, so the training lasts 200 s until the file `fast` exists
COOKIE = '_GRADPOOL_WORKER='


def carriers(pool):
    """Returns {pid: (rank, incarnation)} of the living processes with a cookie of this pool."""
    found = {}
    for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
        with contextlib.suppress(OSError):
            for variable in path.read_bytes().decode(errors='replace').split('\0'):
                if variable.startswith(f'{COOKIE}{pool}:'):
                    found[int(path.parent.name)] = tuple(map(int, variable.split(':')[1:3]))
    return found


def sleepers(pid):
    """Returns the processes below this one that execute `sleep`."""
    found = set()
    for child in harness.children(pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f'/proc/{child}/cmdline').read_bytes().startswith(b'sleep\0'):
                found.add(child)
        found |= sleepers(child)
    return found


class Pool(Process):
    """A running `gradpool run --workers-max`."""

    def __init__(self, folder, *words, name='pool', environment=None):
        self.place = pathlib.Path(folder) / 'place'
        super().__init__([GRADPOOL, 'run', '--folder', self.place, *words], pathlib.Path(folder),
                         name, environment)

    def number(self):
        """Returns the random number of the pool's folder, which cookies contain."""
        lines = (self.place / 'state').read_text().splitlines()
        return next(line.split()[1] for line in lines if line.startswith('pool '))

    def carriers(self):
        return carriers(self.number()) if (self.place / 'state').exists() else {}

    def log_of(self, rank):
        path = self.place / f'rank-{rank}.log'
        return path.read_text() if path.exists() else ''

    def end(self):
        self.kill()
        harness.kill_all(self.carriers())


class Scripts(unittest.TestCase):
    """Tests workers that use no service, so that their ends do not depend on a job."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def pool(self, *words, name='pool'):
        pool = Pool(self.folder, '--workers-max', 3, '--endpoint', 'gradpool://127.0.0.1:1',
                    *words, name=name)
        self.addCleanup(pool.end)
        return pool

    def test_a_command_that_is_not_found_is_named(self):
        pool = self.pool('--workers', 2, '/nowhere/train', '--epochs', 3)
        self.assertEqual(pool.wait(), 127)
        self.assertIn("program '/nowhere/train' cannot be executed: No such file or directory; "
                      'give the path of a program (no worker runs)', pool.text())
        self.assertEqual(pool.carriers(), {})

    def test_a_command_that_is_not_in_the_path_is_named(self):
        pool = self.pool('no-such-command')
        self.assertEqual(pool.wait(), 127)
        self.assertIn(f'searched in PATH {os.environ["PATH"]}', pool.text())

    def test_a_rank_that_fails_three_times_without_a_step_ends_the_pool(self):
        pool = self.pool('--workers', 1, 'sh', '-c', 'echo no data; exit 7')
        self.assertEqual(pool.wait(), 7)
        self.assertIn('rank 0: the worker ended with exit code 7; a new process starts in 1 s; its '
                      f'output: {pool.place.resolve()}/rank-0.log', pool.text())
        self.assertIn('a new process starts in 2 s', pool.text())
        self.assertIn('the rank has failed 3 times without a step, and all workers are ended',
                      pool.text())
        self.assertEqual(pool.log_of(0).count('no data'), 3)
        self.assertIn('gradpool run: rank 0 of job run-', pool.log_of(0))
        self.assertIn('start 3', pool.log_of(0))
        self.assertRegex(pool.text(), 'gradpool run: job .*: 1 workers, up to 3; logs: ')

    def test_a_link_in_the_folder_is_not_followed(self):
        victim = pathlib.Path(self.folder) / 'victim'
        victim.write_text('data\n')
        for name in 'lock', 'rank-0.log', 'state.next':
            place = pathlib.Path(self.folder) / 'place'
            place.mkdir(exist_ok=True)
            (place / name).symlink_to(victim)
            pool = self.pool('true', name=f'pool-{name}')
            self.assertEqual(pool.wait(), 0 if name == 'state.next' else 1, pool.text())
            self.assertEqual(victim.read_text(), 'data\n', name)
            (place / name).unlink(missing_ok=True)

    def test_a_worker_gets_its_rank_job_and_endpoint_in_variables(self):
        names = ('RANK', 'GRADPOOL_RANK', 'GRADPOOL_SIZE', 'GRADPOOL_WORKERS_MAX', 'GRADPOOL_JOB',
                 'GRADPOOL_ENDPOINT')
        show = 'echo ' + ' '.join(f'${name}' for name in names)
        pool = self.pool('--workers', 2, '--job', 'a job', 'sh', '-c', show)
        self.assertEqual(pool.wait(), 0)
        for rank in range(2):
            self.assertIn(f'{rank} {rank} 2 3 a job gradpool://127.0.0.1:1\n', pool.log_of(rank))

    def test_ctrl_c_ends_all_workers(self):
        script = 'trap "echo saved; exit 0" INT; echo ready; while :; do sleep 0.05; done'
        pool = self.pool('--workers', 2, 'sh', '-c', script)
        until(lambda: all('ready' in pool.log_of(rank) for rank in range(2)), 'workers are ready',
              process=pool)
        pool.signal(signal.SIGINT)
        self.assertEqual(pool.wait(), 130)
        for rank in range(2):
            self.assertIn('saved', pool.log_of(rank))
        self.assertEqual(pool.carriers(), {})

    def test_further_signals_hurry_workers_that_ignore_them(self):
        script = 'trap "" INT TERM; echo ready; while :; do sleep 0.05; done'
        pool = self.pool('--workers', 1, 'sh', '-c', script)
        until(lambda: 'ready' in pool.log_of(0), 'the worker is ready', process=pool)
        for words in ('another signal makes this time shorter', 'SIGTERM', 'SIGKILL'):
            pool.signal(signal.SIGTERM)
            if words not in ('SIGTERM', 'SIGKILL'):
                pool.wait_for(words)
        self.assertEqual(pool.wait(), 143)
        self.assertEqual(pool.carriers(), {})

    def test_no_process_outlives_its_worker(self):
        # The script starts two processes in the worker's session; one of them lacks the cookie. It
        # starts two more in sessions of their own; one of these has lost its parent.
        script = ('sleep 5000 & env -i sleep 5000 & setsid sleep 5000 & '
                  'setsid sh -c "setsid sleep 5000 &" & echo $$ >&2; exec sleep 5000')
        pool = self.pool('--workers', 1, 'sh', '-c', script)
        until(lambda: len(sleepers(pool.pid)) == 5, 'the worker has its processes', process=pool)
        first = sleepers(pool.pid)
        os.kill(int(pool.log_of(0).splitlines()[-1]), signal.SIGKILL)
        pool.wait_for('signal 9 (Killed); a new process starts in 1 s')
        self.assertEqual([pid for pid in first if is_alive(pid)], [])
        until(lambda: len(sleepers(pool.pid)) == 5, 'the next worker has its processes',
              process=pool)
        second = sleepers(pool.pid)
        self.assertEqual(first & second, set())
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)
        self.assertEqual([pid for pid in second if is_alive(pid)], [])
        self.assertEqual(pool.carriers(), {})

    def test_a_process_without_cookie_and_session_ends_with_the_pool(self):
        pool = self.pool('--workers', 1, 'sh', '-c',
                         'env -i setsid sh -c "sleep 5000 & exit" & wait; exec sleep 5000')
        until(lambda: len(sleepers(pool.pid)) == 2, 'both run', process=pool)
        both = sleepers(pool.pid)
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)
        self.assertEqual([pid for pid in both if is_alive(pid)], [])

    def test_processes_of_a_worker_that_ended_without_a_pool_are_ended(self):
        pool = self.pool('--workers', 1, 'sh', '-c', 'setsid sleep 5000 & exec sleep 5000')
        until(lambda: len(sleepers(pool.pid)) == 2, 'both run', process=pool)
        both = sleepers(pool.pid)
        pool.kill()
        worker, = [pid for pid, _ in pool.carriers().items() if os.getsid(pid) == pid
                   and f':{pid:010}:' in pathlib.Path(f'/proc/{pid}/environ').read_text()]
        os.kill(worker, signal.SIGKILL)
        until(lambda: not is_alive(worker), 'the worker has ended')
        self.assertEqual(len([pid for pid in both if is_alive(pid)]), 1)
        second = self.pool('--workers', 1, 'true', name='second')
        self.assertEqual(second.wait(), 0)
        self.assertEqual([pid for pid in both if is_alive(pid)], [])

    def test_a_folder_has_one_pool_and_one_command(self):
        first = self.pool('--workers', 1, 'sh', '-c', 'exec sleep 5000')
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        worker, = sleepers(first.pid)
        second = self.pool('--workers', 1, 'true', name='second')
        self.assertEqual(second.wait(), 1)
        self.assertIn(f'another pool runs there, process {first.pid};', second.text())
        first.kill()
        third = self.pool('--workers', 1, 'true', name='third')
        self.assertEqual(third.wait(), 1)
        self.assertIn('1 workers of another command train there', third.text())
        fourth = self.pool('--job', 'other', '--workers', 1, 'sh', '-c', 'exec sleep 5000',
                           name='fourth')
        self.assertEqual(fourth.wait(), 1)
        self.assertIn(' train there, not of job ', fourth.text())
        self.assertEqual(list(first.carriers()), [worker])

    def test_a_rank_above_the_largest_number_is_not_adopted(self):
        script = ('sh', '-c', 'exec sleep 5000')
        first = self.pool('--workers', 3, *script)
        until(lambda: len(sleepers(first.pid)) == 3, 'the workers run', process=first)
        first.kill()
        second = Pool(self.folder, '--workers-max', 2, *script, name='second')
        self.addCleanup(second.end)
        self.assertEqual(second.wait(), 1)
        self.assertIn('rank 2 trains there, so --workers-max 2 is too small; give 3 or more',
                      second.text())
        self.assertEqual(len(first.carriers()), 3)

    def test_a_folder_of_another_user_is_refused(self):
        place = pathlib.Path(self.folder) / 'theirs' if os.geteuid() == 0 else pathlib.Path('/')
        place.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(place, 12345, -1)
        pool = self.pool('--folder', place, 'true')
        self.assertEqual(pool.wait(), 1)
        self.assertIn(', so that user could change the pool\'s state; give a --folder of your own',
                      pool.text())
        self.assertFalse((place / 'lock').exists())

    def test_a_folder_that_cannot_be_used_is_named(self):
        missing = f'{self.folder}/missing/place'
        pool = self.pool('--folder', missing, 'true')
        self.assertEqual(pool.wait(), 1)
        self.assertIn(f'folder {missing} cannot be used: ', pool.text())
        place = pathlib.Path(self.folder) / 'place'
        place.mkdir()
        (place / 'state').write_text('gradpool-pool 1\npool 1\nranks 3\n')
        pool = self.pool('true')
        self.assertEqual(pool.wait(), 1)
        self.assertIn("'ranks 3' is no line of a pool's state; give another --folder, or remove "
                      'the file when no worker of the folder runs', pool.text())
        (place / 'state').unlink()
        (place / 'state.next').mkdir()
        pool = self.pool('true')
        self.assertEqual(pool.wait(), 1)
        self.assertIn('cannot be written: Is a directory; free space, or give another --folder',
                      pool.text())

    def test_a_worker_that_fails_after_the_training_gives_the_exit_code(self):
        script = ('[ $RANK = 0 ] && echo $$ >zero && exit 0; '
                  'while [ ! -e go ]; do sleep 0.05; done; exit 3')
        pool = self.pool('--workers', 2, 'env', '-C', self.folder, 'sh', '-c', script)
        zero = pathlib.Path(self.folder) / 'zero'
        until(lambda: zero.exists() and zero.read_text().endswith('\n') and
              state_of(int(zero.read_text())) is None, 'the pool has seen the end of rank 0',
              process=pool)
        (pathlib.Path(self.folder) / 'go').touch()
        self.assertEqual(pool.wait(), 3)
        self.assertIn('rank 1: the worker ended with exit code 3 after the end of the training; '
                      'see ', pool.text())

    def test_a_worker_that_never_joins_is_ended_after_the_training(self):
        pool = self.pool('--workers', 2, '--leave-timeout', 0.1, 'sh', '-c',
                         '[ $RANK = 0 ] && exit 0; exec sleep 5000')
        self.assertEqual(pool.wait(), 0)
        self.assertIn('rank 1 had not trained at the end of the training, and was ended; start '
                      'fewer workers, or train for longer', pool.text())

    def test_a_pool_needs_a_size_that_fits(self):
        for words, text in ((('--workers', 4), '--workers-max is the larger number'),
                            (('--nodes', 2), '--workers-max is for one host'),
                            (('--job', 'a\nb'), '--job: expected a name of 1 to 127 bytes that can '
                             'be printed, without double quotes'),
                            (('--job', 'q"uote'), '--job: expected a name'),
                            (('--site', ''), '--site: expected a name of 1 to 64 bytes, without '
                             'double quotes')):
            pool = self.pool(*words, 'true')
            self.assertEqual(pool.wait(), 2)
            self.assertIn(text, pool.text())
        for words, text in ((('--folder', 'x'), '--folder is for a job that may grow: give '
                             '--workers-max, too'),
                            (('--site', 'x'), '--site is for a job that may grow: give '
                             '--workers-max, too'),
                            (('--job', 'q"uote'), 'without double quotes'),
                            (('--engine', 'k8s'), "'k8s': expected local or slurm"),
                            (('--engine', 'slurm'), '--engine is for a job that may grow: give '
                             '--workers-max, too'),
                            (('--slurm', 'x'), "'x': expected an option such as "
                             '--cpus-per-task=4'),
                            (('--slurm=-x',) * 33, 'at most 32 options for Slurm can be given'),
                            (('--slurm=-x',), '--slurm is for jobs of Slurm: give --engine slurm, '
                             'too'),
                            (('--workers-max', 2, '--engine', 'slurm', '--preload', 'json'),
                             '--preload forks workers on this host: leave out --preload, or '
                             '--engine slurm'),
                            (('--workers-max', 2, '--job', 'a/b'), '--job has a slash, so it '
                             'names no folder: give --folder, too')):
            done = harness.run([GRADPOOL, 'run', *words, 'true'], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)


class Jobs(Steps):
    """Tests workers that train on the samples of a deal, and join and leave meanwhile."""

    def setUp(self):
        super().setUp()
        self.fast = self.folder / 'fast'
        self.lines = {}

    def pool(self, *options, name='pool', before=(), **environment):
        pool = Pool(self.folder, '--workers', 2, '--workers-max', 4, '--job', 'deal', '--endpoint',
                    self.service.endpoint, *options, *before, TOOLS / 'elastic_worker', 'env', 0,
                    0, SAMPLES, BATCH, EPOCHS, 0, 1, self.folder / 'log', name=name,
                    environment={'ELASTIC_WORKER_COMPUTES': str(self.fast), **environment})
        self.addCleanup(pool.end)
        return pool

    def texts(self, rank):
        """Returns the text of each process of the rank, by its pid."""
        return {int(path.suffix[1:]): path.read_text()
                for path in self.folder.glob(f'log.{rank}.*')}

    def await_text(self, rank, words, pool, count=1):
        until(lambda: sum(words in text for text in self.texts(rank).values()) >= count,
              f'rank {rank} writes {words!r}', process=pool)

    def await_steps(self, ranks, pool):
        """Waits until each rank has made another step."""
        before = {rank: sum(text.count('step ') for text in self.texts(rank).values())
                  for rank in ranks}
        until(lambda: all(sum(text.count('step ') for text in self.texts(rank).values()) >
                          before[rank] for rank in ranks), f'steps of ranks {ranks}', process=pool)

    def resize(self, workers):
        answer = self.service.ask('resize', 'deal', str(workers))
        self.assertEqual((answer.returncode, answer.stdout), (0, f'job deal: {workers} workers\n'),
                         answer.stderr)

    def finish(self, pool):
        """Lets the training end. Returns the output of the pool."""
        self.fast.touch()
        self.assertEqual(pool.wait(120), 0, pool.text())
        self.assertEqual(pool.carriers(), {})
        for rank in range(4):
            for path in self.folder.glob(f'log.{rank}.*'):
                self.logs[path] = rank
        return pool.text()

    def check_all_once(self):
        used = self.check_steps()
        self.assertEqual(len(used), SAMPLES * EPOCHS)
        self.assertEqual(set(used.values()), {1})

    def check_all(self):
        self.assertEqual(len(self.check_steps()), SAMPLES * EPOCHS)

    def test_a_pool_follows_the_size_of_its_job(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        self.resize(4)
        for rank in (2, 3):
            self.await_text(rank, 'carries', pool)
        self.await_steps(range(4), pool)
        self.resize(1)
        for rank in (1, 2, 3):
            self.await_text(rank, 'leaves', pool)
        until(lambda: set(pool.carriers()) == set(self.texts(0)), 'one worker runs', process=pool)
        self.resize(2)
        # rank 1's first line is from the resize to 4 workers
        self.await_text(1, 'carries', pool, count=2)
        text = self.finish(pool)
        self.assertIn('job deal: 4 workers, from 2', text)
        self.assertIn('job deal: 2 workers, from 1', text)
        self.assertNotIn('a new process starts', text)
        self.check_all_once()

    def test_a_shrink_and_a_growth_between_two_looks_are_seen(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        pool.signal(signal.SIGSTOP)
        self.resize(1)
        self.await_text(1, 'leaves', pool)
        self.resize(2)
        pool.signal(signal.SIGCONT)
        self.await_text(1, 'carries', pool)
        self.finish(pool)
        self.check_all_once()

    def test_a_killed_worker_is_started_again(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        pid, = self.texts(1)
        os.kill(pid, signal.SIGKILL)
        pool.wait_for('rank 1: the worker was ended by signal 9 (Killed); a new process starts in '
                      '1 s')
        self.await_text(1, 'carries', pool)
        self.finish(pool)
        self.assertEqual(len(self.texts(1)), 2)
        self.check_all()

    def test_a_worker_that_does_not_leave_is_ended(self):
        pool = self.pool('--leave-timeout', 1)
        self.await_steps((0, 1), pool)
        pid, = self.texts(1)
        os.kill(pid, signal.SIGSTOP)
        self.resize(1)
        pool.wait_for('rank 1 was removed, but stays after 1 s, so its process is ended')
        until(lambda: not is_alive(pid), 'the stopped worker has ended', process=pool)
        self.await_steps((0,), pool)
        self.finish(pool)
        self.check_all()

    def test_a_new_pool_adopts_each_worker_once(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        before = pool.carriers()
        self.assertEqual(sorted(before.values()), [(0, 1), (1, 1)])
        pool.kill()
        self.await_steps((0, 1), pool)
        second = self.pool(name='second')
        second.wait_for('job deal: adopted 2 workers of an earlier gradpool run; logs: ')
        self.assertEqual(second.carriers(), before)
        self.resize(3)
        self.await_text(2, 'carries', second)
        self.assertEqual(sorted(second.carriers().values()), [(0, 1), (1, 1), (2, 1)])
        self.resize(2)
        self.await_text(2, 'leaves', second)
        self.finish(second)
        self.check_all_once()

    def test_a_worker_that_has_overwritten_its_cookie_is_adopted(self):
        pool = self.pool(ELASTIC_WORKER_HIDES='1')
        self.await_steps((0, 1), pool)
        self.assertEqual(pool.carriers(), {})
        pids = [set(self.texts(rank)) for rank in range(2)]
        pool.kill()
        second = self.pool(name='second', ELASTIC_WORKER_HIDES='1')
        second.wait_for('job deal: adopted 2 workers of an earlier gradpool run; logs: ')
        self.await_steps((0, 1), second)
        self.assertEqual([set(self.texts(rank)) for rank in range(2)], pids)
        self.finish(second)
        self.check_all_once()

    def test_a_new_pool_replaces_workers_that_died_without_a_pool(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        pool.kill()
        pid, = self.texts(1)
        os.kill(pid, signal.SIGKILL)
        self.await_steps((0,), pool)
        second = self.pool(name='second')
        second.wait_for('job deal: adopted 1 workers')
        self.await_text(1, 'carries', second)
        self.await_text(0, 'carries', second)
        pid, = self.texts(0)
        os.kill(pid, signal.SIGKILL)    # an adopted worker
        second.wait_for('rank 0: the worker, of an earlier gradpool run, has ended; a new process '
                        'starts in 1 s')
        self.await_text(0, 'carries', second, count=2)
        self.assertEqual(sorted(second.carriers().values()), [(0, 2), (1, 2)])
        self.finish(second)
        self.check_all()

    def test_adopted_workers_that_die_at_once_are_started_again(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        pool.kill()
        second = self.pool(name='second')
        self.resize(3)
        self.await_text(2, 'carries', second)   # at this point the pool knows the job
        harness.kill_all(second.carriers())
        for rank in range(2):
            second.wait_for(f'rank {rank}: the worker, of an earlier gradpool run, has ended; a '
                            'new process starts in ')
        second.signal(signal.SIGTERM)
        self.assertEqual(second.wait(), 143)

    def test_a_pool_does_not_count_the_steps_of_another_pool_with_the_same_job(self):
        first = self.pool()
        self.await_steps((0, 1), first)
        first.kill()    # the service refuses a second pool while the first one runs
        (self.folder / 'other').mkdir()
        second = Pool(self.folder / 'other', '--workers', 1, '--workers-max', 4, '--job', 'deal',
                      '--endpoint', self.service.endpoint, 'sh', '-c', 'sleep 2; exit 7')
        self.addCleanup(second.end)
        second.wait_for('of another pool on this host; give this job another name with --job, or '
                        'end that pool')
        self.assertEqual(second.wait(), 7)
        self.assertIn('the rank has failed 3 times without a step, and all workers are ended',
                      second.text())
        self.await_steps((0, 1), first)
        third = self.pool(name='third')
        third.wait_for('job deal: adopted 2 workers')
        self.finish(third)
        self.check_all_once()

    def test_a_pool_without_service_trains_on(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        self.service.serve.kill()
        pool.wait_for('workers that run train on')
        self.assertIn('job deal: its size is unknown: ', pool.text())
        self.await_steps((0, 1), pool)
        self.service.start(name='again')
        pool.wait_for('job deal: its size is known again')
        self.resize(3)
        self.await_text(2, 'carries', pool)
        self.finish(pool)

    def test_the_others_train_on_without_a_rank_that_fails(self):
        pool = self.pool(before=('sh', '-c', '[ $RANK = 2 ] && exit 5; exec "$@"', 'sh'))
        self.await_steps((0, 1), pool)
        self.resize(3)
        pool.wait_for('rank 2: the worker ended with exit code 5; the rank has failed 3 times '
                      'without a step, and the others train on; see ')
        self.await_steps((0, 1), pool)
        self.finish(pool)
        self.check_all()

    def test_the_end_of_an_adopted_worker_that_never_joined_is_unknown(self):
        words = ('--job', 'idle', '--workers-max', 2, '--endpoint', self.service.endpoint, 'sh',
                 '-c', 'exec sleep 5000')
        first = Pool(self.folder, *words)
        self.addCleanup(first.end)
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        pid, = sleepers(first.pid)
        first.kill()
        second = Pool(self.folder, *words, name='second')
        self.addCleanup(second.end)
        second.wait_for('job idle: adopted 1 workers')
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(second.wait(), 1)
        self.assertIn('rank 0 was started by an earlier gradpool run and has ended; the service '
                      'does not know whether it has trained; see ', second.text())

    def test_a_program_with_a_fixed_number_of_workers_trains(self):
        push = f'exec {harness.BENCH} push --job fixed --rank $RANK --workers 2 --rounds 100000000'
        pool = Pool(self.folder, '--job', 'fixed', '--workers', 2, '--workers-max', 4,
                    '--endpoint', self.service.endpoint, 'sh', '-c', push)
        self.addCleanup(pool.end)
        pool.wait_for('job fixed trains with a fixed number of workers, because the program joins '
                      'without workers_max; use gradpool.elastic.Run, or join with '
                      'GRADPOOL_WORKERS_MAX')
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)

    def test_a_resize_above_workers_max_is_logged(self):
        worker = ' '.join(map(str, (TOOLS / 'elastic_worker', '$RANK 2 3', SAMPLES, BATCH, EPOCHS,
                                    0, 1, self.folder / 'log.$RANK.0')))
        pool = Pool(self.folder, '--job', 'deal', '--workers', 2, '--workers-max', 2,
                    '--endpoint', self.service.endpoint, 'sh', '-c', f'exec {worker}',
                    environment={'ELASTIC_WORKER_COMPUTES': str(self.fast)})
        self.addCleanup(pool.end)
        self.await_steps((0, 1), pool)
        self.resize(3)
        pool.wait_for('job deal: 3 workers are wanted, but --workers-max is 2, so no more are '
                      'started; resize the job, or start workers by hand')
        self.resize(2)
        self.finish(pool)
        self.check_all_once()

    def test_two_jobs_of_one_name_are_told_apart(self):
        keys = [self.service.tenant_key(name) for name in ('acme', 'bolt')]
        for i, key in enumerate(keys):
            self.service.worker('twice', 0, 2, name=f'twice.{i}', environment=key)
        until(lambda: self.service.ask('jobs').stdout.count('twice') == 2, 'both jobs exist')
        pool = Pool(self.folder, '--job', 'twice', '--workers-max', 2, '--endpoint',
                    f'unix:{self.service.state}/control.sock', 'sh', '-c', 'exec sleep 5000')
        self.addCleanup(pool.end)
        pool.wait_for('more than one tenant has a job twice; give this one another name with --job')
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)

    def test_a_resize_that_is_not_possible_names_the_reason(self):
        for words, code, text in ((('deal', '2'), 3, 'there is no job deal'),
                                  (('deal',), 2, 'missing: WORKERS'),
                                  (('deal', 'x'), 2, 'x: expected JOB, then WORKERS, a number'),
                                  (('deal', '2', '3'), 2, "'3': one argument too many; give the "
                                   'job and its number of workers')):
            answer = self.service.ask('resize', *words)
            self.assertEqual(answer.returncode, code, answer.stderr)
            self.assertIn(text, answer.stderr)
        pool = self.pool()
        self.await_steps((0, 1), pool)
        answer = self.service.ask('resize', 'deal', '5')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('job deal cannot have 5 workers; expected 1 to 4', answer.stderr)
        self.finish(pool)


if __name__ == '__main__':
    tap.main()
