"""Horovod's elastic interface: training functions whose workers join and leave. See HOROVOD.md.

    hvd.init()
    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            ...
            state.commit()
    train(hvd.elastic.TorchState(model, optimizer, epoch=0))"""
from ...errors import GradpoolError as HorovodInternalError
from .loop import HostsUpdatedInterrupt, run
from .sampler import ElasticSampler
from .states import ObjectState, State, TorchState

__all__ = ['ElasticSampler', 'HorovodInternalError', 'HostsUpdatedInterrupt', 'ObjectState', 'run',
           'State', 'TorchState']
