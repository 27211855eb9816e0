"""Runs commands, services and workers with wrong inputs. Each printed message must be in the golden
file, and each message that the golden file expects from this program must be printed.
`test_messages.py --write` marks the messages of this run in the golden file."""
import contextlib
import fcntl
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import harness
import ranks  # noqa: F401 (sets GRADPOOL_LIBRARY, before gradpool is imported)
import tap
import wrong_calls
import gradpool
import numpy
from gradpool._native import binding
from harness import GRADPOOL, Process, Service

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / 'test'))

import messages  # noqa: E402

GOLDEN = ROOT / messages.GOLDEN
# Lines that the C library prints, and values that follow a message.
FOREIGN = ("unrecognized option '", 'requires an argument', '--usage', 'information.')
known = messages.Golden(GOLDEN.read_text())
messages_of = messages.finder(known)
seen = set()


def check(case, text):
    """Checks that the golden file has a message for each line of the text."""
    for line in messages.lines_of(text):
        found = messages_of(line)
        if not found and not any(words in line for words in FOREIGN):
            case.fail(f'in no message of {messages.GOLDEN}: {line}')
        seen.update(found)


def logged(process):
    """Returns the log lines of a bench, without its figures."""
    return '\n'.join(line for line in process.text().split('\n') if 'level=' in line)


def clean(environment=None):
    """Returns the environment without the caller's variables of gradpool."""
    return {**{name: value for name, value in os.environ.items()
               if not name.startswith('GRADPOOL_') or name == 'GRADPOOL_LIBRARY'},
            **(environment or {})}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-messages-'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def file(self, name, text='', mode=0o600):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def refused(self, code, *command, environment=None, before=()):
        """Checks that the command ends with this exit status and prints only messages of the golden
        file."""
        with self.subTest(' '.join(map(str, command))):
            answer = harness.run([*before, GRADPOOL, *command], capture_output=True, text=True,
                                 env=clean(environment))
            self.assertEqual(answer.returncode, code, answer.stderr)
            self.assertNotEqual(answer.stderr, '')
            check(self, answer.stderr)


class Commands(Case):
    """Commands that need no service."""

    def test_operands_that_are_wrong_or_missing_print_known_messages(self):
        for words in ('drain', 'drain lane', 'drain lanes 1', 'drain lane x', 'drain lane 1 2',
                      'move', 'move j', 'move j x', 'move task:x 1', 'move a 1 b',
                      'tenant', 'tenant make', 'tenant add', 'tenant add a b', 'tenant list a',
                      'tenant set a', 'tenant set a --tenant-jobs-max many',
                      'tenant set a --job-bytes-max 1X', 'tenant add a --loss-limit 200',
                      'jobs a b', 'explain', 'explain a b', 'timeline', 'timeline j --seconds 0',
                      'timeline j --seconds x', 'timeline j', 'snapshot', 'plan', 'plan a b',
                      'plan x --period 1e-9', 'plan x --lane-time 5', 'plan x --workers 0',
                      'plan x --period 1 --lane-time 100000', 'run', 'run --node 2 true',
                      'run --workers 768 --nodes 2 true', 'run --nodes 2 true',
                      'run --master node true', 'statsu', 'nonsense', 'serve operand',
                      'status operand'):
            self.refused(2, *words.split())
        self.refused(2, 'plan', 'x', '--job', '')

    def test_endpoints_that_are_invalid_or_unreachable_print_known_messages(self):
        for url in ('http://h', 'gradpool://h:99999', 'gradpool://::1:7077', 'gradpool://[::1',
                    'gradpool+unix://relative', 'gradpool+unix:///' + 200 * 'x'):
            self.refused(2, 'status', '--endpoint', url)
        dead = harness.free_ports(1)
        self.refused(3, 'status', '--endpoint', f'gradpool://127.0.0.1:{dead}')
        self.refused(3, 'status', '--endpoint', 'gradpool://127.0.0.1:0')
        self.refused(3, 'status', '--endpoint', 'unix:/nowhere/control.sock')
        self.refused(3, 'stop', '--state-dir', self.folder)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(f'{self.folder}/stale')
        self.refused(3, 'status', '--endpoint', f'unix:{self.folder}/stale')

    def test_variables_with_wrong_values_print_known_messages(self):
        nowhere = {'GRADPOOL_ENDPOINT': 'gradpool://127.0.0.1:1'}
        for variables in ({'GRADPOOL_KEY': 'a:' + 64 * '0', 'GRADPOOL_KEY_FILE': 'x'},
                          {'GRADPOOL_KEY': 'nonsense'}, {'GRADPOOL_KEY': 'a b:00'},
                          {'GRADPOOL_KEY': 'acme:00'}, {'GRADPOOL_KEY_FILE': '/nowhere/key'},
                          {'GRADPOOL_KEY_FILE': self.file('open.key', 'a:00', 0o644)}):
            self.refused(1, 'status', environment={**nowhere, **variables})
        for variables in ({'GRADPOOL_ENDPIONT': 'x'}, {'GRADPOOL_LOG_LEVEL': 'loud'},
                          {'GRADPOOL_UNDO': '1'}):
            self.refused(3, 'status', environment={**nowhere, **variables})

    def test_files_of_a_dry_run_with_mistakes_print_known_messages(self):
        for text in ('', 'a,b\n', 'name,elements\n', 'name,elements\nx,y\n',
                     'name,elements\nw,1\nw,2\n', f'name,elements\n{300 * "x"},1\n',
                     f'name,elements\nw,{2 ** 50}\n'):
            self.refused(2, 'plan', self.file('model.csv', text))
        self.refused(2, 'plan', '/nowhere/model.csv')

    def test_a_program_that_run_cannot_start_or_that_fails_prints_known_messages(self):
        self.refused(127, 'run', '/nowhere/program')
        self.refused(7, 'run', '--workers', '2', 'sh', '-c', 'exit 7')
        self.refused(137, 'run', 'sh', '-c', 'kill -9 $$')

    def test_output_that_cannot_be_written_prints_known_messages(self):
        with open('/dev/full', 'w') as full:
            answer = subprocess.run([GRADPOOL, 'help'], stdout=full, stderr=subprocess.PIPE,
                                    text=True)
        check(self, answer.stderr)


class Services(Case):
    """Services and aggregators that fail to start."""

    def serve(self, code, *options, **keywords):
        self.refused(code, 'serve', '--state-dir', self.folder / 'state', '--listen',
                     'gradpool://127.0.0.1:0', '--aggregators', '0', *options, **keywords)

    def test_options_of_serve_with_mistakes_print_known_messages(self):
        for words in ('--listen http://h', '--listen unix:/tmp/x', '--insecure --require-tls',
                      '--policy best', '--loss-limit 200', '--aggregators two',
                      '--worker-timeout 1.5', '--worker-timeout x', '--name a/b', '--http x',
                      '--durability x', '--lane-policy x', '--kernels x', '--interface none9',
                      '--advertise node7:7077', '--allow-uid root', '--lanes-min 3 --lanes-max 2',
                      '--operators no-such-group', '--network-gbit x', '--job-bytes-max 1X',
                      '--scale maybe', '--stop never', '--explore maybe', '--bogus', '--listen'):
            self.serve(2, *words.split())
        for words in ('--cores 4000', '--cores all', '--cores 0,0',
                      '--data-port 65535 --lanes-per-core 2'):
            self.serve(2, *words.split(), '--aggregators', '1')
        self.serve(1, '--advertise', '203.0.113.7', '--aggregators', '1')
        for uids in ','.join(map(str, range(100))), 2000 * '1':
            self.serve(2, '--allow-uid', uids)
        self.serve(2, environment={'GRADPOOL_REQUIRE_TLS': 'perhaps'})

    def test_options_of_an_aggregator_with_mistakes_print_known_messages(self):
        self.refused(2, 'aggregator')
        for words in ('--join http://h', '--cores 4000', '--interface none9', '--advertise a/b',
                      '--kernels x', '--lane-policy x', '--leave-timeout x'):
            self.refused(2, 'aggregator', '--join', '127.0.0.1:1', *words.split())

    def test_configuration_files_with_mistakes_print_known_messages(self):
        for text in ('[server]\n', 'listen = x\n', '[serve] text\n', '[serve]\nlistne = x\n',
                     '[serve]\nquux = x\n', '[serve]\nkey = x\n', '[serve]\nlisten =\n',
                     '[serve]\nlisten = a\nlisten = b\n', '[serve]\nnonsense\n',
                     '[serve]\n\0\n', '[serve]\nlisten = ' + 5000 * 'x' + '\n',
                     '[serve]\ninsecure = perhaps\n', '[serve]\nname = a\rb\n'):
            self.serve(2, '--config', self.file('gradpool.conf', text))
        printed = subprocess.check_output([GRADPOOL, 'serve', '--state-dir', 'a\nb',
                                           '--print-config'], text=True)
        check(self, '\n'.join(line for line in printed.split('\n') if 'no line of a' in line))
        self.serve(2, '--config', '/nowhere/gradpool.conf')
        self.serve(2, '--config', self.folder)
        self.serve(2, '--config', self.file('open.conf', '[serve]\n', 0o666))

    def test_state_dirs_that_cannot_be_used_print_known_messages(self):
        plain = self.file('plain')
        gone = ('sh', '-c', 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', 'sh')
        self.serve(2, '--state-dir', 'state', before=('env', '-C', self.folder, *gone))
        for path in ('/' + 200 * 'x', '/' + 5000 * 'x', ''):
            self.serve(2, '--state-dir', path)
        for path in ('/proc/none', plain, plain + '/below'):
            self.serve(1, '--state-dir', path)
        for mode in 0o777, 0o770:
            folder = self.folder / f'{mode:o}'
            folder.mkdir()
            folder.chmod(mode)
            self.serve(1, '--state-dir', folder)
        below = self.folder / '777' / 'below'
        self.serve(1, '--state-dir', below)

    def test_state_files_that_cannot_be_used_print_known_messages(self):
        state = self.folder / 'state'
        for name in 'state.db', 'lock':
            shutil.rmtree(state, ignore_errors=True)
            state.mkdir(mode=0o700)
            (state / name).symlink_to('/nowhere')
            self.serve(1)
        shutil.rmtree(state)
        state.mkdir(mode=0o700)
        (state / 'state.db').write_bytes(b'no data base' * 1000)
        self.serve(1)
        (state / 'state.db').unlink()
        (state / 'state.db-used').write_text('changes 3, on disk 3\n')
        self.serve(1)
        (state / 'state.db-used').unlink()
        (state / 'state.db-used').mkdir()
        self.serve(1)
        with open(state / 'lock', 'w') as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.serve(1)

    def test_ports_that_are_taken_print_known_messages(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            address = f'127.0.0.1:{taken.getsockname()[1]}'
            self.serve(1, '--listen', f'gradpool://{address}')
            self.serve(1, '--http', address)
        self.serve(1, '--listen', 'gradpool://203.0.113.7:0')


class Wrong(Case):
    """Requests refused by a service."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service('--job-tensors-max', '8', '--http', '127.0.0.1:0', aggregators=1)
        cls.addClassCleanup(cls.service.end)
        os.environ['GRADPOOL_ENDPOINT'] = cls.service.endpoint
        cls.lane = cls.service.status()['aggregators'][0]['lanes'][0]['lane']
        cls.socket = f'unix:{cls.service.state}/control.sock'

    def ask(self, code, words, *more, **keywords):
        self.refused(code, *words.split(), *more, '--endpoint', self.socket, **keywords)

    def raises(self, call, kind=gradpool.GradpoolError):
        with self.assertRaises(kind) as raised:
            call()
        check(self, str(raised.exception))

    def test_orders_for_missing_objects_are_refused(self):
        for words in ('jobs nobody', 'explain nobody', 'move nobody 1', 'move task:99 1',
                      'move 99 1', 'drain lane 99', 'drain aggregator 99', 'snapshot nobody'):
            self.ask(3, words)
        self.ask(3, 'timeline nobody --seconds 0.1 --output', self.folder / 'timeline')
        self.ask(1, 'report --output /nowhere/report')

    def test_orders_that_a_job_or_a_lane_cannot_follow(self):
        with gradpool.connect() as client, client.join('busy', 0, 2) as job:
            job.declare('w', 100)
            self.ask(1, 'snapshot busy --output', self.folder / 'snapshot')
            self.ask(1, 'timeline busy --seconds 0.1 --output /nowhere/timeline')
            model = self.file('model.csv', 'name,elements\nw,100\n')
            self.ask(0, f'plan {model} --period 1')
            self.ask(2, 'timeline busy --seconds 99999 --output', self.folder / 'timeline')

    def test_a_job_name_of_two_tenants_prints_known_messages(self):
        service = Service(aggregators=1)
        self.addCleanup(service.end)
        for tenant in 'one', 'two':
            with contextlib.ExitStack() as given:
                for name, value in service.tenant_key(tenant).items():
                    given.enter_context(variable(name, value))
                client = gradpool.connect(service.endpoint)
            self.addCleanup(client.close)
            client.join('same', 0, 1).declare('w', 1)
        for words in 'snapshot same', 'move same 1':
            self.refused(1, *words.split(), '--endpoint', f'unix:{service.state}/control.sock')

    def test_tenants_that_cannot_be_added_or_changed_print_known_messages(self):
        service = Service(aggregators=0)
        self.addCleanup(service.end)
        tenant = service.tenant
        for words in ('add a/b', 'set nobody --tenant-jobs-max 1', 'revoke nobody'):
            self.refused(1, 'tenant', *words.split(), '--state-dir', service.state)
        for words in ('add acme', 'add acme', 'set acme --tenant-jobs-max 1', 'revoke acme',
                      'revoke acme'):
            answer = tenant(*words.split())
            check(self, answer.stderr + ('' if 'add' in words else answer.stdout))
        key = service.tenant_key('other')
        for command in 'report', 'drain lane 1':
            self.refused(1, *command.split(), '--endpoint', service.endpoint, environment=key)
        name, _, secret = pathlib.Path(key['GRADPOOL_KEY_FILE']).read_text().strip().partition(':')
        wrong = f'{name}:{secret[::-1]}'
        for value in wrong, 'stranger:' + secret:
            self.refused(1, 'status', '--endpoint', service.endpoint,
                         environment={'GRADPOOL_KEY': value})
        self.raises(lambda: gradpool.connect(service.endpoint).join('keyless', 0, 1))
        check(self, service.serve.text())

    def test_a_second_service_prints_known_messages(self):
        for options in (['--state-dir', self.service.state, '--listen', 'gradpool://127.0.0.1:0'],
                        ['--state-dir', self.folder, '--listen', self.service.endpoint]):
            self.refused(1, 'serve', '--aggregators', '0', *options)
        self.refused(1, 'aggregator', '--join', self.socket, '--service', 'x', '--cores', '0')

    def test_connections_that_fail_print_known_messages(self):
        dead = harness.free_ports(1)
        self.raises(lambda: gradpool.connect(f'gradpool://127.0.0.1:{dead}',
                                             connect_timeout_ms=50))
        self.raises(lambda: gradpool.connect(transport='pigeon'))
        self.raises(lambda: gradpool.connect(
            transport='tcp', interface='none9').join('j', 0, 1).declare('w', 1))
        self.raises(lambda: gradpool.connect('http://h'))
        for name, value in ('GRADPOOL_ENDPOINT', ''), ('GRADPOOL_CONNECT_TIMEOUT_MS', 'x'):
            with self.subTest(name), variable(name, value):
                self.raises(gradpool.connect)

    def test_joins_that_are_refused_print_known_messages(self):
        with gradpool.connect() as client:
            for arguments in ((None, 0, 1), ('j', 3, 2), ('j', 0, 0), ('j', 0, 800),
                              (300 * 'x', 0, 1), ('a"b', 0, 1), ('j', 2 ** 32, 1)):
                with self.subTest(arguments):
                    self.raises(lambda arguments=arguments: client.join(*arguments))
            for named in ({'workers_max': 1}, {'loss_limit': 2}, {'on_worker_loss': 'x'},
                          {'durability': 'x'}):
                with self.subTest(named):
                    self.raises(lambda named=named: client.join('j', 0, 2, **named))
            with client.join('first', 0, 2):
                for arguments, named in ((0, 2), {}), ((1, 3), {}), ((1, 2), {'loss_limit': .1}), \
                        ((1, 2), {'durability': 'worker'}), ((1, 2), {'workers_max': 5}):
                    with self.subTest(arguments), gradpool.connect() as other:
                        self.raises(lambda other=other, arguments=arguments, named=named:
                                    other.join('first', *arguments, **named))

    def test_launchers_with_mistakes_print_known_messages(self):
        for variables in ({'RANK': '0'}, {'RANK': 'x', 'WORLD_SIZE': '1'},
                          {'RANK': '2', 'WORLD_SIZE': '2'}, {}, {'SLURM_NTASKS': '2'}):
            with self.subTest(variables), contextlib.ExitStack() as given:
                for name in ('RANK', 'WORLD_SIZE'):
                    given.enter_context(variable(name, variables.get(name)))
                for name, value in variables.items():
                    given.enter_context(variable(name, value))
                self.raises(gradpool.job_from_environment)

    def test_declares_that_are_refused_print_known_messages(self):
        with gradpool.connect() as client, client.join('declares', 0, 2) as zero, \
                client.join('declares', 1, 2) as one:
            zero.declare('known', 100)
            zero.declare('halves', 100, wire='float16')
            for arguments, named in (
                    (('', 1), {}), ((300 * 'x', 1), {}), (('a', 1), {'dtype': 'x'}),
                    (('a', 1), {'rule': 'x'}), (('a', 1), {'dtype': 'int32', 'wire': 'float16'}),
                    (('a', 1), {'dtype': 'float64', 'rule': 'sgd'}), (('a', 2 ** 62), {}),
                    (('a', 2 ** 40), {}),
                    (('a', 1), {'ranks': [5]}), (('a', 1), {'ranks': []}),
                    (('a', 1), {'ranks': [1]}), (('known', 50), {}), (('known', 100, 'int32'), {}),
                    (('known', 100), {'rule': 'sgd'}), (('halves', 100), {})):
                with self.subTest(arguments=arguments[0][:8], **named):
                    self.raises(lambda arguments=arguments, named=named:
                                zero.declare(*arguments, **named))
            self.raises(lambda: one.declare('known', 50))
            self.raises(lambda: one.declare('known', 100, ranks=[1]))
            self.raises(lambda: zero.declare_all({f'many{i}': 1 for i in range(9)}))

    def test_pushes_that_are_refused_print_known_messages(self):
        values = numpy.zeros(100, numpy.float32)
        with gradpool.connect() as client, client.join('pushes', 0, 2) as job:
            for call in self.wrong_calls(job, values):
                self.raises(call)
            request = job.push_pull('sum', values)
            for call in (lambda: wrong_calls.wait_alone(request),
                         lambda: job.push_pull('sum', values.copy()),
                         lambda: job.undeclare('sum'), lambda: job.barrier(100)):
                self.raises(call)
            job.leave()
            self.raises(lambda: job.push_pull('sum', values))
        self.raises(lambda: client.join('j', 0, 1))

    def wrong_calls(self, job, values):
        job.declare('sum', 100)
        job.declare('count', 100, 'int32')
        job.declare('model', 100, rule='sgd')
        short, whole = values[:50], numpy.zeros(100, numpy.int32)
        return (lambda: job.push_pull('unknown', values), lambda: job.push_pull('sum', short),
                lambda: job.push_pull('sum', values, operation='x'),
                lambda: job.push_pull('count', whole), lambda: job.push_pull('model', values),
                lambda: job.push_pull('sum', values, None, 'reduce-scatter'),
                lambda: job.update('sum', values, lr=1), lambda: job.update('model', values, lr=1),
                lambda: job.broadcast('sum', values, 7), lambda: job.resize(3, 100),
                lambda: job.push_pull_group([]),
                lambda: job.start_timeline('/nowhere/timeline'))

    def test_values_that_are_no_gradients_print_known_messages(self):
        import torch
        from gradpool._native.states import restore
        with gradpool.connect() as client, client.join('values', 0, 1) as job, \
                client.join('strange', 0, 1) as other:
            job.declare('sum', 100)
            strange = other.declare('t', 100)
            job.declare('half', 100, 'bfloat16')
            job.declare('model', 100, rule='sgd')
            wide = torch.zeros(200)
            for values in ('x', numpy.zeros(100), numpy.zeros(200, numpy.float32)[::2],
                           wide[::2], wide.double()[:100], wide[:100].to_sparse(),
                           wide[:100].to('meta')):
                self.raises(lambda values=values: job.push_pull('sum', values))
            for call in (lambda: job.push_pull('half', numpy.zeros(100)),
                         lambda: job.send('sum', 'x'), lambda: restore(job, 'model', 'sgd', 'x'),
                         lambda: job.push_pull(strange, wide[:100]), lambda: job.declare('x', 'y'),
                         lambda: client.join('a\0b', 0, 1), lambda: client.join(5, 0, 1)):
                self.raises(call)
            job.start_timeline(str(self.folder / 'timeline'))
            self.raises(lambda: job.start_timeline(str(self.folder / 'again')))

    def test_rounds_about_which_ranks_disagree_print_known_messages(self):
        one, two = (numpy.zeros(100, numpy.float32) for _ in range(2))
        calls = ((lambda job, values: job.push_pull('w', values, operation='sum'),
                  lambda job, values: job.push_pull('w', values)),
                 (lambda job, values: job.broadcast('w', values, 0),
                  lambda job, values: job.broadcast('w', values, 1)),
                 (lambda job, values: job.push_pull('w', values), lambda job, _: job.leave()))
        for number, (first, second) in enumerate(calls):
            with self.subTest(number), gradpool.connect() as here, gradpool.connect() as there:
                jobs = [client.join(f'differ{number}', rank, 2)
                        for rank, client in enumerate((here, there))]
                for job in jobs:
                    job.declare('w', 100)
                request = first(jobs[0], one)
                other = second(jobs[1], two)
                self.raises(request.wait)
                if other:
                    self.raises(other.wait)

    def test_a_rank_that_dies_is_named_in_a_known_message(self):
        """The coordinator reports the death, because the rank has no lane."""
        with gradpool.connect() as client, client.join('dies', 0, 2) as job:
            tensor, other = job.declare('w', 100), wrong_calls.idle_rank('dies', 1, 2)
            self.addCleanup(other.communicate)
            request = job.push_pull(tensor, numpy.zeros(100, numpy.float32))
            other.kill()
            self.raises(request.wait)

    def test_the_log_of_the_service_has_only_known_messages(self):
        check(self, self.service.serve.text())

    def test_snapshots_that_are_refused_print_known_messages(self):
        values = numpy.zeros(100, numpy.float32)
        with gradpool.connect() as client, client.join('saves', 0, 1) as job:
            self.raises(lambda: job.snapshot(str(self.folder / 'none')))
            model = job.declare('model', 100, rule='sgd')
            self.raises(lambda: job.snapshot(str(self.folder / 'none')))
            job.broadcast(model, values).wait()
            saved = self.folder / 'saved'
            job.snapshot(str(saved))
            of_c, handle = binding.lib, job._handle
            for call in (lambda: job.snapshot('/nowhere/saved'), lambda: job.snapshot('/dev/null'),
                         lambda: binding.check(of_c.gp_job_snapshot(handle, None)),
                         lambda: binding.check(of_c.gp_job_restore(handle, None, None, 0)),
                         lambda: job.restore('/nowhere/saved'), lambda: job.restore('/proc'),
                         lambda: job.restore(self.file('empty')),
                         lambda: job.restore(self.file('long', 300 * 'x')),
                         lambda: job.restore(self.damaged(saved))):
                self.raises(call)
        with gradpool.connect() as client, client.join('loads', 0, 1) as job:
            job.declare('model', 50, rule='sgd')
            self.raises(lambda: job.restore(str(saved)))
        with gradpool.connect() as client, client.join('other', 0, 1) as job:
            job.declare('other', 100, rule='sgd')
            self.raises(lambda: job.restore(str(saved)))

    def test_a_snapshot_of_an_operator_that_fails_prints_known_messages(self):
        with gradpool.connect() as client, client.join('kept', 0, 1) as job:
            job.broadcast(job.declare('model', 100, rule='sgd'),
                          numpy.zeros(100, numpy.float32)).wait()
            answer = self.service.ask('snapshot', 'kept', '--output', str(self.folder / 'kept'))
            check(self, answer.stdout + answer.stderr)

    def damaged(self, saved):
        data = bytearray(saved.read_bytes())
        data[-1] ^= 1
        path = self.folder / 'damaged'
        path.write_bytes(data)
        return str(path)

    def test_the_doors_of_python_print_known_messages(self):
        import torch
        import gradpool.torch as hvd
        place = {'RANK': '0', 'WORLD_SIZE': '1', 'GRADPOOL_JOB': 'door'}
        with contextlib.ExitStack() as given:
            for name, value in place.items():
                given.enter_context(variable(name, value))
            for call in (hvd.rank, lambda: hvd.nothing, lambda: gradpool.nothing,
                         lambda: hvd.init(comm=[0]), lambda: gradpool.attach(torch.nn.ReLU())):
                self.raises(call, Exception)
            hvd.init()
            self.addCleanup(hvd.shutdown)
            for calls in (wrong_calls.of_codecs(), wrong_calls.of_a_door(torch, hvd),
                          wrong_calls.of_an_optimizer(torch, hvd)):
                for number, call in enumerate(calls):
                    with self.subTest(line=call.__code__.co_firstlineno, number=number):
                        self.raises(call, Exception)


@contextlib.contextmanager
def variable(name, value):
    """Sets this variable in this process. None: removes it."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


class Zealous(unittest.TestCase):
    """These checks run after all other cases."""

    def test_every_message_that_is_expected_of_this_program_was_printed(self):
        if os.environ.get('GRADPOOL_TEST_CASE'):
            self.skipTest('one case alone does not print all')
        expected = {said for rows in known.rows.values() for said, by in rows.items()
                    if by == messages.PROVOKING}
        if '--write' in sys.argv:
            known.assign(messages.PROVOKING, seen)
            GOLDEN.write_text(known.text())
        else:
            self.assertEqual(sorted(expected - seen), [])


class Life(Case):
    """Checks the log of a service from its start to its end."""

    def test_names_of_services_print_known_messages(self):
        service = Service('--name', 'blue', aggregators=0)
        self.addCleanup(service.end)
        door = f'unix:{service.state}/control.sock'
        for options in [], ['--service', 'red']:
            self.refused(1, 'aggregator', '--join', door, '--cores', '0', *options)
        joined = Process([GRADPOOL, 'aggregator', '--join', door, '--cores', '0', '--service',
                          'blue'], service.folder, 'joined', clean())
        service.children.append(joined)
        harness.until(lambda: service.pids('up'), 'the aggregator is up', process=joined)
        joined.signal(15)
        self.assertEqual(joined.wait(), 0)
        check(self, joined.text())
        service.serve.signal(1)
        service.serve.wait_for('reloads no files')
        self.assertEqual(service.stop(), 0)
        check(self, service.serve.text())

    def test_a_service_for_other_hosts_prints_known_messages_until_its_stop(self):
        serve = Process([GRADPOOL, 'serve', '--state-dir', self.folder / 'open', '--listen',
                         'gradpool://0.0.0.0:0', '--aggregators', '0'], self.folder, 'open-log')
        self.addCleanup(serve.end)
        serve.wait_for('listening on')
        check(self, subprocess.check_output([GRADPOOL, 'stop', '--state-dir', self.folder / 'open'],
                                            text=True) + serve.text())

    def test_moves_and_drains_print_known_messages(self):
        service = Service(aggregators=2)
        self.addCleanup(service.end)
        worker = service.worker('job', 0, 1, '--rounds', '1000000', '--verbose')
        worker.wait_for('round ')
        lanes = [lane['lane'] for a in service.status()['aggregators'] for lane in a['lanes']]
        there = service.job('job')['lanes'][0]
        other = next(lane for lane in lanes if lane != there)
        for command in (('move', 'job', other), ('move', 'job', other), ('drain', 'lane', other),
                        ('move', 'job', other), ('drain', 'lane', other, '--undo'),
                        ('drain', 'lane', other, '--undo'), ('snapshot', 'job')):
            answer = service.ask(*map(str, command))
            check(self, answer.stdout + answer.stderr)
        self.assertEqual(service.stop(15), 0)
        harness.until(lambda: service.serve.text().count('connects again') > 1, 'both log the end')
        check(self, service.serve.text())
        worker.kill()
        check(self, logged(worker))

    def test_each_line_of_a_log_is_a_known_message(self):
        service = Service(aggregators=1)
        self.addCleanup(service.end)
        harness.result(service.worker('job', 0, 1, '--rounds', '10'))
        self.assertEqual(service.stop(), 0)
        check(self, service.serve.text())
        again = Process([GRADPOOL, 'serve', '--state-dir', service.state, '--listen',
                         'gradpool://127.0.0.1:0', '--aggregators', '0', '--insecure'],
                        service.folder, 'again')
        service.children.append(again)
        again.wait_for('listening on')
        again.signal(2)
        self.assertEqual(again.wait(), 0)
        check(self, again.text())


if __name__ == '__main__':
    tap.main()
