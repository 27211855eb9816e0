"""Tests the configuration file of `serve` and `aggregator`: its places, mistakes in it, and
--print-config."""
import contextlib
import os
import pathlib
import re
import shutil
import tempfile
import unittest

import harness
import tap
from harness import GRADPOOL, Process, Service

SOURCE = pathlib.Path(__file__).resolve().parents[3]
PAGES = ('svc/OPERATING.md', 'svc/OPTIONS.md')


def run(*command, **variables):
    """Runs the command without the caller's GRADPOOL_* variables."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith('GRADPOOL_')}
    return harness.run([GRADPOOL, *command], capture_output=True, text=True,
                       env={**clean, **variables})


def values(printed):
    """Returns {key: (value, origin)} of all sections of a printed configuration."""
    found = re.findall(r'^#?([a-z-]+) = (.*?) ?; (.*)$', printed, re.M)
    return {key: (value, origin) for key, value, origin in found}


class Case(unittest.TestCase):
    def setUp(self):
        self.ends = contextlib.ExitStack()
        self.addCleanup(self.ends.close)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='gradpool-test-'))
        self.ends.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = self.folder / 'gradpool.conf'

    def write(self, text, path=None):
        path = path or self.file
        path.write_text(text)
        path.chmod(0o644)
        return path

    def print(self, *options, command='serve', **variables):
        answer = run(command, '--config', self.file, '--print-config', *options, **variables)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(answer.stderr, '')
        return answer.stdout


class Printed(Case):
    def test_each_value_is_printed_with_its_source(self):
        self.write('[serve]\nscale-hold = 31\norder-hold = 31\nlanes-spare = 31\n')
        shown = values(self.print('--lanes-spare', '33', GRADPOOL_ORDER_HOLD='32',
                                  GRADPOOL_LANES_SPARE='32'))
        self.assertEqual(shown['scale-hold'], ('31', f'{self.file}:2'))
        self.assertEqual(shown['order-hold'], ('32', 'GRADPOOL_ORDER_HOLD'))
        self.assertEqual(shown['lanes-spare'], ('33', '--lanes-spare'))
        self.assertEqual(shown['leave-timeout'], ('20', 'default'))

    def test_every_option_of_the_help_is_printed(self):
        self.write('[aggregator]\njoin = node7:7077\n')
        for command in ('serve', 'aggregator'):
            names = set(re.findall(r'^ {6}--([a-z-]+)', run('help', command).stdout, re.M))
            own = self.print(command=command).split('# of local')[0]
            self.assertEqual(set(re.findall(r'^#?([a-z-]+) ', own, re.M)),
                             names - {'config', 'print-config', 'usage'})

    def test_the_printed_configuration_gives_the_same_values(self):
        self.write('[serve]\nname = a\nloss-limit = 2.5%\nrequire-tls = on\n'
                   '[aggregator]\nkernels = c\njoin = /x\n')
        first = self.print('--cores', '0', GRADPOOL_STOP='jobs')
        self.write(first)
        again = self.print()
        plain = {key: value for key, (value, _) in values(first).items()}
        self.assertEqual({key: value for key, (value, _) in values(again).items()}, plain)
        self.assertEqual(plain['stop'], 'jobs')
        self.assertEqual(plain['kernels'], 'c')
        self.assertEqual(values(again)['cores'][1].split(':')[0], str(self.file))

    def test_a_secret_is_not_printed(self):
        self.write('[aggregator]\njoin = /x\n')
        printed = self.print(command='aggregator', GRADPOOL_GRANT='open-sesame')
        self.assertNotIn('open-sesame', printed)

    def test_the_examples_of_the_pages_are_configurations(self):
        for page in PAGES:
            blocks = re.findall(r'^```ini\n(.*?)^```', (SOURCE / page).read_text(), re.M | re.S)
            examples = [block for block in blocks if '[serve]' in block]
            self.assertTrue(examples, page)
            for block in examples:
                self.write(block)
                shown = values(self.print())
                self.assertEqual(shown['listen'][0], 'gradpool://0.0.0.0:7077')
                self.assertEqual(shown['kernels'][0], 'avx2')


class Mistakes(Case):
    def refused(self, *words, command='serve', options=()):
        answer = run(command, '--config', self.file, *options)
        self.assertEqual(answer.returncode, 2, answer.stderr)
        self.assertEqual(answer.stdout, '')
        for text in words:
            self.assertIn(text, answer.stderr)

    def test_a_mistake_ends_the_start_with_file_and_line(self):
        for command in ('serve', 'aggregator'):
            self.write('[serve]\nlisen = x\n')
            self.refused(f"{self.file}:2: ", "did you mean 'listen'?", command=command)
            self.write('[aggregator]\nkernels = sse9\n')
            self.refused(f"{self.file}:2: kernels: 'sse9': expected best, c", command=command)

    def test_a_missing_file_or_one_that_other_users_may_write_is_refused(self):
        self.refused(f'{self.file}: cannot be read: ', '--config')
        self.write('[serve]\n').chmod(0o666)
        self.refused(f'{self.file}: with mode 666 other users can write the file', 'chmod go-w')

    def test_a_value_that_only_this_host_refuses_names_its_line(self):
        self.write('[serve]\ncores = 4000\n')
        self.refused('4000', f'--cores is set by {self.file}:2',
                     options=('--state-dir', self.folder / 'state', '--listen',
                              'gradpool://127.0.0.1:0'))


class Running(Case):
    def test_serve_runs_with_a_file_and_hands_kernels_to_its_aggregators(self):
        self.write('[serve]\nname = filed\nlanes-per-core = 2\n'
                   '[aggregator]\nkernels = c\nlane-policy = fifo\ncores = 4000\n')
        service = Service('--cores', '0', '--config', self.file, aggregators=1,
                          folder=self.folder)
        self.ends.callback(service.end)
        text = service.serve.text()
        self.assertIn(f'configuration file {self.file}', text)
        self.assertIn('sums with c', text)
        self.assertEqual([len(a['lanes']) for a in service.status()['aggregators']], [2])
        self.assertEqual(service.stop(), 0)

    def test_an_aggregator_joins_by_its_file(self):
        service = Service(aggregators=0, folder=self.folder)
        self.ends.callback(service.end)
        self.write(f'[aggregator]\njoin = {service.state}/control.sock\ncores = 0\n')
        joined = Process([GRADPOOL, 'aggregator', '--config', self.file], self.folder, 'joined')
        self.ends.callback(joined.end)
        joined.wait_for('joined as aggregator')

    def usual(self, name, *command):
        """Runs `command` with the folder `etc` of this case mounted at /etc."""
        script = f'mount --bind {self.folder}/etc /etc && exec "$0" "$@"'
        process = Process(['unshare', '-m', 'sh', '-c', script, GRADPOOL, *command], self.folder,
                          name)
        self.ends.callback(process.end)
        return process

    @unittest.skipUnless(os.geteuid() == 0, 'mounting needs root')
    def test_the_usual_file_is_read_by_serve_and_not_by_its_aggregators(self):
        (self.folder / 'etc/gradpool').mkdir(parents=True)
        # the host needs these files to find libraries
        for name in ('alternatives', 'ld.so.cache'):
            harness.run(['cp', '-a', f'/etc/{name}', self.folder / 'etc'], check=True)
        self.write('[serve]\nlisten = gradpool://127.0.0.1:0\ncores = 0\n'
                   '[aggregator]\nlanes-per-core = 3\n',
                   self.folder / 'etc/gradpool/gradpool.conf')
        printed = self.usual('printed', 'serve', '--print-config')
        self.assertEqual(printed.wait(), 0)
        self.assertIn('cores = 0 ; /etc/gradpool/gradpool.conf:3\n', printed.text())
        serve = self.usual('serve', 'serve', '--state-dir', self.folder / 'state')
        serve.wait_for('joined with 1 lane')
        self.assertEqual(serve.text().count('configuration file'), 1)
        named = self.usual('named', 'serve', '--config', '/dev/null', '--print-config')
        self.assertEqual(named.wait(), 0)
        self.assertNotIn('gradpool.conf', named.text())


if __name__ == '__main__':
    tap.main()
