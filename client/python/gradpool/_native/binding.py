"""libgradpool.so through ctypes: its path, its prototypes, its errors as exceptions.

A call releases the interpreter's lock, so one thread may wait while others compute. The loaded
library is the only state of this module."""
import ctypes
import operator
import os
import pathlib

from ..errors import error_of, GradpoolError, mismatch

try:
    from .._installed import LIBRARY as INSTALLED
except ImportError:  # the source tree has no such module
    INSTALLED = None

NAME = 'libgradpool.so'
# Values of enum gp_dtype, by the names of torch and numpy.
DTYPES = {'float32': 1, 'float64': 2, 'float16': 3, 'bfloat16': 4, 'int32': 5, 'int64': 6}
OPERATIONS = {'sum': 1, 'mean': 2, 'min': 5, 'max': 6, 'product': 7, 'gather': 8,
              'all-to-all': 9, 'reduce-scatter': 10}
RULES = {None: 0, 'sgd': 1, 'momentum': 2, 'nesterov': 3, 'adam': 4, 'adamw': 5}
MEASURES = 2  # GP_MEASURES
WORKER_LOSS = {'fail': 0, 'continue': 1}
DURABILITIES = {None: 0, 'none': 1, 'replica': 2, 'worker': 3}
BACKUP_RULES = {'static': 1, 'auto': 2, 'dbw': 3, 'blind': 4, 'adasync': 5}
BACKUP_RATES = {'fixed': 0, 'proportional': 1}
ROW_RULES = {'sgd': 1, 'adagrad': 2, 'adagrad-one': 3, 'adam': 4, 'ftrl': 5}
CONSISTENCIES = {'bsp': 1, 'ssp': 2, 'asp': 3}
ROW_INITIALS = {'zeros': 0, 'constant': 1, 'uniform': 2, 'normal': 3}
QUORUMS = {'all': 0, 'first': 1, 'chosen': 2, 'stale': 3, 'any': 4}

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


class Options(ctypes.Structure):
    """struct gp_options"""
    _fields_ = [('transport', ctypes.c_char_p), ('interface_name', ctypes.c_char_p),
                ('connect_timeout_ms', ctypes.c_int)]


class BackupSpec(ctypes.Structure):
    """struct gp_backup_spec"""
    _fields_ = [('rule', ctypes.c_int), ('k', ctypes.c_uint32), ('least', ctypes.c_uint32),
                ('absence', ctypes.c_uint32), ('lag', ctypes.c_uint32),
                ('gradients', ctypes.c_uint32), ('rate', ctypes.c_int),
                ('record', ctypes.c_char_p), ('replay', ctypes.c_char_p)]


class JobSpec(ctypes.Structure):
    """struct gp_job_spec"""
    _fields_ = [('name', ctypes.c_char_p), ('rank', ctypes.c_uint32), ('workers', ctypes.c_uint32),
                ('loss_limit_ppm', ctypes.c_uint32), ('workers_max', ctypes.c_uint32),
                ('on_worker_loss', ctypes.c_int), ('durability', ctypes.c_int),
                ('backup', BackupSpec)]


class RoundEnd(ctypes.Structure):
    """struct gp_round"""
    _fields_ = [('number', ctypes.c_uint64), ('missed', ctypes.c_uint64),
                ('counted', ctypes.c_uint32), ('of', ctypes.c_uint32), ('own', ctypes.c_uint32)]


class Membership(ctypes.Structure):
    """struct gp_membership"""
    _fields_ = [('version', ctypes.c_uint32), ('workers', ctypes.c_uint32),
                ('wanted', ctypes.c_uint32), ('ranks', ctypes.c_uint64 * 12)]


class TensorSpec(ctypes.Structure):
    """struct gp_tensor_spec"""
    _fields_ = [('name', ctypes.c_char_p), ('dtype', ctypes.c_int), ('elements', ctypes.c_uint64),
                ('ranks', ctypes.POINTER(ctypes.c_uint32)), ('ranks_count', ctypes.c_uint32),
                ('quorum', ctypes.c_int), ('bound', ctypes.c_uint32), ('flags', ctypes.c_uint32),
                ('rule', ctypes.c_int), ('wire', ctypes.c_int)]


class Settings(ctypes.Structure):
    """struct gp_settings"""
    _fields_ = [(name, ctypes.c_double) for name in (
        'rate', 'weight_decay', 'momentum', 'dampening', 'beta1', 'beta2', 'epsilon')]


class Item(ctypes.Structure):
    """struct gp_item"""
    _fields_ = [('tensor', ctypes.c_void_p), ('gradient', ctypes.c_void_p),
                ('result', ctypes.c_void_p)]


class State(ctypes.Structure):
    """struct gp_state"""
    _fields_ = [('tensor', ctypes.c_void_p), ('arrays', ctypes.c_void_p),
                ('steps', ctypes.c_uint64)]


class DealSpec(ctypes.Structure):
    """struct gp_deal"""
    _fields_ = [('samples', ctypes.c_uint64), ('epochs', ctypes.c_uint64),
                ('seed', ctypes.c_uint64), ('batch', ctypes.c_uint32),
                ('prefetch', ctypes.c_uint32), ('batch_per_worker', ctypes.c_uint32),
                ('share_least', ctypes.c_uint32)]


class Step(ctypes.Structure):
    """struct gp_step"""
    _fields_ = [(name, ctypes.c_uint64) for name in ('number', 'epoch', 'cursor')] + [
        (name, ctypes.c_uint32) for name in (
            'workers', 'place', 'batch', 'weight', 'flags', 'giver')]


class TableSpec(ctypes.Structure):
    """struct gp_table_spec"""
    _fields_ = [('name', ctypes.c_char_p), ('dim', ctypes.c_uint32), ('shards', ctypes.c_uint32),
                ('dtype', ctypes.c_int), ('wire', ctypes.c_int), ('keys', ctypes.c_uint64),
                ('rows_hint', ctypes.c_uint64), ('rule', ctypes.c_int), ('combine', ctypes.c_int),
                ('initial', ctypes.c_int), ('initial_value', ctypes.c_double),
                ('seed', ctypes.c_uint64), ('consistency', ctypes.c_int),
                ('staleness', ctypes.c_uint32), ('durability', ctypes.c_int),
                ('flags', ctypes.c_uint32)]


class RowSettings(ctypes.Structure):
    """struct gp_row_settings"""
    _fields_ = [(name, ctypes.c_double) for name in (
        'rate', 'weight_decay', 'beta1', 'beta2', 'epsilon', 'beta', 'l1', 'l2')]


INT_MAX, U32_MAX, U64_MAX, SIZE_MAX = 2**31 - 1, 2**32 - 1, 2**64 - 1, 2**63 - 1
SAME_STEPS = U64_MAX    # GP_SAME_STEPS
_HANDLE, _INT, _U32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
_U64, _SIZE, _TEXT, _POINTER = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER

_PROTOTYPES = {
    'gp_version': (_TEXT,),
    'gp_strerror': (_TEXT, _INT),
    'gp_last_error': (_TEXT,),
    'gp_connect': (_INT, _TEXT, _POINTER(Options), _POINTER(_HANDLE)),
    'gp_disconnect': (None, _HANDLE),
    'gp_job_join': (_INT, _HANDLE, _POINTER(JobSpec), _POINTER(_HANDLE)),
    'gp_job_leave': (None, _HANDLE),
    'gp_job_leave_failed': (None, _HANDLE),
    'gp_job_membership': (_INT, _HANDLE, _POINTER(Membership)),
    'gp_job_resize': (_INT, _HANDLE, _U32, _INT),
    'gp_job_tell_loss': (_INT, _HANDLE, ctypes.c_float),
    'gp_tensors_declare': (_INT, _HANDLE, _POINTER(TensorSpec), _SIZE, _POINTER(_HANDLE)),
    'gp_tensor_undeclare': (_INT, _HANDLE),
    'gp_alloc': (_INT, _HANDLE, _SIZE, _POINTER(_HANDLE)),
    'gp_keep': (_INT, _HANDLE, _HANDLE),
    'gp_free': (None, _HANDLE, _HANDLE),
    'gp_push_pull': (_INT, _HANDLE, _HANDLE, _HANDLE, _INT, _POINTER(_HANDLE)),
    'gp_push_pull_group': (_INT, _HANDLE, _POINTER(Item), _SIZE, _INT, _POINTER(_HANDLE)),
    'gp_update_group': (_INT, _HANDLE, _POINTER(Item), _SIZE, _POINTER(Settings),
                        _POINTER(_HANDLE)),
    'gp_round_end': (_INT, _HANDLE, ctypes.c_double, _INT, _POINTER(RoundEnd)),
    'gp_round_next': (_INT, _HANDLE, _INT),
    'gp_round_skip': (_INT, _HANDLE, _INT, _POINTER(RoundEnd)),
    'gp_job_passed': (_U64, _HANDLE),
    'gp_broadcast': (_INT, _HANDLE, _HANDLE, _U32, _POINTER(_HANDLE)),
    'gp_send': (_INT, _HANDLE, _HANDLE, _POINTER(_HANDLE)),
    'gp_receive': (_INT, _HANDLE, _HANDLE, _POINTER(_HANDLE)),
    'gp_wait': (_INT, _HANDLE, _INT),
    'gp_poll': (_INT, _HANDLE, _INT),
    'gp_barrier': (_INT, _HANDLE, _INT),
    'gp_job_snapshot': (_INT, _HANDLE, _TEXT),
    'gp_job_timeline_start': (_INT, _HANDLE, _TEXT),
    'gp_job_timeline_stop': (_INT, _HANDLE),
    'gp_job_restore': (_INT, _HANDLE, _TEXT, _POINTER(Item), _SIZE),
    'gp_job_read': (_INT, _HANDLE, _POINTER(State), _SIZE),
    'gp_save': (_INT, _HANDLE, _HANDLE, _POINTER(_HANDLE)),
    'gp_restore': (_INT, _HANDLE, _HANDLE, _HANDLE, _U32, _U64, _POINTER(_HANDLE)),
    'gp_checksum': (_U64, _POINTER(_HANDLE), _POINTER(_SIZE), _SIZE),
    'gp_job_spec_from_environment': (_INT, _POINTER(JobSpec)),
    'gp_deal_declare': (_INT, _HANDLE, _POINTER(DealSpec), _POINTER(TensorSpec), _SIZE,
                        _POINTER(_HANDLE)),
    'gp_step_begin': (_INT, _HANDLE, _INT, _POINTER(Step)),
    'gp_step_share': (_INT, _HANDLE, _U64, _POINTER(_U64), _SIZE),
    'gp_step_missed': (_INT, _HANDLE), 'gp_deal_end': (_INT, _HANDLE),
    'gp_deal_rests': (_INT, _HANDLE, _POINTER(_U64), _SIZE),
    'gp_deal_cursor': (_INT, _HANDLE, _POINTER(_U64), _SIZE),
    'gp_table_declare': (_INT, _HANDLE, _POINTER(TableSpec), _POINTER(_HANDLE)),
    'gp_table_export': (_INT, _HANDLE, _TEXT), 'gp_table_import': (_INT, _HANDLE, _TEXT),
    'gp_table_set': (_INT, _HANDLE, _POINTER(RowSettings)),
    'gp_batch_create': (_INT, _HANDLE, _HANDLE, _SIZE, _POINTER(_HANDLE)),
    'gp_batch_free': (None, _HANDLE),
    'gp_pull': (_INT, _HANDLE, _HANDLE, _POINTER(_HANDLE)),
    'gp_push': (_INT, _HANDLE, _HANDLE, _POINTER(_HANDLE)),
    'gp_clock': (_INT, _HANDLE),
}


def places():
    """Yields the possible paths of the library. First GRADPOOL_LIBRARY, then the folder of this
    package, then the installed library or the library in the build folder. The last path is the
    plain name, which the loader looks up."""
    named = os.environ.get('GRADPOOL_LIBRARY')
    if named:
        return [named]
    own = INSTALLED or pathlib.Path('..', '..', '..', 'build', 'client', NAME)
    found = [_PACKAGE / NAME, _PACKAGE.parent / NAME, _PACKAGE / own]
    return [str(path) for path in found if path.exists()] + [NAME, NAME + '.0']


def load():
    """Returns the loaded library with prototypes. GradpoolError (ENOENT) names all paths without a
    library."""
    problems = []
    for place in places():
        try:
            library = ctypes.CDLL(place)
            for name, (result, *arguments) in _PROTOTYPES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
        # the library is missing, or has another version
        except (OSError, AttributeError) as problem:
            problems.append(str(problem))
    raise GradpoolError(2, f'{NAME} cannot be loaded ({"; ".join(problems)}); '
                           'set GRADPOOL_LIBRARY to its path')


lib = load()


def check(code, classes=None):
    """Returns `code` if it is no error. Otherwise raises an exception with the text of the thread's
    last error. `classes`: {errno: class} for errors with a special meaning in this call."""
    if code >= 0:
        return code
    raise error_of(code, (lib.gp_last_error() or lib.gp_strerror(code)).decode(errors='replace'),
                   classes)


def encode(text, what):
    """Returns a str as bytes for C, and None as NULL. Raises Mismatch for a zero character, where C
    would end the text."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise mismatch(f'{what} is {text!r}, expected text')
    if '\0' in text:
        raise mismatch(f'{what} is {text!r}, which holds a NUL')
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise mismatch(f'{what} is {text!r}, which is no text in UTF-8') from None


def number(value, what, most):
    """Returns an integer from 0 to `most`. C would reduce other integers modulo the size of their
    type."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise mismatch(f'{what} is {value!r}, expected a whole number') from None
    if not 0 <= whole <= most:
        raise mismatch(f'{what} is {whole}, expected a number from 0 to {most}')
    return whole


def path_of(path):
    """Returns the bytes of a path. C would read a path with a NUL byte only up to this byte."""
    name = os.fsencode(path)
    if not name or b'\0' in name:
        raise mismatch(f'the path {path!r} is empty, or has a NUL byte; give the path of a file')
    return name
