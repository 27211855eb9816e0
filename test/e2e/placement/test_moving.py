"""Moves tasks between lanes while their jobs train. Sums must stay right to the last bit. A drained
aggregator may be stopped. If the coordinator dies during a move, no task is lost."""
import json
import os
import random
import signal
import statistics
import subprocess
import time
import unittest

import numpy

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import harness
import tap
import test_update_rules as rules
import gradpool
from harness import GRADPOOL, Service, end_training, finish_training, is_alive, until

SEED = tap.seed(20261121)
MOVES = 40 if os.environ.get('GRADPOOL_TEST_LONG') else 12
WAIT_MS = 90000
TRIES = 4   # attempts; the first move may go to the task's present lane, or the host may be slow


class Case(unittest.TestCase):
    """Starts a service of two aggregators with two lanes each. The service makes no automatic
    moves."""

    def setUp(self):
        self.service = Service('--lanes-per-core', 2, '--scale', 'off')
        self.addCleanup(self.service.end)
        self.random = random.Random(SEED)

    def lanes(self):
        return [lane['lane'] for a in self.service.serving() for lane in a['lanes']]

    def start_move(self, lane, job='adam'):
        """Starts the command but does not wait for its end."""
        return subprocess.Popen([GRADPOOL, 'move', job, str(lane), '--endpoint',
                                 f'unix:{self.service.state}/control.sock'],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def done(self, move):
        said = harness.finish(move, 30)[1]
        self.assertEqual(move.returncode, 0, said)

    def train(self, job, transport):
        workers = self.service.workers(job, 2, '--transport', transport, '--tensors', 3,
                                       '--elements', 100000, '--compute-ms', 5, '--verbose',
                                       '--rounds', 1000000)
        for worker in workers:
            worker.wait_for('round 5\n')
        return workers


class Sums(Case):
    def move_while_it_trains(self, transport):
        workers, lanes, moves = self.train('job', transport), self.lanes(), 0
        for _ in range(MOVES):
            answer = self.service.ask('move', 'job', str(self.random.choice(lanes)))
            moves += 'moved' in answer.stdout
        finish_training(*workers)
        self.assertGreater(moves, MOVES // 3)
        print(f'# {transport}: {moves} moves of all tasks (seed {SEED})')

    def test_a_job_that_moves_to_and_fro_has_right_sums_shm(self):
        self.move_while_it_trains('shm')

    def test_a_job_that_moves_to_and_fro_has_right_sums_tcp(self):
        self.move_while_it_trains('tcp')

    def test_a_drained_aggregator_can_be_stopped_and_no_job_notices(self):
        jobs = [self.train('one', 'shm'), self.train('two', 'tcp')]
        drained = self.service.status()['aggregators'][0]
        answer = self.service.ask('drain', 'aggregator', str(drained['aggregator']))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        state = next(a for a in self.service.status()['aggregators']
                     if a['aggregator'] == drained['aggregator'])
        self.assertEqual([lane['state'] for lane in state['lanes']], ['withheld'] * 2)
        self.assertEqual([lane['tasks'] for lane in state['lanes']], [0] * 2)
        os.kill(drained['pid'], signal.SIGTERM)
        until(lambda: drained['pid'] not in self.service.pids() and len(self.service.pids()) == 2,
              'it has ended, and another one has come', process=self.service.serve)
        for workers in jobs:
            finish_training(*workers)

    def test_an_impossible_move_is_refused(self):
        workers = self.train('job', 'shm')
        for words, code, text in ((('move', 'job', '99'), 3, 'no lane 99'),
                                  (('move', 'nobody', '1'), 3, 'no job nobody'),
                                  (('move', 'job'), 2, 'LANE'), (('move', 'job', 'x'), 2, 'lane'),
                                  (('move', 'task:job', '1'), 2, 'task:job'),
                                  (('move', 'job:', '1'), 2, 'job:'),
                                  (('move', 'job:nobody', '1'), 3, 'no job nobody'),
                                  (('move', 'task:999', '1'), 3, 'no task 999'),
                                  (('drain', 'lane', '99'), 3, 'no lane 99'),
                                  (('drain', 'rack', '1'), 2, 'rack')):
            answer = self.service.ask(*words)
            self.assertEqual(answer.returncode, code, answer.stderr)
            self.assertIn(text, answer.stderr)
        for a in self.service.status()['aggregators']:
            answer = self.service.ask('drain', 'aggregator', str(a['aggregator']))
        self.assertEqual(answer.returncode, 1)
        self.assertIn('job job', answer.stderr)
        self.assertEqual(self.service.job('job')['state'], 'training')
        for worker in workers:
            worker.kill()

    def tasks(self, job):
        answer = self.service.ask('explain', job, '--json')
        return {p['task']: p['lane'] for j in json.loads(answer.stdout)['jobs']
                for p in j['tasks']}

    def test_a_move_by_a_number_that_names_a_job_and_a_task_is_refused(self):
        other = self.train('other', 'shm')
        number = str(min(self.tasks('other')))
        workers = self.train(number, 'shm')
        first, last = self.lanes()[0], self.lanes()[-1]
        lanes = self.tasks('other')
        answer = self.service.ask('move', number, str(last))
        self.assertEqual(answer.returncode, 1, answer.stdout)
        self.assertIn(f'`job:{number}\'', answer.stderr)
        self.assertIn(f'`task:{number}\'', answer.stderr)
        for lane in (first, last):
            self.assertEqual(self.service.ask('move', f'job:{number}', str(lane)).returncode, 0)
            self.assertEqual(set(self.tasks(number).values()), {lane})
            self.assertEqual(self.tasks('other'), lanes)
        for lane in (first, last):
            answer = self.service.ask('move', f'task:{number}', str(lane))
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(self.tasks('other')[int(number)], lane)
            self.assertEqual(set(self.tasks(number).values()), {last})
        for worker in workers + other:
            worker.kill()


class Restarts(Case):
    def is_back(self, name):
        return {rank['state'] for rank in self.service.job(name)['ranks']} == {'joined'}

    def test_a_coordinator_killed_in_mid_move_loses_no_round(self):
        jobs = [self.train('one', 'shm'), self.train('two', 'tcp')]
        said = ''
        for number in range(6):
            lanes, stopped = self.lanes(), self.service.pids()[number % 2]
            os.kill(stopped, signal.SIGSTOP)  # the stopped aggregator cannot answer now
            moves = [self.start_move(self.random.choice(lanes), job) for job in ('one', 'two')]
            until(lambda: self.service.serve.text().count('tasks leave for') >= 2 or
                  any(m.poll() is not None for m in moves), 'both moves have begun',
                  process=self.service.serve)
            self.service.serve.kill()
            os.kill(stopped, signal.SIGCONT)
            for move in moves:
                said += harness.finish(move, 60)[1]
            self.service.start(f'serve-{number}')
            until(lambda: all(self.is_back(job) for job in ('one', 'two')),
                  'the workers are back', process=self.service.serve)
        self.assertIn('the connection to the service at ', said)
        self.assertIn(' ended before the answer: the service was restarted, or this command was '
                      'stopped for long', said)
        self.assertNotIn('closed the connection', said)
        for workers in jobs:
            finish_training(*workers)


class Ends(Case):
    def test_an_aggregator_that_is_stopped_while_a_move_waits_for_a_round_ends(self):
        workers = self.service.workers('slow', 2, '--tensors', 3, '--elements', 1000,
                                       '--rounds', 1000000, '--compute-ms', 1000, '--verbose')
        source, target = self.service.serving()
        for worker in workers:
            worker.wait_for('round 2\n')
        self.done(self.start_move(source['lanes'][0]['lane'], 'slow'))
        rounds = workers[0].text().count('round ')
        until(lambda: workers[0].text().count('round ') > rounds + 1, 'its lane knows how far '
              'rounds are apart, and the one to move behind is a second away', process=workers[0])
        leaves = self.service.serve.text().count('tasks leave for')
        move = self.start_move(target['lanes'][0]['lane'], 'slow')
        until(lambda: self.service.serve.text().count('tasks leave for') > leaves,
              'the move has begun', process=self.service.serve)
        time.sleep(0.05)
        os.kill(source['pid'], signal.SIGTERM)
        until(lambda: not is_alive(source['pid']), 'it has ended', 8, self.service.serve)
        self.service.serve.wait_for(f'pid {source["pid"]} has ended: exit code 0')
        harness.finish(move, 30)
        for worker in workers:
            rounds = worker.text().count('round ')
            until(lambda worker=worker, rounds=rounds: worker.text().count('round ') > rounds,
                  f'{worker.name} trains on', process=worker)
        end_training(*workers)


class Progress(Case):
    def test_a_move_of_over_a_second_prints_its_progress(self):
        workers = self.service.workers('slow', 2, '--elements', 1000, '--rounds', 1000000,
                                       '--compute-ms', 2500, '--verbose')
        lanes, said = self.lanes(), ''
        for worker in workers:
            worker.wait_for('round 3\n')
        for number in range(TRIES):
            rounds = workers[0].text().count('round ')
            until(lambda rounds=rounds: workers[0].text().count('round ') > rounds,
                  'a round has ended, and the next one is 2.5 s away', process=workers[0])
            said = harness.finish(self.start_move(lanes[-1 - number % 2], 'slow'), 30)[1]
            if said:
                break
        self.assertEqual(said, 'gradpool: 1 task moved, 0.0 MiB of state; now job slow\n')
        end_training(*workers)


class Updates(Case):
    """Moves a task with its state. The parameters must equal those of a training without moves."""

    @classmethod
    def setUpClass(cls):
        rules.UpdateRules.setUpClass()

    def train_adam(self, transport):
        recorded, lanes, times = rules.UpdateRules, self.lanes(), {True: [], False: []}
        client = gradpool.connect(self.service.endpoint, transport)
        self.addCleanup(client.close)
        jobs = [client.join('adam', rank, rules.WORKERS) for rank in range(rules.WORKERS)]
        tensors = [job.declare('w', recorded.first.size, rule='adam') for job in jobs]
        values = [recorded.first.copy() for _ in jobs]
        for request in [j.broadcast(t, v) for j, t, v in zip(jobs, tensors, values)]:
            request.wait(WAIT_MS)
        settings = {'lr': rules.RATE, 'weight_decay': rules.DECAY, **rules.RULES['adam'][1]}
        for number, gradients in enumerate(recorded.gradients):
            began = time.monotonic()
            requests = []
            mover = self.start_move(lanes[number // 4 % 4]) if number % 4 == 1 else None
            for rank, (job, tensor, value) in enumerate(zip(jobs, tensors, values)):
                requests.append(job.update(tensor, gradients[rank], value, **settings))
                if mover and number % 8 == 1:
                    self.done(mover)  # the move ends between the announcements of two ranks
            for request in requests:
                request.wait(WAIT_MS)
            if not mover or number % 8 != 1:
                times[mover is not None].append(time.monotonic() - began)
            if mover and mover.returncode is None:
                self.done(mover)
        alone = rules.by_gradpool('adam', recorded.first, recorded.gradients, 'c')
        for value in values:
            self.assertEqual(value.tobytes(), alone.astype(numpy.float32).tobytes())
        print(f'# {transport}: a step takes {1e3 * max(times[True]):.2f} ms at most near a move, '
              f'{1e3 * statistics.median(times[False]):.2f} ms otherwise (median)')

    def test_adam_s_parameters_and_moments_go_along_bit_for_bit_shm(self):
        self.train_adam('shm')

    def test_adam_s_parameters_and_moments_go_along_bit_for_bit_tcp(self):
        self.train_adam('tcp')


if __name__ == '__main__':
    tap.main()
