"""Tests commands of an operator: options, starts and ends of the service, added nodes."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import harness
import progress
import tap
from harness import BENCH, GRADPOOL, WAIT_S, Process, Service, free_ports, is_alive, until


def run(*command, environment=None):
    """Runs the command without the caller's GRADPOOL_* variables."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith('GRADPOOL_')}
    return harness.run([str(GRADPOOL), *map(str, command)], capture_output=True, text=True,
                       timeout=WAIT_S, check=False, env={**clean, **(environment or {})})


HELPED = ('serve', 'aggregator', 'status', 'jobs', 'stop', 'top', 'tenant', 'doctor')


class CommandLine(unittest.TestCase):
    def test_each_subcommand_has_a_help_with_examples_and_variables(self):
        for name in HELPED:
            for command in ((name, '--help'), ('help', name)):
                answer = run(*command)
                self.assertEqual(answer.returncode, 0)
                self.assertIn('Examples:', answer.stdout)
                self.assertIn('[GRADPOOL_', answer.stdout)
                self.assertIn('default', answer.stdout)
                self.assertEqual(answer.stderr, '')

    def test_examples_in_a_help_are_whole_lines(self):
        for name in HELPED:
            text = run(name, '--help').stdout
            for line in text.split('Examples:\n')[1].split('\n\n')[0].splitlines():
                self.assertRegex(line, '^  gradpool ', text)

    def test_help_of_help_prints_the_general_help(self):
        for command in (('help', '--help'), ('help', 'help'), ('help', '-h')):
            self.assertEqual(run(*command).stdout, run('help').stdout)
            self.assertEqual(run(*command).returncode, 0)

    def test_an_unknown_subcommand_names_the_nearest_known_one(self):
        answer = run('statsu')
        self.assertEqual(answer.returncode, 2)
        self.assertIn("did you mean 'status'?", answer.stderr)
        self.assertEqual(run().returncode, 2)

    def test_the_version_is_printed(self):
        self.assertEqual(run('version').stdout, run('--version').stdout)
        self.assertRegex(run('version').stdout, r'^gradpool \d+\.\d+\.\d+\n$')

    def test_output_that_cannot_be_written_is_exit_code_1(self):
        for words in (('version',), ('help',), ('help', 'move'), ('status', '--help')):
            with open('/dev/full', 'w') as full:
                answer = subprocess.run([GRADPOOL, *words], stdout=full, stderr=subprocess.PIPE,
                                        text=True)
            self.assertEqual(answer.returncode, 1, words)
            self.assertIn('standard output cannot be written', answer.stderr)

    def test_a_client_command_also_warns_about_an_unknown_variable(self):
        answer = run('status', '--endpoint', 'unix:/nowhere/control.sock',
                     environment={'GRADPOOL_ENDPIONT': 'x'})
        self.assertIn('did you mean GRADPOOL_ENDPOINT?', answer.stderr)
        self.assertEqual(answer.returncode, 3)

    def test_a_mistake_on_the_command_line_is_exit_code_2(self):
        for command, words in ((('serve', '--bogus'), '--bogus'),
                               (('serve', '--aggregators', 'two'), '--aggregators'),
                               (('serve', '--data-port', '70000'), 'from 0 to 65535'),
                               (('serve', 'operand'), 'operand'),
                               (('aggregator',), '--join is required'),
                               (('aggregator', '--join', 'h', '--allow-uid', '1,x'), "'x'"),
                               (('serve', '--lanes-min', '3', '--lanes-max', '2'),
                                '--lanes-min 3 is more than --lanes-max 2'),
                               (('serve', '--aggregators-min', '3', '--aggregators', '2'),
                                '--aggregators-min 3 is more than --aggregators 2'),
                               (('serve', '--worker-timeout', '1.5'), '0, or at least 2 seconds'),
                               (('plan', 'x', '--period', '1e-9'), 'milliseconds'),
                               (('jobs', 'a', 'b'), 'one job')):
            answer = run(*command)
            self.assertEqual(answer.returncode, 2, command)
            self.assertIn(words, answer.stderr)

    def test_a_variable_with_a_bad_value_is_exit_code_2_naming_it(self):
        answer = run('serve', environment={'GRADPOOL_AGGREGATORS': 'many'})
        self.assertEqual(answer.returncode, 2)
        self.assertIn('GRADPOOL_AGGREGATORS', answer.stderr)
        answer = run('serve', environment={'GRADPOOL_REQUIRE_TLS': 'perhaps'})
        self.assertEqual(answer.returncode, 2)
        self.assertIn('expected 0 or 1', answer.stderr)

    def test_options_that_make_no_service_are_refused_with_the_reason(self):
        for option, value, words in (
                ('--listen', 'http://localhost', 'http'),
                ('--policy', 'best', '--policy best'),
                ('--cores', '4000', '4000'),
                ('--cores', 'all', 'write 0-3,8'),
                ('--interface', 'none9', 'none9'),
                ('--data-port', '65535', 'would end above 65535'),
                ('--allow-uid', 'root', "'root'"),
                ('--advertise', 'node7:7077', "'node7:7077'"),
                ('--state-dir', '/' + 200 * 'x', 'but the socket in this folder needs'),
                ('--lanes-per-core', '0', 'from 1 to 64')):
            with tempfile.TemporaryDirectory() as folder:
                answer = run('serve', '--state-dir', folder, '--listen', 'gradpool://127.0.0.1:0',
                             '--lanes-per-core', '2', option, value)
            self.assertEqual(answer.returncode, 2, (option, value))
            self.assertIn(words, answer.stderr)

    def test_an_error_outside_the_command_line_gives_exit_code_1(self):
        answer = run('serve', '--state-dir', '/proc/none')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('/proc/none', answer.stderr)

    def test_an_aggregator_refuses_options_before_it_joins(self):
        for option, value, words in (
                ('--join', 'http://localhost', 'http'), ('--cores', '4000', '4000'),
                ('--interface', 'none9', 'this host has no such network interface'),
                ('--advertise', 'a b', "'a b'"),
                ('--data-port', '65535', 'would end above 65535')):
            answer = run('aggregator', '--join', '127.0.0.1:1', '--lanes-per-core', '2', option,
                         value)
            self.assertEqual(answer.returncode, 2, (option, value))
            self.assertIn(words, answer.stderr)

    def test_an_invalid_endpoint_is_exit_code_2(self):
        for command in ('status', 'jobs'):
            self.assertEqual(run(command, '--endpoint', 'http://x').returncode, 2)

    def test_without_a_service_status_and_jobs_end_with_exit_code_3_and_the_reason(self):
        for command in ('status', 'jobs'):
            answer = run(command, '--endpoint', 'unix:/nowhere/control.sock')
            self.assertEqual(answer.returncode, 3)
            self.assertIn('/nowhere/control.sock', answer.stderr)


class OneService(unittest.TestCase):
    """Cases that only read the state of a service. They share one service."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(aggregators=1)

    @classmethod
    def tearDownClass(cls):
        cls.service.end()

    def test_the_endpoint_is_taken_from_the_environment_and_the_option_wins(self):
        there = {'GRADPOOL_ENDPOINT': self.service.endpoint}
        self.assertEqual(run('status', environment=there).returncode, 0)
        nowhere = {'GRADPOOL_ENDPOINT': 'unix:/nowhere'}
        answer = run('status', '--endpoint', self.service.endpoint, environment=nowhere)
        self.assertEqual(answer.returncode, 0)

    def test_a_command_at_a_local_service_loads_no_libfabric(self):
        for command in 'status', 'jobs':
            answer = run(command, '--endpoint', self.service.endpoint,
                         environment={'LD_DEBUG': 'libs'})
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn('find library=libprotobuf-c', answer.stderr)
            self.assertNotIn('libfabric', answer.stderr)

    def test_status_is_a_table_or_json_with_the_same_figures(self):
        table, as_json = self.service.ask('status'), self.service.ask('status', '--json')
        status = json.loads(as_json.stdout)
        self.assertIn('AGGREGATOR', table.stdout)
        self.assertIn(str(status['aggregators'][0]['pid']), table.stdout)
        self.assertEqual(status['state_dir'], str(self.service.state))
        self.assertEqual(status['pid'], self.service.serve.pid)

    def test_a_missing_job_is_exit_code_3(self):
        answer = self.service.ask('jobs', 'nobody')
        self.assertEqual(answer.returncode, 3)
        self.assertIn('there is no job nobody', answer.stderr)
        self.assertEqual(json.loads(self.service.ask('jobs', '--json').stdout), {'jobs': []})

    def test_a_job_is_shown_with_its_workers(self):
        worker = self.service.worker('shown', 0, 2, '--rounds', '1')
        until(lambda: self.service.job('shown'), 'the job is there', process=worker)
        answer = self.service.ask('jobs', 'shown')
        self.assertEqual(answer.returncode, 0)
        self.assertIn('joining', answer.stdout)
        self.assertIn(str(worker.pid), answer.stdout)
        worker.kill()
        until(lambda: self.service.job('shown') is None, 'the job has ended')

    def test_status_does_not_wait_for_an_aggregator_that_is_stopped(self):
        pid = self.service.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        try:
            watch = progress.Stopwatch()
            # exit status 3: an aggregator is silent
            self.assertIn(self.service.ask('status').returncode, (0, 3))
            self.assertLess(watch.seconds(), 5)
        finally:
            os.kill(pid, signal.SIGCONT)
        # other cases use this service, and `status` of a silent aggregator ends with 3
        until(lambda: self.service.pids('up'), 'an aggregator is up', process=self.service.serve)


class OwnServices(unittest.TestCase):
    """Each case starts its own processes."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-control-'))
        self.ends = contextlib.ExitStack()
        self.ends.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def tearDown(self):
        self.ends.close()

    def service(self, *options, **keywords):
        service = Service(*options, folder=self.folder, **keywords)
        self.ends.callback(service.end)
        return service

    def process(self, *command, name, environment=None, **keywords):
        process = Process([GRADPOOL, *command], self.folder, name, environment, **keywords)
        self.ends.callback(process.end)
        return process

    def test_an_option_may_come_from_the_environment_and_typing_errors_are_named(self):
        state = self.folder / 'from-environment'
        serve = self.process('serve', '--listen', 'gradpool://127.0.0.1:0', '--aggregators', '0',
                             name='serve', environment={'GRADPOOL_STATE_DIR': str(state),
                                                        'GRADPOOL_LISTEN': 'nonsense://',
                                                        'GRADPOOL_POLICIES': 'hash'})
        serve.wait_for('listening on')
        self.assertIn('GRADPOOL_POLICIES; did you mean GRADPOOL_POLICY?', serve.text())
        self.assertTrue((state / 'control.sock').is_socket())
        serve.signal(signal.SIGTERM)
        self.assertEqual(serve.wait(), 0)

    def test_a_loss_limit_under_a_policy_without_limits_is_reported(self):
        serve = self.process('serve', '--listen', 'gradpool://127.0.0.1:0', '--aggregators', '0',
                             '--state-dir', str(self.folder / 'state'), '--policy', 'hash',
                             '--loss-limit', '5%', '--scale', 'on', name='serve')
        serve.wait_for('--loss-limit does nothing')
        serve.wait_for('--scale on does nothing')

    def test_workers_without_room_for_their_window_get_the_name_of_the_option(self):
        service = self.service('--job-memory-max', '1M', aggregators=1)
        for worker in service.workers('wide', 2, '--transport', 'tcp', '--elements', 4096,
                                      '--rounds', 1, '--timeout-ms', 20000):
            self.assertNotEqual(worker.wait(), 0, worker.tail())
            self.assertRegex(worker.text(), r'no memory for the window of [0-9.]+ MiB \(job has '
                                            r'.* of 1 MiB, --job-memory-max\)')

    def test_the_state_dir_has_a_default_place_and_is_private(self):
        serve = self.process('serve', '--listen', 'gradpool://127.0.0.1:0', '--aggregators', '0',
                             name='serve', environment={'XDG_STATE_HOME': str(self.folder)})
        serve.wait_for('listening on')
        self.assertEqual((self.folder / 'gradpool').stat().st_mode & 0o777, 0o700)

    def inside(self, folder, name, *options):
        """Starts `gradpool serve` with this working folder."""
        process = Process(['sh', '-c', f'cd {folder} && exec "$0" "$@"', GRADPOOL, 'serve',
                           '--listen', 'gradpool://127.0.0.1:0', '--cores', '0', *options],
                          self.folder, name)
        self.ends.callback(process.end)
        return process

    def test_a_relative_state_dir_lies_in_the_working_folder(self):
        for path in ('S1', 'a/../S2', './S3/'):
            (self.folder / 'a').mkdir(exist_ok=True)
            serve = self.inside(self.folder, f'serve-{path.strip("/")[-2:]}', '--state-dir', path)
            serve.wait_for('joined with')
            self.assertTrue((self.folder / path / 'control.sock').is_socket())
            self.assertIn(f'state in {self.folder}/', serve.text())
            self.assertEqual(run('tenant', 'list', '--state-dir', self.folder / path).returncode, 0)
            serve.signal(signal.SIGTERM)
            self.assertEqual(serve.wait(), 0)
            self.assertFalse((self.folder / path / 'control.sock').exists())

    def test_a_relative_state_dir_too_deep_for_a_socket_is_refused_before_it_is_made(self):
        deep = self.folder / ('d' * 80)
        deep.mkdir()
        serve = self.inside(deep, 'serve', '--state-dir', 'S1')
        self.assertEqual(serve.wait(), 2)
        self.assertIn(f'{deep}/S1: the path has ', serve.text())
        self.assertEqual(os.listdir(deep), [])

    def test_a_removed_state_dir_is_logged_and_jobs_train_on(self):
        service = self.service(aggregators=1)
        workers = service.workers('before', 2, '--rounds', '300', '--compute-ms', '5', '--verbose')
        for worker in workers:
            worker.wait_for('round 5\n')
        shutil.rmtree(service.state)
        for worker in workers + service.workers('after', 2, '--rounds', '5'):
            self.assertEqual(worker.wait(), 0, worker.text())
        text = service.serve.text()
        self.assertEqual(text.count('was removed or replaced while in use'), 1)
        self.assertIn('in memory, but loses them when it ends', text)
        service.serve.signal(signal.SIGTERM)
        self.assertEqual(service.serve.wait(), 0)

    def test_a_limit_on_file_sizes_refuses_the_request_and_the_service_goes_on(self):
        serve = Process(['bash', '-c', 'ulimit -f 400 && exec "$0" "$@"', GRADPOOL, 'serve',
                         '--state-dir', self.folder / 'state', '--listen', 'gradpool://127.0.0.1:0',
                         '--cores', '0'], self.folder, 'serve')
        self.ends.callback(serve.end)
        serve.wait_for('joined with')
        there = {'GRADPOOL_ENDPOINT': re.search(r'listening on (\S+),', serve.text())[1]}
        large = Process([BENCH, 'push', '--job', 'large', '--rank', '0', '--workers', '1',
                         '--tensors', '4000', '--elements', '8', '--rounds', '1'], self.folder,
                        'large', there)
        self.ends.callback(large.kill)
        self.assertEqual(large.wait(), 1)
        self.assertIn('state.db', large.text())
        self.assertEqual(run('status', environment=there).returncode, 0)
        serve.signal(signal.SIGTERM)
        self.assertEqual(serve.wait(), 0)

    def test_nothing_but_store_and_lock_is_left(self):
        for number in (signal.SIGTERM, signal.SIGINT, None):
            service = self.service()
            pids = service.pids()
            self.assertEqual(service.stop(number), 0)
            self.assertEqual(sorted(os.listdir(service.state)),
                             ['lock', 'state.db', 'state.db-used'])
            self.assertFalse([pid for pid in pids if is_alive(pid)])

    def test_ctrl_c_in_a_terminal_reaches_the_coordinator_only(self):
        service = self.service(aggregators=1)
        self.assertNotEqual(os.getpgid(service.pids()[0]), os.getpgid(service.serve.pid))

    def test_cores_are_split_and_shared_when_there_are_too_few(self):
        service = self.service('--cores', '0', aggregators=2)
        self.assertIn('2 local aggregators share 1 core', service.serve.text())
        cores = [lane['core'] for a in service.status()['aggregators'] for lane in a['lanes']]
        self.assertEqual(cores, [0, 0])

    def test_data_ports_count_up_from_the_base(self):
        base = free_ports(4)
        service = self.service('--data-port', base, '--lanes-per-core', '2', '--cores', '0',
                               aggregators=2)
        ports = sorted(int(lane['ofi'].rsplit(':', 1)[1])
                       for a in service.status()['aggregators'] for lane in a['lanes'])
        self.assertEqual(ports, list(range(base, base + 4)))

    def test_an_aggregator_may_join_by_hand_and_serve(self):
        service = self.service(aggregators=0)
        self.assertEqual(service.ask('status').returncode, 3)
        joined = self.process('aggregator', '--join', service.state / 'control.sock',
                              '--cores', '0', name='joined')
        joined.wait_for('joined as aggregator 1')
        self.assertEqual(service.ask('status').returncode, 0)
        for worker in service.workers('by-hand', 2, '--rounds', '5'):
            self.assertEqual(worker.wait(), 0)
        joined.signal(signal.SIGTERM)
        self.assertEqual(joined.wait(), 0)

    def test_an_aggregator_that_ends_hands_its_jobs_on_first(self):
        # on a busy host an aggregator can pause for longer than the default timeout
        service = self.service('--aggregator-timeout', '30', aggregators=0)
        there = service.endpoint.removeprefix('gradpool://')
        joined = []
        for name in ('first', 'second'):
            joined.append(self.process('aggregator', '--join', there, '--cores', '0', name=name,
                                       environment=service.operator()))
            joined[-1].wait_for('joined as aggregator')
        workers = service.workers('moved', 2, '--tensors', '4', '--rounds', '1000000',
                                  '--compute-ms', '5')
        until(lambda: (service.job('moved') or {}).get('state') == 'training', 'it trains',
              process=service.serve)
        joined[0].signal(signal.SIGHUP)     # the aggregator's tasks move before it ends
        self.assertEqual(joined[0].wait(), 0)
        self.assertIn('moved, epoch 2', service.serve.text())
        # the last aggregator that leaves waits until its jobs end
        joined[1].signal(signal.SIGTERM)
        joined[1].wait_for('this aggregator begins to end')
        joined[1].signal(signal.SIGINT)
        self.assertEqual(joined[1].wait(), 0)
        self.assertIn('this aggregator is ending already', joined[1].text())
        self.assertRegex(service.serve.text(), '(?s)has no tasks left, and leaves.*has ended')
        for worker in workers:  # the workers wait for the next lane, and log this line
            worker.wait_for('is gone, and no lane is left')
        shown = service.job('moved')
        self.assertEqual(shown['state'], 'waiting', shown)

    def test_log_and_status_number_lanes_alike(self):
        service = self.service('--cores', '0', '--lanes-per-core', '2', aggregators=2)
        shown = {lane['lane']: lane['ofi'] for a in service.status()['aggregators']
                 for lane in a['lanes']}
        logged = dict(re.findall(r'lane (\d+): core .* on (\S+)"', service.serve.text()))
        self.assertEqual({int(lane): address for lane, address in logged.items()}, shown)
        self.assertEqual(set(shown), {int(n) for n in re.findall(r'lane (\d+)',
                                                                 service.serve.text())})

    def test_an_aggregator_that_waits_for_a_silent_coordinator_can_be_ended(self):
        with socket.socket() as silent:
            silent.bind(('127.0.0.1', 0))
            silent.listen()
            joining = self.process('aggregator', '--join', '%s:%u' % silent.getsockname(),
                                   '--cores', '0', name='joining')
            silent.settimeout(WAIT_S)
            heard = b''
            while not heard:  # the first connection only finds a path and sends nothing
                peer = silent.accept()[0]  # kept open, so that the peer is silent, not closed
                heard = peer.recv(1)
            joining.signal(signal.SIGINT)
            self.assertEqual(joining.wait(5), -signal.SIGINT)

    def test_an_advertised_address_of_another_host_is_named(self):
        service = self.service(aggregators=0)
        joined = self.process('aggregator', '--join', service.endpoint.removeprefix('gradpool://'),
                              '--cores', '0', '--advertise', '192.0.2.1', name='joined')
        self.assertEqual(joined.wait(), 1)
        self.assertIn('--advertise 192.0.2.1: not an address of this host', joined.text())

    def test_when_local_aggregators_cannot_start_serve_ends_with_the_reason(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            serve = self.process('serve', '--listen', 'gradpool://127.0.0.1:0', '--cores', '0',
                                 '--data-port', taken.getsockname()[1], '--state-dir',
                                 self.folder / 'state', name='serve')
            self.assertEqual(serve.wait(), 1)
        self.assertIn('cannot listen on ofi', serve.text())
        self.assertIn('failed to start 3 times in a row', serve.text())

    def test_too_few_open_files_are_reported_and_end_serve(self):
        for limit, words in ((24, 'serve needs 64 open files at least, but the limit is 24'),
                             (100, 'an aggregator with 8 lanes needs 208 open files at least')):
            serve = Process(['sh', '-c', f'ulimit -n {limit} && exec "$0" "$@"', GRADPOOL, 'serve',
                             '--listen', 'gradpool://127.0.0.1:0', '--cores', '0',
                             '--lanes-per-core', '8', '--state-dir', self.folder / 'state'],
                            self.folder, f'serve-{limit}')
            self.ends.callback(serve.end)
            self.assertEqual(serve.wait(), 1)
            self.assertIn(words, serve.text())
            self.assertIn('LimitNOFILE', serve.text())

    def test_an_aggregator_killed_while_it_starts_is_replaced(self):
        serve = self.process('serve', '--listen', 'gradpool://127.0.0.1:0', '--cores', '0',
                             '--state-dir', self.folder / 'state', name='serve')
        for i in range(4):  # one more than the allowed number of failed starts
            until(lambda: serve.text().count('started a local aggregator') > i, 'it is started',
                  process=serve)
            os.kill(int(re.findall(r'cores 0, pid (\d+)', serve.text())[i]), signal.SIGKILL)
        serve.wait_for('joined with 1 lane')
        self.assertIn('killed by signal 9', serve.text())

    def test_an_aggregator_that_finds_no_coordinator_logs_the_reason(self):
        answer = run('aggregator', '--join', '127.0.0.1:1')
        self.assertEqual(answer.returncode, 1)
        self.assertIn('127.0.0.1:1', answer.stderr)

    def test_an_aggregator_uses_the_kernels_of_its_option(self):
        answer = run('aggregator', '--join', '127.0.0.1:1', environment={'GRADPOOL_KERNELS': 'c'})
        self.assertIn('sums with c', answer.stderr)
        answer = run('aggregator', '--join', '127.0.0.1:1', '--kernels', 'sse9')
        self.assertEqual(answer.returncode, 2)
        self.assertIn("--kernels: 'sse9': expected best, c", answer.stderr)

    def test_an_unknown_lane_policy_is_refused_by_name(self):
        answer = run('aggregator', '--join', '127.0.0.1:1', '--lane-policy', 'lifo')
        self.assertEqual(answer.returncode, 2)
        self.assertIn("--lane-policy: 'lifo': expected fair, shortest or fifo", answer.stderr)

    def test_a_dead_local_aggregator_is_replaced(self):
        service = self.service(aggregators=2)
        killed = service.pids()[0]
        os.kill(killed, signal.SIGKILL)
        until(lambda: service.is_up() and killed not in service.pids(), 'two are up again',
              process=service.serve)
        until(lambda: service.ask('status').returncode == 0, 'both answer', process=service.serve)

    def test_a_coordinator_killed_again_and_again_finds_its_aggregators(self):
        service = self.service(aggregators=2)
        pids, incarnation = sorted(service.pids()), service.status()['incarnation']
        for i in range(3):
            service.serve.kill()
            service.start(f'serve-{i}')
            self.assertEqual(sorted(service.pids()), pids)
            self.assertGreater(service.status()['incarnation'], incarnation)
            incarnation = service.status()['incarnation']
        self.assertEqual(service.stop(), 0)
        self.assertFalse([pid for pid in pids if is_alive(pid)])

    def test_without_a_coordinator_local_aggregators_end_after_a_while(self):
        service = self.service('--orphan-timeout', '1', aggregators=1)
        pid = service.pids()[0]
        service.serve.kill()
        until(lambda: not is_alive(pid), 'the orphan has ended')

    def mounted(self, name, options, *command):
        """Runs `command` with a small or read-only file system mounted at <folder>/mounted."""
        target = self.folder / 'mounted'
        target.mkdir(exist_ok=True)
        mount = f'mount -t tmpfs -o mode=700,{options} none {target} && exec "$0" "$@"'
        process = Process(['unshare', '-m', 'sh', '-c', mount, GRADPOOL, *command], self.folder,
                          name)
        self.ends.callback(process.end)
        return process

    @unittest.skipUnless(os.geteuid() == 0, 'mounting needs root')
    def test_a_read_only_state_dir_is_reported_at_the_start(self):
        serve = self.mounted('serve', 'ro', 'serve', '--state-dir', self.folder / 'mounted',
                             '--listen', 'gradpool://127.0.0.1:0')
        self.assertEqual(serve.wait(), 1)
        self.assertIn('Read-only file system', serve.text())
        self.assertIn('--state-dir', serve.text())

    @unittest.skipUnless(os.geteuid() == 0, 'mounting needs root')
    def test_a_full_state_dir_is_reported_at_the_start(self):
        serve = self.mounted('serve', 'size=8k', 'serve', '--state-dir', self.folder / 'mounted',
                             '--listen', 'gradpool://127.0.0.1:0')
        self.assertEqual(serve.wait(), 1)
        self.assertRegex(serve.text(), 'No space left on device|full')

    @unittest.skipUnless(os.geteuid() == 0, 'mounting needs root')
    def test_a_full_dev_shm_changes_nothing(self):
        """Shared memory uses memfds, so no mount limits it."""
        script = ('mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/x;'
                  'exec "$0" "$@"')
        local = Process(['unshare', '-m', 'sh', '-c', script, BENCH, 'local', '--endpoint',
                         self.service(aggregators=1).endpoint, '--transport', 'shm', '--rounds',
                         '3'], self.folder, 'local')
        self.ends.callback(local.kill)
        self.assertEqual(local.wait(), 0, local.text())

    @unittest.skipUnless(os.geteuid() == 0, 'dropping a capability needs root')
    def test_without_lockable_memory_tcp_works(self):
        def unlockable(name, *command):
            process = Process(['sh', '-c', 'ulimit -l 0 && exec setpriv --bounding-set=-ipc_lock '
                               '"$0" "$@"', *command], self.folder, name)
            self.ends.callback(process.end)
            return process
        serve = unlockable('serve', GRADPOOL, 'serve', '--state-dir', self.folder / 'state',
                           '--listen', 'gradpool://127.0.0.1:0', '--cores', '0')
        serve.wait_for('joined with')
        endpoint = re.search(r'listening on (\S+),', serve.text())[1]
        local = unlockable('local', BENCH, 'local', '--endpoint', endpoint, '--transport', 'tcp',
                           '--rounds', '3')
        self.assertEqual(local.wait(), 0, local.text())
        serve.signal(signal.SIGTERM)
        self.assertEqual(serve.wait(), 0)

    @unittest.skipUnless(os.geteuid() == 0, 'mounting needs root')
    def test_a_disk_that_fills_refuses_the_request_and_the_service_goes_on(self):
        serve = self.mounted('serve', 'size=400k', 'serve', '--state-dir',
                             self.folder / 'mounted', '--listen', 'gradpool://127.0.0.1:0')
        serve.wait_for('joined with')
        endpoint = re.search(r'listening on (\S+),', serve.text())[1]
        there = {'GRADPOOL_ENDPOINT': endpoint}
        full = Process([os.environ['GRADPOOL_BUILD'] + '/bench/gradpool-bench', 'push', '--job',
                        'full', '--rank', '0', '--workers', '1', '--tensors', '4000', '--elements',
                        '8', '--rounds', '1'], self.folder, 'full', there)
        self.ends.callback(full.kill)
        self.assertEqual(full.wait(), 1)
        self.assertIn('No space left on device', full.text())
        self.assertEqual(run('status', environment=there).returncode, 0)
        serve.signal(signal.SIGTERM)
        serve.wait()


if __name__ == '__main__':
    tap.main()
