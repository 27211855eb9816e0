"""Tests gradpool run --site: the coordinator orders starts and leaves of a pool's workers. Most
cases share one service, with a site for each case."""
import json
import os
import pathlib
import re
import signal
import socket
import tempfile
import threading

import harness
import tap
import test_pool
from harness import Service, until
from test_deal import BATCH, SAMPLES, TOOLS, Steps
from test_pool import is_alive, sleepers

EPOCHS = 26     # about 4,000 steps of 50 ms each, which the file `fast` shortens
SITES = {'shared': 3, 'adopts': 2, 'dies': 2, 'fails': 1, 'missing': 1, 'full': 2, 'twice': 2,
         'late': 3, 'stops': 2, 'spied': 1, 'fewer': 2, 'overdue': 2, 'queued': 1,
         socket.gethostname(): 1}
SLEEPS = ('sh', '-c', 'exec sleep 5000')


class Relay:
    """Forwards connections to the service, and keeps all bytes that the pool has sent."""

    def __init__(self, endpoint):
        host, port = endpoint.removeprefix('gradpool://').rsplit(':', 1)
        self.target, self.sent = (host, int(port)), b''
        self.door = socket.create_server(('127.0.0.1', 0))
        self.endpoint = f'gradpool://127.0.0.1:{self.door.getsockname()[1]}'
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            client, server = self.door.accept()[0], socket.create_connection(self.target)
            for source, to, keeps in (client, server, True), (server, client, False):
                threading.Thread(target=self.forward, args=(source, to, keeps),
                                 daemon=True).start()

    def forward(self, source, to, keeps):
        while True:
            try:
                data = source.recv(65536)
                self.sent += data if keeps else b''
                to.sendall(data)
            except OSError:
                data = b''
            if not data:
                to.close()
                return


class SitePools(Steps):
    """Tests pools of elastic_worker. Each job has the name of its site."""
    options = ','.join(f'{site}={slots}' for site, slots in SITES.items())

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.fast = self.folder / 'fast'
        self.logs = {}

    @classmethod
    def begin_service(cls):
        return Service('--lanes-per-core', 2, '--scale', 'off', '--worker-slots', cls.options)

    def pool(self, site, *words, job=None, workers=1, most=1, name='pool', folder=None,
             endpoint=None):
        place = self.folder / (folder or 'one')
        place.mkdir(exist_ok=True)
        pool = test_pool.Pool(place, '--job', job or site, '--workers', workers, '--workers-max',
                              most, '--endpoint', endpoint or self.service.endpoint,
                              *(('--site', site) if site else ()), *words, name=name,
                              environment={'ELASTIC_WORKER_COMPUTES': str(self.fast),
                                           'SECRET_OF_THE_USER': 'a-word-for-nobody'})
        self.addCleanup(pool.end)
        return pool

    def trains(self, site, most, *options, before=(), **keywords):
        return self.pool(site, *options, *before, TOOLS / 'elastic_worker', 'env', 0, 0, SAMPLES,
                         BATCH, EPOCHS, 0, 1, self.folder / 'log', most=most, **keywords)

    def site(self, name):
        answer = self.service.ask('jobs', '--json')
        return next(s for s in json.loads(answer.stdout)['sites'] if s['site'] == name)

    def await_held(self, site, slots, pool):
        until(lambda: self.site(site)['held'] + self.site(site)['leaving'] == slots,
              f'{slots} slots of site {site} have workers', process=pool)

    def joined(self, job):
        found = self.service.job(job)
        return [rank['rank'] for rank in found['ranks'] if rank['state'] == 'joined'] \
            if found else []

    texts = test_pool.Jobs.texts
    await_text = test_pool.Jobs.await_text
    await_steps = test_pool.Jobs.await_steps
    finish = test_pool.Jobs.finish
    check_all = test_pool.Jobs.check_all
    check_all_once = test_pool.Jobs.check_all_once


class Shared(SitePools):
    @classmethod
    def setUpClass(cls):
        cls.service = cls.begin_service()
        cls.addClassCleanup(cls.service.end)

    def test_a_new_job_gets_a_slot_and_gives_it_back(self):
        pool = self.trains('shared', 3)
        self.await_steps(range(3), pool)
        self.assertIn('job shared: site shared starts its workers when slots are free',
                      pool.text())
        before = pool.carriers()
        other = self.pool('shared', *SLEEPS, job='other', folder='two', name='other')
        until(lambda: len(sleepers(other.pid)) == 1, 'the other job has a worker', process=other)
        self.assertIn('rank 2: leaves, because its slot is needed', pool.text())
        self.assertIn('leaves', *self.texts(2).values())
        self.assertEqual({pid: worker for pid, worker in before.items() if worker[0] < 2},
                         pool.carriers())   # no survivor was restarted
        refused = self.service.ask('resize', 'shared', '3')
        self.assertIn('job shared was not resized', refused.stderr)
        other.signal(signal.SIGINT)
        self.assertEqual(other.wait(), 130)
        self.await_text(2, 'carries', pool)
        text = self.finish(pool)
        self.assertNotIn('a new process starts', text)
        self.await_held('shared', 0, pool)
        self.check_all_once()

    def test_a_new_pool_adopts_the_workers_and_obeys_orders(self):
        pool = self.trains('adopts', 2)
        self.await_steps((0, 1), pool)
        before = pool.carriers()
        pool.kill()
        self.await_steps((0, 1), pool)
        other = self.trains('dies', 2, name='other')
        self.assertEqual(other.wait(), 1)
        self.assertIn('train there, not of job dies', other.text())
        other = self.trains('dies', 2, job='adopts', name='other')
        self.assertEqual(other.wait(), 1)
        self.assertIn("its workers belong to site 'adopts', not to site 'dies'; give another "
                      '--folder, or the same --site', other.text())
        second = self.trains('adopts', 2, name='second')
        second.wait_for('site adopts starts its workers')
        self.assertEqual(second.carriers(), before)
        pid, = self.texts(1)
        os.kill(pid, signal.SIGKILL)
        second.wait_for('rank 1: the worker, of an earlier gradpool run, has ended; its output: ')
        self.await_text(1, 'carries', second)
        self.assertEqual(len(self.texts(0)), 1)
        self.finish(second)
        self.check_all()

    def test_a_worker_that_died_without_a_pool_is_replaced(self):
        pool = self.trains('dies', 2)
        self.await_steps((0, 1), pool)
        pool.kill()
        pid, = self.texts(1)
        os.kill(pid, signal.SIGKILL)
        self.await_steps((0,), pool)
        second = self.trains('dies', 2, name='second')
        self.await_text(1, 'carries', second)
        pid, = set(self.texts(1)) - {pid}
        os.kill(pid, signal.SIGKILL)
        second.wait_for('rank 1: the worker was ended by signal 9 (Killed); its output: ')
        second.wait_for('rank 1: a new process starts in 1 s')
        self.await_text(1, 'carries', second, count=2)
        self.assertEqual(len(self.texts(1)), 3)
        self.finish(second)
        self.check_all()

    def test_three_failures_end_the_job(self):
        pool = self.pool('fails', 'sh', '-c', 'echo no data; exit 7')
        self.assertEqual(pool.wait(), 7)
        self.assertIn('rank 0: the worker ended with exit code 7; its output: ', pool.text())
        for pause in 1, 2:
            self.assertIn(f'rank 0: a new process starts in {pause} s', pool.text())
        self.assertIn('job fails is over: rank 0 ended with exit code 7, the third failure without '
                      'a step; see the log of that rank', pool.text())
        self.assertEqual(pool.log_of(0).count('no data'), 3)
        self.await_held('fails', 0, pool)
        again = self.pool('fails', 'true', name='again')
        self.assertEqual(again.wait(), 0)

    def test_a_command_that_is_not_found_is_named_and_its_slot_is_free(self):
        pool = self.pool('missing', '/nowhere/train')
        self.assertEqual(pool.wait(), 127)
        self.assertIn("program '/nowhere/train' cannot be executed: No such file or directory; "
                      'give the path of a program (no worker runs)', pool.text())
        self.await_held('missing', 0, pool)

    def test_too_many_workers_are_refused(self):
        pool = self.pool('full', 'true', workers=3, most=3)
        self.assertEqual(pool.wait(), 1)
        self.assertIn('job full is over: job full needs 3 slots, and site full has 2; submit it '
                      'with fewer workers', pool.text())
        pool = self.pool('nowhere', 'true', name='nowhere')
        self.assertEqual(pool.wait(), 1)
        self.assertIn('site nowhere has no slots: ask the operator', pool.text())

    def test_a_job_has_one_pool(self):
        first = self.pool('twice', *SLEEPS)
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        second = self.pool('twice', *SLEEPS, name='second', folder='two')
        self.assertEqual(second.wait(), 1)
        self.assertIn(f'job twice was submitted by the pool on {socket.gethostname()} (pid '
                      f'{first.pid}) already', second.text())
        first.signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 143)
        self.await_held('twice', 0, first)

    def test_a_worker_that_has_to_leave_before_it_has_joined_is_no_failure(self):
        waits = f'while [ $RANK = 2 ] && [ ! -e {self.folder}/go ]; do sleep 0.05; done; exec "$@"'
        pool = self.trains('late', 3, before=('sh', '-c', waits, 'sh'), workers=2)
        until(lambda: self.joined('late') == [0, 1], 'two workers have joined', process=pool)
        other = self.pool('late', *SLEEPS, job='other-late', folder='two', name='other')
        pool.wait_for('rank 2: leaves, because its slot is needed')
        (self.folder / 'go').touch()
        until(lambda: len(sleepers(other.pid)) == 1, 'the other job has a worker', process=other)
        self.await_steps((0, 1), pool)
        self.assertNotIn('a new process starts', pool.text())
        self.assertIn('asked to leave before it has joined', pool.log_of(2))
        self.finish(pool)
        self.check_all()

    def test_a_worker_that_comes_after_the_end_of_the_training_is_ended(self):
        other = self.pool('overdue', *SLEEPS, job='first', folder='two', name='other')
        until(lambda: len(sleepers(other.pid)) == 1, 'the other job has a slot', process=other)
        waits = 'if [ $RANK = 1 ]; then echo late; exec sleep 5000; fi; exec "$@"'
        pool = self.trains('overdue', 2, '--leave-timeout', 1, before=('sh', '-c', waits, 'sh'))
        until(lambda: self.joined('overdue') == [0], 'one worker has joined', process=pool)
        other.signal(signal.SIGINT)
        until(lambda: 'late' in pool.log_of(1), 'the job grows', process=pool)
        self.finish(pool)
        self.assertIn('rank 1: leaves, because its slot is needed', pool.text())
        self.await_held('overdue', 0, pool)
        self.check_all_once()

    def test_ctrl_c_ends_all_workers_and_frees_their_slots(self):
        script = 'trap "echo saved; exit 0" INT; echo ready; while :; do sleep 0.05; done'
        pool = self.pool('stops', 'sh', '-c', script, workers=2, most=2)
        until(lambda: all('ready' in pool.log_of(rank) for rank in range(2)), 'workers are ready',
              process=pool)
        pool.signal(signal.SIGINT)
        self.assertEqual(pool.wait(), 130)
        for rank in range(2):
            self.assertIn('saved', pool.log_of(rank))
        self.assertEqual((self.site('stops')['held'], self.site('stops')['pools']), (0, 0))

    def test_an_earlier_job_of_the_folder_is_ended(self):
        first = self.pool('stops', *SLEEPS, job='first')
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        worker, = sleepers(first.pid)
        first.kill()
        os.kill(worker, signal.SIGKILL)
        until(lambda: not is_alive(worker), 'the worker has ended')
        for job in 'first', 'next':
            pool = self.pool('stops', 'true', job=job, name=job)
            self.assertEqual(pool.wait(), 0, pool.text())
        self.await_held('stops', 0, first)

    def test_a_job_that_waits_is_submitted_again_after_its_pool_was_killed(self):
        first = self.pool('queued', *SLEEPS)
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        for name in 'killed', 'waits':
            pool = self.pool('queued', 'true', job='next', folder='two', name=name)
            pool.wait_for('site queued starts its workers when slots are free')
            self.assertEqual(self.site('queued')['waiting'], 1, pool.text())
            if name == 'killed':
                pool.kill()
        first.signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 143)
        self.assertEqual(pool.wait(), 0, pool.text())
        self.await_held('queued', 0, pool)

    def test_a_new_pool_for_fewer_workers_starts_no_more(self):
        first = self.pool('fewer', *SLEEPS, most=2)
        until(lambda: len(sleepers(first.pid)) == 2, 'the workers run', process=first)
        first.kill()
        for pid, (rank, _) in first.carriers().items():
            if rank == 1:
                os.kill(pid, signal.SIGKILL)
        until(lambda: len(first.carriers()) == 1, 'a worker has ended')
        second = self.pool('fewer', *SLEEPS, name='second')
        second.wait_for('the pool starts no rank 1, because its --workers-max is 1')
        until(lambda: 'starts no rank 1' in self.service.ask('jobs', '--json').stdout,
              'the coordinator has the reason', process=second)
        second.signal(signal.SIGTERM)
        self.assertEqual(second.wait(), 143)
        self.await_held('fewer', 0, second)

    def test_no_command_path_or_variable_crosses_the_network(self):
        relay = Relay(self.service.endpoint)
        for program in ('true', 'a-word'), ('/nowhere/program', 'a-word'):
            pool = self.pool('spied', *program, endpoint=relay.endpoint)
            pool.wait()
        self.assertIn(b'spied', relay.sent)
        for word in ('a-word', 'true', 'nowhere', str(self.folder), os.environ['PATH'], 'SECRET',
                     'rank-0.log'):
            self.assertNotIn(word.encode(), relay.sent)

    def test_the_site_of_a_host_has_its_name(self):
        pool = self.pool(None, *SLEEPS, job='here')
        until(lambda: len(sleepers(pool.pid)) == 1, 'the worker runs', process=pool)
        worker, = sleepers(pool.pid)
        variables = pathlib.Path(f'/proc/{worker}/environ').read_text()
        self.assertTrue(re.search(r'\0GRADPOOL_INCARNATION=\d+\0', variables))
        self.assertEqual(self.site(socket.gethostname())['held'], 1)
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)


class Restarts(SitePools):
    """Cases that end the service."""
    options = 'here=3'

    def setUp(self):
        super().setUp()
        self.service = self.begin_service()
        self.addCleanup(self.service.end)

    def test_a_restart_of_the_coordinator_starts_nothing_twice(self):
        pool = self.trains('here', 3)
        self.await_steps(range(3), pool)
        before = pool.carriers()
        self.service.serve.kill()
        pool.wait_for('; its workers train on')
        self.assertIn('job here: no orders: ', pool.text())
        self.await_steps(range(3), pool)
        self.service.start('again')
        pool.wait_for('job here: orders arrive again')
        self.await_steps(range(3), pool)
        self.assertEqual(pool.carriers(), before)
        pid, = self.texts(2)
        os.kill(pid, signal.SIGKILL)
        self.await_text(2, 'carries', pool)
        self.assertEqual([len(self.texts(rank)) for rank in range(3)], [1, 1, 2])
        self.finish(pool)
        self.check_all()

    def test_the_end_of_a_worker_is_reported_after_the_restart(self):
        pool = self.trains('here', 2)
        self.await_steps((0, 1), pool)
        self.service.serve.kill()
        pid, = self.texts(1)
        os.kill(pid, signal.SIGKILL)
        pool.wait_for('rank 1: the worker was ended by signal 9 (Killed)')
        self.service.start('again')
        self.await_text(1, 'carries', pool)
        self.finish(pool)
        self.check_all()

    def test_workers_that_the_service_does_not_know_are_ended(self):
        pool = self.pool('here', *SLEEPS)
        until(lambda: len(sleepers(pool.pid)) == 1, 'the worker runs', process=pool)
        self.service.serve.kill()
        # aggregators of the lost state wait for their coordinator, and the new one knows none
        harness.kill_all(self.service.local_aggregators())
        self.service.state = self.service.folder / 'other-state'
        self.service.start('again')
        self.assertEqual(pool.wait(), 1)
        self.assertIn('job here is over: the service does not know the job any more, because all '
                      'its workers have left, or because the state of the service was lost',
                      pool.text())
        self.assertEqual(pool.carriers(), {})

    def test_a_signal_ends_a_pool_whose_service_does_not_answer(self):
        pool = self.pool('here', *SLEEPS)
        until(lambda: len(sleepers(pool.pid)) == 1, 'the worker runs', process=pool)
        self.service.serve.signal(signal.SIGSTOP)
        pool.signal(signal.SIGTERM)
        until(lambda: pool.carriers() == {}, 'the worker has ended', process=pool)
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)
        self.service.serve.signal(signal.SIGCONT)

    def test_a_site_without_slots_leaves_the_number_of_workers_to_the_pool(self):
        pool = self.pool(None, *SLEEPS, job='plain')
        until(lambda: len(sleepers(pool.pid)) == 1, 'the worker runs', process=pool)
        worker, = sleepers(pool.pid)
        variables = pathlib.Path(f'/proc/{worker}/environ').read_text()
        self.assertNotIn('GRADPOOL_INCARNATION', variables)
        pool.signal(signal.SIGTERM)
        self.assertEqual(pool.wait(), 143)


if __name__ == '__main__':
    tap.main()
