"""Operations on PyMC models that need no compiler: validation, freezing of data, and the lock of compilations."""
