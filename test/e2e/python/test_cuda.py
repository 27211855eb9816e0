"""Tests tensors of a GPU with each door. Without a GPU the tests use a simulated one. The simulated
GPU runs a copy only when a call waits for the copy: as late as possible, in an order allowed by
streams and events. Kernels launched by a test are equally late. torch's own kernels run at once on
the host, so tests with these kernels use a second, prompt GPU. The prompt GPU treats all tensors as
tensors of a GPU. A stream that waits for an event first completes all operations before the event,
so torch's kernels read the right values."""
import collections
import contextlib
import ctypes
import importlib
import os
import tempfile
import threading

import ranks
import test_codecs
import test_ddp
import test_ddp_steps
import test_kept
from python_case import Case, setUpModule, tearDownModule     # noqa: found by name

LENGTH = 40000
OTHERS = 8                  # number of buffers that other code allocates and frees
WAIT_S = 20
lock = threading.RLock()    # the GPU runs one operation at a time


class Event:
    """An event of a stream, which happens when the stream reaches the event."""

    def __init__(self, made, stream):
        self._made, self._stream, self.is_over = made, stream, False
        stream.todo.append(self._come)

    def _come(self):
        self.is_over = True

    def query(self):
        return self.is_over

    def synchronize(self):
        assert self._made.may_compute.wait(WAIT_S), 'nobody lets the GPU compute'
        self.reach()

    def reach(self):
        with lock:
            while not self.is_over:
                self._stream.do_one()


class Stream:
    def __init__(self, is_prompt):
        self._is_prompt, self.todo = is_prompt, collections.deque()

    def wait_event(self, event):
        # torch's own kernels must read the values for which the stream waited
        if self._is_prompt:
            event.reach()
        else:
            self.todo.append(event.reach)

    def do_one(self):
        self.todo.popleft()()


def bare(tensor):
    """Returns a tensor with the same memory. The original tensor may be freed."""
    import torch
    raw = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return torch.frombuffer(raw, dtype=tensor.dtype).view(tensor.shape)


class MadeGpu:
    """Simulates gradpool._tensors.cuda.Gpu. The values of its tensors are on the host."""

    def __init__(self, is_prompt=False):
        self._is_prompt, self._tensors = is_prompt, set()
        self._script, self.other = Stream(is_prompt), Stream(is_prompt)
        self._ours = Stream(False), Stream(False)
        self._here = threading.local()      # stream of a thread that has chosen another one
        self.pinned, self.may_compute, self.copies = {}, threading.Event(), 0
        if is_prompt:
            self.may_compute.set()

    def own(self, tensor):
        self._tensors.add(tensor.data_ptr())
        return tensor

    def has(self, tensor):
        return self._is_prompt or tensor.data_ptr() in self._tensors

    def scripts(self, _):
        return getattr(self._here, 'stream', self._script)

    def ours(self, _):
        return self._ours

    @contextlib.contextmanager
    def on(self, stream):
        before, self._here.stream = self.scripts(None), stream
        try:
            yield
        finally:
            self._here.stream = before

    def launch(self, kernel):
        self.scripts(None).todo.append(kernel)

    def copy(self, stream, target, source):
        """Keeps memory of the GPU until the copy is done, as a GPU does. Of pinned host memory the
        copy has only the address, so it does not keep this memory alive."""
        self.copies += 1
        target, source = (bare(one) if one.data_ptr() in self.pinned else one
                          for one in (target, source))
        stream.todo.append(lambda: target.copy_(source))

    def mark(self, stream):
        return Event(self, stream)

    def pin(self, address, size):
        assert address not in self.pinned, 'pinned twice'
        self.pinned[address] = size

    def unpin(self, address):
        del self.pinned[address]

    def finish(self):
        with lock:
            for stream in self.other, self._script:
                while stream.todo:
                    stream.do_one()


class RealGpu:
    """The functions of the simulated GPU, for a real one."""

    def __init__(self, torch):
        self._torch, self.may_compute = torch, threading.Event()
        self.on, self.other = torch.cuda.stream, torch.cuda.Stream()

    def own(self, tensor):
        return tensor.cuda()

    def launch(self, kernel):
        kernel()

    def finish(self):
        self._torch.cuda.synchronize()


def gpu_of(torch, **options):
    from gradpool._tensors import cuda
    if os.environ['TEST_GPU'] == 'real':
        return RealGpu(torch)
    cuda.gpu = MadeGpu(**options)
    return cuda.gpu


# ---- late values ----

def compute_late(torch, gpu, rank, job, begins):
    """Starts operations before the GPU has computed their tensors. Rank 0 then computes 1, 10 and
    so on, rank 1 computes 2, 20 and so on.

    For each tensor, `begins` has a function that starts an operation. It returns (function that
    waits for the operation, result).

    Returns [values read by later kernels]. The last operation's kernel runs on the script's stream,
    the others on another stream."""
    tensors, found = [gpu.own(torch.zeros(LENGTH)) for _ in begins], []
    for i, tensor in enumerate(tensors):
        gpu.launch(lambda tensor=tensor, i=i: tensor.fill_(10 ** i * (rank + 1)))
    begun = [begin(tensor) for begin, tensor in zip(begins, tensors)]
    gpu.may_compute.set()       # no call has waited so far, or it would have failed
    while begun:
        wait, result = begun.pop(0)
        with gpu.on(gpu.other) if begun else contextlib.nullcontext():
            wait()
            gpu.launch(lambda result=result: found.append(result.clone()))
        del wait, result
    for buffer in [job.alloc(4 * LENGTH) for _ in range(OTHERS)]:
        # other code uses the free memory without waiting for a stream
        ctypes.memset(buffer, 0, len(buffer))
    gpu.finish()
    return sorted(sorted(set(one.tolist())) for one in found)


def rank_is_late_at_horovods_door(rank, workers):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import torch
    import gradpool.torch as hvd
    hvd.init()
    gpu = gpu_of(torch)
    job = hvd.global_process_set.sequences().job

    def begin(call, *arguments):
        return lambda tensor: (lambda handle: (lambda: hvd.synchronize(handle), tensor))(
            call(tensor, *arguments, name=f'{call.__name__} {arguments}'))
    begins = [begin(hvd.allreduce_async_, False), begin(hvd.allreduce_async_, True),
              begin(hvd.broadcast_async_, 1)]
    found = [compute_late(torch, gpu, rank, job, begins) for _ in range(5)]
    places = len(getattr(gpu, 'pinned', ()))
    hvd.shutdown()
    return found, places, len(getattr(gpu, 'pinned', ()))


def begin_group(torch, rank, workers):
    """Makes a default group of the backend."""
    import torch.distributed as dist
    import gradpool.distributed     # noqa: registers the backend
    dist.init_process_group('gradpool', init_method='file://' + os.environ['TEST_STORE'],
                            rank=rank, world_size=workers)
    return dist


def rank_is_late_at_the_backend(rank, workers):
    import torch
    dist = begin_group(torch, rank, workers)
    gpu = gpu_of(torch)
    job = dist.distributed_c10d._get_default_group()._job

    def reduce(tensor):
        return dist.all_reduce(tensor, async_op=True).wait, tensor

    def reduce_behind(tensor):
        return dist.all_reduce(tensor, async_op=True).get_future().wait, tensor

    def broadcast(tensor):
        return dist.broadcast(tensor, 1, async_op=True).wait, tensor

    def gather(tensor):
        whole = gpu.own(torch.zeros(workers * LENGTH))
        return dist.all_gather_into_tensor(whole, tensor, async_op=True).wait, whole
    return [compute_late(torch, gpu, rank, job, [reduce, broadcast, gather, reduce_behind])
            for _ in range(2)]


# ---- prompt GPU ----

def rank_has_a_gpu(rank, workers):
    """Runs a rank of another test with tensors of a GPU. Returns [its result, whether tensors were
    copied between pinned memory and the GPU]."""
    import torch
    gpu = gpu_of(torch, is_prompt=True)
    module, function = os.environ['TEST_CALL'].split('.')
    return [getattr(importlib.import_module(module), function)(rank, workers),
            getattr(gpu, 'copies', 1) > 0]


def rank_uses_horovods_calls(rank, workers):
    import test_torch_door
    import torch_door_calls
    import torch_door_sparse
    import torch_door_values
    of = torch_door_calls.Rank(rank, workers)
    torch_door_calls.compare_all(of)
    torch_door_values.compare_all(of)
    torch_door_sparse.compare_sparse(of)
    torch_door_sparse.compare_absent_embedding(of)
    test_torch_door.compare_optimizer_state(of)
    test_torch_door.compare_what_joined_ranks_bring(of)
    of.hvd.shutdown()
    return of.wrong


def rank_finds_a_gpu(rank, workers):
    import torch
    return torch.cuda.is_available()


class CudaTest(Case):
    def run_ranks(self, function, gpu, workers=2, **environment):
        with tempfile.TemporaryDirectory() as folder:
            job = self.id().rsplit('.', 1)[-1] + function
            return ranks.run_ranks(function, workers, TEST_GPU=gpu, TEST_STORE=folder + '/store',
                                   TEST_FOLDER=folder, GRADPOOL_JOB=job, **environment)

    def run_on_gpu(self, call, gpu, workers=2):
        """Runs another test with a GPU. Returns the results of its ranks. `call` is the name of a
        module and a function."""
        found = self.run_ranks('rank_has_a_gpu', gpu, workers, TEST_CALL=call,
                               TEST_DEVICE='cuda' if gpu == 'real' else 'cpu')
        self.assertEqual([has_copied for _, has_copied in found], [True] * workers)
        return [of_rank for of_rank, _ in found]

    def check_order(self, gpu):
        """Checks the values that late kernels read. Horovod's calls: a sum, a mean, and the values
        of rank 1. Backend: a sum, the values of rank 1, the gathered values of both ranks, and a
        sum."""
        for found, places, left in self.run_ranks('rank_is_late_at_horovods_door', gpu):
            self.assertEqual(found, [[[3.0], [15.0], [200.0]]] * 5)
            # later operations use the memory of completed ones
            self.assertLessEqual(places, 5 + OTHERS)
            self.assertEqual((places > 0, left), (gpu == 'made', 0))
        self.assertEqual(self.run_ranks('rank_is_late_at_the_backend', gpu),
                         [[[[3.0], [20.0], [100.0, 200.0], [3000.0]]] * 2] * 2)

    def check_operations(self, gpu):
        self.assertEqual(self.run_on_gpu('test_cuda.rank_uses_horovods_calls', gpu), [[]] * 2)
        self.assertEqual(self.run_on_gpu('test_distributed.rank_compares', gpu, 3), [[]] * 3)
        self.assertEqual(self.run_on_gpu('test_distributed.rank_works_asynchronously', gpu),
                         [[]] * 2)
        for function in 'rank_changes_lengths', 'rank_changes_shapes':
            for wrong, _ in self.run_on_gpu(f'test_lengths.{function}', gpu):
                self.assertEqual(wrong, [])

    def check_steps(self, gpu):
        found = self.run_on_gpu('test_ddp_steps.rank_lets_the_service_step', gpu)
        for name in test_ddp_steps.EXACT if gpu == 'made' else ():
            self.assertTrue(all(of_rank[name][1] for of_rank in found), name)
        for name, (_, _, is_near, away) in found[0].items():
            self.assertTrue(is_near, f'{name}: {away}')
            self.assertEqual(found[0][name][0], found[1][name][0])

    def check_kept(self, gpu):
        for values in self.run_on_gpu('test_kept.rank_clips_in_each_step', gpu):
            test_kept.check_clipped(self, values)
        for found in self.run_on_gpu('test_kept.rank_goes_on_from_pytorch', gpu):
            self.assertEqual(found, test_kept.GONE_ON)

    def test_copies_follow_the_order_of_streams(self):
        self.check_order('made')

    def test_each_operation_has_the_bits_of_the_host(self):
        self.check_operations('made')

    def test_the_service_steps_parameters_of_a_gpu(self):
        self.check_steps('made')

    def test_writes_and_loads_of_a_script_are_used_from_a_gpu(self):
        self.check_kept('made')

    def test_gradients_of_a_gpu_are_averaged_and_compressed(self):
        for of_rank in self.run_on_gpu('test_ddp.rank_trains', 'made'):
            self.assertEqual(of_rank['digest'], test_ddp.reference(2))
        for of_rank in self.run_on_gpu('test_codecs.rank_trains_coded', 'made'):
            for name, (digest, wanted, _) in of_rank.items():
                self.assertEqual(digest, wanted, name)

    def test_a_gpu_of_torch_has_the_bits_of_the_host(self):
        if not ranks.run_ranks('rank_finds_a_gpu', 1)[0]:
            self.skipTest('torch finds no GPU: torch.cuda.is_available() is False')
        self.check_order('real')
        self.check_operations('real')
        self.check_steps('real')
        self.check_kept('real')
        found = self.run_on_gpu('test_codecs.rank_trains_coded', 'real')
        for name in test_codecs.codecs_of():
            self.assertEqual(found[0][name][0], found[1][name][0])


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
