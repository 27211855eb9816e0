"""The job of this process, and the ranks on the same host."""
import errno
import os
import socket

from .._process.membership import join
from ..client import default_timeout_ms, job_from_environment
from ..errors import GradpoolError, mismatch
from .process_sets import global_process_set, ProcessSet

# The launcher whose variable gives the rank also gives the number of the process on its host. The
# first set variable in the order of gradpool.h is used. Variables of other launchers are not used:
# a Slurm batch script has number 0 on its host, and so have all processes that it starts without
# srun.
_LOCAL_RANKS = {'GRADPOOL_RANK': 'LOCAL_RANK', 'RANK': 'LOCAL_RANK',
                'HOROVOD_RANK': 'HOROVOD_LOCAL_RANK',
                'OMPI_COMM_WORLD_RANK': 'OMPI_COMM_WORLD_LOCAL_RANK',
                'MV2_COMM_WORLD_RANK': 'MV2_COMM_WORLD_LOCAL_RANK',
                'JSM_NAMESPACE_RANK': 'JSM_NAMESPACE_LOCAL_RANK',
                'FLUX_TASK_RANK': 'FLUX_TASK_LOCAL_ID', 'PMI_RANK': 'MPI_LOCALRANKID',
                'DMLC_WORKER_ID': 'BYTEPS_LOCAL_RANK', 'SLURM_PROCID': 'SLURM_LOCALID'}

_door = None


class Door:
    """The membership of this process in the job. `is_closed`: shutdown() was called. `is_in_body`:
    the script is in the body of a loop over optimizer.batches()."""

    def __init__(self, name, rank, size):
        self._membership = join(name, None, rank, size)
        self.job, self.rank, self.size = self._membership.job, rank, size
        self.timeout_s = default_timeout_ms() / 1e3
        self.is_closed = self.is_in_body = False
        self.joins = 0      # number of join() calls that all ranks have completed
        self.sets = []
        self.hosts = []     # for each rank: (host, its number on the host or None)
        self._others = []       # memberships in the jobs of optimizers with backup workers
        self._forgotten = []    # unused Slots whose last round is still open

    def add(self, process_set):
        process_set.bind(self, len(self.sets))
        self.sets.append(process_set)
        return process_set

    def open(self):
        """Returns all open operations."""
        return [operation for of in self.sets if of is not None and of.included()
                for sequence in of.sequences().all() for operation in list(sequence.open)]

    def forget(self, slots=()):
        """Undeclares the tensors of these Slots. If a round of a Slot is still open on any rank, a
        later call undeclares the tensor. Returns whether all are undeclared."""
        before, self._forgotten = self._forgotten, []
        self._forgotten.extend(slot for slot in [*before, *slots] if not slot.end())
        return not self._forgotten

    def join_beside(self, backup):
        """Joins a job for one optimizer with backup workers. Each call on a rank joins the same job
        as the call with the same number on other ranks."""
        name = f'{self.job.name}.backup{len(self._others) + 1}'
        self._others.append(join(name, None, self.rank, self.size, backup))
        return self._others[-1].job

    def check_body(self, call):
        """Raises Mismatch in the body of a loop over optimizer.batches()."""
        if self.is_in_body:
            raise mismatch(f'{call} in the body of a loop over optimizer.batches(). A rank that '
                           'misses rounds runs the body less often, so calls of different rounds '
                           'would meet. Make the call behind the loop')

    def close(self):
        self.is_closed = True
        for process_set in filter(None, self.sets):
            process_set.unbind()
        for membership in [*self._others, self._membership]:
            membership.release()

    def neighbours(self):
        """Returns the ranks on this host, in ascending order."""
        here, _ = self.hosts[self.rank]
        return [rank for rank, (host, _) in enumerate(self.hosts) if host == here]

    def number_on_host(self, rank):
        host, number = self.hosts[rank]
        if number is not None:
            return number
        return sum(other == host for other, _ in self.hosts[:rank])


def init(comm=None, process_sets=None):
    """Joins the job. The environment gives the job's name, the service, the rank and the number of
    ranks (GRADPOOL_ENDPOINT, GRADPOOL_JOB; RANK and WORLD_SIZE, or the variables of horovodrun,
    bpslaunch, MPI, jsrun, Flux or Slurm). Without rank variables the job has one process. Returns
    when all ranks have joined. A second call has no effect.

    process_sets  [ProcessSet], the same on every rank; more can be added later
    comm          must be None: use process_sets for a part of the ranks"""
    global _door
    if comm is not None:
        raise mismatch('init(comm=...): there is no MPI here; name ranks in process_sets')
    if _door is not None:
        return
    door = Door(*_place())
    try:
        _meet(door, () if process_sets in (None, 'dynamic') else process_sets)
    except BaseException:
        door.close()
        raise
    _door = door


def _place():
    try:
        return job_from_environment()
    except GradpoolError as error:
        if error.errno != errno.ENOENT:
            raise
        return os.environ.get('GRADPOOL_JOB'), 0, 1


def _meet(door, process_sets):
    # imported here, because that module imports this one
    from ._operations.objects import gather_objects
    door.add(global_process_set)
    door.hosts = gather_objects((socket.gethostname(), _told_number()), 'hvd.init()',
                                global_process_set)
    for process_set in process_sets:
        door.add(_made(process_set))


def _told_number():
    """Returns the number of this process on its host from the launcher's variable, or None."""
    launcher = next((rank for rank in _LOCAL_RANKS if rank in os.environ), None)
    number = os.environ.get(_LOCAL_RANKS.get(launcher, ''))
    if number is not None and not number.isdecimal():
        raise mismatch(f"{_LOCAL_RANKS[launcher]} is '{number}', expected a number from 0")
    return number and int(number)


def shutdown():
    """Leaves the job. Open operations end with an error. A later init() joins the next job of that
    name, which begins when all ranks have left this one (Y110)."""
    global _door
    if _door is not None:
        door, _door = _door, None
        door.close()


def is_initialized():
    """Returns whether init() was called, and shutdown() was not called later."""
    return _door is not None


def door():
    """Returns the Door. Raises Mismatch before init()."""
    if _door is None:
        raise mismatch('gradpool.torch has not been initialized; call init() first')
    return _door


def rank():
    """Returns the rank of this process, from 0."""
    return door().rank


def size():
    """Returns the number of processes of the job."""
    return door().size


def local_rank():
    """Returns the number of this process on its host: the launcher's, or its index among the host's
    ranks."""
    return door().number_on_host(rank())


def local_size():
    """Returns the number of processes of the job on this host."""
    return len(door().neighbours())


def _across():
    """Returns the ranks with the same local rank on their hosts, one rank of each host."""
    number = local_rank()
    return [other for other in range(size()) if door().number_on_host(other) == number]


def cross_rank():
    """Returns the index of this host among the hosts with a process of this local rank."""
    return _across().index(rank())


def cross_size():
    """Returns the number of hosts with a process of this local rank."""
    return len(_across())


def is_homogeneous():
    """Returns whether all hosts have the same number of processes."""
    hosts = [host for host, _ in door().hosts]
    return len({hosts.count(host) for host in hosts}) == 1


def _is_absent():
    """Returns False for Horovod's functions mpi_built(), nccl_built() and others."""
    return False


def check_extension(*_):
    """Does nothing: Horovod checks here whether its extension was built; gradpool needs no
    extension."""


def start_timeline(file_path, mark_cycles=False):
    """Makes rank 0 record the rounds of all ranks and lanes in this file, for trace viewers. No
    effect on other ranks. `mark_cycles` has no effect, because the service has no cycles."""
    if rank() == 0:
        door().job.start_timeline(file_path)


def stop_timeline():
    """Completes the timeline file, as shutdown() does. Has no effect without start_timeline()."""
    if rank() == 0:
        door().job.stop_timeline()


mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = _is_absent
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _is_absent


def _made(process_set):
    return process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)


def add_process_set(process_set):
    """Registers a set, on all ranks in the same order. Accepts a ProcessSet or ranks."""
    process_set = _made(process_set)
    for known in filter(None, door().sets):
        if known.ranks == process_set.ranks:
            raise mismatch(f'{process_set}: a process set has these ranks already: {known}')
    return door().add(process_set)


def remove_process_set(process_set):
    """Removes a set, on all ranks. Returns False if the set was not registered, or is the set of
    all ranks."""
    number = process_set.process_set_id
    if not number or door().sets[number] is not process_set:
        return False
    door().sets[number] = None
    process_set.remove()
    return True
