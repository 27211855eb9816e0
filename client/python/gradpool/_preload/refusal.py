"""The reason why workers cannot be forked."""


class Refusal(Exception):
    """A command or module with which no worker can be forked. Its text names the object, and says
    what to do."""
