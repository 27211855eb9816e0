"""The data of the demo: two real data sets of scikit-learn, prepared for training."""
import numpy
from sklearn.datasets import load_breast_cancer, load_digits

ORDER_SEED = 20240229


def prepare():
    """Returns {name: array} of both data sets, shuffled and scaled. The last fifth is for
    validation. digits_x (1797, 1, 8, 8) and cancer_x (569, 30) are float32. digits_y and cancer_y
    are int64. digits_held and cancer_held are the numbers of validation samples."""
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
