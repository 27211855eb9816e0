"""Small gradients in one bucket of DDP that are sent as one tensor, because a round of each
gradient would cost more than the transfer of its few bytes.

A pack is a range of neighbouring gradients in the bucket, so nothing is copied.
DistributedDataParallel has the same buckets on all ranks and rebuilds them on all ranks at the same
time, so all ranks have the same packs. The name of a pack has a digest of its names and sizes. If
ranks have different buckets, values of different parameters are therefore never added, and the
waits of these ranks end at the deadline."""
import hashlib

SMALL_BYTES = 16 << 10      # a longer gradient is sent alone
# largest pack; a large bucket has several packs, so that several lanes share the work
PACK_BYTES = 256 << 10
# minimum number of gradients in a pack; with fewer, one more tensor costs more than the pack saves
FEWEST = 8
_ELEMENT_BYTES = 4          # bytes of a float32
_NAME_BYTES = 160           # bytes of the first parameter's name that the name of a pack contains


class Packs:
    """Packs of gradients of one attached model. `place`: its Place; `wire`: as in attach()."""

    def __init__(self, job, place, wire):
        self._job, self._place, self._wire = job, place, wire
        self._layouts = {}      # index of a bucket -> _Layout

    def packed(self, bucket, parts):
        """Returns [(tensor, its first byte in the bucket)] with packs, from the same list without
        packs."""
        index = bucket.index()
        layout = self._layouts.get(index)
        if layout is None or layout.alone != parts:
            former, layout = layout, self._layout_of(index, parts)
            self._layouts[index] = layout
            self._give_back(former, layout.packs)
            if bucket.is_last():
                for other in [other for other in self._layouts if other > index]:
                    self._give_back(self._layouts.pop(other), ())
        return layout.packed

    def _layout_of(self, index, parts):
        runs = list(_runs(parts))
        names = {_name_of(index, run): run for run in runs if len(run) >= FEWEST}
        packs = self._job.declare_all({name: sum(tensor.elements for tensor, _ in run)
                                       for name, run in names.items()}, wire=self._wire)
        self._place.add(packs)
        left, packed = iter(packs), []
        for run in runs:
            packed += [(next(left), run[0][1])] if len(run) >= FEWEST else run
        return _Layout(parts, packed, packs)

    def _give_back(self, former, kept):
        """Undeclares packs of a layout that DistributedDataParallel no longer uses, except
        `kept`."""
        if former is not None:
            self._place.give_back([pack for pack in former.packs if pack not in kept])


def _name_of(index, run):
    names = '\n'.join(f'{tensor.name} {tensor.elements}' for tensor, _ in run)
    first = run[0][0].name.encode()[:_NAME_BYTES].decode(errors='ignore')
    return (f'{first} and {len(run) - 1} more '
            f'(bucket {index}, {hashlib.sha256(names.encode()).hexdigest()[:16]})')


class _Layout:
    """Layout of a bucket: parameters that are sent alone, all tensors that are pushed, and the
    packs among these."""

    def __init__(self, alone, packed, packs):
        self.alone, self.packed, self.packs = alone, packed, packs


def _runs(parts):
    """Returns lists of neighbours that may form a pack. Each gradient that fits into no pack has
    its own list."""
    run, begin, end = [], 0, None
    for part in parts:
        tensor, first = part
        size = tensor.elements * _ELEMENT_BYTES
        if run and (first != end or size > SMALL_BYTES or first + size - begin > PACK_BYTES):
            yield run
            run = []
        begin = begin if run else first
        run.append(part)
        end = first + size if size <= SMALL_BYTES else None
    if run:
        yield run
