"""Calls on stages: the structs and prototypes of gradpool_stage.h."""
import ctypes

from .binding import lib

GOALS = {'fastest': 0, 'frugal': 1}
VISITS = {'stay': 0, 'travel': 1}
IDLE = 2**32 - 1    # GP_IDLE


class Carry(ctypes.Structure):
    """struct gp_carry"""
    _fields_ = [('values', ctypes.c_void_p), ('bytes', ctypes.c_size_t)]


class StageSpec(ctypes.Structure):
    """struct gp_stage_spec"""
    _fields_ = [('name', ctypes.c_char_p), ('workers', ctypes.c_uint32),
                ('workers_min', ctypes.c_uint32), ('workers_max', ctypes.c_uint32),
                ('goal', ctypes.c_int), ('visit', ctypes.c_int), ('consistency', ctypes.c_int),
                ('staleness', ctypes.c_uint32), ('carry', ctypes.POINTER(Carry)),
                ('carry_count', ctypes.c_size_t)]


class StageNow(ctypes.Structure):
    """struct gp_stage"""
    _fields_ = [('number', ctypes.c_uint64), ('cursor', ctypes.c_uint64),
                ('workers', ctypes.c_uint32), ('place', ctypes.c_uint32),
                ('is_trial', ctypes.c_uint32)]


for _name, _arguments in {
        'gp_stage_next': (ctypes.c_void_p, ctypes.POINTER(StageSpec), ctypes.c_int,
                          ctypes.POINTER(StageNow)),
        'gp_stage_step': (ctypes.c_void_p, ctypes.c_uint64),
        'gp_stage_end': (ctypes.c_void_p, ctypes.c_int)}.items():
    getattr(lib, _name).argtypes = _arguments
    getattr(lib, _name).restype = ctypes.c_int
