"""Tests the output of a running service for operators."""
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import unittest
import urllib.error
import urllib.parse
import urllib.request

import browser
import harness
import progress
import tap
from harness import BENCH, GRADPOOL, WAIT_S, Process, Service, free_ports, result, until


class Running(unittest.TestCase):
    """A service and a job, which trains until the case has ended."""

    def setUp(self):
        self.service = Service(*self.options(), aggregators=2)
        self.addCleanup(self.service.end)
        self.ranks = self.service.workers('resnet-7', 2, '--rounds', 1000000, '--compute-ms', 10,
                                          '--tensors', 4)
        until(lambda: (self.service.job('resnet-7') or {}).get('use', {}).get('rounds', 0) > 0,
              'the job trains', process=self.ranks[0])

    def options(self):
        # on a slow host a case lasts longer than the default hold, and a lane would be emptied
        return '--scale-hold', 3600

    def top(self, *options):
        answer = self.service.ask('top', *options)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout


class Top(Running):
    def test_top_shows_lanes_shares_and_the_cores_saved(self):
        seen = {}

        def has_rates():
            seen.update(json.loads(self.top('--json')))
            # on a busy host a worker or an aggregator can pause for the whole second of the
            # measurement
            job, = seen['jobs']
            return all(lane['jobs'] and lane.get('busy') for lane in seen['lanes']) and \
                job.get('rounds_per_s') and job.get('bytes_per_s') and seen['cores'].get('used')
        until(has_rates, 'both lanes and the job have rates', process=self.service.serve)
        self.assertEqual(seen['cores']['allocated'], 2)
        self.assertEqual(seen['cores']['dedicated'], 2)
        self.assertEqual([lane['lane'] for lane in seen['lanes']], [1, 2])
        for lane in seen['lanes']:
            self.assertEqual([(p['job'], p['share']) for p in lane['jobs']], [('resnet-7', 1)])
        job, = seen['jobs']
        self.assertEqual((job['job'], job['workers'], job['cores_allocated']), ('resnet-7', 2, 2))
        self.assertEqual(job['cores_saved'], 0)

    def test_output_to_a_pipe_is_printed_once_without_control_characters(self):
        seen = {}

        def has_shares():
            seen['text'] = self.top()
            return 'resnet-7 100 %' in seen['text']
        until(has_shares, 'top shows a share', process=self.service.serve)
        text = seen['text']
        self.assertNotIn('\x1b', text)
        self.assertEqual(text.count('dedicated servers would hold'), 1)


class Decisions(Running):
    """Checks that the log contains each decision with its reason."""

    def test_the_log_has_the_lanes_of_a_job_their_reason_and_their_end(self):
        log = self.service.serve.text
        self.assertEqual(log().count('joined with 1 lane (--aggregators)'), 2)
        self.assertRegex(log(), 'job resnet-7, policy shared: 4 tensors go to lanes? [12].*: '
                                'a free lane, so that the job is measured without others')
        os.kill(self.service.pids()[0], signal.SIGKILL)
        self.service.serve.wait_for('has ended, with its 1 lane')
        self.service.serve.wait_for('of a lost lane move')
        self.assertRegex(log(), 'job resnet-7, policy shared: .* of a lost lane moves? to lane.*:'
                                ' [a-z]')


class Terminal:
    """Runs a program on a terminal of 20 rows and 60 columns, and reads its output."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 20, 60, 0, 0))
            os.execv(command[0], command)
        self.text = ''

    def wait_for(self, condition, what):
        patience = progress.Patience(WAIT_S)
        while not condition(self.text):
            if patience.is_over():
                raise AssertionError(f'never: {what}: {self.text[-2000:]!r}')
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode()
                except OSError:  # raised when the program has ended
                    return

    def end(self, number):
        os.kill(self.pid, number)
        code = os.waitpid(self.pid, 0)[1]
        self.wait_for(lambda _: False, 'the end')
        os.close(self.fd)
        return code


class LiveTop(Running):
    def start(self):
        return Terminal(str(GRADPOOL), 'top', '--endpoint',
                        f'unix:{self.service.state}/control.sock')

    def test_top_shows_itself_again_each_second_and_gives_the_terminal_back(self):
        terminal = self.start()
        terminal.wait_for(lambda text: text.count('cores: 2 allocated') >= 3, 'three screens')
        code = terminal.end(signal.SIGINT)
        self.assertTrue(os.WIFSIGNALED(code))
        self.assertTrue(terminal.text.startswith('\x1b[?1049h'))
        self.assertTrue(terminal.text.endswith('\x1b[?1049l'))

    def test_rows_are_cut_to_the_width_of_the_terminal(self):
        terminal = self.start()
        terminal.wait_for(lambda text: text.count('cores: 2 allocated') >= 3, 'three screens')
        terminal.end(signal.SIGTERM)
        last = terminal.text.split('\x1b[H')[-1].split('\x1b[J')[0]
        rows = [row.replace('\x1b[K', '') for row in last.split('\r\n')]
        self.assertLessEqual(max(map(len, rows)), 60)
        self.assertLessEqual(len(rows), 20)

    def test_top_outlives_a_coordinator_and_finds_the_next(self):
        terminal = self.start()
        terminal.wait_for(lambda text: 'resnet-7' in text, 'a screen')
        self.service.serve.kill()
        terminal.wait_for(lambda text: 'gradpool: ' in text, 'the failure is shown')
        said = len(terminal.text)
        self.service.start('serve-again')
        terminal.wait_for(lambda text: 'cores: 2 allocated' in text[said:].split('gradpool: ')[-1],
                          'the service is shown again')
        terminal.end(signal.SIGTERM)


def fetch(url, method='GET'):
    """Returns status and text of a web page."""
    try:
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def web_of(service):
    """Waits until the log has the address of the service's web server. Returns the address."""
    until(lambda: 'the web server shows metrics on ' in service.serve.text(), 'metrics are shown',
          process=service.serve)
    return re.search(r'the web server shows metrics on (http://\S+)/metrics',
                     service.serve.text()).group(1)


class Web(Running):
    def options(self):
        return *super().options(), '--http', '127.0.0.1:0'

    def setUp(self):
        super().setUp()
        self.web = web_of(self.service)
        measured = ['gradpool_job_cores_used{', *(f'gradpool_lane_job_rounds_total{{lane="{lane}"'
                                                  for lane in (1, 2))]
        until(lambda: (text := fetch(self.web + '/metrics')[1]) and all(words in text for words in
                                                                        measured),
              'the job is measured', process=self.service.serve)

    def test_promtool_finds_nothing_wrong_with_the_metrics(self):
        text = fetch(self.web + '/metrics')[1]
        self.assertIn('gradpool_lane_job_rounds_total{lane="1",tenant="",job="resnet-7"}', text)
        checked = harness.run(['promtool', 'check', 'metrics'], input=text, text=True,
                              capture_output=True, timeout=WAIT_S, check=False)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, '', ''))

    def test_the_report_has_the_figures_of_top(self):
        until(lambda: all(lane['jobs'] for lane in
                          json.loads(fetch(self.web + '/report.json')[1])['lanes']),
              'both lanes have told what the job takes', process=self.service.serve)
        report = json.loads(fetch(self.web + '/report.json')[1])
        top = json.loads(self.top('--json'))
        self.assertEqual(report['cores']['saved'], top['cores']['saved'])
        self.assertEqual([j['job'] for j in report['jobs']], ['resnet-7'])
        self.assertEqual(report['lanes'][0]['jobs'][0]['share'], 1)
        self.assertEqual(report['history'][-1]['allocated'], 2)

    def test_the_web_server_refuses_requests_that_write(self):
        for method in ('POST', 'PUT', 'DELETE'):
            self.assertEqual(fetch(self.web + '/report', method)[0], 405)
        self.assertEqual(self.service.job('resnet-7')['state'], 'training')

    def test_a_thousand_silent_connections_do_not_stop_training_status_or_metrics(self):
        host, port = self.web.removeprefix('http://').split(':')
        rounds = self.service.job('resnet-7')['use']['rounds']
        with contextlib.ExitStack() as crowd:
            for _ in range(1000):
                crowd.enter_context(socket.create_connection((host, int(port)), WAIT_S))
            until(lambda: self.is_healthy(), 'the web server answers', process=self.service.serve)
            until(lambda: self.service.ask('status').returncode == 0, 'the service answers',
                  process=self.service.serve)
            until(lambda: self.service.job('resnet-7')['use']['rounds'] > rounds + 100,
                  'the job trains on', process=self.ranks[0])


    def is_healthy(self):
        """Returns whether the service is healthy. While many clients connect, the server closes the
        connection of a client that sends its request slowly."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return fetch(self.web + '/healthz') == (200, 'ok\n')
        return False


class Report(Running):
    def report(self, *options):
        answer = self.service.ask('report', *options)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    def test_the_report_is_written_without_a_web_server(self):
        until(lambda: 'used' in json.loads(self.report('--json'))['cores'], 'rates are known',
              process=self.service.serve)
        report = json.loads(self.report('--json'))
        self.assertEqual([j['job'] for j in report['jobs']], ['resnet-7'])
        self.assertEqual(report['history'][-1]['allocated'], 2)
        page = self.service.folder / 'report.html'
        self.assertEqual(self.report('--output', page), '')
        self.assertIn('<title>gradpool report</title>', page.read_text())
        for name in ('policy', 'scale', 'machine', 'version', 'commit'):
            self.assertIn(name, report['settings'])
            self.assertIn(f'<td class="name">{name}</td>', page.read_text())
        self.assertNotIn('loss limit', report['settings'])  # no limit is set

    def test_a_file_that_cannot_be_written_is_reported(self):
        answer = self.service.ask('report', '--output', '/dev/full')
        self.assertEqual((answer.returncode, answer.stdout), (1, ''))
        self.assertIn('/dev/full cannot be written', answer.stderr)


class Plan(Running):
    MODELS = pathlib.Path(__file__).parents[3] / 'bench/models'

    def test_a_dry_run_prints_the_lanes_of_a_job_and_changes_nothing(self):
        before = self.service.ask('status').stdout
        answer = self.service.ask('plan', self.MODELS / 'resnet50.csv', '--workers', '2',
                                  '--period', '1000', '--lane-time', '20', '--json')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        plan = json.loads(answer.stdout)
        self.assertEqual(sum(lane['bytes'] for lane in plan['lanes']), 25557032 * 4)
        self.assertEqual(plan['period_ns'], 10**9)
        self.assertEqual(plan['lane_ns'], 20 * 10**6)
        text = self.service.ask('plan', self.MODELS / 'resnet50.csv', '--period', '1000').stdout
        self.assertIn('would be placed: ', text)
        half = self.service.ask('plan', self.MODELS / 'resnet50.csv', '--lane-time', '20')
        self.assertEqual(half.returncode, 2)
        self.assertIn('--period', half.stderr)
        self.assertEqual(len(json.loads(self.top('--json'))['jobs']), 1)
        self.assertEqual(before.count('\n'), self.service.ask('status').stdout.count('\n'))

    def test_a_mistake_in_the_file_names_its_line(self):
        path = self.service.folder / 'model.csv'
        path.write_text('name,elements\na,1\nb,many\n')
        answer = self.service.ask('plan', path)
        self.assertEqual(answer.returncode, 2)
        self.assertIn('model.csv:3: expected', answer.stderr)


    def test_a_model_that_no_service_would_accept_is_refused_with_the_reason(self):
        path = self.service.folder / 'model.csv'
        for row, why in ((b'a,2', 'model.csv:3: a tensor of this name came before'),
                         (b',2', 'model.csv:3: a tensor\'s name has 1 to 255 bytes'),
                         (b'\x1b[31m\xff,2', 'model.csv:3: the name is not UTF-8'),
                         (b'b,999999999999', 'model.csv:3: the tensor is larger than 1 TiB')):
            path.write_bytes(b'name,elements\na,1\n' + row + b'\n')
            answer = self.service.ask('plan', path)
            self.assertEqual((answer.returncode, answer.stdout), (2, ''), answer.stderr)
            self.assertIn(why, answer.stderr)
            self.assertNotIn('\x1b', answer.stderr)
        path.write_text('name,elements\na,1\n')
        answer = self.service.ask('plan', path, '--period', '1', '--lane-time', '86400000')
        self.assertEqual((answer.returncode, answer.stdout), (2, ''), answer.stderr)
        self.assertIn('--lane-time is more than', answer.stderr)


class Health(unittest.TestCase):
    def setUp(self):
        self.service = Service('--http', '127.0.0.1:0', '--aggregator-timeout', 3, aggregators=2)
        self.addCleanup(self.service.end)
        self.web = web_of(self.service)

    def test_the_service_is_healthy_except_without_an_aggregator(self):
        until(lambda: fetch(self.web + '/healthz') == (200, 'ok\n'), 'both are up',
              process=self.service.serve)
        os.kill(self.service.pids()[0], signal.SIGSTOP)
        until(lambda: fetch(self.web + '/healthz')[0] == 503, 'the silence is seen',
              process=self.service.serve)
        until(lambda: fetch(self.web + '/healthz') == (200, 'ok\n'), 'it was replaced',
              process=self.service.serve)


class NoService(unittest.TestCase):
    def test_without_a_service_there_is_no_report(self):
        answer = harness.run([GRADPOOL, 'report', '--endpoint', 'unix:/nowhere.sock'],
                             capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual((answer.returncode, answer.stdout), (3, ''))

    def test_without_a_service_top_ends_with_exit_code_3_and_the_reason(self):
        answer = harness.run([GRADPOOL, 'top', '--once', '--endpoint', 'unix:/nowhere.sock'],
                             capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual((answer.returncode, answer.stdout), (3, ''))
        self.assertIn('/nowhere.sock', answer.stderr)


class WebAddress(unittest.TestCase):
    def serve(self, http):
        with tempfile.TemporaryDirectory() as folder:
            return harness.run([GRADPOOL, 'serve', '--state-dir', folder, '--listen',
                                'gradpool://127.0.0.1:0', '--http', http], text=True,
                               capture_output=True, timeout=WAIT_S, check=False)

    def test_an_address_that_is_none_is_a_mistake_on_the_command_line(self):
        answer = self.serve('7078')
        self.assertEqual(answer.returncode, 2)
        self.assertIn('expected ADDRESS:PORT', answer.stderr)

    def test_a_port_in_use_is_reported_and_no_service_starts(self):
        with socket.create_server(('127.0.0.1', 0)) as other:
            address = f'127.0.0.1:{other.getsockname()[1]}'
            answer = self.serve(address)
        self.assertEqual(answer.returncode, 1)
        self.assertIn(address, answer.stderr)
        self.assertNotIn('started a local aggregator', answer.stderr)

    def test_without_the_option_nothing_listens(self):
        service = Service(aggregators=1)
        self.addCleanup(service.end)
        self.assertNotIn('http://', service.serve.text())

    def test_a_web_server_open_to_other_hosts_causes_a_warning(self):
        service = Service('--http', '0.0.0.0:0', aggregators=1)
        self.addCleanup(service.end)
        self.assertRegex(service.serve.text(), 'level=warn.*names and figures of all jobs')


class Prometheus(unittest.TestCase):
    """Runs a real Prometheus."""

    def query(self, expression):
        answer = json.loads(fetch(f'{self.url}/api/v1/query?query='
                                  + urllib.parse.quote(expression))[1])
        return [float(one['value'][1]) for one in answer['data']['result']]

    def start(self, folder, target):
        address = f'127.0.0.1:{free_ports(1)}'
        self.url = f'http://{address}'
        (folder / 'prometheus.yml').write_text(
            'global: {scrape_interval: 1s, evaluation_interval: 1s}\nscrape_configs: '
            f'[{{job_name: gradpool, static_configs: [{{targets: ["{target}"]}}]}}]')
        process = Process(['prometheus', f'--config.file={folder}/prometheus.yml',
                           f'--storage.tsdb.path={folder}/tsdb', f'--web.listen-address={address}'],
                          folder, 'prometheus')
        self.addCleanup(process.kill)
        process.wait_for('Server is ready')
        return process

    def test_prometheus_scrapes_the_counters_of_a_job(self):
        # lanes without jobs stay open until the figures are compared
        service = Service('--http', '127.0.0.1:0', '--scale-hold', 3600, aggregators=2)
        self.addCleanup(service.end)
        prometheus = self.start(service.folder, web_of(service).removeprefix('http://'))
        for process in service.workers('real', 2, '--rounds', 50, '--tensors', 3):
            result(process)
        # on a busy host some scrapes are late, and the figures are absent until the next one
        for expression, value in (('up{job="gradpool"}', 1),
                                  ('sum(gradpool_lane_taken_bytes_total)', 50 * 3 * 2 << 20),
                                  ('sum(gradpool_lane_rounds_total)', 50 * 3),
                                  ('gradpool_cores_allocated', 2)):
            until(lambda: self.query(expression) == [value], f'{expression} is {value}',
                  process=prometheus)
        until(lambda: self.target() == ('up', ''), 'the last scrape was right', process=prometheus)

    def target(self):
        target, = json.loads(fetch(self.url + '/api/v1/targets')[1])['data']['activeTargets']
        return target['health'], target['lastError']


class Browser(Running):
    """Opens the report in a real browser."""

    def options(self):
        return *super().options(), '--http', '127.0.0.1:0'

    def setUp(self):
        super().setUp()
        self.web = web_of(self.service)
        until(lambda: fetch(self.web + '/report')[1].count('resnet-7 100 %') == 2,
              'the shares of both lanes are known', process=self.service.serve)

    def test_a_browser_shows_the_figures_and_the_chart_without_an_error(self):
        dom = browser.dom(self.web + '/report')
        cores = json.loads(fetch(self.web + '/report.json')[1])['cores']
        for name in ('allocated', 'dedicated', 'saved'):
            self.assertIn(f'<dd id="{name}">{cores[name]:.0f}</dd>', dom)
        self.assertIn('resnet-7 100 %', dom)
        self.assertRegex(dom, r'<svg [^>]*role="img"')
        for line in ('dedicated', 'allocated', 'used'):
            self.assertRegex(dom, rf'<path class="line {line}" d="M[0-9]')

    def test_no_label_overlaps_another_wide_or_narrow_light_or_dark(self):
        browser.check_labels(self, fetch(self.web + '/report')[1], self.service.folder)

    def test_a_very_long_name_leaves_the_other_columns_in_sight(self):
        name = 'n' * 127
        self.service.workers(name, 2, '--rounds', 1000000, '--compute-ms', 20)
        until(lambda: name in fetch(self.web + '/report')[1], 'the job is shown',
              process=self.service.serve)
        browser.check_labels(self, fetch(self.web + '/report')[1], self.service.folder)

    def test_the_page_of_the_report_contains_its_figures(self):
        data = browser.data_of(browser.dom(self.web + '/report'))
        self.assertEqual([j['job'] for j in data['jobs']], ['resnet-7'])
        self.assertIsInstance(data['events'], list)


class RunPage(unittest.TestCase):
    """Checks the page written by a bench."""

    def test_a_simulation_is_shown_from_its_last_line(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / 'run.html'
            answer = harness.run(
                [BENCH, 'simulate', '--x', '1.5', '--hours', '12', '--windows', '20', '--json',
                 '--report', page], capture_output=True, text=True, timeout=WAIT_S, check=False)
            self.assertEqual((answer.returncode, answer.stderr), (0, ''))
            data = browser.check_run(self, page)
            for name, value in json.loads(answer.stdout).items():
                self.assertAlmostEqual(data['figures'][name], value, delta=1e-3, msg=name)
            self.assertEqual(len(data['history']), 360)
            moved = sum(int(one['text'].split()[5]) for one in data['events']
                        if one['kind'] == 'moves')
            self.assertEqual(moved, round(12 * data['figures']['moves_per_hour']))
            self.assertIn('growth', [one['kind'] for one in data['events']])
            held = sum(one['allocated'] for one in data['history']) / 360 * 12
            self.assertAlmostEqual(held, data['figures']['allocated_core_hours'], delta=0.01)
            browser.check_labels(self, page.read_text(), page.parent)

    def test_a_page_that_cannot_be_written_is_a_failure(self):
        answer = harness.run([BENCH, 'simulate', '--x', '1.5', '--hours', '1', '--windows', '1',
                              '--report', '/nowhere/run.html'], capture_output=True, text=True,
                             timeout=WAIT_S, check=False)
        self.assertEqual(answer.returncode, 1)
        self.assertEqual(answer.stdout, '')  # the bench detected the error before the run
        self.assertIn('/nowhere/run.html cannot be written', answer.stderr)

    def test_an_option_without_effect_on_a_live_comparison_is_a_usage_error(self):
        for option, *value in (('--report', 'run.html'), ('--traces', 'week.csv'),
                               ('--hours', '12'), ('--sensitivity',), ('--piece-max', '65536')):
            for words in ([option, *value, '--live', 'x.csv'], ['--live', 'x.csv', option, *value]):
                answer = harness.run([BENCH, 'simulate', *words], capture_output=True, text=True,
                                     timeout=WAIT_S, check=False)
                self.assertEqual(answer.returncode, 2)
                self.assertEqual(answer.stdout, '')
                self.assertIn(f'--live and {option} do not go together', answer.stderr)

    def test_a_simulation_without_jobs_or_without_readers_is_a_failure(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            for hours, out, why in (('0.02', subprocess.PIPE, 'no job'),
                                    ('12', full, 'output cannot be written')):
                answer = harness.run([BENCH, 'simulate', '--x', '1.5', '--hours', hours,
                                      '--windows', '1', '--json'], stdout=out,
                                     stderr=subprocess.PIPE, text=True, timeout=WAIT_S,
                                     check=False)
                self.assertEqual(answer.returncode, 1)
                self.assertIn(why, answer.stderr)


if __name__ == '__main__':
    tap.main()
