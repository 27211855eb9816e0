"""Tests which requests of operators the service accepts: over its Unix socket or with an
operator's key, but not over loopback without a key. Also tests which parts of the service users
without a key and tenants can read."""
import contextlib
import grp
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

import harness
import tap
from harness import GRADPOOL, Process, Service, finish_training, until

NOBODY = 65534
OPERATORS_ONLY = 'is for operators: it needs the Unix socket of the service'


def loopback(service, *command, environment=None, **options):
    """Runs a command over TCP on this host. Without a key in `environment` the command has none."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith('GRADPOOL_')}
    return harness.run([GRADPOOL, *command, '--endpoint', service.endpoint], capture_output=True,
                       text=True, env={**clean, **(environment or {})}, **options)


@unittest.skipUnless(os.geteuid() == 0, 'only root can be another user')
class Stranger(unittest.TestCase):
    """Tests the ways into the service for a user of the host without a key."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(aggregators=1)
        # the other user must be able to read this copy of the program
        cls.program = cls.service.folder / 'gradpool'
        shutil.copy(GRADPOOL, cls.program)
        for path in cls.program, cls.service.folder:
            path.chmod(0o755)

    @classmethod
    def tearDownClass(cls):
        cls.service.end()

    def run_as_nobody(self, *command, **options):
        return harness.run([self.program, *command], capture_output=True, text=True, user=NOBODY,
                           group=NOBODY, extra_groups=[], cwd='/', **options)

    def ask(self, *command):
        return self.run_as_nobody(*command, '--endpoint', self.service.endpoint)

    def test_a_stranger_neither_moves_nor_drains_and_gets_advice(self):
        for order in ('drain', 'aggregator', '1'), ('drain', 'lane', '1', '--undo'), \
                ('move', 'job', '1'), ('report',):
            answer = self.ask(*order)
            self.assertEqual(answer.returncode, 1, order)
            self.assertIn(OPERATORS_ONLY, answer.stderr)
        lanes = self.service.status()['aggregators'][0]['lanes']
        self.assertEqual({lane['state'] for lane in lanes} & {'withheld'}, set())

    def test_a_stranger_cannot_connect_to_the_socket(self):
        answer = self.run_as_nobody('tenant', 'add', 'more', '--state-dir', self.service.state)
        self.assertEqual(answer.returncode, 3)
        self.assertIn('Permission denied', answer.stderr)
        mode = (self.service.state / 'control.sock').stat().st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o660)

    def test_a_stranger_adds_no_aggregator(self):
        where = self.service.endpoint.removeprefix('gradpool://')
        answer = self.run_as_nobody('aggregator', '--join', where, '--cores', '0')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('--join STATE_DIR/control.sock', answer.stderr)
        self.assertEqual(len(self.service.pids()), 1)

    def test_a_stranger_sees_only_whether_the_service_is_up(self):
        shown = json.loads(self.ask('status', '--json').stdout)
        self.assertTrue(shown['own_only'])
        self.assertEqual(shown['aggregators'], [])
        for name in 'pid', 'state_dir', 'policy', 'cpu_ns':
            self.assertNotIn(name, shown)


class Doors(unittest.TestCase):
    def setUp(self):
        self.ends = contextlib.ExitStack()
        self.addCleanup(self.ends.close)

    def service(self, *options, **keywords):
        service = Service(*options, **keywords)
        self.ends.callback(service.end)
        return service

    def test_the_user_of_the_service_needs_no_key_also_by_its_tcp_address(self):
        service, other = self.service(aggregators=1), self.service(aggregators=1)
        # the default socket belongs to another service
        elsewhere = {'GRADPOOL_STATE_DIR': str(other.state)}
        said = []

        def says(words, *command):
            answer = loopback(service, *command, environment=environment)
            said.append(answer.stdout + answer.stderr)
            return said[-1] == words
        for environment in {}, elsewhere:
            # a command does not wait longer than a second for a service that does not run
            until(lambda: says('no task is there: nothing has moved\n', 'drain', 'lane', '1'),
                  lambda: f'drained: {said}', process=service.serve)
            until(lambda: says('1 lane is back in use\n', 'drain', 'lane', '1', '--undo'),
                  lambda: f'back: {said}', process=service.serve)
        self.assertNotIn('drained', other.serve.text())

    def test_the_socket_is_used_first_if_tcp_needs_a_key(self):
        service = self.service('--require-tls', aggregators=1)
        known = {'GRADPOOL_STATE_DIR': str(service.state)}
        until(lambda: loopback(service, 'status', environment=known).returncode == 0,
              'the socket lets the user in', process=service.serve)
        answer = loopback(service, 'status')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('needs a key', answer.stderr)

    def test_a_tenant_s_status_shows_its_own_jobs_only(self):
        service = self.service(aggregators=1)
        key = service.tenant_key('acme')
        worker = service.worker('own', 0, 1, '--rounds', '1000000', '--verbose', environment=key)
        worker.wait_for('round ')
        answer = loopback(service, 'status', environment=key)
        self.assertEqual(answer.returncode, 0)
        self.assertIn('of this tenant (operators see all): 1 job, ', answer.stdout)
        self.assertNotIn(str(service.state), answer.stdout)
        for pid in service.serve.pid, *service.pids():
            # the same digits may occur in a port or a figure
            self.assertNotRegex(answer.stdout, rf'(?<!\d){pid}(?!\d)')
        self.assertEqual(loopback(service, 'status', environment=service.tenant_key('other'))
                         .returncode, 0)
        answer = loopback(service, 'drain', 'lane', '1', environment=key)
        self.assertIn(OPERATORS_ONLY, answer.stderr)
        answer = loopback(service, 'drain', 'lane', '1', '--undo', environment=service.operator())
        self.assertEqual((answer.stdout, answer.returncode), ('no lane there was drained\n', 0))
        finish_training(worker)

    def test_after_the_first_tenant_new_jobs_need_a_key_and_old_jobs_continue(self):
        service = self.service(aggregators=1)
        old = service.worker('old', 0, 1, '--rounds', '1000000', '--compute-ms', '3', '--verbose',
                             environment={'GRADPOOL_LOG_LEVEL': 'info'})
        old.wait_for('round ')
        key = service.tenant_key('acme')
        new = service.worker('new', 0, 1)
        self.assertNotEqual(new.wait(), 0)
        self.assertIn('set GRADPOOL_KEY_FILE', new.text())
        harness.result(service.worker('new', 0, 1, '--rounds', '3', name='keyed', environment=key))
        service.serve.kill()
        service.start('serve-again')
        old.wait_for('; training continues, and this worker connects again')
        old.wait_for('this worker is connected to the coordinator at ')
        finish_training(old)

    @unittest.skipUnless(os.geteuid() == 0, 'only root can be another user')
    def test_members_of_the_group_of_operators_give_orders(self):
        group = grp.getgrgid(NOBODY).gr_name
        service = self.service('--operators', group, aggregators=1)
        program = service.folder / 'gradpool'
        shutil.copy(GRADPOOL, program)
        for path in program, service.folder:
            path.chmod(0o755)
        self.assertEqual(stat.S_IMODE(service.state.stat().st_mode), 0o710)
        for name in 'state.db', 'lock':
            self.assertEqual((service.state / name).stat().st_mode & 0o077, 0, name)
        for groups, code in (([NOBODY], 0), ([], 1)):
            answer = harness.run([program, 'drain', 'lane', '1', '--endpoint', service.endpoint],
                                 capture_output=True, text=True, user=NOBODY, group=1,
                                 extra_groups=groups, cwd='/')
            self.assertEqual(answer.returncode, code, answer.stderr)

    def test_processes_with_keys_gain_no_privileges_and_hide_their_memory(self):
        service = self.service(aggregators=1)
        for pid in service.serve.pid, *service.pids():
            status = pathlib.Path(f'/proc/{pid}/status').read_text()
            self.assertIn('NoNewPrivs:\t1', status)
            # root owns /proc of a process that is not dumpable, even if another user runs the
            # process
            self.assertEqual(pathlib.Path(f'/proc/{pid}/mem').stat().st_uid, 0)

    @unittest.skipUnless(os.geteuid() == 0, 'only root can be another user')
    def test_a_process_of_the_same_user_does_not_read_a_key(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-'))
        self.ends.callback(shutil.rmtree, folder, True)
        shutil.copy(GRADPOOL, folder / 'gradpool')
        (folder / 'gradpool').chmod(0o755)
        os.chown(folder, NOBODY, NOBODY)
        serve = subprocess.Popen([folder / 'gradpool', 'serve', '--state-dir', folder / 'state',
                                  '--aggregators', '0', '--listen', 'gradpool://127.0.0.1:0'],
                                 stderr=subprocess.PIPE, text=True, user=NOBODY, group=NOBODY,
                                 extra_groups=[], cwd='/')
        self.ends.callback(serve.stderr.close)
        self.ends.callback(serve.wait)
        self.ends.callback(serve.kill)
        self.assertIn('listening on', serve.stderr.readline())
        for name in 'mem', 'environ', 'fd', 'maps':
            answer = harness.run(['/bin/cat' if name != 'fd' else '/bin/ls',
                                  f'/proc/{serve.pid}/{name}'], capture_output=True, user=NOBODY,
                                 group=NOBODY, extra_groups=[])
            self.assertIn(b'Permission denied', answer.stderr, name)

    def test_a_missing_group_of_operators_is_named(self):
        folder = pathlib.Path(self.service(aggregators=0).folder)
        serve = Process([GRADPOOL, 'serve', '--operators', 'no-such', '--state-dir', folder / 's',
                         '--listen', 'gradpool://127.0.0.1:0'], folder, 'groupless')
        self.ends.callback(serve.kill)
        self.assertEqual(serve.wait(), 2)
        self.assertIn('--operators no-such: there is no such group', serve.text())


if __name__ == '__main__':
    tap.main()
