"""Operations by name, as in Horovod: agreement of ranks, start and wait."""
