"""Tests a site whose slots two jobs share: a scripted pool starts real workers as the coordinator
orders, even after a restart of the coordinator."""
import json
import os
import pathlib
import signal
import subprocess
import unittest

import jsonschema

import harness
import tap
from harness import Service, until
from script_pool import Pool

WORKER = harness.BUILD / 'test' / 'e2e' / 'elastic_worker'
SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / 'svc/ops/json/schema.json').read_text())
SAMPLES, BATCH, EPOCHS = 12000, 8, 1000000  # the worker trains until its pool ends it


class Slots(unittest.TestCase):
    def setUp(self):
        self.service = Service('--lanes-per-core', 2, '--scale', 'off', '--worker-slots', 'here=3')
        self.addCleanup(self.service.end)
        self.folder = pathlib.Path(self.service.folder) / 'logs'
        self.folder.mkdir()
        self.pool = Pool(self.service, {'deal': self.trains, 'idle': self.idles})
        self.addCleanup(lambda: self.pool.kill())
        self.pool.connect()

    def log(self, order):
        return self.folder / f'{order.rank}.{order.incarnation}'

    def trains(self, order):
        words = [order.rank, order.workers, order.workers_max, SAMPLES, BATCH, EPOCHS, 0, 1]
        return [WORKER, *words, self.log(order)], {'GRADPOOL_TRANSPORT': 'shm'}

    def idles(self, order):
        return ['cat'], {}

    def lines(self, rank):
        order = self.pool.alive['deal', rank][0]
        return self.log(order).read_text() if self.log(order).exists() else ''

    def await_steps(self, rank):
        self.pool.until(lambda: ('deal', rank) in self.pool.alive and 'step ' in self.lines(rank),
                        f'rank {rank} trains')

    def end_idle(self):
        self.pool.alive['idle', 0][1].stdin.close()
        self.pool.alive['idle', 0][1].stdin = None
        self.pool.until(lambda: 'idle' in self.pool.over, 'the idle job is over')
        self.assertEqual(self.pool.over.pop('idle').code, 0)

    def output(self, name, *command):
        """Returns the output of a command, and checks the output against the schema."""
        output = json.loads(self.service.ask(*command, '--json').stdout)
        jsonschema.validate(output, {'$ref': f'#/$defs/{name}', '$defs': SCHEMA['$defs']},
                            cls=jsonschema.Draft202012Validator)
        return output

    def jobs(self):
        return self.output('jobs', 'jobs')

    def begin(self):
        """Job "idle" has one slot, so job "deal" begins with two workers."""
        self.pool.submit('idle', 1, 1)
        self.pool.until(lambda: self.pool.ranks('idle') == [0], 'the idle job has a worker')
        self.pool.submit('deal', 1, 3)
        self.await_steps(0)
        self.await_steps(1)

    def test_a_job_grows_into_a_free_slot_and_gives_it_to_a_new_job(self):
        self.begin()
        self.assertEqual(self.jobs()['sites'][0]['held'], 3)
        self.end_idle()
        self.await_steps(2)
        self.assertIn('carries', self.lines(2))     # the late worker has received the model
        self.assertEqual(self.service.job('deal')['workers'], 3)
        explained = self.service.ask('explain', 'deal').stdout
        self.assertIn('site here: 3 workers of 1 to 3', explained)
        self.assertIn('times the speed of one worker', explained)
        self.assertEqual(self.output('explain', 'explain', 'deal')['jobs'][0]['pool']['workers'], 3)
        leaver = self.pool.alive['deal', 2][0]
        self.pool.submit('idle', 1, 1)
        self.pool.until(lambda: self.pool.ranks('idle') == [0], 'the new job has a slot')
        self.assertIn('leaves', self.log(leaver).read_text())
        self.assertEqual(self.pool.ranks('deal'), [0, 1])   # no survivor was restarted
        site = self.jobs()['sites'][0]
        self.assertEqual((site['held'], site['leaving']), (3, 0))
        self.assertEqual((site['grown'], site['shrunk']), (1, 1))
        self.pool.withdraw('deal')
        self.pool.until(lambda: 'deal' in self.pool.over, 'the job is over')
        self.assertIn('its pool has ended it', self.pool.over['deal'].text)

    def test_a_restart_of_the_coordinator_starts_nothing_twice(self):
        self.begin()
        started = list(self.pool.started)
        self.service.serve.kill()
        self.pool.link.close()
        self.service.start('serve-again')
        welcome = self.pool.connect()
        self.assertNotIn(2, welcome)        # no worker is stale
        self.end_idle()
        self.await_steps(2)
        self.assertEqual(self.pool.started[:-1], started)
        self.assertEqual(self.pool.started[-1][:2], ('deal', 2))

    def test_a_worker_of_an_earlier_start_is_refused(self):
        self.begin()
        old = self.pool.alive['deal', 1]
        old[1].send_signal(signal.SIGKILL)
        self.pool.until(lambda: self.pool.alive.get(('deal', 1), old) is not old,
                        'rank 1 has a new process')
        command, variables = self.trains(old[0])
        stale = harness.run(command, input='', capture_output=True, text=True, env={
            **os.environ, **variables, 'GRADPOOL_ENDPOINT': self.service.endpoint,
            'GRADPOOL_INCARNATION': str(old[0].incarnation)})
        self.assertNotEqual(stale.returncode, 0)
        self.assertIn('is not the newest one; the process ends with exit code 75', stale.stderr)
        mistaken = harness.run(command, input='', capture_output=True, text=True, env={
            **os.environ, **variables, 'GRADPOOL_ENDPOINT': self.service.endpoint,
            'GRADPOOL_INCARNATION': 'x'})
        self.assertIn("expected a number; only a pool sets this variable", mistaken.stderr)
        self.await_steps(1)

    def test_a_stale_python_worker_ends_with_exit_code_75(self):
        self.begin()
        script = ('import torch, gradpool.elastic\n'
                  'model = torch.nn.Linear(1, 1)\n'
                  'optimizer = torch.optim.SGD(model.parameters(), 1)\n'
                  'gradpool.elastic.Run(model, optimizer, job="deal", rank=2, workers=2,\n'
                  '                     workers_max=3, samples=9, batch=3, epochs=1)\n')
        stale = harness.run(['/usr/bin/python3', '-c', script], timeout=120, capture_output=True,
                            text=True, env={**os.environ, 'GRADPOOL_INCARNATION': '5',
                                            'GRADPOOL_ENDPOINT': self.service.endpoint})
        self.assertEqual(stale.returncode, 75, stale.stderr)
        self.assertIn('the process ends with exit code 75', stale.stderr)


if __name__ == '__main__':
    tap.main()
