"""The job of this process, and the ranks on the same host."""
import errno
import os
import socket
import weakref

from .._process.membership import join
from ..client import default_timeout_ms, job_from_environment
from ..elastic.joining import place_of_launcher, workers_max_of_launcher
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

_door = None        # a Door; a Place before the first Door, and between two; None before init()


class Place:
    """Rank and number of workers before the job has them for certain. The launcher may change the
    number of workers, and the script shows later whether it takes part in such changes: a call to
    the function of elastic.run does; any other call that needs all ranks fixes the number.

      optimizers  [(weak reference to a distributed optimizer, function that gives it a Reducer)]
      worlds      the Worlds (elastic/worlds.py) of the function of elastic.run; None before"""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        self.optimizers, self.worlds = [], None

    def number_on_host(self, _):
        number = _told_number()
        if number is None:
            raise mismatch('local_rank() before the function of elastic.run, and the launcher has '
                           'not set LOCAL_RANK; set it, or make the call in the function')
        return number

    def bind(self):
        """Gives each optimizer of the script a Reducer, in the order of DistributedOptimizer()."""
        self.optimizers = [one for one in self.optimizers if one[0]() is not None]
        for optimizer, make in self.optimizers:
            make(optimizer())


class Door:
    """The membership of this process in the job. `is_closed`: shutdown() was called. `is_in_body`:
    the script is in the body of a loop over optimizer.batches(). `place`: the Place before this
    Door; None: the launcher fixes the number of workers."""

    def __init__(self, name, rank, size, place=None):
        self.place, self.optimizers = place, weakref.WeakSet()
        self._membership = join(name, None, rank, size, waits=not self.is_elastic)
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

    @property
    def is_elastic(self):
        """Returns whether workers may join and leave at commits (elastic.run)."""
        return self.place is not None and self.place.worlds is not None

    def refuse_elastic(self, call, advice):
        """Raises Mismatch if the number of workers may change."""
        if self.is_elastic:
            raise mismatch(f'{call} in a job whose workers join and leave (elastic.run): {advice}')

    def close(self):
        if self.is_closed:
            return
        self.is_closed = True
        for optimizer in list(self.optimizers) if self.is_elastic else ():
            optimizer.unbind()
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
    sets = () if process_sets in (None, 'dynamic') else process_sets
    if workers_max_of_launcher() and not sets:
        _door = Place(*place_of_launcher())
    else:
        _door = _opened(Door(*_place()), sets)


def _opened(door, process_sets=()):
    """Returns the Door after all ranks have met in it."""
    try:
        _meet(door, process_sets)
    except BaseException:
        door.close()
        raise
    return door


def enter(door):
    """Makes an elastic Door the Door of this process, and returns when all its ranks have met."""
    global _door
    _door = door
    _meet(door, ())
    door.place.bind()


def leave():
    """Leaves the present Door, if it is elastic. Its Place follows."""
    global _door
    if isinstance(_door, Door) and _door.is_elastic:
        door, _door = _door, _door.place
        _door.rank, _door.size = door.rank, door.size
        door.close()


def known():
    """Returns the Door or the Place. Raises Mismatch before init()."""
    if _door is None:
        raise mismatch('gradpool.torch has not been initialized; call init() first')
    return _door


def _fix():
    """Joins the job for a call that needs all ranks, outside of the function of elastic.run."""
    global _door
    place = _door
    if place.worlds is not None:
        raise mismatch('a call that needs all workers, outside of the function of elastic.run: '
                       'make the call in the function')
    _door = _opened(Door(os.environ.get('GRADPOOL_JOB'), place.rank, place.size, place))
    place.bind()


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
        place = door.place if isinstance(door, Door) else door
        if door is not place:
            door.close()
        if place is not None and place.worlds is not None:
            place.worlds.close()


def is_initialized():
    """Returns whether init() was called, and shutdown() was not called later."""
    return _door is not None


def door():
    """Returns the Door. Raises Mismatch before init()."""
    if isinstance(known(), Place):
        _fix()
    return _door


def rank():
    """Returns the rank of this process, from 0."""
    return known().rank


def size():
    """Returns the number of processes of the job."""
    return known().size


def local_rank():
    """Returns the number of this process on its host: the launcher's, or its index among the host's
    ranks."""
    return known().number_on_host(rank())


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
    door().refuse_elastic('add_process_set()', 'ranks change; leave the process set out')
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
