"""Tests update rules in a lane: a real service performs the recorded training of test_update_rules.
Both ranks can be in this process, because an update call returns before the round ends. After 100
steps the parameters must have the bits that the rules alone compute."""
import errno
import os
import signal
import unittest

import numpy

import harness
import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
import test_update_rules as rules
import gradpool

WAIT_MS = 60000
service = None


def setUpModule():
    global service
    service = harness.Service(aggregators=1)
    rules.UpdateRules.setUpClass()


def tearDownModule():
    service.end()


class Case(unittest.TestCase):
    def join(self, name, transport):
        client = gradpool.connect(service.endpoint, transport)
        self.addCleanup(client.close)
        return [client.join(name, rank, rules.WORKERS) for rank in range(rules.WORKERS)]

    def settings(self, rule):
        return {'lr': rules.RATE, 'weight_decay': rules.DECAY,
                **{k: v for k, v in rules.RULES[rule][1].items() if k != 'nesterov'}}

    def declare(self, jobs, rule, first):
        tensors = [job.declare('w', first.size, rule=rule) for job in jobs]
        values = [first.copy() for _ in jobs]
        for job, tensor, value in zip(jobs, tensors, values):
            job.open = job.broadcast(tensor, value)
        for job in jobs:
            job.open.wait(WAIT_MS)
        return tensors, values

    def step(self, jobs, tensors, values, gradients, settings):
        """Makes a step. Only rank 0's settings have an effect."""
        others = [settings] + [{'lr': 123.0}] * (len(jobs) - 1)
        requests = [job.update(tensor, gradient, value, **of_rank) for
                    job, tensor, gradient, value, of_rank in
                    zip(jobs, tensors, gradients, values, others)]
        for request in requests:
            request.wait(WAIT_MS)


class Updates(Case):
    def train(self, rule, transport):
        recorded = rules.UpdateRules
        jobs = self.join(f'{rule}-{transport}', transport)
        tensors, values = self.declare(jobs, rule, recorded.first)
        for gradients in recorded.gradients:
            self.step(jobs, tensors, values, gradients, self.settings(rule))
        return values

    def check(self, rule, transport):
        recorded = rules.UpdateRules
        values = self.train(rule, transport)
        alone = rules.by_gradpool(rule, recorded.first, recorded.gradients, 'c')
        reference = rules.by_torch(rule, recorded.first, recorded.gradients, 'float64')
        theirs = rules.by_torch(rule, recorded.first, recorded.gradients, 'float32')
        for value in values:
            self.assertEqual(value.tobytes(), alone.astype(numpy.float32).tobytes())
            self.assertLessEqual(abs(value - reference).max(), 2 * abs(theirs - reference).max())


def _case(rule, transport):
    def test(self):
        self.check(rule, transport)
    return test


for _rule in rules.RULES:
    for _transport in 'shm', 'tcp':
        setattr(Updates, f'test_{_rule}_over_{_transport}_is_as_near_to_float64_as_pytorch_is',
                _case(_rule, _transport))


class FirstRankLeaves(Case):
    """The lowest rank leaves. The next lowest rank sends no settings, so the lane continues to use
    the last settings."""
    RATE, GRADIENT = 0.5, 1.0

    def updates(self, jobs, tensors, values, rounds):
        for _ in range(rounds):
            requests = [job.update(tensor, numpy.full(4, self.GRADIENT, numpy.float32), value,
                                   **({'lr': self.RATE} if job.rank == 0 else {}))
                        for job, tensor, value in zip(jobs, tensors, values)]
            for request in requests:
                request.wait(WAIT_MS)

    def test_the_settings_of_a_rank_that_has_left_still_apply(self):
        client = gradpool.connect(service.endpoint, 'shm')
        self.addCleanup(client.close)
        jobs = [client.join('leaves', rank, 3, on_worker_loss='continue') for rank in range(3)]
        tensors, values = self.declare(jobs, 'sgd', numpy.zeros(4, numpy.float32))
        self.updates(jobs, tensors, values, 2)
        jobs[0].leave()
        self.updates(jobs[1:], tensors[1:], values[1:], 2)
        for value in values[1:]:
            self.assertEqual(value.tolist(), [-4 * self.RATE * self.GRADIENT] * 4)

    def test_in_a_fixed_job_the_lowest_rank_must_pass_settings(self):
        job = self.join('gives-none', 'shm')[0]
        with ranks.expects(self, gradpool.Mismatch, ' has no settings; pass a rate'):
            job.update(job.declare('w', 4, rule='sgd'), numpy.zeros(4, numpy.float32))


class Refusals(Case):
    def test_calls_without_sense_are_refused_at_once(self):
        job = self.join('refused', 'shm')[0]
        plain, ruled = job.declare('plain', 4), job.declare('ruled', 4, rule='adam')
        values = numpy.zeros(4, numpy.float32)
        with ranks.expects(self, gradpool.Mismatch, 'without an update rule'):
            job.update(plain, values, lr=0.1)
        with ranks.expects(self, gradpool.Mismatch, 'has an update rule'):
            job.push_pull(ruled, values)
        with ranks.expects(self, gradpool.Mismatch, 'beta1', ' is out of range for rule adam'):
            job.update(ruled, values, lr=0.1, betas=(1.5, 0.9))
        with ranks.expects(self, gradpool.Mismatch, 'f32', 'f64'):
            job.declare('double', 4, 'float64', rule='sgd')
        with ranks.expects(self, gradpool.Mismatch, "rule 'lamb'"):
            job.declare('lamb', 4, rule='lamb')

    def test_ranks_with_different_update_rules_get_an_error(self):
        jobs = self.join('disagree', 'shm')
        jobs[0].declare('w', 4, rule='adam')
        with ranks.expects(self, gradpool.Mismatch, 'w'):
            jobs[1].declare('w', 4, rule='adamw')

    def test_an_update_before_a_broadcast_names_the_next_step_and_that_step_helps(self):
        jobs = self.join('unset', 'shm')
        gradient = numpy.zeros(4, numpy.float32)
        for job in jobs:
            with ranks.expects(self, gradpool.GradpoolError, "'w' has no parameters yet: broadcast "
                               'them first'):
                job.update(job.declare('w', 4, rule='sgd'), gradient, lr=0.1)
        tensors, values = self.declare(jobs, 'sgd', numpy.arange(4, dtype=numpy.float32))
        self.step(jobs, tensors, values, [gradient + 1] * len(jobs), {'lr': 0.5})
        for value in values:
            self.assertEqual(value.tolist(), [-0.5, 0.5, 1.5, 2.5])


class Loss(Case):
    """Kills a lane that stores the only copy of the parameters' state. Every worker still has the
    last result in its memory."""

    def test_after_a_lane_s_death_training_goes_on_from_the_last_result(self):
        recorded = rules.UpdateRules
        jobs = self.join('lost', 'shm')
        settings = self.settings('sgd')
        tensors, values = self.declare(jobs, 'sgd', recorded.first)
        for gradients in recorded.gradients[:50]:
            self.step(jobs, tensors, values, gradients, settings)
        os.kill(service.pids()[0], signal.SIGKILL)
        requests = [job.update(tensor, gradient, lr=0.1) for job, tensor, gradient in
                    zip(jobs, tensors, recorded.gradients[50].copy())]
        for request in requests:
            with self.assertRaises(gradpool.GradpoolError) as raised:
                request.wait(WAIT_MS)
            self.assertEqual(raised.exception.errno, errno.EOWNERDEAD)
            self.assertIn('died with the lane', str(raised.exception))
        for job, tensor in zip(jobs, tensors):
            job.undeclare(tensor)
        tensors, values = self.declare(jobs, 'sgd', values[0])
        for gradients in recorded.gradients[50:]:
            self.step(jobs, tensors, values, gradients, settings)
        alone = rules.by_gradpool('sgd', recorded.first, recorded.gradients, 'c')
        for value in values:
            self.assertEqual(value.tobytes(), alone.astype(numpy.float32).tobytes())

    def test_a_coordinator_s_restart_costs_no_parameters(self):
        recorded = rules.UpdateRules
        jobs = self.join('restart', 'tcp')
        settings = self.settings('adam')
        tensors, values = self.declare(jobs, 'adam', recorded.first)
        for number, gradients in enumerate(recorded.gradients):
            if number == 50:
                service.serve.kill()
            if number == 60:
                service.start('again')
            self.step(jobs, tensors, values, gradients, settings)
        alone = rules.by_gradpool('adam', recorded.first, recorded.gradients, 'c')
        for value in values:
            self.assertEqual(value.tobytes(), alone.astype(numpy.float32).tobytes())


if __name__ == '__main__':
    tap.main()
