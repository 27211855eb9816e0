"""Starts workers like on a cluster: with the real mpirun, torchrun and srun, and with the variables
of horovodrun and bpslaunch.

A worker is this script with `--worker`. It writes its results to the file of its rank."""
import importlib.metadata
import json
import os
import pathlib
import signal
import sys
import unittest

import ranks  # sets GRADPOOL_LIBRARY, before gradpool is imported
import tap
from harness import Process, Service, free_ports, until
from slurm import Slurm

WORKERS = 2
LAUNCH_S = 120      # time limit in seconds: both workers import torch on a busy machine
# Variables set by a launcher or by a user of gradpool. Tests remove them.
OTHERS = ('GRADPOOL_', 'SLURM_', 'OMPI_', 'PMI', 'RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'HOROVOD_',
          'MV2_', 'JSM_', 'FLUX_', 'DMLC_', 'BYTEPS_', 'MPI_')
KEPT = 'GRADPOOL_BUILD', 'GRADPOOL_LIBRARY'
SCRIPT = pathlib.Path(__file__).resolve()

service = None


def setUpModule():
    global service
    service = Service(aggregators=1)


def tearDownModule():
    service.end()


# ---- functions of workers ----

def worker_sums():
    """Uses the plain package. Returns a sum, and the worker's rank and size."""
    import numpy
    import gradpool
    _, rank, workers = gradpool.job_from_environment()
    with gradpool.connect() as client, client.join() as job:
        values = numpy.full(1000, rank + 1, numpy.float32)
        job.push_pull(job.declare('t', 1000), values, operation='sum').wait()
        return rank, [rank, workers, float(values.min()), float(values.max())]


def worker_has_a_door():
    """Uses Horovod's calls. Returns the worker's rank and size, and a sum."""
    import torch
    import gradpool.torch as hvd
    hvd.init()
    total = hvd.allreduce(torch.full((1000,), hvd.rank() + 1.0), op=hvd.Sum)
    return hvd.rank(), [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(),
                        total.min().item(), total.max().item()]


def worker_trains():
    """Uses DDP with the hook like under torch's own launcher. Then uses Horovod's calls."""
    import torch
    import gradpool.ddp
    torch.distributed.init_process_group('gloo')
    rank, found = worker_has_a_door()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    gradpool.ddp.attach(model)
    model(torch.full((1, 10), rank + 1.0)).sum().backward()
    gradient = model.module.weight.grad
    return rank, [*found, gradient.min().item(), gradient.max().item()]


def worker_is_wrong():
    """Rank 1 makes an error: it pushes an undeclared tensor. Rank 0 returns the rank it lost."""
    import numpy
    import gradpool
    job = gradpool.connect().join()
    tensor, values = job.declare('t', 10), numpy.ones(10, numpy.float32)
    job.push_pull(tensor, values).wait()
    job.push_pull(tensor, values[:10 - job.rank]).wait()


def work(function, folder):
    rank, found = globals()[function]()
    (pathlib.Path(folder) / f'{function}.{rank}').write_text(json.dumps(found))


# ---- launching ----

class Launcher(unittest.TestCase):
    command = ()
    environment = {}

    def launch(self, function, command=None, **environment):
        """Starts this number of workers, which call `function`. Returns (exit status, output)."""
        self.folder = service.folder / f'{type(self).__name__}-{self._testMethodName}'
        self.folder.mkdir()
        others = [name for name in os.environ if name.startswith(OTHERS) and name not in KEPT]
        unset = [part for name in others for part in ('-u', name)]
        process = Process(
            ['/usr/bin/env', *unset, *self.settings(environment),
             *(self.command if command is None else command), sys.executable, '-B', SCRIPT,
             '--worker', function, self.folder], self.folder, 'launcher')
        try:
            return process.wait(LAUNCH_S), process.text()
        except AssertionError:
            process.signal(signal.SIGTERM)      # the launcher then ends its workers
            process.wait(10)
            raise
        finally:
            process.kill()

    def settings(self, more):
        names = {'GRADPOOL_ENDPOINT': service.endpoint, 'GRADPOOL_JOB': self.folder.name,
                 'GRADPOOL_TIMEOUT_MS': LAUNCH_S * 500, 'OMP_NUM_THREADS': 1,
                 'CUDA_VISIBLE_DEVICES': '', **self.environment, **more}
        return [f'{name}={value}' for name, value in names.items()]

    def check(self, function, expected, **how):
        """Checks that each rank returns its value of `expected` and prints no warning."""
        code, said = self.launch(function, **how)
        self.assertEqual(code, 0, said)
        found = {path.name: json.loads(path.read_text())
                 for path in self.folder.glob(f'{function}.*')}
        self.assertEqual(found, {f'{function}.{rank}': expected(rank)
                                 for rank in range(WORKERS)}, said)

    def check_an_error(self):
        """If a worker fails, the launcher must fail, and its output must contain the reason."""
        code, said = self.launch('worker_is_wrong')
        self.assertEqual(code, 1, said)
        self.assertIn('gradpool.errors.Mismatch: ', said)
        return said


SUM = float(sum(range(1, WORKERS + 1)))


def of_sums(rank):
    return [rank, WORKERS, SUM, SUM]


def of_a_door(rank):
    return [rank, WORKERS, rank, WORKERS, SUM, SUM]


def of_training(rank):
    return [*of_a_door(rank), SUM / WORKERS, SUM / WORKERS]


class Mpirun(Launcher):
    # There is no other host and no ssh. Launchers started at the same time would use the same
    # session folder, so each gets a separate one.
    command = ('mpirun.openmpi', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none',
               '--mca', 'plm', 'isolated', '-np', WORKERS)

    def settings(self, more):
        return super().settings({**more, 'OMPI_MCA_orte_tmpdir_base': self.folder})

    def test_the_package_gets_ranks_from_mpirun(self):
        self.check('worker_sums', of_sums)

    def test_calls_of_horovod_get_ranks_and_local_ranks_from_mpirun(self):
        self.check('worker_has_a_door', of_a_door)

    def test_mpirun_ends_with_the_error_of_a_worker(self):
        self.check_an_error()


class ByVariables(Launcher):
    """Starts one process for each rank, with the variables of a launcher."""

    def started_with(self, *variables):
        words = ' '.join(variables)
        return ('sh', '-c', f'for R in $(seq 0 {WORKERS - 1}); do env {words} "$@" & '
                'ids="$ids $!"; done; for id in $ids; do wait $id || exit 1; done', 'sh')

    def test_horovodruns_variables_have_ranks_and_local_ranks(self):
        self.check('worker_has_a_door', of_a_door, command=self.started_with(
            'HOROVOD_RANK=$R', f'HOROVOD_SIZE={WORKERS}', 'HOROVOD_LOCAL_RANK=$R',
            f'HOROVOD_LOCAL_SIZE={WORKERS}'))

    def test_bpslaunchs_variables_have_machines_and_processes(self):
        self.check('worker_sums', of_sums, command=self.started_with(
            'DMLC_WORKER_ID=0', 'DMLC_NUM_WORKER=1', 'DMLC_ROLE=worker', 'BYTEPS_LOCAL_RANK=$R',
            f'BYTEPS_LOCAL_SIZE={WORKERS}'))

    def test_a_size_of_one_beside_a_launcher_of_several_is_an_error(self):
        code, said = self.launch('worker_has_a_door', command=(), RANK=0, WORLD_SIZE=1,
                                 HOROVOD_SIZE=WORKERS)
        self.assertEqual(code, 1, said)
        self.assertIn(f'WORLD_SIZE is 1, so this process is alone, but HOROVOD_SIZE is {WORKERS}',
                      said)


class Torchrun(Launcher):
    # Debian's torch 1.13 with Python 3.11 fails without a digit after -r and -t.
    redirects = ('-r', 1, '-t', 1) if importlib.metadata.version('torch').startswith('1.') else ()

    @classmethod
    def setUpClass(cls):
        # this import loads torch, which no other class needs
        from gradpool._process import rendezvous
        cls.has_libuv = rendezvous.has_libuv()
        if not cls.has_libuv:
            cls.environment = {'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': 1}

    @property
    def command(self):
        # Debian's torchrun 2.6 needs libuv, which it does not contain. Ranks then find each other
        # through a file.
        where = ('--master_port', free_ports(1)) if self.has_libuv else (
            '--rdzv_backend', 'c10d', '--rdzv_endpoint', self.folder / 'rendezvous',
            '--rdzv_conf', 'store_type=file')
        return ('torchrun', *self.redirects, '--monitor_interval', 0.1, '--log_dir', self.folder,
                '--nproc_per_node', WORKERS, *where, '--no_python')

    def test_torchrun_trains_by_ddp_and_by_calls_of_horovod(self):
        self.check('worker_trains', of_training)

    def test_torchrun_ends_with_the_error_of_a_worker(self):
        self.check_an_error()


class Srun(Launcher):
    command = 'srun', '--quiet', '-n', WORKERS

    @classmethod
    def setUpClass(cls):
        cluster = Slurm()
        cls.addClassCleanup(cluster.end)
        cls.environment = cluster.environment

    def test_the_package_gets_ranks_from_srun(self):
        self.check('worker_sums', of_sums)

    def test_calls_of_horovod_get_ranks_and_local_ranks_from_srun(self):
        self.check('worker_has_a_door', of_a_door)

    def test_srun_ends_with_the_error_of_a_worker_whose_rank_the_other_names(self):
        self.assertIn('rank 1', self.check_an_error())

    def test_a_step_of_srun_counts_and_not_the_larger_allocation(self):
        """With --preserve-env the tasks have the SLURM_NTASKS of the allocation."""
        self.check('worker_sums', of_sums,
                   command=('salloc', '--quiet', '-n', 2 * WORKERS, *self.command,
                            '--preserve-env'))

    def test_an_allocation_without_srun_is_an_error_and_not_rank_0(self):
        code, said = self.launch('worker_sums', command=('salloc', '--quiet', '-n', WORKERS))
        self.assertEqual(code, 1, said)
        self.assertIn(f'for {WORKERS} tasks', said)
        self.assertIn('start it with srun', said)

    def test_a_batch_script_without_srun_is_an_error_and_not_rank_0(self):
        log = service.folder / 'batch.log'
        wrapped = f'exec sbatch --quiet -n {WORKERS} -o {log} --wrap "$*; echo it ended with \\$?"'
        code, said = self.launch('worker_sums', command=('sh', '-c', wrapped, 'sbatch'))
        self.assertEqual(code, 0, said)
        until(lambda: log.exists() and 'it ended with' in log.read_text(), 'the batch script ended')
        self.assertIn(f'for {WORKERS} tasks', log.read_text())
        self.assertIn('it ended with 1', log.read_text())


if __name__ == '__main__':
    if sys.argv[1:2] == ['--worker']:
        work(*sys.argv[2:])
    else:
        tap.main()
