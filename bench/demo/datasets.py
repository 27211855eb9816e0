"""The demo's data: two real sets that come with scikit-learn, ready for training."""
import numpy
from sklearn.datasets import load_breast_cancer, load_digits

ORDER_SEED = 20240229


def prepare():
    """Returns {name: array} of both data sets, shuffled and scaled. The last fifth is held out.
    digits_x (1797, 1, 8, 8), cancer_x (569, 30), both float32; _y int64; _held: number of held-out
    samples."""
    arrays = {}
    for kind, load in (('digits', load_digits), ('cancer', load_breast_cancer)):
        data = load()
        order = numpy.random.RandomState(ORDER_SEED).permutation(len(data.target))
        x, y = data.data[order].astype(numpy.float32), data.target[order].astype(numpy.int64)
        held = len(y) // 5
        if kind == 'digits':
            x = (x / numpy.float32(16)).reshape(-1, 1, 8, 8)
        else:
            x = (x - x[:-held].mean(0)) / x[:-held].std(0)
        arrays.update({f'{kind}_x': x, f'{kind}_y': y, f'{kind}_held': numpy.array(held)})
    return arrays
