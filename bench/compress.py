#!/usr/bin/env python3
"""Measures the cost of compressed gradients: bytes, CPU time and accuracy of each codec, for two
workers that train an MLP of 1.2 MB on the handwritten digits of scikit-learn through one service.

    bench/compress.py BUILD [--steps 120] [--turns 2] [--transport shm]

The codecs take turns in the same processes; each turn has a seed of its own. Prints a table; with
--json, prints a line for each codec and turn. The ranks' own lines go to standard error. The
service counts the bytes sent; the bytes received are the length of the operation's result. CPU time
includes both workers and the service.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

START_S, HOLD_S = 60, 5
WORKERS, BATCH, RATE, WIDTH, HELD_OUT = 2, 32, 0.2, 512, 360
PORT = '29544'
TICKS_PER_S = os.sysconf('SC_CLK_TCK')


def kinds():
    from gradpool.codecs import Dithering, OneBit, RandomK, TopK
    return {'none': {}, 'wire float16': {'wire': 'float16'}, 'wire bfloat16': {'wire': 'bfloat16'},
            'OneBit()': {'compression': OneBit()}, 'TopK(0.01)': {'compression': TopK(0.01)},
            'TopK(0.001)': {'compression': TopK(0.001)},
            'RandomK(0.05)': {'compression': RandomK(0.05)},
            'Dithering(8)': {'compression': Dithering(8)},
            'Dithering(4)': {'compression': Dithering(4)},
            'Dithering(2)': {'compression': Dithering(2)}}


def service_cpu_s(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


class Service:
    def __init__(self, build, policy):
        self.build, self.folder = build, pathlib.Path(tempfile.mkdtemp(prefix='gradpool-compress-'))
        self.children = []
        self.log = open(self.folder / 'log', 'wb')
        self.start('gradpool', 'serve', '--policy', policy, '--loss-limit', '5%', '--scale-hold',
                   HOLD_S, '--aggregators', 1, '--listen', 'gradpool://127.0.0.1:0', '--state-dir',
                   self.folder / 'state')
        wait(lambda: self.status() is not None, START_S, 'the service starts')
        self.endpoint = self.status()['endpoint']

    def start(self, program, *arguments):
        command = [str(a) for a in (self.build / program, *arguments)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log,
                                 stderr=subprocess.STDOUT)
        self.children.append(child)
        return child

    def ask(self, *command):
        socket = f'unix:{self.folder}/state/control.sock'
        answer = subprocess.run([str(self.build / 'gradpool'), *command, '--json', '--endpoint',
                                 socket], capture_output=True, text=True, timeout=30, check=False)
        return json.loads(answer.stdout) if answer.stdout.strip() else None

    def status(self):
        status = self.ask('status')
        return status if status and any(a['state'] == 'up' for a in status['aggregators']) else None

    def end(self):
        service, *workers = self.children
        for child in workers:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGCONT)
                child.terminate()
            child.wait(60)
        with contextlib.suppress(ProcessLookupError):
            # SIGINT also ends the jobs; SIGTERM would leave them to the next start
            service.send_signal(signal.SIGINT)
        service.wait(60)
        self.log.close()
        shutil.rmtree(self.folder)


def wait(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f'not within {seconds} s: {what}')
        time.sleep(0.2)


class Worker:
    """One rank, in all turns."""

    def __init__(self, options):
        import sklearn.datasets
        import torch
        import torch.distributed
        self.torch, self.options = torch, options
        self.rank, self.pids = int(os.environ['RANK']), json.loads(os.environ['SERVICE_PIDS'])
        torch.set_num_threads(1)
        torch.distributed.init_process_group('gloo')
        given = sklearn.datasets.load_digits()
        order = torch.randperm(len(given.target), generator=torch.Generator().manual_seed(0))
        self.images = torch.tensor(given.data / 16, dtype=torch.float32)[order]
        self.labels = torch.tensor(given.target)[order]

    def net(self, seed):
        nn = self.torch.nn
        self.torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                             nn.Linear(WIDTH, 10))

    def train(self, name, settings, turn):
        """Trains one turn and prints its result as one line."""
        import gradpool.ddp
        torch, net = self.torch, self.net(turn)
        model = torch.nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
        job = f'turn-{turn}-{name}'.replace(' ', '-')
        with gradpool.ddp.attach(model, job=job, **settings) as attachment:
            optimizer = torch.optim.SGD(net.parameters(), RATE)
            draws = torch.Generator().manual_seed(100 * turn + self.rank)
            torch.distributed.barrier()
            before = time.process_time(), service_cpu_s(self.pids), time.monotonic()
            for _ in range(self.options.steps):
                self.step(model, optimizer, draws)
            after = time.process_time(), service_cpu_s(self.pids), time.monotonic()
            torch.distributed.barrier()
            pushed = self.pushed_bytes(job) if self.rank == 0 else 0
            attachment.job.barrier()
        cpu_s, service_s, wall_s = (b - a for a, b in zip(before, after))
        codec = settings.get('compression')
        return {'kind': name, 'turn': turn, 'rank': self.rank, 'cpu_s': cpu_s, 'wall_s': wall_s,
                'service_cpu_s': service_s, 'pushed_bytes': pushed, **self.judge(net),
                'received_bytes': self.received(net, codec, settings)}

    def step(self, model, optimizer, draws):
        torch = self.torch
        shard = torch.randint(len(self.images) - HELD_OUT, (BATCH,), generator=draws)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(self.images[shard]), self.labels[shard]).backward()
        optimizer.step()

    def judge(self, net):
        torch = self.torch
        with torch.no_grad():
            found = net(self.images[-HELD_OUT:])
            loss = torch.nn.functional.cross_entropy(net(self.images[:-HELD_OUT]),
                                                     self.labels[:-HELD_OUT])
        right = (found.argmax(1) == self.labels[-HELD_OUT:]).float().mean()
        return {'accuracy': right.item(), 'loss': loss.item()}

    def received(self, net, codec, settings):
        """Returns the bytes that a worker receives in a step."""
        total = 0
        for parameter in net.parameters():
            count = parameter.numel()
            if codec is not None and codec.takes(count):
                total += 4 * codec.words(count) * (WORKERS if codec.operation == 'gather' else 1)
            else:
                total += (2 if 'wire' in settings else 4) * count
        return total

    def pushed_bytes(self, job):
        """Queries the number of pushed bytes that the service has counted, until two successive
        answers are equal, and returns this number."""
        last = None
        while True:
            answer = subprocess.run([self.options.build / 'gradpool', 'jobs', '--json'],
                                    capture_output=True, text=True, check=True)
            now = next((one['use']['pushed_bytes'] for one in json.loads(answer.stdout)['jobs']
                        if one['job'] == job), None)
            if now and now == last:
                return now
            last = now
            time.sleep(1.5)

    def run(self):
        for turn in range(self.options.turns):
            for name, settings in kinds().items():
                line = json.dumps(self.train(name, settings, turn))
                print(line, flush=True)
                print(line, file=sys.stderr, flush=True)


def run_workers(service, options):
    environment = {**os.environ, 'GRADPOOL_ENDPOINT': service.endpoint, 'OMP_NUM_THREADS': '1',
                   'PYTHONPATH': str(pathlib.Path(__file__).resolve().parents[1] / 'client/python'),
                   'GRADPOOL_LIBRARY': str(options.build / 'client' / 'libgradpool.so'),
                   'GRADPOOL_TRANSPORT': options.transport, 'WORLD_SIZE': str(WORKERS),
                   'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': PORT, 'SERVICE_PIDS': json.dumps(
                       [service.children[0].pid, *(one['pid'] for one
                                                   in service.status()['aggregators'])])}
    started = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], '--worker'], text=True,
                                stdout=subprocess.PIPE, env={**environment, 'RANK': str(rank)})
               for rank in range(WORKERS)]
    try:
        said = [one.communicate()[0] for one in started]
        if any(one.returncode for one in started):
            sys.exit('compress.py: a worker failed')
        return [[json.loads(line) for line in lines.splitlines()] for lines in said]
    finally:
        for one in started:
            one.kill()


def merged(of_ranks, steps):
    """Yields one line for each codec and turn, with means of one step."""
    for lines in zip(*of_ranks):
        first = lines[0]
        yield {'kind': first['kind'], 'turn': first['turn'], 'accuracy': first['accuracy'],
               'loss': first['loss'], 'is_same': len({line['loss'] for line in lines}) == 1,
               'sent_bytes': first['pushed_bytes'] / steps / WORKERS,
               'received_bytes': first['received_bytes'],
               'workers_cpu_s': sum(line['cpu_s'] for line in lines) / steps,
               'service_cpu_s': first['service_cpu_s'] / steps,
               'steps_per_s': steps / first['wall_s']}


def row(of_kind, of_none):
    """Returns medians over the turns. The CPU time is divided by the CPU time of `none` in the same
    turn."""
    def middle(values, form):
        values = list(values)
        return form.format(statistics.median(values)) + ' (' + form.format(min(values)) + ' to ' \
            + form.format(max(values)) + ')'
    first = of_kind[0]
    bytes_ = first['sent_bytes'] + first['received_bytes']
    of = bytes_ / (of_none[0]['sent_bytes'] + of_none[0]['received_bytes'])
    cpu = [1e3 * (line['workers_cpu_s'] + line['service_cpu_s']) for line in of_kind]
    ratio = [mine * 1e-3 / (other['workers_cpu_s'] + other['service_cpu_s'])
             for mine, other in zip(cpu, of_none)]
    return [f"`{first['kind']}`", f"{first['sent_bytes'] / 1024:.1f}",
            f"{first['received_bytes'] / 1024:.1f}", f'{of:.4f}', middle(cpu, '{:.1f}'),
            middle(ratio, '{:.2f}'),
            f"{statistics.median(1e3 * line['service_cpu_s'] for line in of_kind):.2f}",
            middle((line['accuracy'] for line in of_kind), '{:.3f}'),
            f"{statistics.median(line['loss'] for line in of_kind):.4f}",
            'yes' if all(line['is_same'] for line in of_kind) else 'NO']


def print_table(lines):
    heads = ['kind', 'KiB sent', 'KiB received', 'of none', 'CPU ms', 'CPU, of none',
             'service CPU ms', 'held-out accuracy', 'loss', 'ranks alike']
    print('| ' + ' | '.join(heads) + ' |\n|' + '---|' * len(heads))
    by_kind = {}
    for line in lines:
        by_kind.setdefault(line['kind'], []).append(line)
    for of_kind in by_kind.values():
        print('| ' + ' | '.join(row(of_kind, by_kind['none'])) + ' |')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('build', type=pathlib.Path)
    parser.add_argument('--steps', type=int, default=120)
    parser.add_argument('--turns', type=int, default=2)
    parser.add_argument('--transport', default='shm')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.worker:
        Worker(options).run()
        return
    service = Service(options.build, 'shared')
    try:
        lines = list(merged(run_workers(service, options), options.steps))
    finally:
        service.end()
    for line in lines if options.json else ():
        print(json.dumps(line), flush=True)
    print_table(lines)


if __name__ == '__main__':
    main()
