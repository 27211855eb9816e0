"""Tests former environment variables of options. Commands ignore these variables, and print one
line with the names of those that are set. Options that destroy data, grant rights or act once can
only be given on the command line."""
import json
import os
import pathlib
import unittest

import harness
import tap
from harness import GRADPOOL, Process, Service, until

OLD = {f'GRADPOOL_{name}': value for name, value in {
    'INSECURE': '1', 'JSON': '1', 'LANE_TIME': '1', 'ONCE': '1', 'OPERATOR': '1',
    'OUTPUT': '/nowhere/file', 'PERIOD': '1', 'PLAIN': '1', 'SECONDS': '1', 'TENANT': 'nobody',
    'UNDO': '1', 'WORKERS': '7'}.items()}
# Variable of an option that grants rights. Such variables are never read.
NEVER = {'GRADPOOL_OPERATORS': 'root'}
# Variable of `serve`, formerly also of `tenant add`.
OF_SERVE = {'GRADPOOL_LOSS_LIMIT': '7'}
WARNING = 'gradpool does not read these environment variables: '


def ask(service, *command):
    """Runs a command with all of these variables set."""
    return harness.run([GRADPOOL, *command], capture_output=True, text=True,
                       env={**os.environ, **OLD, **NEVER, **OF_SERVE,
                            'GRADPOOL_ENDPOINT': f'unix:{service.state}/control.sock',
                            'GRADPOOL_STATE_DIR': str(service.state)})


class Flags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(aggregators=2)
        cls.addClassCleanup(cls.service.end)
        cls.lanes = [lane['lane'] for a in cls.service.status()['aggregators']
                     for lane in a['lanes']]

    def expect_one_line(self, answer):
        """Checks that the line names all removed variables."""
        lines = [line for line in answer.stderr.splitlines() if WARNING in line]
        self.assertEqual(len(lines), 1, answer.stderr)
        for name in OLD:
            self.assertIn(name, lines[0])

    def states(self):
        return {lane['lane']: lane['state'] for a in self.service.status()['aggregators']
                for lane in a['lanes']}

    def test_an_unknown_log_level_is_named_by_a_question(self):
        answer = harness.run([GRADPOOL, 'status'], capture_output=True, text=True, env={
            **os.environ, 'GRADPOOL_LOG_LEVEL': 'loud',
            'GRADPOOL_ENDPOINT': f'unix:{self.service.state}/control.sock'})
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn('GRADPOOL_LOG_LEVEL=loud: expected error, warn,', answer.stderr)

    def test_drain_ignores_the_former_variable_of_undo(self):
        answer = ask(self.service, 'drain', 'lane', str(self.lanes[0]))
        self.expect_one_line(answer)
        # a line of text, not JSON, and nothing was undone
        self.assertEqual(answer.stdout, 'no task is there: nothing has moved\n')
        self.assertEqual(self.states()[self.lanes[0]], 'withheld')
        ask(self.service, 'drain', 'lane', str(self.lanes[0]), '--undo')
        self.assertNotEqual(self.states()[self.lanes[0]], 'withheld')

    def test_tenant_add_makes_no_operator(self):
        answer = ask(self.service, 'tenant', 'add', 'acme')
        self.expect_one_line(answer)
        self.assertRegex(answer.stdout, '^acme:[0-9a-f]{64}\n$')
        listed = ask(self.service, 'tenant', 'list')
        self.assertNotIn('{', listed.stdout)
        tenants = json.loads(self.service.tenant('list', '--json').stdout)['tenants']
        tenant, = [t for t in tenants if t['tenant'] == 'acme']
        self.assertEqual(tenant['role'], 'tenant')
        self.assertNotIn('loss_limit_ppm', tenant)

    def test_move_takes_a_job_of_any_tenant(self):
        worker = self.service.worker('job', 0, 1, '--rounds', '1000000', '--verbose',
                                     environment=self.service.tenant_key('movers'))
        worker.wait_for('round ')
        until(lambda: (self.service.job('job') or {}).get('lanes'), 'it has a lane', process=worker)
        there = self.service.job('job')['lanes']
        other = next(lane for lane in self.lanes if lane not in there)
        answer = ask(self.service, 'move', 'job', str(other))
        self.expect_one_line(answer)
        self.assertIn('moved with', answer.stdout, answer.stderr)
        self.assertEqual(self.service.job('job')['lanes'], [other])
        harness.end_training(worker)

    def test_status_and_report_print_text_and_html(self):
        self.assertIn('AGGREGATOR', ask(self.service, 'status').stdout)
        self.assertIn('<html', ask(self.service, 'report').stdout)

    def test_serve_admits_no_stranger_by_a_former_variable(self):
        folder = pathlib.Path(self.service.folder)
        serve = Process([GRADPOOL, 'serve', '--listen', 'gradpool://127.0.0.1:0', '--aggregators',
                         '0', '--state-dir', folder / 'own'], folder, 'own', {**OLD, **NEVER})
        self.addCleanup(serve.kill)
        serve.wait_for('listening on')
        self.assertNotIn('--insecure:', serve.text())
        self.assertEqual(serve.text().count(WARNING), 1)
        self.assertEqual((folder / 'own').stat().st_mode & 0o777, 0o700)


if __name__ == '__main__':
    tap.main()
