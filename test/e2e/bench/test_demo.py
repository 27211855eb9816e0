"""Runs the unchanged demo of the README, with output as text and as JSON. The checks of the demo
must pass.

bench/demo.sh also installs and builds. This test skips these steps.
"""
import json
import os
import pathlib
import sys
import unittest

import harness
import tap
from harness import BUILD

DEMO = pathlib.Path(__file__).parents[3] / 'bench' / 'demo' / 'run.py'
PATIENCE_S = 400


def run(*options):
    """Returns the output line of each check, and the JSON of the last line."""
    ended = harness.run([sys.executable, DEMO, '--build', BUILD, *options],
                        capture_output=True, text=True, timeout=PATIENCE_S)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr[-4000:])
    return [line for line in lines if line.startswith(('ok ', 'FAIL'))], json.loads(lines[-1])


class Demo(unittest.TestCase):
    """Runs the demo on one host with each transport, and on three nodes."""

    def expect(self, options, checks_least, mentions):
        checks, figures = run(*options)
        self.assertGreaterEqual(len(checks), checks_least, checks)
        for check in checks:
            self.assertTrue(check.startswith('ok '), check)
        for words in mentions:
            self.assertTrue(any(words in check for check in checks), (words, checks))
        self.assertEqual(figures['wrong'], 0)
        self.assertTrue(figures['replicas_equal'] and figures['reference_equal'], figures)
        self.assertEqual(figures['cores_dedicated'], 5)
        # five workers together use less than one core (README: 0.05 to 0.14)
        self.assertTrue(0.005 < figures['cores_used'] < 1, figures)
        # the demo runs for more than a second
        self.assertGreater(figures['service_cpu_s'], figures['cores_used'])

    def test_two_jobs_share_a_service_that_moves_tasks_and_dies(self):
        page = BUILD / 'demo-report.html'
        page.unlink(missing_ok=True)
        self.expect((), 12, ('tasks move', 'is killed', 'a worker joins'))
        self.assertIn('cores', page.read_text())

    def test_all_checks_pass_over_tcp(self):
        self.expect(('--transport', 'tcp'), 12, ('tasks move', 'is killed', 'a worker joins'))

    @unittest.skipUnless(os.geteuid() == 0, 'needs root, for network namespaces')
    def test_all_checks_pass_on_three_nodes_with_a_link_that_is_cut(self):
        self.expect(('--nodes', '3'), 7, ('a link cut',))


if __name__ == '__main__':
    tap.main()
