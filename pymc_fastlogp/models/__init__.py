"""Operations on PyMC models that need no compiler: validation, freezing of data, distinct rows in place of tables, and the lock of compilations."""
