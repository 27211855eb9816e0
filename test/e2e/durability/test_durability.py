"""Tests parameters and moments after processes die. After a restore from a snapshot, training
continues with the bits of uninterrupted training. Both ranks are in this process. Calls that wait
for the same call of all ranks run in one thread for each rank."""
import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import test_update_rules as rules
import gradpool

WAIT_MS = 90000
# number of times that each tensor repeats the recorded elements
NAMES = {'w': 1, 'a longer one': 30}


def setUpModule():
    rules.UpdateRules.setUpClass()


def all_ranks(function, *of_ranks):
    """Runs the function in all ranks at once, with one item of each list. Raises the first
    error."""
    with concurrent.futures.ThreadPoolExecutor(len(of_ranks[0])) as pool:
        return [done.result() for done in [pool.submit(function, *own) for own in zip(*of_ranks)]]


def snapshot_command(service, job, path):
    return [str(harness.GRADPOOL), 'snapshot', job, '--output', str(path), '--endpoint',
            f'unix:{service.state}/control.sock']


def by_rule(rule, first, steps):
    return rules.by_gradpool(rule, first, rules.UpdateRules.gradients[:steps],
                             'c').astype(numpy.float32).tobytes()


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='gradpool-durability-')
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / 'snapshot'

    def serve(self, *options, aggregators=1):
        self.service = harness.Service(*options, aggregators=aggregators)
        self.addCleanup(self.service.end)

    def join(self, name, transport='shm', rule='adam', durability=None):
        self.clients = [gradpool.connect(self.service.endpoint, transport)
                        for _ in range(rules.WORKERS)]
        self.jobs = [client.join(name, rank, rules.WORKERS, durability=durability)
                     for rank, client in enumerate(self.clients)]
        for client in self.clients:
            self.addCleanup(client.close)
        self.declare(rule)

    def declare(self, rule='adam'):
        self.settings = {'lr': rules.RATE, 'weight_decay': rules.DECAY, **rules.RULES[rule][1]}
        first = rules.UpdateRules.first
        self.tensors = [job.declare_all({name: times * first.size for name, times in NAMES.items()},
                                        rule=rule) for job in self.jobs]
        self.values = [[numpy.tile(first, times) for times in NAMES.values()] for _ in self.jobs]

    def start(self):
        for at in range(len(NAMES)):
            for request in [job.broadcast(tensors[at], values[at]) for job, tensors, values in
                            zip(self.jobs, self.tensors, self.values)]:
                request.wait(WAIT_MS)

    def step(self, number):
        """Starts one step on all ranks. Returns the requests. Only rank 0's settings have an
        effect."""
        return [self.step_of(rank, number) for rank in range(len(self.jobs))]

    def step_of(self, rank, number):
        gradient = rules.UpdateRules.gradients[number][rank]
        return self.jobs[rank].update_group(
            [(tensor, numpy.tile(gradient, times), value) for tensor, value, times in
             zip(self.tensors[rank], self.values[rank], NAMES.values())], **self.settings)

    def train(self, first, end):
        for number in range(first, end):
            for request in self.step(number):
                request.wait(WAIT_MS)

    def check(self, steps, rule='adam'):
        expected = by_rule(rule, rules.UpdateRules.first, steps)
        for values in self.values:
            for value, times in zip(values, NAMES.values()):
                self.assertEqual(value.tobytes(), expected * times)

    def snapshot(self):
        all_ranks(lambda job: job.snapshot(self.path), self.jobs)

    def restore(self):
        """Overwrites all parameters, then restores the snapshot."""
        for values in self.values:
            for value in values:
                value[:] = numpy.nan
        all_ranks(lambda job, tensors, values: job.restore(self.path, dict(zip(tensors, values))),
                  self.jobs, self.tensors, self.values)


class Snapshots(Case):
    def go_on_elsewhere(self, transport, rule):
        self.serve()
        self.join('first', transport, rule)
        self.start()
        self.train(0, 40)
        self.snapshot()
        self.train(40, 45)      # these steps are lost when the service dies
        for pid in self.service.pids() + [self.service.serve.pid]:
            os.kill(pid, signal.SIGKILL)
        for client in self.clients:
            client.close()
        self.service.end()
        self.serve(aggregators=2)
        self.join('second', transport, rule)
        self.restore()
        self.check(40, rule)
        self.train(40, 100)
        self.check(100, rule)

    def test_adam_goes_on_from_a_snapshot_after_everything_was_killed_over_shm(self):
        self.go_on_elsewhere('shm', 'adam')

    def test_momentum_goes_on_from_a_snapshot_after_everything_was_killed_over_tcp(self):
        self.go_on_elsewhere('tcp', 'momentum')

    def test_a_job_that_lost_its_lane_goes_on_from_its_own_snapshot(self):
        self.serve()
        self.join('lost')
        self.start()
        self.train(0, 30)
        self.snapshot()
        self.train(30, 50)
        os.kill(self.service.pids()[0], signal.SIGKILL)
        for request in self.step(50):
            with ranks.expects(self, gradpool.GradpoolError, 'died with the lane'):
                request.wait(WAIT_MS)
        for job, tensors in zip(self.jobs, self.tensors):
            for tensor in tensors:
                job.undeclare(tensor)
        self.declare()
        self.restore()
        self.train(30, 100)
        self.check(100)

    def test_a_snapshot_is_of_one_iteration_and_changes_nothing(self):
        self.serve()
        self.join('often')
        self.start()
        for number in range(0, 20):
            self.train(number, number + 1)
            self.snapshot()
        self.check(20)
        self.restore()
        self.check(20)


class ByOperator(Case):
    """Runs `gradpool snapshot` while the job trains. The workers make no call for the snapshot."""

    def train_on(self):
        """Repeats the recorded training until each rank has an error. Returns the errors. If a lane
        dies after one of two ranks has received its result, this rank gets its error one step
        later."""
        errors, steps = {}, 0
        while len(errors) < len(self.jobs):
            open_requests = [(rank, self.step_of(rank, min(steps, 99)))
                             for rank in range(len(self.jobs)) if rank not in errors]
            for rank, request in open_requests:
                try:
                    request.wait(WAIT_MS)
                except gradpool.GradpoolError as error:
                    errors[rank] = str(error)
            steps += 1
            if steps == 90:
                with self.beginning:
                    if not self.is_killed:  # a broadcast of the first values needs a lane
                        self.begin_again()
                        steps = 0
        return list(errors.values())

    def begin_again(self):
        first = rules.UpdateRules.first
        for values in self.values:
            for value, times in zip(values, NAMES.values()):
                value[:] = numpy.tile(first, times)
        self.start()

    def take(self, name):
        asked = self.service.ask('snapshot', name, '--output', str(self.path), '--json')
        self.assertEqual(asked.returncode, 0, asked.stderr)
        return json.loads(asked.stdout)

    def find_step(self):
        """Returns the step after which the parameters of all ranks have these values."""
        for steps in range(91):
            expected = by_rule('adam', rules.UpdateRules.first, steps)
            if self.values[0][0].tobytes() == expected:
                self.check(steps)
                return steps
        raise AssertionError('these are the parameters of no step')

    def go_on_from_it(self, transport):
        self.serve('--policy', 'round-robin', '--piece-max', '65536', '--scale', 'off',
                   aggregators=2)
        self.join('taken', transport)
        self.start()
        self.beginning = threading.Lock()   # locked while the test must not kill a process
        self.is_killed = False
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            training = pool.submit(self.train_on)
            taken = []
            for _ in range(10):
                time.sleep(random.uniform(0.01, 0.1))
                taken.append(self.take('taken'))
                self.assertFalse(training.done())
            pids = self.service.pids()
            with self.beginning:
                self.is_killed = True
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
            errors = training.result()
        self.assertEqual(len(errors), rules.WORKERS)
        self.assertTrue(all('died with the lane' in error for error in errors), errors)
        rounds = [one['round'] for one in taken]
        self.assertEqual(rounds, sorted(rounds))
        self.assertLess(rounds[0], rounds[-1])
        print(f'# {transport}: rounds {rounds}, stood still for '
              f'{[round(one["stood_ns"] / 1e6, 1) for one in taken]} ms')
        for job, tensors in zip(self.jobs, self.tensors):
            for tensor in tensors:
                job.undeclare(tensor)
        self.declare()
        self.restore()
        steps = self.find_step()
        self.train(steps, 100)
        self.check(100)

    def test_a_job_continues_from_an_operators_snapshot_to_the_same_bits_shm(self):
        self.go_on_from_it('shm')

    def test_a_job_continues_from_an_operators_snapshot_to_the_same_bits_tcp(self):
        self.go_on_from_it('tcp')

    def declare_apart(self, first):
        """Declares two tensors whose values show the number of iterations. `first` runs before the
        training with each rank's (job, tensors, values)."""
        self.serve('--scale', 'off', aggregators=2)
        self.clients = [gradpool.connect(self.service.endpoint) for _ in range(rules.WORKERS)]
        self.jobs = [client.join('apart', rank, rules.WORKERS) for rank, client in
                     enumerate(self.clients)]
        for client in self.clients:
            self.addCleanup(client.close)
        self.values = [[numpy.zeros(50000, numpy.float32) for _ in range(2)] for _ in self.jobs]
        self.tensors = [[] for _ in self.jobs]
        all_ranks(first, self.jobs, self.tensors, self.values)

    @contextlib.contextmanager
    def iterating(self, update):
        """While the block runs, all ranks call update(job, tensors, values, number) repeatedly."""
        over, numbers = threading.Event(), [0] * len(self.jobs)
        together = threading.Barrier(len(self.jobs), timeout=WAIT_MS / 1000)

        def iterate(rank):
            while True:
                if together.wait() == 0:
                    ends.append(over.is_set())
                together.wait()
                if ends[-1]:
                    return
                update(self.jobs[rank], self.tensors[rank], self.values[rank], numbers[rank])
                numbers[rank] += 1
                time.sleep(0.002)
        ends = []
        with concurrent.futures.ThreadPoolExecutor(len(self.jobs)) as pool:
            ranks_done = [pool.submit(iterate, rank) for rank in range(len(self.jobs))]
            try:
                harness.until(lambda: min(numbers) > 10 or any(one.done() for one in ranks_done),
                              'ten iterations')
                yield
            finally:
                over.set()
            for done in ranks_done:
                done.result()

    @staticmethod
    def declare_one(job, tensors, values, name, times=1):
        tensors.append(job.declare(name, values.size, rule='sgd'))
        for _ in range(times):
            job.broadcast(tensors[-1], values).wait(WAIT_MS)

    @staticmethod
    def update_both(job, tensors, values, number):
        for request in [job.update(tensor, numpy.full_like(value, -1), value, lr=1.0)
                        for tensor, value in zip(tensors, values)]:
            request.wait(WAIT_MS)

    def check_of_one_iteration(self, update=None):
        paths = [self.path.with_name(f'of {at}') for at in range(5)]
        with self.iterating(update or self.update_both):
            for path in paths:
                self.take('apart')
                self.path.rename(path)
        reached = []
        for self.path in paths:
            self.restore()
            for first, second in self.values:
                self.assertEqual(first.tobytes(), second.tobytes())
                reached.append(first[0])
        self.assertEqual(reached, sorted(reached))
        self.assertLess(reached[0], reached[-1])

    def test_a_snapshot_has_one_iteration_after_a_tensor_was_broadcast_twice(self):
        def first(job, tensors, values):
            self.declare_one(job, tensors, values[0], 'twice', 2)
            self.declare_one(job, tensors, values[1], 'once')
        self.declare_apart(first)
        self.check_of_one_iteration()

    def test_a_snapshot_has_one_iteration_with_a_tensor_declared_later(self):
        def first(job, tensors, values):
            self.declare_one(job, tensors, values[0], 'early')
            self.update_both(job, tensors, values[:1], 0)
            values[1][:] = values[0]
            self.declare_one(job, tensors, values[1], 'late')
        self.declare_apart(first)
        self.check_of_one_iteration()

    def declare_two(self):
        def first(job, tensors, values):
            self.declare_one(job, tensors, values[0], 'always')
            self.declare_one(job, tensors, values[1], 'at times')
        self.declare_apart(first)

    def test_a_snapshot_is_refused_if_a_tensor_is_updated_only_in_some_iterations(self):
        self.declare_two()
        with self.iterating(lambda job, tensors, values, number:
                            self.update_both(job, tensors[:1 + number % 2], values, number)):
            self.refuses(1, "tensor 'at times' had",
                         'not every tensor is updated once an iteration', job='apart')
        self.assertFalse(self.path.exists())

    def test_a_snapshot_has_one_iteration_with_tensors_that_wait_for_each_other(self):
        def one_by_one(job, tensors, values, number):
            for at in range(2):
                self.update_both(job, tensors[at:at + 1], values[at:at + 1], number)
        self.declare_two()
        self.check_of_one_iteration(one_by_one)

    def test_a_snapshot_has_one_iteration_with_another_order_on_each_rank(self):
        def any_order(job, tensors, values, number):
            requests = []
            for at in random.sample(range(2), 2):
                requests.append(job.update(tensors[at], numpy.full_like(values[at], -1),
                                           values[at], lr=1.0))
                time.sleep(random.uniform(0, 0.003))
            for request in requests:
                request.wait(WAIT_MS)
        self.declare_two()
        self.check_of_one_iteration(any_order)

    def test_a_link_is_followed(self):
        self.serve()
        self.join('linked')
        self.start()
        target = self.path.with_name('target')
        self.path.symlink_to(target.name)
        for _ in range(2):
            self.take('linked')
        self.assertTrue(self.path.is_symlink())
        self.assertFalse(target.is_symlink())
        self.assertEqual({self.path, target}, set(self.path.parent.iterdir()))
        self.restore()
        self.check(0)

    def refuses(self, code, *words, output=None, job='idle'):
        path = self.path if output is None else output
        asked = self.service.ask('snapshot', job, '--output', str(path))
        self.assertEqual(asked.returncode, code, asked.stderr)
        for word in words:
            self.assertIn(word, asked.stderr)

    def test_an_impossible_snapshot_is_refused_and_changes_no_job(self):
        self.serve()
        self.refuses(3, 'there is no job idle')
        self.join('idle')
        self.refuses(1, '/nonexistent/file', output='/nonexistent/file')
        self.refuses(1, 'path of the snapshot is empty', output='')
        self.refuses(1, 'has no parameters: none were broadcast yet')
        self.start()
        os.mkfifo(self.path)    # a special file, like /dev/null
        self.refuses(1, 'no regular file')
        self.path.unlink()
        self.train(0, 2)
        self.take('idle')
        self.assertEqual([self.path], list(self.path.parent.iterdir()))  # no temporary file is left
        with gradpool.connect(self.service.endpoint) as client, \
                client.join('sums', 0, 1) as job:
            job.declare('only a sum', 10)
            self.refuses(1, 'no tensor with an update rule', job='sums')
        self.train(2, 10)
        self.check(10)
        self.restore()
        self.check(2)

    def test_a_stopped_reader_of_a_snapshot_delays_no_rank_and_leaves_no_file(self):
        self.serve()
        self.join('big')
        self.start()
        command = snapshot_command(self.service, 'big', self.path)
        for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            for wait in (0.002, 0.004, 0.006, 0.008, 0.01):
                asker = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                time.sleep(wait)
                asker.send_signal(number)
                asker.wait()
                self.assertLessEqual(set(self.path.parent.iterdir()), {self.path})
                self.train(0, 3)
        self.begin_again()
        self.train(0, 10)
        self.check(10)


class Refusals(Case):
    def fails(self, what, *words):
        """Checks that the call fails on every rank. Only the error of rank 0 contains the reason.
        """
        def call(job):
            with self.assertRaises(gradpool.GradpoolError) as raised:
                what(job)
            return raised.exception
        errors = all_ranks(call, self.jobs)
        for word in words:
            self.assertIn(word, str(errors[0]))
        self.assertEqual({error.errno for error in errors}, {errors[0].errno})
        return errors[0]

    def setUp(self):
        super().setUp()
        self.serve()
        self.join('refused')
        self.start()
        self.train(0, 2)

    def test_a_file_that_is_damaged_or_missing_restores_nothing(self):
        self.snapshot()
        data = bytearray(self.path.read_bytes())
        data[-100] ^= 1
        self.path.write_bytes(data)
        self.fails(lambda job: job.restore(self.path), 'its checksum is wrong')
        self.path.write_text('no snapshot at all, but text')
        self.fails(lambda job: job.restore(self.path), 'the file is no snapshot')
        self.path.unlink()
        self.assertEqual(self.fails(lambda job: job.restore(self.path), str(self.path)).errno,
                         errno.ENOENT)
        self.train(2, 10)
        self.check(10)

    def test_a_snapshot_of_other_tensors_is_refused_by_name(self):
        self.snapshot()
        for job in self.jobs:
            job.declare('another', 5, rule='sgd')
        self.fails(lambda job: job.restore(self.path), "no tensor 'another'")

    def test_a_place_that_cannot_be_written_is_an_error_on_every_rank(self):
        self.fails(lambda job: job.snapshot('/nonexistent/file'), '/nonexistent/file')
        self.train(2, 10)
        self.check(10)

    def test_ranks_that_declared_different_tensors_get_an_error(self):
        self.jobs[0].declare('alone', 5, rule='sgd')
        self.fails(lambda job: job.snapshot(self.path), 'different tensors')
        self.assertFalse(self.path.exists())


if __name__ == '__main__':
    tap.main()
