"""Tests the engine slurm of gradpool run and gradpool explore with a real Slurm on this host:
workers are jobs, or steps of an allocation. All cases use one cluster, and most of them its first
node."""
import os
import pathlib
import signal
import tempfile

import harness
import tap
import test_explore
import test_pool
import test_site_pool
from harness import Service, until
from slurm import NODE_TIMEOUT_S, Slurm
from test_deal import BATCH, SAMPLES, TOOLS, Steps
from test_pool import is_alive

EPOCHS = test_pool.EPOCHS
STATES_S = 60       # Slurm notices some changes late, and a busy host is slow
VARIABLES = 'GRADPOOL_JOB', 'GRADPOOL_RANK', 'GRADPOOL_INCARNATION', 'LOCAL_RANK', 'DATA_SET'


slurm = None


def setUpModule():
    global slurm
    slurm = Slurm((('main', ('n1',)), ('pair', ('n2', 'n3'))))


def tearDownModule():
    slurm.end()


class SlurmPools(Steps):
    """Workers are jobs of Slurm."""

    def setUp(self):
        self.slurm = slurm
        self.service = Service('--lanes-per-core', 2, '--scale', 'off', '--worker-slots', 'site=8')
        self.addCleanup(self.service.end)
        self.addCleanup(self.end_jobs)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.fast = self.folder / 'fast'
        self.lines, self.logs = {}, {}

    def end_jobs(self):
        self.slurm.run('scancel', '--me', '--signal=KILL', '--full', check=False)
        self.slurm.run('scancel', '--me', check=False)
        harness.kill_all(harness.running(str(self.folder)))
        until(lambda: not self.slurm.run('squeue', '-h', '--me'), 'Slurm has no jobs', STATES_S)

    def pool(self, *options, program=None, name='pool', most=3, workers=2, job='deal',
             folder='one', **environment):
        place = self.folder / folder
        place.mkdir(exist_ok=True)
        program = program or (TOOLS / 'elastic_worker', 'env', 0, 0, SAMPLES, BATCH, EPOCHS, 0, 1,
                              self.folder / 'log')
        pool = test_pool.Pool(
            place, '--workers', workers, '--workers-max', most, '--job', job, '--engine', 'slurm',
            '--endpoint', self.service.endpoint, *options, *program, name=name,
            environment={**self.slurm.environment, 'ELASTIC_WORKER_COMPUTES': str(self.fast),
                         **environment})
        self.addCleanup(pool.kill)
        return pool

    def listed(self):
        """Returns {rank: (id, state)} of the living jobs of pools."""
        text = self.slurm.run('squeue', '-h', '--me', '-o', '%j|%i|%T')
        found = [line.split('|') for line in text.splitlines() if line.startswith('gradpool-')]
        return {int(name.split('-')[2]): (number, state) for name, number, state in found}

    def await_listed(self, ranks, pool):
        until(lambda: sorted(self.listed()) == sorted(ranks), f'Slurm runs ranks {ranks}',
              STATES_S, pool)

    def worker_of(self, rank):
        """Returns the process of the newest worker of the rank."""
        return max((pid for pid in self.texts(rank) if is_alive(pid)), default=None)

    texts = test_pool.Jobs.texts
    await_text = test_pool.Jobs.await_text
    await_steps = test_pool.Jobs.await_steps
    resize = test_pool.Jobs.resize
    finish = test_pool.Jobs.finish
    check_all = test_pool.Jobs.check_all
    check_all_once = test_pool.Jobs.check_all_once


class Ways:
    """Cases for jobs and for steps of an allocation."""

    def test_a_job_grows_and_shrinks_and_trains_each_sample_once(self):
        pool = self.pool()
        self.await_steps((0, 1), pool)
        self.resize(3)
        self.await_steps((0, 1, 2), pool)
        self.resize(2)
        self.await_text(2, 'leaves', pool)
        self.await_listed((0, 1), pool)
        text = self.finish(pool)
        self.assertNotIn('a new process starts', text)
        self.assertRegex(pool.log_of(0), 'gradpool run: rank 0 of job deal, start 1 on node n1\n')
        self.check_all_once()
        self.await_listed((), pool)

    def test_a_killed_worker_is_replaced(self):
        pool = self.pool('--site', 'site', most=2)
        self.await_steps((0, 1), pool)
        os.kill(self.worker_of(1), signal.SIGKILL)
        pool.wait_for('rank 1: a new process starts in 1 s', STATES_S)
        self.await_text(1, 'carries', pool)
        self.assertEqual(len(self.texts(0)), 1)
        self.finish(pool)
        self.check_all()

    def test_a_new_pool_adopts_the_workers(self):
        pool = self.pool('--site', 'site', most=2)
        self.await_steps((0, 1), pool)
        before = self.listed()
        pool.kill()
        second = self.pool('--site', 'site', most=2, name='second')
        second.wait_for('adopted 2 workers of an earlier gradpool run', STATES_S)
        self.await_steps((0, 1), second)
        self.assertEqual(self.listed(), before)
        os.kill(self.worker_of(1), signal.SIGKILL)
        self.await_text(1, 'carries', second)
        self.assertEqual(len(self.texts(0)), 1)
        self.finish(second)
        self.check_all()

    def test_a_signal_to_the_pool_ends_all_workers(self):
        pool = self.pool(program=('sh', '-c', 'trap "" TERM INT; echo begun; '
                                  'while :; do sleep 0.2; done'))
        until(lambda: 'begun' in pool.log_of(0) + pool.log_of(1), 'a worker runs', STATES_S, pool)
        self.await_listed((0, 1), pool)
        pool.signal(signal.SIGINT)
        pool.signal(signal.SIGINT)
        self.assertEqual(pool.wait(STATES_S), 130)
        self.await_listed((), pool)

    def test_a_worker_that_fails_gives_its_exit_code(self):
        pool = self.pool('--site', 'site', workers=1, most=1,
                         program=('sh', '-c', 'echo no data; exit 7'))
        self.assertEqual(pool.wait(STATES_S), 7)
        self.assertEqual(pool.log_of(0).count('no data'), 3)
        self.assertIn('rank 0: the worker ended with exit code 7', pool.text())
        self.assertEqual('3 workers in a row have failed on node n1, so no worker starts there for '
                         '60 s' in pool.text(), self.leaves_out)

    def test_a_refusal_is_shown_and_the_start_is_tried_again(self):
        pool = self.pool('--site', 'site', self.refused, workers=1, most=1, program=('true',))
        pool.wait_for(self.refusal, STATES_S)
        pool.wait_for('the next try is in 5 s', STATES_S)
        until(lambda: self.refusal in self.service.ask('jobs', 'deal', '--json').stdout,
              'the service shows the refusal', process=pool)
        self.assertIn(f'waits 0 {self.refusal}', (pool.place / 'state').read_text())
        pool.wait_for('the next try is in 10 s', STATES_S)

    def test_variables_reach_the_worker_and_no_command_reaches_the_service(self):
        relay = test_site_pool.Relay(self.service.endpoint)
        show = 'for name in ' + ' '.join(VARIABLES) + '; do eval echo $name=\\$$name; done'
        pool = self.pool('--site', 'site', '--endpoint', relay.endpoint, workers=1, most=1,
                         program=('sh', '-c', show), DATA_SET='the digits')
        self.assertEqual(pool.wait(STATES_S), 0, pool.text())
        log = pool.log_of(0)
        for line in 'GRADPOOL_JOB=deal', 'GRADPOOL_RANK=0', 'LOCAL_RANK=0', 'DATA_SET=the digits':
            self.assertIn(f'{line}\n', log)
        self.assertRegex(log, r'GRADPOOL_INCARNATION=\d+\n')
        for word in b'eval', str(self.folder).encode():
            self.assertNotIn(word, relay.sent)

    def test_training_goes_on_while_slurm_does_not_answer(self):
        pool = self.pool('--site', 'site', most=2)
        self.await_steps((0, 1), pool)
        self.await_listed((0, 1), pool)
        self.slurm.stop_controller()
        try:
            pool.wait_for('Slurm does not answer: ', STATES_S)
            os.kill(self.worker_of(1), signal.SIGKILL)
            self.await_steps((0,), pool)
        finally:
            self.slurm.start_controller()
        pool.wait_for('Slurm answers again', STATES_S)
        self.await_text(1, 'carries', pool)
        self.assertEqual(len(self.texts(0)), 1)
        self.finish(pool)
        self.check_all()


class Jobs(Ways, SlurmPools):
    leaves_out = True
    refused = '--slurm=--partition=nowhere'
    refusal = 'sbatch: error: Batch job submission failed: Invalid partition name specified'

    def test_a_waiting_job_is_withheld_and_is_removed_at_once(self):
        pool = self.pool('--slurm=--cpus-per-task=3')
        until(lambda: len(self.listed()) == 2 and
              {state for _, state in self.listed().values()} == {'RUNNING', 'PENDING'},
              'one job waits', STATES_S, pool)
        pool.wait_for('of Slurm waits in the queue: Resources', STATES_S)
        self.assertRegex(pool.text(), 'rank [01] does not run yet: job')
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(STATES_S), 143)
        self.await_listed((), pool)

    def test_a_folder_keeps_its_engine_and_its_way(self):
        pool = self.pool(program=('sleep', '5000'))
        self.await_listed((0, 1), pool)
        until(lambda: {state for _, state in self.listed().values()} == {'RUNNING'}, 'both run',
              STATES_S, pool)
        pool.kill()
        local = self.pool('--engine', 'local', program=('sleep', '5000'), name='local')
        self.assertEqual(local.wait(), 1)
        self.assertIn('its workers were started with --engine slurm', local.text())
        self.assertIn('; give the same --engine, or another --folder', local.text())
        inside = self.pool(program=('sleep', '5000'), name='inside', SLURM_JOB_ID='1')
        self.assertEqual(inside.wait(STATES_S), 1)
        self.assertIn('of Slurm is a worker of an earlier pool that ran outside of an allocation; '
                      'start this command there', inside.text())


class Allocation(Ways, SlurmPools):
    leaves_out = False      # the allocation has one node
    refused = '--slurm=--cpus-per-task=99'
    refusal = 'srun: error: Unable to create step for job'

    def setUp(self):
        super().setUp()
        self.slurm.run('salloc', '--nodes=1', f'--ntasks={self.slurm.tasks}', '--no-kill',
                       '--no-shell')
        self.allocation = self.slurm.run('squeue', '-h', '--me', '-o', '%A')

    def pool(self, *words, **keywords):
        return super().pool(*words, **{'SLURM_JOB_ID': self.allocation, **keywords})

    def listed(self):
        text = self.slurm.run('squeue', '-h', '--me', '--steps', '-o', '%j|%i')
        found = [line.split('|') for line in text.splitlines() if line.startswith('gradpool-')]
        return {int(name.split('-')[2]): (number, 'RUNNING') for name, number in found}

    def test_a_step_that_waits_is_withheld(self):
        pool = self.pool('--slurm=--cpus-per-task=3', program=('sleep', '5000'))
        pool.wait_for('srun waits for free CPUs or devices of the allocation', STATES_S)
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(STATES_S), 143)
        self.await_listed((), pool)


class LostNode(SlurmPools):
    """Two nodes, one of which is lost: its slurmd is killed, and its worker lives on."""

    def lose_node_of(self, rank):
        """Returns the other node."""
        self.slurm.set_node_timeout(6)
        self.addCleanup(self.slurm.set_node_timeout, NODE_TIMEOUT_S)
        node = self.slurm.run('squeue', '-h', '--me', '-o', '%N')
        self.slurm.lose_node(node)
        self.addCleanup(self.slurm.return_node, node)
        other, = set(self.slurm.partitions['pair']) - {node}
        return other

    def test_the_rank_of_a_lost_node_starts_elsewhere_and_its_old_process_is_refused(self):
        pool = self.pool('--site', 'site', '--slurm=--partition=pair', workers=1, most=1)
        self.await_steps((0,), pool)
        old = self.worker_of(0)
        other = self.lose_node_of(0)
        until(lambda: self.worker_of(0) not in (old, None), 'rank 0 has a second process',
              2 * STATES_S, pool)
        self.assertEqual(self.slurm.run('squeue', '-h', '--me', '-t', 'R', '-o', '%N'), other)
        self.await_steps((0,), pool)
        self.assertIn(': its pool has started a newer process of this rank',
                      self.service.serve.text())
        until(lambda: not is_alive(old) or 'carries' in self.texts(0)[old], 'the old one ends',
              STATES_S, pool)
        self.finish(pool)


class Studies(SlurmPools):
    """gradpool explore --engine slurm."""

    def setUp(self):
        super().setUp()
        self.results = self.folder / 'gradpool-digits'
        (self.folder / 'trial.py').write_text(test_explore.TRIAL)

    sweep = test_explore.Studies.sweep
    explore = test_explore.Studies.explore
    trials = test_explore.Studies.trials
    rows = test_explore.Studies.rows
    state_of = test_explore.Studies.state_of
    hold = test_explore.Studies.hold
    release = test_explore.Studies.release
    begun = test_explore.Studies.begun
    await_step = test_explore.Studies.await_step

    def begin(self, numbers):
        """Starts a study that holds each trial at its step 5."""
        self.sweep(numbers)
        for number in numbers:
            self.hold(number, 5)
        study = self.explore('sweep.py', '--site', 'site', '--engine', 'slurm',
                             '--slurm=--comment=a study', '--slurm=--nice=7',
                             environment=self.slurm.environment)
        for number in numbers:
            self.await_step(number, 5, study)
        return study

    def test_trials_are_jobs_of_slurm_and_the_rule_ends_one(self):
        study = self.begin([1, 2])
        options = self.slurm.run('squeue', '-h', '--me', '-o', '%k %y')
        self.assertEqual(options, 'a study 7\na study 7')
        self.hold(2, 15)    # until the end by the rule
        self.release(1, 5)
        self.await_step(1, 20, study)
        self.release(2, 5)
        self.assertEqual(study.wait(STATES_S), 0, study.text())
        self.assertIn('trial 1 trained at step 20', study.text())
        self.assertRegex(study.text(), r'trial 2 ended at step \d+, loss \S+ \(place 2 of 2')
        for number in 1, 2:
            self.assertEqual(len(self.begun(number)), 1)
            log = (self.results / f'000{number}/rank-0.log').read_text()
            self.assertRegex(log, rf'rank 0 of job digits/{number}, start \d+ on node n1\n')
        self.assertEqual(self.listed(), {})

    def test_a_trial_without_its_pool_is_ended_on_slurm(self):
        study = self.begin([1])
        self.await_listed((0,), study)
        study.kill()
        pool, = harness.running(f'--folder\0{self.results / "0001"}')
        harness.kill_all([pool])
        until(lambda: not is_alive(pool), 'the pool has ended')
        self.assertEqual(list(self.listed()), [0])
        self.assertEqual(self.trials('kill', '1').returncode, 0)
        second = self.explore('--resume', 'gradpool-digits', name='second',
                              environment=self.slurm.environment)
        self.assertEqual(second.wait(STATES_S), 0, second.text())
        self.assertEqual(self.state_of(1), 'killed')
        self.await_listed((), second)


if __name__ == '__main__':
    tap.main()
