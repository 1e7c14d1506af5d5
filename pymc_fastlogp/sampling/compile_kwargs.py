"""``compile_kwargs``: keyword arguments for ``nutpie.compile_pymc_model``."""

from typing import Any


def compile_kwargs() -> dict[str, Any]:
    """Return keyword arguments with which nutpie itself compiles faster and evaluates faster.

    Returns
    -------
    dict
        ``freeze_model=True``: ``pm.Data`` and dimension lengths become constants, which rewrites can use. Data cannot be exchanged afterwards.
        ``pipeline_class``: a compiler for Numba's decorators, which compiles nutpie's callbacks directly, as :func:`compile_pymc_model` does, and
        leaves all other functions to Numba. The backend JAX ignores the argument.

    Examples
    --------
    ``nutpie.compile_pymc_model(model, **compile_kwargs())``, or, if nutpie is the sampler,
    ``pm.sample(model=model, compile_kwargs=compile_kwargs())``. All other functions of PyMC pass ``compile_kwargs`` to PyTensor, which rejects both names.
    """
    from pymc_fastlogp.callbacks.numba_pipeline import pipeline_class

    return {"freeze_model": True, "pipeline_class": pipeline_class()}
