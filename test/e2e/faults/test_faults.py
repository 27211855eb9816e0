"""Tests faults of a real service, and their effect on other jobs."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import sys
import tempfile
import time
import unittest

import harness
import progress
import tap
from harness import (BENCH, GRADPOOL, WAIT_S, Process, Service, cpu_s, cut_connections,
                     finish_training, is_alive, result, until)

# Sizes of the tests: elements of the round in which a process dies, computing time before it,
# rounds before it, and rounds of another job. A build with sanitizers (`--fifth`) is slower and
# uses smaller values.
ELEMENTS, COMPUTE_MS, ROUNDS_BEFORE, ROUNDS_BESIDE = \
    (60000, 100, 10, 100) if '--fifth' in sys.argv else (300000, 10, 20, 600)
FOREVER = ('--rounds', '1000000', '--verbose', '--elements', str(ELEMENTS // 3), '--compute-ms',
           str(COMPUTE_MS // 2))
IDLE_JOBS = 20
TRIES = 5
# Within QUIET_S two local aggregators are pinged two or three times each. Each ping wakes the
# coordinator and the aggregator's control thread once or twice, but no lane.
QUIET_S, SERVICE_WAKES = 4, 22


def lane_ports(service):
    return [int(lane['ofi'].rsplit(':', 1)[1]) for a in service.status()['aggregators']
            for lane in a['lanes']]


def cut_one(worker, ports):
    """Closes a connection between a running worker and a running lane."""
    if not any(cut_connections(worker.pid, port) for port in ports):
        raise AssertionError(f'{worker.name} has no connection to a lane')


def wakes(pid):
    """Returns how often the threads of the process have woken up so far."""
    total = 0
    for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
        with contextlib.suppress(OSError):
            total += int(re.search(r'\nvoluntary_ctxt_switches:\s*(\d+)',
                                   (task / 'status').read_text())[1])
    return total


def mapped_bytes(pid, name):
    """Returns the number of bytes mapped by a process from memory files with this name."""
    harness.descriptors(pid)    # skips the test where maps cannot be read
    total = 0
    for line in pathlib.Path(f'/proc/{pid}/maps').read_text().splitlines():
        if f'/memfd:{name} (deleted)' in line:
            start, end = line.split()[0].split('-')
            total += int(end, 16) - int(start, 16)
    return total


class Faults(unittest.TestCase):
    """Each case starts its own workers. All cases share the service."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service()

    @classmethod
    def tearDownClass(cls):
        cls.service.end()

    def setUp(self):
        self.started = len(self.service.children)

    def tearDown(self):
        for child in self.service.children[self.started:]:
            child.kill()

    def training(self, job, count, *options):
        workers = self.service.workers(job, count, *FOREVER, *options)
        for worker in workers:
            worker.wait_for('round 5\n')
        return workers

    def check_other_job(self, transport='auto'):
        """Checks that another job trains without an error."""
        for worker in self.service.workers(f'other-{time.monotonic_ns()}', 2, '--rounds', '20',
                                           '--transport', transport):
            self.assertEqual(result(worker)['wrong'], 0)

    def kill_a_worker(self, transport):
        job = f'killed-{transport}'
        workers = self.training(job, 3, '--transport', transport)
        watch = progress.Stopwatch()
        workers[2].kill()
        for worker in workers[:2]:
            self.assertEqual(worker.wait(), 1)
            self.assertLess(watch.seconds(), 2.0)
        # one survivor names rank 2; on a busy host the other one may name the first survivor, which
        # has ended
        texts = [worker.text() for worker in workers[:2]]
        self.assertTrue(any('rank 2 of job' in text for text in texts), texts)
        for text, other in zip(texts, (1, 0)):
            self.assertRegex(text, f'rank (2|{other}) of job')
        self.check_other_job(transport)
        until(lambda: self.service.job(job) is None, 'the failed job is forgotten')

    def test_a_worker_killed_in_mid_round_is_named_to_the_others_within_two_seconds_shm(self):
        self.kill_a_worker('shm')

    def test_a_worker_killed_in_mid_round_is_named_to_the_others_within_two_seconds_tcp(self):
        self.kill_a_worker('tcp')

    def test_a_connection_that_is_cut_is_made_again(self):
        workers = self.training('cut', 3, '--transport', 'tcp')
        cut_one(workers[1], lane_ports(self.service))
        finish_training(*workers)
        self.check_other_job('tcp')

    def test_memory_of_a_killed_job_is_given_back(self):
        self.await_empty_lanes()
        workers = self.training('memory', 2)
        until(lambda: self.arena_bytes() > 0, 'the lanes hold memory of the job')
        for worker in workers:
            worker.kill()
        self.await_empty_lanes()

    def stop_a_worker(self, transport):
        job = f'stopped-{transport}'
        workers = self.training(job, 2, '--transport', transport, '--timeout-ms', '600000')
        other = self.service.workers('beside-' + transport, 2, '--rounds', str(ROUNDS_BESIDE),
                                     '--elements', '50000', '--transport', transport)
        workers[1].signal(signal.SIGSTOP)
        for worker in other:
            self.assertEqual(result(worker)['wrong'], 0)
        time.sleep(3)  # the fault of this case: the worker is stopped for three seconds
        self.assertIsNone(workers[0].child.poll())
        seen = len(workers[0].text())
        workers[1].signal(signal.SIGCONT)
        until(lambda: len(workers[0].text()) > seen + 100, 'training goes on', process=workers[0])

    def test_a_worker_stopped_for_three_seconds_is_late_and_not_dead_shm(self):
        self.stop_a_worker('shm')

    def test_a_worker_stopped_for_three_seconds_is_late_and_not_dead_tcp(self):
        self.stop_a_worker('tcp')

    def test_a_push_that_one_rank_never_makes_ends_at_the_deadline_naming_that_rank(self):
        texts = []
        # the text lacks the rank if the lane did not answer within a second, so the test tries a
        # new job
        while len(texts) < TRIES and not any('rank 1' in text for text in texts):
            job = f'missing-{len(texts)}'
            self.service.worker(job, 2, 3, '--rounds', '2')
            until(lambda job=job: (self.service.job(job) or {}).get('tensors'), 'rank 2 declares')
            waiting = self.service.worker(job, 0, 3, '--rounds', '2', '--timeout-ms', '2000')
            self.assertEqual(waiting.wait(), 1)
            texts.append(waiting.text())
        self.assertRegex(texts[-1], r"tensor\.0.* round 1.*rank 1\b.* 2000 ms")

    def test_ranks_that_disagree_on_the_size_all_get_an_error_with_ranks_and_values(self):
        first = self.service.worker('sizes', 0, 2, '--elements', '1000', '--timeout-ms', '20000')
        until(lambda: (self.service.job('sizes') or {}).get('tensors'), 'rank 0 has declared')
        second = self.service.worker('sizes', 1, 2, '--elements', '1001')
        for worker in first, second:
            self.assertEqual(worker.wait(), 1)
            for word in 'tensor.0', '1000', '1001', 'rank 0', 'rank 1':
                self.assertIn(word, worker.text())

    def test_ranks_that_disagree_on_the_operation_all_get_an_error(self):
        workers = [self.service.worker('operations', 0, 2),
                   self.service.worker('operations', 1, 2, '--mean')]
        for worker in workers:
            self.assertEqual(worker.wait(), 1)
            self.assertRegex(worker.text(), r'rank \d pushes (sum|mean), others (sum|mean)')

    def test_a_taken_rank_is_refused_with_the_name_of_its_process(self):
        workers = self.training('taken', 2)
        double = self.service.worker('taken', 1, 2, name='double')
        self.assertEqual(double.wait(), 1)
        self.assertIn('rank 1', double.text())
        self.assertIn(str(workers[1].pid), double.text())
        self.assertIsNone(workers[0].child.poll())

    def test_another_number_of_workers_is_refused(self):
        self.training('count', 2)
        other = self.service.worker('count', 2, 3, name='other')
        self.assertEqual(other.wait(), 1)
        self.assertRegex(other.text(), r'2 workers')

    def test_a_tensor_without_elements_synchronises(self):
        for worker in self.service.workers('empty', 2, '--elements', '0', '--rounds', '10'):
            self.assertEqual(result(worker)['rounds'], 10)

    def lap(self, transport):
        for worker in self.service.workers(f'lap-{transport}', 3, '--rounds', '100', '--elements',
                                           '5000', '--compute-ms', '1', '--slow-rank', '1',
                                           '--transport', transport):
            self.assertEqual(result(worker)['wrong'], 0)

    def test_a_fast_worker_laps_a_slow_one_and_every_element_is_right_shm(self):
        self.lap('shm')

    def test_a_fast_worker_laps_a_slow_one_and_every_element_is_right_tcp(self):
        self.lap('tcp')

    def test_opposite_orders_of_many_inline_tensors_do_not_block(self):
        for worker in self.service.workers('inline', 3, '--tensors', '400', '--elements', '250',
                                           '--group', '1', '--shuffle', '--rounds', '5',
                                           '--transport', 'tcp'):
            self.assertEqual(result(worker)['wrong'], 0)

    def test_foreign_memory_in_place_gives_the_right_mean(self):
        for transport in 'shm', 'tcp':
            for worker in self.service.workers(f'foreign-{transport}', 3, '--foreign', '--in-place',
                                               '--mean', '--tensors', '7', '--elements', '30001',
                                               '--rounds', '10', '--transport', transport):
                self.assertEqual(result(worker)['wrong'], 0)

    def test_the_error_of_an_unknown_host_names_the_host(self):
        worker = Process([BENCH, 'push', '--endpoint', 'gradpool://no.such.host.invalid:7077'],
                         self.service.folder, 'unknown')
        self.assertEqual(worker.wait(), 1)
        self.assertIn('no.such.host.invalid', worker.text())

    def test_the_error_of_a_refused_port_has_the_next_step(self):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]   # a free port, without a listener
            worker = Process([BENCH, 'push', '--endpoint', f'gradpool://127.0.0.1:{port}'],
                             self.service.folder, 'refused')
            self.assertEqual(worker.wait(), 1)
        self.assertIn(f'127.0.0.1:{port}', worker.text())
        self.assertIn('gradpool serve', worker.text())

    def garbage(self, host, port):
        for data in (b'GET / HTTP/1.1\r\n\r\n', b'\xff' * 4096, b'\0' * 4096,
                     os.urandom(1000), b''):
            with socket.create_connection((host, int(port)), WAIT_S) as peer:
                peer.settimeout(0.2)
                with contextlib.suppress(OSError):  # the expected answer is a closed connection
                    peer.sendall(data)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass

    def test_garbage_on_the_control_port_does_no_harm(self):
        workers = self.training('garbage-control', 2)
        self.garbage(*self.service.endpoint.removeprefix('gradpool://').rsplit(':', 1))
        self.check_other_job()
        self.assertIsNone(workers[0].child.poll())

    def test_a_hello_of_another_version_is_refused_with_both_versions(self):
        """The message is written by hand: the length of a frame, then Envelope{id = 1, hello =
        {version = 99, role = 1}}."""
        hello = bytes((0x08, 99, 0x10, 1))
        message = bytes((0x08, 1, 0x12, len(hello))) + hello
        host, port = self.service.endpoint.removeprefix('gradpool://').rsplit(':', 1)
        with socket.create_connection((host, int(port)), WAIT_S) as peer:
            peer.sendall(len(message).to_bytes(4, 'little') + message)
            answer = b''
            while part := peer.recv(4096):  # the service closes the connection
                answer += part
        self.assertRegex(answer.decode(errors='replace'),
                         r'speaks protocol version \d+, this client speaks 99')
        self.assertNotIn(b'version 99', answer)

    def test_garbage_on_the_data_ports_does_no_harm(self):
        workers = self.training('garbage-data', 2, '--transport', 'tcp')
        pids = self.service.pids()
        for aggregator in self.service.status()['aggregators']:
            for lane in aggregator['lanes']:
                self.garbage(*lane['ofi'].rsplit(':', 1))
        self.check_other_job('tcp')
        self.assertIsNone(workers[0].child.poll())
        self.service.await_pids(pids)

    def test_garbage_on_a_lane_s_local_socket_does_no_harm(self):
        workers = self.training('garbage-shm', 2, '--transport', 'shm')
        pids = self.service.pids()
        for aggregator in self.service.status()['aggregators']:
            for lane in aggregator['lanes']:
                for kind in socket.SOCK_SEQPACKET, socket.SOCK_STREAM:
                    with socket.socket(socket.AF_UNIX, kind) as peer:
                        try:
                            peer.connect('\0' + lane['shm'].removeprefix('@'))
                            peer.sendall(os.urandom(500))
                        except OSError:
                            pass
        self.check_other_job('shm')
        self.assertIsNone(workers[0].child.poll())
        self.service.await_pids(pids)

    def test_a_silent_peer_delays_no_job(self):
        host, port = self.service.endpoint.removeprefix('gradpool://').rsplit(':', 1)
        with socket.create_connection((host, int(port)), WAIT_S):
            self.check_other_job()

    def test_idle_lanes_coordinator_and_workers_use_no_cpu(self):
        """An idle lane must block: it may use less than one percent of a core over two seconds."""
        workers = []
        for transport in 'shm', 'tcp':
            workers += self.service.workers(f'idle-{transport}', 3, '--compute-ms', '600000',
                                            '--transport', transport)
            until(lambda: (self.service.job(f'idle-{transport}') or {'use': {}})['use'].get(
                'connections') == 3, 'the idle workers are connected')
        pids = [self.service.serve.pid, *self.service.pids(), *(w.pid for w in workers)]
        used = {}

        def are_idle():     # a process that started a moment ago may still be busy
            before = {pid: cpu_s(pid) for pid in pids}
            time.sleep(2)  # the measured time
            used.update((pid, round(cpu_s(pid) - before[pid], 2)) for pid in pids)
            return max(used.values()) < 0.02 + 0.01
        until(are_idle, lambda: f'two seconds without CPU: {used}')

    @unittest.skipIf('--fifth' in sys.argv, 'a thread of the sanitizer itself wakes up')
    def test_idle_seconds_wake_no_worker_and_the_service_for_pings_only(self):
        """Starts many jobs, because a periodic timer in the service would wake each of them."""
        until(lambda: not self.service.status()['jobs'], 'no job is left')
        for job in range(IDLE_JOBS):
            self.service.worker(f'quiet-{job}', 0, 1, '--compute-ms', '600000', '--transport',
                                ('shm', 'tcp')[job % 2])
        until(lambda: sum(job['use'].get('connections', 0) for job in
                          json.loads(self.service.ask('jobs', '--json').stdout)['jobs'])
              == IDLE_JOBS, 'the idle workers are connected')
        service = [self.service.serve.pid, *self.service.pids()]
        workers = [worker.pid for worker in self.service.children[self.started:]]
        seen = {}

        def is_quiet():
            before = [sum(map(wakes, pids)) for pids in (service, workers)]
            time.sleep(QUIET_S)  # the counted time
            after = [sum(map(wakes, pids)) for pids in (service, workers)]
            seen.update(zip(('service', 'workers'), (b - a for a, b in zip(before, after))))
            return seen['service'] <= SERVICE_WAKES and seen['workers'] == 0
        until(is_quiet, lambda: f'{QUIET_S} s with {SERVICE_WAKES} wake-ups at most: {seen}')
        print(f'# wake-ups in {QUIET_S} s: {seen}')

    def arena_bytes(self):
        """Returns the memory of all lanes. For an aggregator that does not answer in time, the
        status contains older figures."""
        return sum(lane['arena_bytes'] for a in self.service.status()['aggregators']
                   for lane in a['lanes'])

    def await_empty_lanes(self):
        until(lambda: not self.service.status()['jobs'] and self.arena_bytes() == 0,
              'no job is left, and no memory of lanes')

    def test_memory_of_a_job_is_the_arena_s_figure_and_the_lent_memory(self):
        self.await_empty_lanes()
        workers = self.training('figures', 2, '--tensors', '50')
        lent = sum(mapped_bytes(worker.pid, 'gradpool') for worker in workers)
        self.assertGreater(lent, 2 * 50 * 4 * (ELEMENTS // 3))
        figures = {}

        def agree():
            use = self.service.job('figures')['use']
            figures.update(arena=self.arena_bytes(), heap=use['heap_bytes'],
                           registered=use['registered_bytes'])
            return abs(figures['heap'] - figures['arena']) <= 0.05 * figures['arena'] and \
                abs(figures['registered'] - lent) <= 0.05 * lent
        until(agree, lambda: f'figures {figures}, {lent} bytes are lent')


class Killed(unittest.TestCase):
    """Kills processes of the service. Training must continue with the same bits."""

    def setUp(self):
        self.service = Service()

    def tearDown(self):
        self.service.end()

    def start(self, transport, *options):
        workers = self.service.workers('job', 3, '--rounds', '1000000', '--verbose', '--elements',
                                       str(ELEMENTS), '--compute-ms', str(COMPUTE_MS),
                                       '--transport', transport, *options)
        for worker in workers:
            worker.wait_for(f'round {ROUNDS_BEFORE}\n')
        return workers

    def kill_coordinator(self, transport):
        workers = self.start(transport)
        epoch, lanes = (self.service.job('job')[k] for k in ('epoch', 'lanes'))
        pids = self.service.pids()
        self.service.serve.kill()
        seen = len(workers[0].text())
        until(lambda: len(workers[0].text()) > seen + 200, 'training goes on without a coordinator')
        self.service.start('serve-again')
        until(lambda: self.service.job('job')['state'] == 'training', 'it is shown as training')
        job = self.service.job('job')
        self.assertEqual((job['epoch'], job['lanes']), (epoch, lanes))
        self.service.await_pids(pids)
        finish_training(*workers)

    def test_a_coordinator_killed_and_started_again_is_not_noticed_by_jobs_shm(self):
        self.kill_coordinator('shm')

    def test_a_coordinator_killed_and_started_again_is_not_noticed_by_jobs_tcp(self):
        self.kill_coordinator('tcp')

    def kill_aggregator(self, transport):
        workers = self.start(transport, '--tensors', '4', '--foreign')
        for pid in self.service.pids():
            os.kill(pid, signal.SIGKILL)
            until(lambda: pid not in self.service.pids() and len(self.service.pids()) == 2,
                  'a new aggregator has taken its place', process=self.service.serve)
            seen = len(workers[0].text())
            until(lambda: len(workers[0].text()) > seen + 100, 'training goes on',
                  process=workers[0])
        finish_training(*workers)

    def test_an_aggregator_killed_in_mid_round_changes_no_bit_shm(self):
        self.kill_aggregator('shm')

    def test_an_aggregator_killed_in_mid_round_changes_no_bit_tcp(self):
        self.kill_aggregator('tcp')

    def test_coordinator_and_aggregators_killed_together_and_started_again_change_no_bit(self):
        workers = self.start('auto', '--tensors', '4')
        pids = self.service.pids()
        self.service.serve.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.service.start('serve-again')
        finish_training(*workers)

    def test_a_connection_cut_while_the_coordinator_is_away_is_made_again_without_it(self):
        workers = self.service.workers('job', 2, *FOREVER, '--transport', 'tcp')
        for worker in workers:
            worker.wait_for('round 5\n')
        ports = lane_ports(self.service)
        self.service.serve.kill()
        cut_one(workers[1], ports)
        for worker in workers:
            before = worker.text().count('round ')
            until(lambda worker=worker, before=before: worker.text().count('round ') > before + 5,
                  f'{worker.name} trains on', process=worker)
        self.service.start('serve-again')
        finish_training(*workers)

    def end_by(self, number):
        shared = set(os.listdir('/dev/shm'))
        workers = self.start('auto')
        pids = self.service.pids() + [self.service.serve.pid]
        lanes = [lane['shm'] for a in self.service.status()['aggregators'] for lane in a['lanes']]
        sockets = pathlib.Path('/proc/net/unix').read_text()
        self.assertTrue(lanes)
        # the sockets exist now, and must be absent after the stop
        for address in [*lanes, str(self.service.state)]:
            self.assertIn(address, sockets)
        code = self.service.stop(number)
        for pid in pids:
            until(lambda: not is_alive(pid), f'process {pid} is gone')
        for worker in workers:
            self.assertEqual(worker.wait(), 1)
        self.assertEqual(sorted(p.name for p in self.service.state.iterdir() if p.is_socket()), [])
        sockets = pathlib.Path('/proc/net/unix').read_text()
        for address in [*lanes, str(self.service.state)]:
            self.assertNotIn(address, sockets)
        self.assertEqual([name for name in set(os.listdir('/dev/shm')) - shared
                          if 'gradpool' in name], [])
        return code

    def test_ctrl_c_leaves_no_process_and_no_socket_and_exits_with_0(self):
        self.assertEqual(self.end_by(signal.SIGINT), 0)

    def test_gradpool_stop_leaves_no_process_and_no_socket_and_exits_with_0(self):
        self.assertEqual(self.end_by(None), 0)

    def test_a_second_serve_on_the_same_state_dir_is_refused_with_the_reason(self):
        second = harness.run([str(GRADPOOL), 'serve', '--state-dir', str(self.service.state),
                              '--listen', 'gradpool://127.0.0.1:0'], capture_output=True,
                             text=True, timeout=30, check=False)
        self.assertEqual(second.returncode, 1)
        self.assertIn(str(self.service.serve.pid), second.stderr)
        self.assertIn('in use', second.stderr)


@unittest.skipUnless(os.geteuid() == 0, 'a read-only file system needs root to be mounted')
class StateDir(unittest.TestCase):

    def test_a_read_only_state_dir_is_refused_at_start_with_the_reason(self):
        """Makes the directory read-only with a mount in a separate namespace, because root may
        write despite permissions."""
        with tempfile.TemporaryDirectory(prefix='gradpool-test-') as folder:
            script = 'mount -t tmpfs -o ro none "$1" && exec "$2" serve --state-dir "$1/state" ' \
                     '--listen gradpool://127.0.0.1:0'
            serve = harness.run(['unshare', '--mount', 'sh', '-c', script, 'sh', folder,
                                 str(GRADPOOL)], capture_output=True, text=True, timeout=30,
                                check=False)
            self.assertEqual(serve.returncode, 1)
            self.assertIn(f'{folder}/state', serve.stderr)
            self.assertRegex(serve.stderr.lower(), 'read-only')


if __name__ == '__main__':
    tap.main()
