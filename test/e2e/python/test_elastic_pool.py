"""Tests gradpool run --workers-max with scripts of gradpool.elastic: the pool starts the workers,
and Run trains while workers join and leave."""
import os
import signal
import sys

import harness
import tap
import test_elastic_runner as runners
from harness import BUILD, GRADPOOL, Service, until

PAGE = runners.SOURCE / 'client/python/ELASTIC.md'
ENVIRONMENT = {'PYTHONPATH': str(runners.SOURCE / 'client/python'), 'CUDA_VISIBLE_DEVICES': '',
               'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so')}


class Pools(runners.Trains):
    """Trains the script of the runner's test, with a pool as its runner."""
    test_workers_join_leave_and_are_replaced_during_training = None

    def setUp(self):
        super().setUp()
        self.service = Service()
        self.addCleanup(self.service.end)

    def pool(self, *words, name='pool', cwd=None):
        pool = harness.Process(
            ['env', '-C', cwd or self.folder, GRADPOOL, 'run', '--job', 'digits', '--endpoint',
             self.service.endpoint, '--workers-max', 4, *words], self.folder, name, ENVIRONMENT)
        self.addCleanup(lambda: harness.kill_all(harness.running(str(self.folder))))
        self.addCleanup(pool.kill)
        return pool

    def resize(self, workers):
        answer = self.service.ask('resize', 'digits', str(workers))
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_a_run_grows_survives_kills_of_workers_and_pool_and_shrinks(self):
        script = self.folder / 'script.py'
        script.write_text(runners.TRAIN)
        words = ('--workers', 2, '--leave-timeout', 600, sys.executable, script, self.folder)
        pool = self.pool(*words)
        pids = [self.await_share(pool, rank) for rank in range(2)]
        self.resize(3)
        pids.append(self.await_share(pool, 2))
        os.kill(pids[0], signal.SIGKILL)
        pids.append(self.await_share(pool, 0, pids))
        pool.kill()
        pool = self.pool(*words, name='second')
        pool.wait_for('job digits: adopted 3 workers')
        self.resize(2)
        until(lambda: self.lines(2)[-1].get('ending') == 'left', 'rank 2 leaves', runners.TRAINS_S,
              pool)
        (self.folder / 'stop').touch()
        self.assertEqual(pool.wait(runners.TRAINS_S), 0)
        self.await_end(pids)
        used = self.check_models()
        whole = max(epoch for epoch, _ in used)
        self.assertEqual(len(used), 600 * (whole + 1))
        self.assertLessEqual(sum(used.values()) - len(used), 2 * runners.BATCH // 2)

    def test_the_script_and_the_command_of_the_page_run_as_they_stand(self):
        text = PAGE.read_text(encoding='utf-8')
        (self.folder / 'elastic_run.py').write_text(
            text.split('```python\n')[1].split('```')[0])
        part = text.split('## A pool of workers')[1].split('```sh\n')[1]
        words = part.splitlines()[0].split()
        self.assertEqual(words[:8], 'gradpool run --job digits --workers 2 --workers-max 4'.split())
        pool = self.pool('--workers', 2, *words[8:])
        self.assertEqual(pool.wait(runners.TRAINS_S), 0)
        self.assertRegex((self.folder / 'gradpool-digits/rank-0.log').read_text(),
                         r'trained with [0-9.e-]+\n$')


if __name__ == '__main__':
    sys.exit(tap.main())
