"""Checks the output of each command with --json against the schema."""
import copy
import json
import os
import pathlib
import signal
import unittest

import jsonschema

import ranks  # sets GRADPOOL_LIBRARY: before gradpool
import tap
import test_migration_crash as crash
import gradpool
from harness import GRADPOOL, Service, run, until

ROOT = pathlib.Path(__file__).parents[3]
MODELS = ROOT / 'bench/models'
SCHEMA = json.loads((ROOT / 'svc/ops/json/schema.json').read_text())
# Members of outputs that appear only in situations that no case here creates.
RARE = {
    'event.at_s', 'check.advice', 'job.measured',
    'job.counts', 'explained_job.counts', 'job.stage', 'explained_job.stage',
    'jobs.sites', 'jobs.pool_jobs', 'explained_job.pool',   # seen by test_slots
    *(f'{job}.{tables}' for job in ('job', 'explained_job')
      for tables in ('tables', 'tables_left_out')),
    *(f'{part}.{member}' for part in ('counts', 'counted_rank', 'stage', 'table', 'tables',
                                      'job_tables', 'table_file', 'snapshot_tables', 'site',
                                      'pool_job')
      for member in SCHEMA['$defs'][part]['properties']),
    *(f'measured.{member}' for member in SCHEMA['$defs']['measured']['properties']),
    'explained_lane.predicted_loss_ppm', 'explained_job.predicted_loss_ppm',
    'explained_lane.stalled_ns', 'job.predicted_loss_ppm',
    'reported_job.predicted_loss_ratio', 'ended_job.predicted_loss_ratio',
    'planned_lane.predicted_loss_ppm', 'planned_lane.lane',
    'planned_job.before_ppm', 'planned_job.loss_limit_ppm',
    *(f'{job}.{member}' for job in ('explained_job', 'job') for member in (
        'alone_period_ns', 'feedback_ns', 'loss_ppm', 'shared_loss_ppm', 'period_ns', 'lane_ns')),
    *(f'{job}.{member}_ratio' for job in ('reported_job', 'ended_job') for member in (
        'loss', 'shared_loss', 'own_loss')),
    *(f'{job}.{member}_seconds' for job in ('reported_job', 'ended_job') for member in (
        'alone_period', 'period', 'lane')),
}


def validate(output, name):
    jsonschema.validate(output, {'$ref': f'#/$defs/{name}', '$defs': SCHEMA['$defs']},
                        cls=jsonschema.Draft202012Validator)


def members(output, name):
    """Returns the members of the output described by the definition `name` and those below it, as
    'definition.member'."""
    definition, seen = SCHEMA['$defs'][name], set()
    for member, value in output.items() if isinstance(output, dict) else ():
        described = definition.get('properties', {}).get(member, {})
        seen.add(f'{name}.{member}')
        for item in value if isinstance(value, list) else [value]:
            reference = described.get('items', described).get('$ref')
            if reference:
                seen |= members(item, reference.rpartition('/')[2])
    return seen


def described_members():
    return {f'{name}.{member}' for name, definition in SCHEMA['$defs'].items()
            for member in definition.get('properties', {})}


class Outputs(unittest.TestCase):
    def setUp(self):
        self.service, self.seen = Service('--durability', 'replica', '--loss-limit', '5%'), set()
        self.addCleanup(self.service.end)
        client = gradpool.connect(self.service.endpoint, 'shm')
        self.addCleanup(client.close)
        self.training = crash.Training(client, 'kept')
        self.training.start()
        self.bert = self.service.workers('bert', 2, '--rounds', 1000000, '--compute-ms', 5)
        short = self.service.worker('short', 0, 1, '--rounds', 1000000)
        until(lambda: (self.service.job('kept') or {}).get('use', {}).get('copied', 0) > 0,
              'the state of the job has copies', process=self.service.serve)
        until(lambda: any(job['job'] == 'short' and 'rounds_per_s' in job
                          for job in self.reported('jobs')),
              'the job is in a report', process=self.service.serve)
        short.signal(signal.SIGTERM)
        until(lambda: self.reported('ended_jobs'), 'the report has a job that ended',
              process=self.service.serve)

    def reported(self, what):
        return json.loads(self.service.ask('report', '--json').stdout)[what]

    def output(self, name, *command, codes=(0,)):
        answer = self.service.ask(*command, '--json')
        self.assertIn(answer.returncode, codes, answer.stderr)
        return self.check(name, answer.stdout)

    def check(self, name, text):
        output = json.loads(text)
        validate(output, name)
        self.seen |= members(output, name)
        return output

    def views(self):
        self.output('status', 'status', codes=(0, 3))     # 3: an aggregator is silent
        self.assertEqual(len(self.output('jobs', 'jobs')['jobs']), 2)
        self.output('explain', 'explain', 'kept')
        self.output('top', 'top')
        self.output('report', 'report')
        self.output('doctor', 'doctor', codes=(0, 1))

    def orders(self):
        lanes = [lane['lane'] for a in self.service.serving() for lane in a['lanes']]
        for lane in lanes:
            self.output('moved', 'move', 'bert', str(lane))
        self.output('moved', 'drain', 'lane', str(lanes[0]))
        self.output('moved', 'drain', 'lane', str(lanes[0]), '--undo')
        folder = self.service.folder
        state = self.output('snapshot', 'snapshot', 'kept', '--output', folder / 'kept.state')
        self.assertGreater(state['tensors'], 0)
        self.output('timeline', 'timeline', 'bert', '--seconds', '1', '--output', folder / 'trace')

    def plans(self):
        plan = self.output('plan', 'plan', MODELS / 'mobilenet_v2.csv', '--period', '1000',
                           '--lane-time', '20')
        self.assertTrue(plan['would_be_placed'])
        self.output('plan', 'plan', MODELS / 'mobilenet_v2.csv')

    def tenants(self):
        key = self.service.tenant_key('acme', '--loss-limit', '3%')
        self.service.tenant_key('gone')
        self.service.tenant('revoke', 'gone')
        listed = self.check('tenants', self.service.tenant('list', '--json').stdout)
        self.assertEqual({t['tenant']: t['state'] for t in listed['tenants']},
                         {'acme': 'active', 'gone': 'revoked'})
        answer = run([GRADPOOL, 'status', '--json', '--endpoint', self.service.endpoint],
                     capture_output=True, text=True, env={**os.environ, **key})
        self.assertIs(self.check('status', answer.stdout)['own_only'], True)

    def failure(self):
        # a stopped worker cannot leave, so the failed job remains visible until its workers have
        # left
        self.bert[0].signal(signal.SIGSTOP)
        self.bert[1].kill()
        until(lambda: 'failed' in [job['state'] for job in self.output('jobs', 'jobs')['jobs']],
              'the job has failed', process=self.service.serve)

    def decisions(self):
        until(lambda: self.reported('events'), 'the service has decided something',
              process=self.service.serve)
        self.output('report', 'report')

    def are_all_seen(self):
        """Returns whether all members were seen. If one is missing, shows all views once more: if
        an aggregator answers late, an output lacks its figures."""
        if described_members() - self.seen - RARE:
            self.views()
        return not described_members() - self.seen - RARE

    def test_every_output_is_as_described_and_every_member_is_seen(self):
        for situation in self.views, self.orders, self.plans, self.tenants, self.decisions:
            situation()
        self.failure()
        until(self.are_all_seen, lambda: f'an output has {described_members() - self.seen - RARE}',
              process=self.service.serve)
        self.training.finish()

    def test_an_output_with_another_member_or_state_is_not_as_described(self):
        status = self.output('status', 'status', codes=(0, 3))
        for spoil in (lambda s: s.update(more=1), lambda s: s.pop('jobs'),
                      lambda s: s['aggregators'][0].update(state='well'),
                      lambda s: s['aggregators'][0]['lanes'][0].update(tasks='3')):
            other = copy.deepcopy(status)
            spoil(other)
            with self.assertRaises(jsonschema.ValidationError):
                validate(other, 'status')
        self.training.finish()


if __name__ == '__main__':
    tap.main()
