"""Batches of a data set for the steps of a Run. With `num_workers`, processes of DataLoader
read ahead, because the shares of the next `prefetch` steps are known."""
from torch.utils.data import DataLoader, default_collate

from ..errors import mismatch


def batches(run, data, num_workers=0, prefetch_factor=2, collate_fn=None, **options):
    """Yields the batch of each step of the Run."""
    for named in options.keys() & {'batch_size', 'shuffle', 'sampler', 'batch_sampler',
                                   'drop_last'}:
        raise mismatch(f'loader() with {named}: Run deals the samples, and Run(batch=) sets the '
                       f'batch of all workers; leave {named} out')
    if len(data) != run.samples:
        raise mismatch(f'loader() of a data set of {len(data)} samples, Run() has a deal of '
                       f'{run.samples}; give both the same')
    ahead = num_workers * prefetch_factor
    if ahead > run.prefetch:
        raise mismatch(f'loader() with {num_workers} workers reads {ahead} steps ahead, Run() '
                       f'deals {run.prefetch}; pass Run(prefetch={ahead})')
    if num_workers == 0:
        return _at_once(run, data, collate_fn or default_collate)
    return _ahead(run, DataLoader(data, batch_sampler=_Shares(run), num_workers=num_workers,
                                  prefetch_factor=prefetch_factor, collate_fn=collate_fn,
                                  **options))


def _at_once(run, data, collate):
    for step in run:
        yield collate([data[i] for i in step.indices.tolist()])


def _ahead(run, loader):
    loaded, number = None, 0
    for step in run:
        loader.batch_sampler.present = step.number
        if loaded is None:
            loader.batch_sampler.first = number = step.number
            loaded = iter(loader)
        while number <= step.number:        # skipped numbers are steps without samples
            batch = next(loaded)
            number += 1
        yield batch


class _Shares:
    """A batch sampler: the samples of this worker, from step `first` on."""

    def __init__(self, run):
        self._run, self.first, self.present = run, 1, 1

    def __iter__(self):
        number = self.first
        while True:
            # steps before the present one had no samples, and their shares are no longer stored
            is_past = number < self.present
            yield self._run.stand_in if is_past else self._run.indices_of(number)
            number += 1
