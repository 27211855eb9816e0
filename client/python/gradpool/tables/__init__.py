"""Tables: keyed rows that the lanes store and update. Made by Job.table(). See TABLES.md.

    table = job.table('words', 64, rule='adagrad')      # Table, with numpy arrays or torch tensors
    module = gradpool.tables.Embedding(table)           # torch.nn.Module"""
import importlib

from .table import Pull, Table

__all__ = ['Embedding', 'Pull', 'Table']


def __getattr__(name):
    """Imports torch with the first use of Embedding."""
    if name == 'Embedding':
        return importlib.import_module('.embedding', __name__).Embedding
    raise AttributeError(f"module 'gradpool.tables' has no attribute '{name}'")
