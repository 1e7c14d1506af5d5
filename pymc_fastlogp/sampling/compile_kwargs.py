"""``compile_kwargs``: the arguments with which nutpie itself gets most from the plugin."""

from typing import Any


def compile_kwargs() -> dict[str, Any]:
    """Return the keyword arguments with which nutpie gains most from the plugin.

    Returns
    -------
    dict
        ``freeze_model=True``: ``pm.Data`` and dimension lengths become constants, which is
        what lets rewrites look at them. Data cannot be exchanged after that.
        ``pipeline_class``: a compiler for Numba's decorators, which makes nutpie's callbacks directly, as :func:`compile_pymc_model` does, and
        leaves all else to Numba. The backend JAX takes no notice of it.

    Examples
    --------
    ``nutpie.compile_pymc_model(model, **compile_kwargs())``, or, where nutpie is the sampler,
    ``pm.sample(model=model, compile_kwargs=compile_kwargs())``. PyTensor, to which all else in PyMC hands ``compile_kwargs``, refuses both names.
    """
    from pymc_fastlogp.callbacks.numba_pipeline import pipeline_class

    return {"freeze_model": True, "pipeline_class": pipeline_class()}
