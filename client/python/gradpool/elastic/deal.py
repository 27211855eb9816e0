"""The deal of a job: the samples of this worker in each step (gradpool_elastic.h). Imports no
torch.

While one thread is in a method, other threads may call missed() only."""
import ctypes

from .._native.binding import (check, DealSpec, DTYPES, encode, INT_MAX, lib, number, Step,
                               TensorSpec, U32_MAX, U64_MAX)

# results of Deal.begin(), besides STEP
STEP, LEAVES, TRAINED, CARRIES, ENDED, RESTS = range(6)
ENTERS = 1      # GP_STEP_ENTERS


class Deal:
    """Declares the deal of a job with its tensors.

      tensors  argument: {name: (elements, dtype)} of all tensors that steps push; attribute:
                {name: Tensor}
      numbers  fields of gp_deal"""

    def __init__(self, job, tensors, **numbers):
        self._job = job
        self._spec = DealSpec(**{
            name: number(numbers.get(name, 0), name,
                         U64_MAX if kind is ctypes.c_uint64 else U32_MAX)
            for name, kind in DealSpec._fields_})
        self.step = Step()      # step of the last begin()
        most = max(self._spec.batch, self._spec.batch_per_worker) + self._spec.share_least
        self._room = (ctypes.c_uint64 * most)()
        self.tensors = self._declare(tensors)
        job.has_deal = True

    def _declare(self, tensors):
        specs, handles = (TensorSpec * len(tensors))(), (ctypes.c_void_p * len(tensors))()
        for spec, (name, (elements, dtype)) in zip(specs, tensors.items()):
            spec.name, spec.dtype = encode(name, "a tensor's name"), DTYPES[dtype]
            spec.elements = number(elements, f"elements of '{name}'", U64_MAX)
        with self._job._using() as job:
            check(lib.gp_deal_declare(job, ctypes.byref(self._spec), specs, len(tensors), handles))
            return {name: self._job._declared(name, elements, dtype, None, handle)
                    for (name, (elements, dtype)), handle in zip(tensors.items(), handles)}

    def begin(self, timeout_ms=0):
        """Begins the next step, after the wait() for all rounds of the step before. Returns STEP,
        or another result: LEAVES, TRAINED, CARRIES, ENDED or, after rests(), RESTS. Timeout: a rank
        is late; the next call continues."""
        results = []

        def call(job, *arguments):
            results.append(lib.gp_step_begin(job, *arguments))
            return results[0]
        self._job._wait(call, number(timeout_ms, 'timeout_ms', INT_MAX), ctypes.byref(self.step))
        return results[0]

    def share(self, step):
        """Returns the samples of this worker in a step: the present one, or one of the next
        `prefetch`."""
        with self._job._using() as job:
            count = check(lib.gp_step_share(job, step, self._room, len(self._room)))
        return self._room[:count]

    def missed(self):
        """Called after CARRIES by a late worker that has not received the state."""
        with self._job._using() as job:
            check(lib.gp_step_missed(job))

    def rests(self, cursor=()):
        """Lets begin() return RESTS before the job rests; begin() then sleeps, unless end() was
        called. Called before the first begin(), on all workers with the same cursor.

          cursor  that of an earlier job, at which the deal begins; empty: the first sample"""
        words = (ctypes.c_uint64 * max(len(cursor), 1))(*cursor)
        with self._job._using() as job:
            check(lib.gp_deal_rests(job, words, len(cursor)))

    def cursor(self):
        """Returns the cursor of the deal, as a list of numbers. Called after RESTS."""
        with self._job._using() as job:
            words = (ctypes.c_uint64 * check(lib.gp_deal_cursor(job, None, 0)))()
            check(lib.gp_deal_cursor(job, words, len(words)))
        return list(words)

    def end(self):
        """Ends the training with the present step, on all workers of this step."""
        with self._job._using() as job:
            check(lib.gp_deal_end(job))
