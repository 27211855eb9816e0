"""The gradpool service of the demo: start, commands, measurements, stop."""
import json
import subprocess
import time

from children import Failed, cpu_s

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120


class Service:
    """A coordinator and two aggregators, on this host or on several nodes."""

    def __init__(self, program, folder, children, network):
        self._program, self._state, self._children = program, folder / 'state', children
        self._folder, self._keys = folder, {}
        self.endpoint = None
        self._place = place = network.service_place()
        listen = f'gradpool://{place.address}:{place.port}'
        self._processes = [children.start('service', network.inside(place.node, [
            program, 'serve', '--state-dir', self._state, '--listen', listen,
            '--aggregators', str(place.local_aggregators), '--orphan-timeout', '60',
            # longer than the time for which the node is disconnected
            '--worker-timeout', '10', '--aggregator-timeout', '10']))]
        if place.aggregator_nodes:
            self._wait_up(0)
        for node in place.aggregator_nodes:
            self._processes.append(children.start(f'aggregator-{node}', network.inside(node, [
                program, 'aggregator', '--join', self.endpoint, *place.aggregator_options(node)]),
                self._key('nodes', '--operator')))
        self._wait_up(2)

    def _wait_up(self, aggregators):
        def is_up():
            status = self.status()
            self.endpoint = status and status['endpoint']
            return status is not None and aggregators == sum(
                a['state'] == 'up' for a in status['aggregators'])
        self._children.wait('the service starts', is_up, self._processes, START_TIMEOUT_S)

    def _key(self, tenant, *options):
        """Returns {name of the environment variable: the tenant's key}. The first call creates
        the key."""
        if tenant not in self._keys:
            made = subprocess.run([self._program, 'tenant', 'add', tenant, *options, '--state-dir',
                                   self._state], capture_output=True, timeout=START_TIMEOUT_S,
                                  check=True)
            self._keys[tenant] = self._folder / f'{tenant}.key'
            self._keys[tenant].touch(mode=0o600)
            self._keys[tenant].write_bytes(made.stdout)
        return {'GRADPOOL_KEY_FILE': str(self._keys[tenant])}

    def environment(self, tenant):
        """Returns the environment variables of a tenant's workers: endpoint and key."""
        key = self._key(tenant) if self._place.needs_keys() else {}
        return {'GRADPOOL_ENDPOINT': self.endpoint, **key}

    def status(self):
        """Returns `gradpool status --json` as a dict, or None without an answer."""
        asked = subprocess.run([self._program, 'status', '--json', '--endpoint',
                                f'unix:{self._state}/control.sock'], capture_output=True,
                               timeout=START_TIMEOUT_S, check=False)
        return json.loads(asked.stdout) if asked.stdout else None

    def _ask(self, *words):
        """Returns the standard output of a gradpool command for this service. Raises Failed if the
        command failed."""
        asked = subprocess.run([self._program, *map(str, words), '--endpoint',
                                f'unix:{self._state}/control.sock'], capture_output=True,
                               timeout=START_TIMEOUT_S, check=False, text=True)
        if asked.returncode != 0:
            raise Failed(f'gradpool {words[0]}: {asked.stderr.strip()}')
        return asked.stdout

    def lanes_of(self, job):
        """Returns the numbers of the lanes that sum a job's gradients."""
        found = json.loads(self._ask('jobs', '--json'))['jobs']
        return {lane for j in found if j['job'] == job for lane in j['lanes']}

    def home_of(self, job):
        """Returns the entry of status() for the aggregator whose lanes sum the job's gradients."""
        lanes = self.lanes_of(job)
        return next(a for a in self.status()['aggregators']
                    if lanes & {lane['lane'] for lane in a['lanes']})

    def move(self, job, aggregator):
        """Moves all tasks of a job to the first lane of the aggregator; returns the command's
        output."""
        return json.loads(self._ask('move', job, aggregator['lanes'][0]['lane'], '--json'))

    def write_report(self, path):
        """Writes the page about saved cores."""
        self._ask('report', '--output', path)

    def pids(self):
        """Returns the process ids of coordinator and aggregators."""
        status = self.status()
        return [status['pid']] + [a['pid'] for a in status['aggregators']]

    def lanes(self):
        return sum(len(a['lanes']) for a in self.status()['aggregators'])

    def stop(self):
        """Runs `gradpool stop`, which ends first the jobs, then the aggregators on all nodes, and
        last the coordinator. Returns the exit code."""
        stopped = subprocess.run([self._program, 'stop', '--state-dir', self._state], text=True,
                                 capture_output=True, timeout=STOP_TIMEOUT_S, check=False)
        if stopped.returncode != 0:
            raise Failed(f'gradpool stop: {stopped.stderr.strip()}')
        self._children.wait_ended(self._processes, STOP_TIMEOUT_S)
        return self._processes[0].process.returncode


class Meter:
    """Measures the CPU time of some processes."""

    def __init__(self, pids):
        self._pids = pids
        self._cpu_s, self._at_s = cpu_s(pids), time.monotonic()

    def read(self):
        """Returns (CPU seconds, seconds) since the creation of the meter."""
        return cpu_s(self._pids) - self._cpu_s, time.monotonic() - self._at_s
