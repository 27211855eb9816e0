"""Tests the findings of `gradpool doctor` on a healthy system, and on systems with one fault
each."""
import contextlib
import json
import os
import pathlib
import resource
import socket
import tempfile
import threading
import unittest

import harness
import tap
from harness import BUILD, GRADPOOL, WAIT_S, Service

SOURCE = pathlib.Path(__file__).resolve().parents[3]
# Python package of the source tree, and library of this build.
PACKAGE = {'PYTHONPATH': str(SOURCE / 'client/python'),
           'GRADPOOL_LIBRARY': str(BUILD / 'client/libgradpool.so'), 'PATH': '/usr/bin:/bin'}
HOST = ['build', 'kernels', 'libraries', 'clock', 'nofile', 'memlock', 'dev-shm', 'memfd', 'pidfd',
        'futex', 'cores', 'memory', 'lent-pages', 'shm', 'tcp', 'python']


def run(*command, environment=None, before=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(('GRADPOOL_', 'PYTHON'))}
    return harness.run([str(c) for c in (GRADPOOL, *command)], capture_output=True, text=True,
                       timeout=2 * WAIT_S, check=False, preexec_fn=before,
                       env={**clean, **PACKAGE, **(environment or {})})


class Case(unittest.TestCase):
    def doctor(self, *options, code=0, environment=None, before=None):
        """Runs gradpool doctor. Returns its checks by name."""
        answer = run('doctor', '--json', *options, environment=environment, before=before)
        self.assertEqual(answer.returncode, code, answer.stdout + answer.stderr)
        said = json.loads(answer.stdout)
        self.assertEqual(said['verdict'] == 'fail', code == 1)
        return {check['check']: check for check in said['checks']}

    def finds(self, check, verdict, *words):
        self.assertEqual(check['verdict'], verdict, check)
        for word in words:
            self.assertIn(word, check['text'] + ' -> ' + check.get('advice', ''))
        self.assertEqual('advice' in check, verdict != 'ok')


class Host(Case):
    def test_no_check_of_a_healthy_host_fails(self):
        checks = self.doctor()
        self.assertEqual(list(checks), [*HOST, 'endpoint'])
        self.finds(checks['endpoint'], 'warn', 'no service was checked, because none was named',
                   '--endpoint')
        for name in 'libraries', 'memfd', 'futex', 'shm', 'tcp', 'python':
            self.finds(checks[name], 'ok')
        self.assertNotIn('fail', [check['verdict'] for check in checks.values()])

    def test_text_has_one_line_a_check_and_one_line_of_advice(self):
        answer = run('doctor')
        self.assertEqual((answer.returncode, answer.stderr), (0, ''))
        for name in HOST:
            self.assertRegex(answer.stdout, rf'(?m)^(ok|warn)\s+{name}\s+\S')
        self.assertRegex(answer.stdout,
                         r'(?m)^warn  endpoint .*\n +-> name a service with --endpoint')

    def test_few_open_files_are_a_failure_with_advice(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        checks = self.doctor(code=1, before=few)
        self.finds(checks['nofile'], 'fail', '100 open files', 'LimitNOFILE')
        self.finds(checks['memfd'], 'ok')

    def test_a_libfabric_that_cannot_be_loaded_is_a_failure_that_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, 'libfabric.so.1').write_text('no library')
            checks = self.doctor(code=1, environment={'LD_LIBRARY_PATH': folder})
        self.finds(checks['tcp'], 'fail', 'libfabric, which moves data between hosts',
                   'install libfabric')
        self.finds(checks['libraries'], 'warn', 'libfabric missing instead of')
        self.finds(checks['shm'], 'ok')

    def test_a_libfabric_that_may_not_use_tcp_is_a_failure_that_names_the_variable(self):
        checks = self.doctor(code=1, environment={'FI_PROVIDER': 'udp'})
        self.finds(checks['tcp'], 'fail', 'no such provider',
                   'FI_PROVIDER is set: it must name tcp')
        self.finds(checks['shm'], 'ok')

    def test_a_mistake_on_the_command_line_is_exit_code_2(self):
        for words in (('doctor', '--bogus'), ('doctor', 'x'), ('doctor', '--endpoint', 'a b:c')):
            self.assertEqual(run(*words).returncode, 2, words)


class Python(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gradpool-test-')
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_package_of_this_version_is_found_with_its_path(self):
        checks = self.doctor()
        self.finds(checks['python'], 'ok', '/usr/bin/python3 has', PACKAGE['PYTHONPATH'])
        self.assertNotIn('usr-python', checks)
        self.assertNotIn('usr-python', self.doctor(environment={'PATH': '/usr/lib/../bin'}))

    def test_a_package_of_another_version_is_a_failure_that_names_both(self):
        (self.folder / 'gradpool').mkdir()
        (self.folder / 'gradpool/__init__.py').write_text("__version__ = '9.9.9'\n")
        checks = self.doctor(code=1, environment={'PYTHONPATH': str(self.folder)})
        version = run('version').stdout.split()[1]
        self.finds(checks['python'], 'fail', 'version 9.9.9', f'this program is version {version}')

    def test_a_package_whose_library_is_missing_is_a_failure(self):
        checks = self.doctor(code=1, environment={'GRADPOOL_LIBRARY': '/nowhere/libgradpool.so'})
        self.finds(checks['python'], 'fail', 'cannot be loaded', 'GRADPOOL_LIBRARY')

    def test_python_without_the_package_is_a_warning(self):
        self.interpreter('exec /usr/bin/python3 -S "$@"')
        checks = self.doctor(environment={'PATH': f'{self.folder}:/usr/bin:/bin', 'PYTHONPATH': ''})
        self.finds(checks['python'], 'warn', f'{self.folder}/python3 has no package gradpool',
                   'if jobs use this interpreter', 'PYTHONPATH')

    def test_the_system_s_interpreter_is_checked_beside_the_one_in_path(self):
        self.interpreter('exec env -u PYTHONPATH /usr/bin/python3 -S "$@"')
        checks = self.doctor(environment={'PATH': f'{self.folder}:/usr/bin:/bin'})
        self.finds(checks['python'], 'warn', f'{self.folder}/python3 has no package')
        self.finds(checks['usr-python'], 'ok', '/usr/bin/python3 has', PACKAGE['PYTHONPATH'])
        self.assertEqual(list(checks), [*HOST, 'usr-python', 'endpoint'])

    def test_a_host_without_python_is_a_warning(self):
        checks = self.doctor(environment={'PATH': str(self.folder)})
        self.finds(checks['python'], 'warn', 'no python3 in PATH')
        self.finds(checks['usr-python'], 'ok', '/usr/bin/python3 has')

    def test_a_silent_interpreter_is_a_failure(self):
        self.interpreter('exit 3')
        checks = self.doctor(code=1, environment={'PATH': f'{self.folder}:/usr/bin:/bin'})
        self.finds(checks['python'], 'fail', 'ended without output')

    def interpreter(self, line):
        path = self.folder / 'python3'
        path.write_text(f'#!/bin/sh\n{line}\n')
        path.chmod(0o755)


class OfService(Case):
    @classmethod
    def setUpClass(cls):
        cls.service = Service('--require-tls', aggregators=1)
        cls.addClassCleanup(cls.service.end)
        cls.acme = cls.service.tenant_key('acme')

    def look(self, code=0, endpoint=None, environment=None):
        return self.doctor('--endpoint', endpoint or self.service.endpoint, code=code,
                           environment=environment)

    def test_over_the_unix_socket_all_checks_of_a_service_succeed(self):
        checks = self.look(endpoint=f'unix:{self.service.state}/control.sock')
        self.assertEqual(list(checks), [*HOST, 'endpoint', 'key', 'protocol', 'lanes'])
        self.finds(checks['key'], 'ok', 'the service requires no key')
        self.finds(checks['protocol'], 'ok', 'at both ends')
        self.finds(checks['lanes'], 'ok', 'all aggregators are connected')

    def test_a_key_that_is_right_is_accepted_and_names_the_tenant(self):
        checks = self.look(environment=self.acme)
        self.finds(checks['endpoint'], 'ok', self.service.endpoint)
        self.finds(checks['key'], 'ok', 'acme')

    def test_no_key_and_a_wrong_one_are_failures_of_the_key(self):
        for environment in {}, {'GRADPOOL_KEY': 'acme:' + '5a' * 32}:
            checks = self.look(code=1, environment=environment)
            self.finds(checks['endpoint'], 'ok')
            self.finds(checks['key'], 'fail', 'GRADPOOL_KEY_FILE')
            self.assertNotIn('protocol', checks)

    def test_a_missing_key_file_is_named(self):
        checks = self.look(code=1, environment={'GRADPOOL_KEY_FILE': '/nowhere/acme.key'})
        self.finds(checks['key'], 'fail', '/nowhere/acme.key')

    def test_a_missing_service_is_a_failure_of_the_endpoint(self):
        for endpoint in 'gradpool://127.0.0.1:1', 'unix:/nowhere/control.sock':
            checks = self.look(code=1, endpoint=endpoint)
            self.finds(checks['endpoint'], 'fail', 'start gradpool serve')
            self.assertNotIn('key', checks)

    def test_a_service_of_another_protocol_is_a_failure_that_names_both_versions(self):
        """The message is written by hand: the answer Envelope{id = 1, welcome = {version = 99}},
        sent to any request."""
        welcome = bytes((0x08, 99))
        message = bytes((0x08, 1, 0x1a, len(welcome))) + welcome

        def answer():
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    peer.recv(4096)
                    peer.sendall(len(message).to_bytes(4, 'little') + message)
                    peer.recv(4096)

        with socket.create_server(('127.0.0.1', 0)) as listener:
            listener.settimeout(WAIT_S)
            thread = threading.Thread(target=answer)
            thread.start()
            port = listener.getsockname()[1]
            checks = self.look(code=1, endpoint=f'gradpool://127.0.0.1:{port}')
            thread.join()
        self.finds(checks['protocol'], 'fail', 'speaks version 99', 'same gradpool at both ends')


class Build(Case):
    def test_version_commit_kernels_and_libraries_are_shown(self):
        checks = self.doctor()
        build, kernels, libraries = (checks[name]['text']
                                     for name in ('build', 'kernels', 'libraries'))
        version = run('version').stdout.strip()
        self.assertRegex(build, rf'^{version}, commit (unknown|[0-9a-f]{{7,}}\+?|'
                                r'\S*-g[0-9a-f]{7,}\+?), protocol \d+, by \w+ .*\d+\.\d+')
        self.assertRegex(kernels, '^(avx512, avx2, c|avx2, c|c)$')
        for name in 'libfabric', 'protobuf-c', 'openssl', 'jemalloc', 'hwloc', 'sqlite':
            self.assertRegex(libraries, rf'\b{name} \d+\.\d+\S* \(built with \d+\.\d+\S*\)')


if __name__ == '__main__':
    tap.main()
