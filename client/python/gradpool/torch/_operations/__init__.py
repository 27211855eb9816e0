"""Operations by name at Horovod's door: how ranks agree, begin and wait."""
