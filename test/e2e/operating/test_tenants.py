"""Tests tenants and their keys with real processes: accepted workers, refused workers with their
reasons, and the effect of a revoke."""
import contextlib
import os
import socket
import ssl
import textwrap
import threading
import time
import unittest

import harness
import progress
import tap
from harness import (BENCH, BUILD, GRADPOOL, WAIT_S, Process, Service, finish_training, result,
                     until)

FOREIGN = {'GRADPOOL_KEY': 'acme:' + '5a' * 32}
REFUSED = 'the key of tenant acme was refused'


def run(*command, environment=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith('GRADPOOL_')}
    return harness.run([str(c) for c in command], capture_output=True, text=True,
                       timeout=WAIT_S, check=False, env={**clean, **(environment or {})})


def status(endpoint, environment=None):
    return run(GRADPOOL, 'status', '--endpoint', endpoint, environment=environment)


class Keys(unittest.TestCase):
    """Starts a service that requires a key on every TCP connection."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service('--require-tls', aggregators=1)
        cls.acme = cls.service.tenant_key('acme')
        cls.other = cls.service.tenant_key('other')
        cls.port = int(cls.service.endpoint.rsplit(':', 1)[1])

    @classmethod
    def tearDownClass(cls):
        cls.service.end()

    def expect_refused(self, answer, words, logged):
        self.assertEqual(answer.returncode, 1)
        self.assertIn(words, answer.stderr)
        self.expect_logged(logged)

    def expect_logged(self, words):
        """Waits for a log line with these words and the peer's address."""
        until(lambda: words in self.service.serve.text(), f'{words!r} is logged',
              process=self.service.serve)
        lines = [line for line in self.service.serve.text().splitlines() if words in line]
        self.assertRegex(lines[-1], r'127\.0\.0\.1:\d+: ')

    def dial(self):
        link = socket.create_connection(('127.0.0.1', self.port), WAIT_S)
        self.addCleanup(link.close)
        return link

    def test_with_its_key_a_job_trains_and_is_shown_with_its_tenant(self):
        workers = self.service.workers('train', 2, '--rounds', '1000000', '--compute-ms', '3',
                                       '--verbose', environment=self.acme)
        until(lambda: (self.service.job('train') or {}).get('tenant') == 'acme',
              'the job is shown', process=workers[0])
        finish_training(*workers)

    def test_two_tenants_train_jobs_of_one_name_at_once(self):
        workers = [self.service.worker('same', rank, 2, '--rounds', '50', '--seed', seed,
                                       environment=key, name=f'same-{seed}.{rank}')
                   for seed, key in ((1, self.acme), (2, self.other)) for rank in range(2)]
        for worker in workers:
            self.assertEqual(result(worker)['wrong'], 0)

    def test_without_a_key_status_and_jobs_are_refused_with_the_next_step(self):
        words = 'this endpoint needs a key: set GRADPOOL_KEY_FILE'
        self.expect_refused(status(self.service.endpoint), words, 'request refused: ' + words)
        worker = self.service.worker('keyless', 0, 1)
        self.assertNotEqual(worker.wait(), 0)
        self.assertIn(words, worker.text())

    def test_a_foreign_key_is_refused_at_both_ends(self):
        logged = 'connection refused: the key is not that of tenant acme'
        self.expect_refused(status(self.service.endpoint, FOREIGN), REFUSED, logged)
        worker = self.service.worker('foreign', 0, 1, environment=FOREIGN)
        self.assertNotEqual(worker.wait(), 0)
        self.assertIn(f'the coordinator at {self.service.endpoint}: {REFUSED}', worker.text())

    def test_a_revoked_key_is_refused_at_both_ends(self):
        late = self.service.tenant_key('late')
        self.assertIn(status(self.service.endpoint, late).returncode, (0, 3))
        revoked = self.service.tenant('revoke', 'late')
        self.assertEqual((revoked.returncode, revoked.stdout),
                         (0, 'tenant late: its key is refused from now on, and its jobs have '
                             'failed\n'))
        self.expect_refused(status(self.service.endpoint, late), 'the key of tenant late was',
                            'refused: tenant late was revoked')

    def test_a_tenant_s_key_adds_no_aggregator(self):
        answer = run(GRADPOOL, 'aggregator', '--join', f'127.0.0.1:{self.port}', '--cores', '0',
                     environment=self.acme)
        self.expect_refused(answer, '--operator', 'refused: an aggregator sees')

    def test_a_key_file_that_others_can_read_is_not_used(self):
        path = self.acme['GRADPOOL_KEY_FILE']
        os.chmod(path, 0o644)
        try:
            answer = status(self.service.endpoint, self.acme)
        finally:
            os.chmod(path, 0o600)
        self.assertEqual(answer.returncode, 1)
        self.assertIn('chmod 600', answer.stderr)

    def test_tls_without_a_key_is_refused(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with self.assertRaises(ssl.SSLError):
            context.wrap_socket(self.dial())
        self.expect_logged('refused: the peer speaks TLS, but has no key')

    def test_garbage_is_closed_at_once_and_logged(self):
        link = self.dial()
        link.sendall(b'GET / HTTP/1.1\r\n\r\n')
        self.assertEqual(link.recv(100), b'')
        self.expect_logged('not a gradpool endpoint? first bytes 47 45 54')
        link = self.dial()
        link.sendall(b'\x16\x03\x01\x00\x05nonsense')
        with contextlib.suppress(ConnectionResetError):
            while link.recv(100):
                pass
        self.expect_logged('the TLS handshake failed')

    def test_silent_and_half_open_peers_delay_no_other_peer_and_are_closed(self):
        links = [self.dial() for _ in range(100)]
        for link in links[::2]:
            link.sendall(b'\x16\x03\x01\x01\x40\x01')
        watch = progress.Stopwatch()
        self.assertEqual(status(self.service.endpoint, self.acme).returncode, 0)
        self.assertLess(watch.seconds(), 3)
        for link in links:
            self.assertEqual(link.recv(10), b'')

    def test_keys_are_listed_without_their_secrets(self):
        secret = open(self.acme['GRADPOOL_KEY_FILE'], encoding='ascii').read().split(':')[1].strip()
        for option in ((), ('--json',)):
            answer = self.service.tenant('list', *option)
            self.assertEqual(answer.returncode, 0)
            self.assertIn('acme', answer.stdout)
            self.assertNotIn(secret, answer.stdout)
        self.assertNotIn(secret, self.service.serve.text())

    def test_mistakes_have_messages_and_exit_codes(self):
        for command, code, words in ((('add', 'acme'), 1, 'gradpool tenant revoke acme'),
                                     (('add', 'a b'), 1, 'letters, digits'),
                                     (('revoke', 'nobody'), 1, 'there is no tenant nobody'),
                                     ((), 2, 'add, set, list or revoke'), (('add',), 2, 'NAME'),
                                     (('list', 'x'), 2, 'one argument too many'),
                                     (('make', 'x'), 2, "'make'")):
            answer = self.service.tenant(*command)
            self.assertEqual(answer.returncode, code, command)
            self.assertIn(words, answer.stderr)
        answer = run(GRADPOOL, 'tenant', 'list', '--state-dir', '/nowhere')
        self.assertEqual(answer.returncode, 3)
        self.assertIn('/nowhere/control.sock', answer.stderr)

    def test_a_forked_child_of_a_python_that_uses_ssl_itself_changes_nothing(self):
        script = textwrap.dedent('''
            import os, ssl, numpy
            ssl.create_default_context()
            import gradpool
            job = gradpool.connect().join('forked', 0, 1)
            values = numpy.ones(1000, numpy.float32)
            for name in ('before', 'after'):
                tensor = job.declare(name, 1000)
                job.push_pull(tensor, values).wait()
                child = os.fork()
                if child == 0:
                    ssl.create_default_context()
                    raise SystemExit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            print('sound')
        ''')
        answer = run('/usr/bin/python3', '-c', script, environment={
            **self.acme, 'GRADPOOL_ENDPOINT': self.service.endpoint,
            'GRADPOOL_LIBRARY': str(BUILD / 'client' / 'libgradpool.so')})
        self.assertEqual((answer.stdout, answer.returncode), ('sound\n', 0), answer.stderr)


class Revoke(unittest.TestCase):
    """Revokes a tenant in each case."""

    def setUp(self):
        self.service = Service('--require-tls', aggregators=1)
        self.addCleanup(self.service.end)

    def test_a_revoke_fails_the_tenant_s_jobs_with_the_reason_and_no_others(self):
        acme, other = (self.service.tenant_key(name) for name in ('acme', 'other'))
        doomed = self.service.workers('job', 2, '--rounds', '1000000', '--verbose',
                                      '--compute-ms', '1', environment=acme)
        safe = [self.service.worker('job', rank, 2, '--rounds', '400', '--compute-ms', '3',
                                    environment=other, name=f'safe.{rank}') for rank in range(2)]
        doomed[0].wait_for('round 20\n')
        self.assertEqual(self.service.tenant('revoke', 'acme').returncode, 0)
        for worker in doomed:
            self.assertNotEqual(worker.wait(), 0)
            self.assertIn('the key of tenant acme was revoked', worker.text())
        for worker in safe:
            self.assertEqual(result(worker)['wrong'], 0)
        until(lambda: self.service.job('job') is None, 'both jobs are over',
              process=self.service.serve)


class Crowd(unittest.TestCase):
    """Opens more connections than allowed. None of them joins a job."""

    def test_idle_connections_are_closed_one_by_one_without_effect_on_a_job(self):
        service = Service('--idle-connections-max', '20', aggregators=1)
        self.addCleanup(service.end)
        port = int(service.endpoint.rsplit(':', 1)[1])
        workers = service.workers('train', 2, '--rounds', '1000000', '--compute-ms', '3',
                                  '--verbose')
        for worker in workers:  # until a worker has joined, its connection may be closed, too
            worker.wait_for('round ')
        links = []

        def come():
            links.append(socket.create_connection(('127.0.0.1', port), WAIT_S))
            return 'like it before' in service.serve.text()

        started = time.monotonic()
        until(come, 'those that are silent longest go', process=service.serve)
        self.assertIn('--idle-connections-max', service.serve.text())
        lines = [line for line in service.serve.text().splitlines() if 'belong to no job' in line]
        self.assertLessEqual(len(lines), 1 + time.monotonic() - started)
        self.assertIn(status(f'unix:{service.state}/control.sock').returncode, (0, 3))
        finish_training(*workers)
        for link in links:
            link.close()


class Aggregators(unittest.TestCase):
    """A service with aggregators connected over TLS."""

    def setUp(self):
        # on a busy host an aggregator can pause for longer than the default timeout
        self.service = Service('--require-tls', '--aggregator-timeout', '30', aggregators=0)
        self.addCleanup(self.service.end)
        self.acme = self.service.tenant_key('acme')
        operator = self.service.tenant_key('node8', '--operator')
        self.aggregator = Process([GRADPOOL, 'aggregator', '--join', self.service.endpoint,
                                   '--cores', '0'], self.service.folder, 'aggregator', operator)
        self.service.children.append(self.aggregator)
        self.aggregator.wait_for('joined as aggregator 1')
        self.service.joined = 1

    def test_an_aggregator_with_an_operator_s_key_outlives_the_coordinator(self):
        workers = self.service.workers('long', 2, '--rounds', '1000000', '--verbose',
                                       '--compute-ms', '1', environment=self.acme)
        workers[0].wait_for('round 50\n')
        self.service.serve.kill()
        self.service.start('serve-again')
        self.aggregator.wait_for('joined again, as aggregator 1')
        finish_training(*workers)
        self.assertIsNone(self.aggregator.child.poll())

    def test_an_aggregator_whose_key_is_revoked_ends(self):
        self.assertEqual(self.service.tenant('revoke', 'node8').returncode, 0)
        self.aggregator.wait_for('this aggregator ends: ')
        self.assertIn('was refused', self.aggregator.text())
        self.aggregator.wait()


class OtherEnds(unittest.TestCase):
    """Connects a client with a key to a server without keys."""

    def serve_once(self, answer):
        """Returns the endpoint of a server that ignores its first peer's request and sends this
        answer."""
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)

        def serve():
            link, _ = listener.accept()
            with link:
                link.recv(4096)
                link.sendall(answer)
                while link.recv(4096):
                    pass
        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        return f'gradpool://127.0.0.1:{listener.getsockname()[1]}'

    def test_a_server_without_tls_is_named(self):
        for answer in (b'HTTP/1.1 400 Bad Request\r\n\r\n', b'\x0a\0\0\0\x08\x01\x12\x06nonono'):
            said = status(self.serve_once(answer), FOREIGN)
            self.assertEqual(said.returncode, 1)
            self.assertIn('the TLS handshake failed', said.stderr)

    def test_a_connection_that_ends_in_the_greeting_names_the_service(self):
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)
        thread = threading.Thread(target=lambda: listener.accept()[0].close())
        thread.start()
        self.addCleanup(thread.join)
        endpoint = f'gradpool://127.0.0.1:{listener.getsockname()[1]}'
        said = status(endpoint)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn(f'the service at {endpoint}: ', said.stderr)

    def test_a_silent_server_is_given_up_at_the_deadline(self):
        endpoint = self.serve_once(b'')
        watch = progress.Stopwatch()
        said = run(BENCH, 'push', '--endpoint', endpoint, '--workers', '1', '--rank', '0',
                   environment={**FOREIGN, 'GRADPOOL_CONNECT_TIMEOUT_MS': '500'})
        self.assertLess(watch.seconds(), 5)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn('has not answered within the deadline', said.stderr + said.stdout)

    def test_plain_connections_from_this_host_are_accepted_beside_keys_by_default(self):
        service = Service(aggregators=1)
        self.addCleanup(service.end)
        acme = service.tenant_key('acme')
        self.assertEqual(status(service.endpoint).returncode, 0)
        self.assertEqual(status(service.endpoint, acme).returncode, 0)
        answer = run(GRADPOOL, 'serve', '--state-dir', service.folder / 'other', '--insecure',
                     '--require-tls')
        self.assertEqual(answer.returncode, 2)
        self.assertIn('contradict', answer.stderr)


if __name__ == '__main__':
    tap.main()
