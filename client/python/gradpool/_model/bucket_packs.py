"""Small gradients of one of DDP's buckets that travel as one tensor: a round of each of them costs
more than its values.

A pack is a run of gradients that lie next to each other in the bucket, so nothing is copied for it.
DistributedDataParallel has the same buckets on all ranks, and builds new ones on all ranks at once,
so all ranks have the same packs. A pack's name has a digest of the names and sizes in it: ranks
with other buckets never add up values of different parameters, but run into their deadline."""
import hashlib

SMALL_BYTES = 16 << 10      # a longer gradient is sent alone
PACK_BYTES = 256 << 10  # maximum size of a pack, so that lanes share the packs of a large bucket
FEWEST = 8  # least number of gradients in a pack; for fewer, another tensor does not pay
_ELEMENT_BYTES = 4          # bytes of a float32
_NAME_BYTES = 160           # bytes of the first parameter's name in the name of a pack


class Packs:
    """Packs of gradients of one attached model. `place`: its Place; `wire`: as in attach()."""

    def __init__(self, job, place, wire):
        self._job, self._place, self._wire = job, place, wire
        self._layouts = {}      # index of a bucket -> _Layout

    def packed(self, bucket, parts):
        """Returns [(tensor, its first byte in the bucket)] with packs, for a list of parameters
        alone."""
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
        """Returns the packs of a layout that DistributedDataParallel no longer uses, except
        those that are kept."""
        if former is not None:
            self._place.give_back([pack for pack in former.packs if pack not in kept])


def _name_of(index, run):
    names = '\n'.join(f'{tensor.name} {tensor.elements}' for tensor, _ in run)
    first = run[0][0].name.encode()[:_NAME_BYTES].decode(errors='ignore')
    return (f'{first} and {len(run) - 1} more '
            f'(bucket {index}, {hashlib.sha256(names.encode()).hexdigest()[:16]})')


class _Layout:
    """Layout of a bucket: parameters outside of packs, all tensors that are pushed, and the packs
    among them."""

    def __init__(self, alone, packed, packs):
        self.alone, self.packed, self.packs = alone, packed, packs


def _runs(parts):
    """Returns lists of neighbours that may form a pack. A gradient that cannot be in a pack is in a
    list of its own."""
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
