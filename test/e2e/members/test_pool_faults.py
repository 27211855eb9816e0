"""Tests gradpool run --workers-max when a key is wrong, a connection or an order is lost, the
service does not answer, a second pool has the same job, or a pool is missing for a minute."""
import contextlib
import os
import pathlib
import signal
import socket
import threading

import harness
import tap
import test_pool
import test_site_pool
from harness import Service, until
from test_pool import is_alive, sleepers
from test_site_pool import SLEEPS

HOST = socket.gethostname()
# joins, waits for the file `go`, and its first process ends as the first argument says
SCRIPT = """
import os, pathlib, sys, time
import gradpool

def train(client):
    client.join(workers_max=int(os.environ['GRADPOOL_WORKERS_MAX']), on_worker_loss='continue')
    print('trains', flush=True)
    while not (folder / 'go').exists():
        time.sleep(0.05)
    is_first = not (folder / 'second').exists()
    (folder / 'second').touch()
    if is_first and how == 'exits':
        sys.exit(1)
    if is_first and how != 'well':
        raise ValueError(how)

how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if how == 'raises-without-block':
    client = gradpool.connect()
    train(client)
else:
    with gradpool.connect() as client:
        train(client)
"""


class LossyRelay(test_site_pool.Relay):
    """Forwards connections. `mutes`: nothing reaches the pool. A connection whose pool has ended
    stays open at the service until `frees` is set."""

    def __init__(self, endpoint):
        self.mutes, self.frees = False, threading.Event()
        super().__init__(endpoint)

    def run(self):
        while True:
            client = self.door.accept()[0]
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for source, to, is_pool in (client, server, True), (server, client, False):
                threading.Thread(target=self.forward, args=(source, to, is_pool),
                                 daemon=True).start()

    def forward(self, source, to, keeps):
        while True:
            try:
                data = source.recv(65536)
                if keeps or not self.mutes:
                    to.sendall(data)
            except OSError:
                data = b''
            if data:
                continue
            if keeps:
                self.frees.wait()
            for end in source, to:      # the other thread may wait in recv()
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            return


class Lost(test_site_pool.SitePools):
    """A service with one slot, and without slots for this host."""
    options = 'here=1'

    def setUp(self):
        super().setUp()
        self.service = self.begin_service()
        self.addCleanup(self.service.end)
        self.relay = LossyRelay(self.service.endpoint)
        self.addCleanup(self.relay.frees.set)

    def begin(self):
        """Starts a pool through the relay, and kills the pool and its worker."""
        first = self.pool('here', *SLEEPS, endpoint=self.relay.endpoint)
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        worker, = sleepers(first.pid)
        first.kill()
        os.kill(worker, signal.SIGKILL)
        until(lambda: not is_alive(worker), 'the worker has ended')
        return first

    def test_a_pool_that_starts_again_at_once_awaits_its_former_connection(self):
        first = self.begin()
        second = self.pool('here', *SLEEPS, name='second')
        second.wait_for(f'job here: no orders: the pool on {HOST} (pid {first.pid}) runs in this '
                        'folder already; stop that one, or start this pool in another folder; the '
                        'pool tries again')
        self.relay.frees.set()
        second.wait_for('job here: site here starts its workers when slots are free')
        until(lambda: len(sleepers(second.pid)) == 1, 'the worker runs', process=second)
        second.signal(signal.SIGTERM)
        self.assertEqual(second.wait(), 143)

    def test_a_former_connection_that_stays_ends_the_pool(self):
        first = self.begin()
        second = self.pool('here', 'true', name='second')
        self.assertEqual(second.wait(), 1)
        self.assertIn(f'job here is over: the pool on {HOST} (pid {first.pid}) runs in this folder '
                      'already', second.text())

    def test_a_training_whose_last_order_was_lost_is_complete(self):
        script = f'while [ ! -e {self.folder}/go ]; do sleep 0.05; done'
        pool = self.pool('here', 'sh', '-c', script, endpoint=self.relay.endpoint)
        self.relay.frees.set()
        until(lambda: len(pool.carriers()) >= 1, 'the worker runs', process=pool)
        self.await_held('here', 1, pool)    # the report of the start needs an answer
        self.relay.mutes = True
        (self.folder / 'go').touch()
        until(lambda: 'job here of the pool on' in self.service.serve.text(), 'the job is over',
              process=self.service.serve)
        self.service.serve.kill()
        self.relay.mutes = False
        self.service.start('again')
        self.assertEqual(pool.wait(), 0, pool.text())
        self.assertNotIn('is over', pool.text())


class Adopted(test_site_pool.SitePools):
    """The pool cannot read the exit code of a worker that an earlier pool has started."""
    options = 'here=1'

    @classmethod
    def setUpClass(cls):
        cls.service = cls.begin_service()
        cls.addClassCleanup(cls.service.end)

    def check(self, how):
        """Ends an adopted worker. Returns the output of its pool after the end of the job."""
        folder = self.folder / how
        folder.mkdir()
        words = '/usr/bin/python3', '-c', SCRIPT, how, folder
        first = self.pool('here', *words, job=how, folder=how)
        until(lambda: 'trains' in first.log_of(0), 'the worker has joined', process=first)
        first.kill()
        second = self.pool('here', *words, job=how, folder=how, name='second')
        second.wait_for('site here starts its workers')
        (folder / 'go').touch()
        self.assertEqual(second.wait(), 0, second.text())
        return second.text()

    def test_a_script_that_ends_with_an_error_has_not_trained(self):
        for how in 'raises', 'exits', 'raises-without-block':
            self.assertIn('rank 0: a new process starts', self.check(how))

    def test_a_script_that_ends_without_an_error_has_trained(self):
        self.assertNotIn('a new process starts', self.check('well'))


class Keys(test_site_pool.SitePools):
    options = 'here=1'

    @classmethod
    def setUpClass(cls):
        cls.service = cls.begin_service()
        cls.addClassCleanup(cls.service.end)

    def keyed(self, key, *words, name='pool', job='here'):
        place = self.folder / name
        place.mkdir()
        pool = test_pool.Pool(place, '--job', job, '--workers-max', 2, '--endpoint',
                              self.service.endpoint, *words, name=name, environment=key)
        self.addCleanup(pool.end)
        return pool

    def mistyped(self, key):
        right = pathlib.Path(key['GRADPOOL_KEY_FILE']).read_text().strip()
        wrong = self.folder / 'wrong.key'
        wrong.touch(mode=0o600)
        wrong.write_text(right[:-4] + ('aaaa' if right[-4:] != 'aaaa' else 'bbbb') + '\n')
        return {'GRADPOOL_KEY_FILE': str(wrong)}

    def test_a_wrong_key_ends_the_pool_at_once(self):
        wrong = self.mistyped(self.service.tenant_key('typist'))
        for words, begins in (('--site', 'here'), 'job here is over: '), ((), 'gradpool run: '):
            where = self.service.endpoint.removeprefix('gradpool://')
            pool = self.keyed(wrong, *words, *SLEEPS, name=f'pool{len(words)}')
            self.assertEqual(pool.wait(), 1)
            self.assertRegex(pool.text(), f'{begins}({where}: )?the key of tenant typist was '
                             'refused: the key is mistyped, was revoked, or is for another service')
            self.assertEqual(pool.text().count('was refused'), 1)
            self.assertEqual(pool.log_of(0), '')
        wrong['GRADPOOL_KEY_FILE'] = '/nowhere/key'
        pool = self.keyed(wrong, '--site', 'here', *SLEEPS, name='missing')
        self.assertEqual(pool.wait(), 1)
        self.assertIn('GRADPOOL_KEY_FILE', pool.text())

    def test_a_revoked_key_ends_the_pool_and_its_job(self):
        key = self.service.tenant_key('leaver')
        pool = self.keyed(key, '--site', 'here', *SLEEPS)
        until(lambda: len(sleepers(pool.pid)) == 1, 'the worker runs', process=pool)
        waits = self.keyed(key, '--site', 'here', 'true', name='waits', job='next')
        waits.wait_for('starts its workers when slots are free')
        self.assertEqual(self.service.tenant('revoke', 'leaver').returncode, 0)
        for each in pool, waits:
            self.assertEqual(each.wait(), 1)
            self.assertIn('is over: the key of tenant leaver was revoked; ask the operator for a '
                          'new one', each.text())
        self.assertEqual((self.site('here')['held'], self.site('here')['waiting']), (0, 0))


class Unanswered(test_pool.Scripts):
    """A service that accepts connections, and never answers."""

    def test_a_pool_says_what_it_awaits(self):
        with socket.create_server(('127.0.0.1', 0)) as silent:
            endpoint = f'gradpool://127.0.0.1:{silent.getsockname()[1]}'
            pool = test_pool.Pool(self.folder, '--workers-max', 2, '--endpoint', endpoint, 'true')
            self.addCleanup(pool.end)
            pool.wait_for(f'the service at {endpoint} is asked for slots, for 10 s at most')
            site = test_pool.Pool(self.folder, '--workers-max', 2, '--job', 'a', '--site', 'here',
                                  '--folder', f'{self.folder}/site', '--endpoint', endpoint,
                                  'true', name='site')
            self.addCleanup(site.end)
            site.wait_for(f'job a: the service at {endpoint} is asked for slots of site here')


for name in [name for name in dir(test_pool.Scripts) if name.startswith('test_')]:
    setattr(Unanswered, name, None)     # these cases belong to test_pool.py


class Second(test_site_pool.SitePools):
    """A service without slots for this host."""
    options = 'elsewhere=1'

    def setUp(self):
        super().setUp()
        self.service = self.begin_service()
        self.addCleanup(self.service.end)

    def test_a_second_pool_of_a_job_is_refused(self):
        first = self.pool(None, *SLEEPS, job='deal')
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        second = self.pool(None, *SLEEPS, job='deal', name='second', folder='two')
        self.assertEqual(second.wait(), 1)
        self.assertIn(f'job deal has a pool already, on {HOST} (pid {first.pid}); end that pool, '
                      'or give this job another name', second.text())
        self.assertEqual(second.log_of(0), '')
        third = self.pool('elsewhere', *SLEEPS, job='deal', name='third', folder='three')
        self.assertEqual(third.wait(), 1)
        self.assertIn('job deal has a pool already', third.text())
        first.signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 143)
        after = self.pool(None, 'true', job='deal', name='after', folder='two')
        self.assertEqual(after.wait(), 0, after.text())

    def test_a_second_pool_that_the_service_detects_late_ends_its_workers(self):
        first = self.pool(None, *SLEEPS, job='deal')
        until(lambda: len(sleepers(first.pid)) == 1, 'the worker runs', process=first)
        relay = LossyRelay(self.service.endpoint)
        relay.frees.set()
        relay.mutes = True
        second = self.pool(None, *SLEEPS, job='deal', name='second', folder='two',
                           endpoint=relay.endpoint)
        until(lambda: len(sleepers(second.pid)) == 1, 'the worker runs', process=second)
        relay.mutes = False
        self.assertEqual(second.wait(), 1)
        self.assertIn(f'job deal has a pool already, on {HOST} (pid {first.pid})', second.text())
        self.assertEqual(second.carriers(), {})


class Missing(test_site_pool.SitePools):
    options = 'here=3'

    def setUp(self):
        super().setUp()
        self.service = self.begin_service()
        self.addCleanup(self.service.end)

    def await_missing(self, *pools):
        for pool in pools:
            self.service.serve.wait_for(f'the pool on {HOST} (pid {pool.pid}) has been gone for '
                                        '60 s: its jobs train on at their size', 120)

    def test_jobs_train_on_at_their_size_without_a_pool(self):
        other = self.pool('here', *SLEEPS, job='other', folder='two', name='other')
        until(lambda: len(sleepers(other.pid)) == 1, 'the other worker runs', process=other)
        pool = self.trains('here', 3)
        self.await_steps((0, 1), pool)
        queued = self.pool('here', *SLEEPS, workers=3, most=3, job='queued', folder='three',
                           name='queued')
        queued.wait_for('starts its workers when slots are free')
        before = pool.carriers()
        pool.kill()
        queued.kill()
        self.await_missing(pool, queued)
        other.signal(signal.SIGTERM)
        self.assertEqual(other.wait(), 143)
        self.await_held('here', 2, other)   # nobody gets the free slot
        self.await_steps((0, 1), self.service.serve)
        self.assertEqual(pool.carriers(), before)
        new = self.pool('here', *SLEEPS, job='new', folder='four', name='new')
        until(lambda: len(sleepers(new.pid)) == 1, 'a new job is not delayed', process=new)
        self.assertEqual(self.site('here')['waiting'], 1)
        new.signal(signal.SIGTERM)
        self.assertEqual(new.wait(), 143)
        second = self.trains('here', 3, name='second')
        self.await_text(2, 'carries', second)
        self.assertEqual({pid: worker for pid, worker in second.carriers().items()
                          if worker[0] < 2}, before)
        self.finish(second)
        again = self.pool('here', *SLEEPS, workers=3, most=3, job='queued', folder='three',
                          name='again')
        until(lambda: len(sleepers(again.pid)) == 3, 'the queued job starts', process=again)
        again.signal(signal.SIGTERM)
        self.assertEqual(again.wait(), 143)
        self.check_all_once()


if __name__ == '__main__':
    tap.main()
