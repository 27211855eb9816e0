"""Means of a job with backup workers whose script updates the parameters: attach(backup=, step=)
without an optimizer. Lanes store the means of the last rounds. A rank whose gradients were dropped
fetches the mean of each missed round, in order. The script's function step then finds the mean
of that round in .grad, so parameters are equal on all ranks after each round.

A tensor's mean lands in memory of this module, because Job.next_round() writes the means of missed
rounds to the results of the last push."""
import torch

from .._model.buckets import pieces_of
from .._tensors.full import names_of_sparse
from ..errors import mismatch
from .untouched import Untouched
from .written import Written


class BackupMeans:
    """The part of DDP's communication hook for attach(model, backup=, step=).

    parameters  {name: parameter} of the model; the hook gets their gradients
    is_in_body  whether the script is in the body of a loop over batches()"""

    def __init__(self, module, parameters):
        for name in names_of_sparse(module):
            raise mismatch(f"parameter '{name}' has sparse gradients, and jobs with backup workers "
                           'take dense ones: set sparse=False, or leave backup out')
        for name, one in parameters.items():
            if not one.is_contiguous():
                raise mismatch(f"parameter '{name}' is not contiguous; with backup workers leave "
                               'its memory format as it is, or leave backup out')
        self._parameters, self.is_in_body = list(parameters.values()), False
        self._means = {id(one): torch.zeros_like(one.detach()) for one in self._parameters}
        self._job, self._tensors = None, {}     # id of a parameter -> its tensor
        self._pushed = set()    # indices of buckets that were sent in this body
        self._written = Written({id(one): name for name, one in parameters.items()})
        self._names, self._untouched = list(parameters), Untouched()

    def declare(self, job, prefix, wire):
        made = job.declare_all({prefix + name: one.numel() for name, one in
                                zip(self._names, self._parameters)}, wire=wire)
        self._job = job
        self._tensors = {id(one): tensor for one, tensor in zip(self._parameters, made)}

    # ---- backward() ----

    def start(self, job, bucket):
        """Starts the means of a torch.distributed.GradBucket, with the interface of
        bucket_of()."""
        self._check_push(bucket)
        self._pushed.add(bucket.index())
        buffer, parameters = bucket.buffer(), bucket.parameters()
        means = [self._means[id(one)] for one in parameters]
        pieces = pieces_of(bucket, buffer)
        self._untouched.expect(parameters)
        request = job.push_pull_group([(self._tensors[id(one)], piece, mean)
                                       for one, piece, mean in zip(parameters, pieces, means)])

        def land():
            for piece, mean in zip(pieces, means):
                piece.copy_(mean)
            return buffer
        return request, land

    def _check_push(self, bucket):
        if not self.is_in_body:
            raise mismatch(f'{self._job}: backward() outside of a loop over batches(), and '
                           'only that loop ends after the same round on every rank. Write "for '
                           'batch in attachment.batches(loader, rounds=...):"')
        if bucket.index() in self._pushed:
            raise mismatch('backward() a second time in one body of a loop over batches(), which '
                           'steps behind the body: put forward() and backward() of all passes but '
                           'the last under model.no_sync()')

    # ---- the loop over batches() ----

    def begin_body(self):
        self._written.note(None, self._parameters)
        self.is_in_body = True

    def end_body(self):
        self.is_in_body = False

    def go_on(self, _):
        """Does nothing, because this object stores no state of the steps."""

    def note_settings(self):
        """Does nothing, because the script itself has the settings of the optimizer."""

    def check_settings(self):
        """Raises Mismatch if the body has changed parameters."""
        if self._written.is_so():
            raise mismatch('the body of a loop over batches() has changed parameters, but '
                           'a rank that misses rounds runs the body less often. Remove '
                           'optimizer.step() and other writes from the body; the function step= of '
                           'attach() makes the step')

    def end_step(self):
        """Ends the last backward(): .grad has the mean of its round."""
        if not self._pushed:
            return
        self._pushed.clear()
        if not self._untouched.are_so():
            raise mismatch('the body of a loop over batches() has changed .grad after backward(), '
                           'but a rank that misses rounds gets their means outside of the body. '
                           'Clip and scale in the function step= of attach(), before '
                           'optimizer.step()')

    def take_next(self, timeout_ms):
        """Fetches into .grad the mean of the next round that closed without this rank. Returns
        False if no such round is left."""
        if not self._job.next_round(timeout_ms):
            return False
        self.take_over()
        return True

    def check_places(self):
        """Does nothing, because means land in memory of this object."""

    def take_over(self):
        """Copies the means of a round that has ended without backward() into .grad."""
        for one in self._parameters:
            mean = self._means[id(one)]
            if one.grad is None:
                one.grad = mean.clone()
            else:
                one.grad.copy_(mean)

    def digest(self):
        """Returns a checksum of the parameters, as text."""
        return f'{self._written.sum_of(self._parameters):016x}'
