"""Operations by name, as in Horovod: how ranks agree on an operation, begin and wait."""
