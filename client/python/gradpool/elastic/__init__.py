"""Training whose workers join and leave: Run, a loop over the steps of a deal. See ELASTIC.md."""

__all__ = ['Run']


def __getattr__(name):
    """Imports Run, and torch with it, at first use: the runner (python3 -m gradpool.elastic) needs
    neither."""
    if name == 'Run':
        from .run import Run
        return Run
    raise AttributeError(name)
