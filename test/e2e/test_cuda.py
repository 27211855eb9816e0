"""Tensors of a GPU at each door. Where torch finds none they are those of a GPU of our own making,
which does what was begun on a stream only when somebody waits for it: so late, and in no other
order than streams and events ask for."""
import collections
import ctypes
import os
import tempfile
import threading

import ranks
from python_case import Case, setUpModule, tearDownModule     # noqa: found by name

LENGTH = 40000
WAIT_S = 20
lock = threading.RLock()    # the GPU does one thing at a time


class Event:
    """Comes when its stream gets there."""

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
    def __init__(self):
        self.todo = collections.deque()

    def wait_event(self, event):
        self.todo.append(event.reach)

    def do_one(self):
        self.todo.popleft()()


def bare(tensor):
    """The same memory, which is not kept by that: a GPU knows addresses alone."""
    import torch
    raw = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return torch.frombuffer(raw, dtype=tensor.dtype).view(tensor.shape)


class MadeGpu:
    """As gradpool._cuda.Gpu. The values of its tensors lie on the host."""

    def __init__(self, is_prompt=False):
        self._script, self._ours = Stream(), Stream()
        self._is_prompt, self._tensors = is_prompt, set()
        self.pinned, self.may_compute = {}, threading.Event()

    def own(self, tensor):
        self._tensors.add(tensor.data_ptr())
        return tensor

    def has(self, tensor):
        return self._is_prompt or tensor.data_ptr() in self._tensors

    def scripts(self, _):
        return self._script

    def ours(self, _):
        return self._ours

    def launch(self, kernel):
        self._script.todo.append(kernel)

    def copy(self, stream, target, source):
        target, source = bare(target), bare(source)
        stream.todo.append(lambda: target.copy_(source))

    def mark(self, stream):
        event = Event(self, stream)
        if self._is_prompt:
            event.reach()
        return event

    def pin(self, address, size):
        assert address not in self.pinned, 'pinned twice'
        self.pinned[address] = size

    def unpin(self, address):
        del self.pinned[address]

    def finish(self):
        with lock:
            while self._script.todo:
                self._script.do_one()


class RealGpu:
    """The same of torch's, for the test."""

    def __init__(self, torch):
        self._torch, self.may_compute = torch, threading.Event()

    def own(self, tensor):
        return tensor.cuda()

    def launch(self, kernel):
        kernel()

    def finish(self):
        self._torch.cuda.synchronize()


def gpu_of(torch, **options):
    from gradpool import _cuda
    if os.environ.get('TEST_GPU') == 'real':
        return RealGpu(torch)
    _cuda.gpu = MadeGpu(**options)
    return _cuda.gpu


def reduce_late(torch, gpu, rank, begin, wait, job=None):
    """Two sums of what the GPU has not computed yet when they are begun; [what the script's next
    kernels find]"""
    tensors = [gpu.own(torch.zeros(LENGTH)) for _ in range(2)]
    found = []
    for i, tensor in enumerate(tensors):
        gpu.launch(lambda tensor=tensor, i=i: tensor.fill_(10 ** i * (rank + 1)))
    works = [begin(tensor, f'late {i}') for i, tensor in enumerate(tensors)]
    gpu.may_compute.set()       # nobody has waited so far
    for tensor in tensors:
        wait(works.pop(0))
        gpu.launch(lambda tensor=tensor: found.append(tensor.clone()))
    if job:         # others take memory that is free, and do not ask a stream
        for buffer in [job.alloc(4 * LENGTH) for _ in range(4)]:
            ctypes.memset(buffer, 0, len(buffer))
    gpu.finish()
    return [sorted(set(one.tolist())) for one in found]


def rank_uses_horovods_calls(rank, workers):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import torch
    import gradpool.torch as hvd
    hvd.init()
    gpu = gpu_of(torch)
    job = hvd.global_process_set.sequences().job
    found = [reduce_late(torch, gpu, rank,
                         lambda tensor, name: hvd.allreduce_async_(tensor, op=hvd.Sum, name=name),
                         hvd.synchronize, job) for _ in range(3)]
    places = len(getattr(gpu, 'pinned', ()))
    hvd.shutdown()
    return found, places, len(getattr(gpu, 'pinned', ()))


def rank_uses_the_backend(rank, workers):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(workers))
    import torch
    import torch.distributed as dist
    import gradpool.distributed     # noqa: the backend
    dist.init_process_group('gradpool', init_method='file://' + os.environ['TEST_STORE'],
                            rank=rank, world_size=workers)
    gpu = gpu_of(torch)
    return [reduce_late(torch, gpu, rank,
                        lambda tensor, _: dist.all_reduce(tensor, async_op=True),
                        lambda work: work.wait()) for _ in range(2)]


def rank_uses_ddp(rank, workers):
    import torch
    import torch.distributed as dist
    import gradpool.ddp
    dist.init_process_group('gloo', init_method='file://' + os.environ['TEST_STORE'], rank=rank,
                            world_size=workers)
    gpu = gpu_of(torch, is_prompt=True)
    gpu.may_compute.set()
    net = torch.nn.Linear(200, 200)
    if os.environ.get('TEST_GPU') == 'real':
        net = net.cuda()
    model = torch.nn.parallel.DistributedDataParallel(net)
    found = set()
    with gradpool.ddp.attach(model):
        for step in range(3):
            model.zero_grad()
            model(torch.full((1, 200), step + rank + 1.0).to(net.weight.device)).sum().backward()
            found.update(net.weight.grad.flatten().tolist())
    return sorted(found)


class CudaTest(Case):
    def run_ranks(self, function, gpu):
        with tempfile.TemporaryDirectory() as folder:
            return ranks.run_ranks(function, 2, TEST_GPU=gpu, TEST_STORE=folder + '/store',
                                   GRADPOOL_JOB=f'{function}-{gpu}')

    def check_doors(self, gpu):
        sums = [[3.0], [30.0]]
        places = 6 if gpu == 'made' else 0      # two wait for their turn to be copied
        for found, pinned, left in self.run_ranks('rank_uses_horovods_calls', gpu):
            self.assertEqual(found, [sums] * 3)
            self.assertEqual([pinned, left], [places, 0])
        self.assertEqual(self.run_ranks('rank_uses_the_backend', gpu), [[sums] * 2] * 2)
        self.assertEqual(self.run_ranks('rank_uses_ddp', gpu), [[1.5, 2.5, 3.5]] * 2)

    def test_values_go_to_the_host_and_back_when_the_streams_get_there(self):
        self.check_doors('made')

    def test_a_gpu_of_torch_does_the_same(self):
        import torch
        if not torch.cuda.is_available():
            self.skipTest('torch finds no GPU: torch.cuda.is_available() is False')
        self.check_doors('real')


if __name__ == '__main__':
    ranks.main(globals())
