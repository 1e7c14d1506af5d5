"""Sampling of a model whose likelihoods over tables are evaluated by workers."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymc_fastlogp.models.row_likelihood import split_tables
from pymc_fastlogp.sampling import nuts_settings
from pymc_fastlogp.sampling.by_nutpie import (
    LIBRARY_SETTINGS,
    LibraryModel,
    library_model,
    library_request,
    sample_compiled,
    why_not_by_nutpie,
)
from pymc_fastlogp.sampling.cluster.checks import check_environments, refuse
from pymc_fastlogp.sampling.cluster.logp import LogpOnCluster
from pymc_fastlogp.sampling.cluster.sharded_likelihood import ShardedLikelihood, with_draws
from pymc_fastlogp.sampling.compile_model import compiled_record
from pymc_fastlogp.sampling.threads import n_helpers

if TYPE_CHECKING:
    from distributed import Client
    from xarray import DataTree


def sample_on_workers(
    client: "Client",
    arguments: Mapping[str, Any],
    own: Mapping[str, Any],
    store: str | PathLike[str] | None,
    threads: int | None,
) -> "DataTree | None":
    """Sample a model whose likelihoods over tables are evaluated by workers, None if each likelihood reduces.

    Parameters
    ----------
    client : distributed.Client
        The client.
    arguments : mapping
        Arguments of ``pm.sample``, with the model as it is written.
    own : mapping
        Other arguments of ``sample``, which cannot be combined with workers.
    store : path, optional
        A new or empty folder for the draws.
    threads : int, optional
        Threads of an evaluation.

    Raises
    ------
    TypeError
        If ``client`` is no client of Dask.
    FileExistsError, ImportError
        If draws can't be written to ``store``.
    ValueError
        If the client has no workers, if the model reads no table, or if arguments can't be combined with workers.
    """
    refuse(client)
    n_helpers(threads)  # refuses
    log_likelihood = (arguments["idata_kwargs"] or {}).get("log_likelihood")
    unsupported = {**own, "step": arguments["step"], "log_likelihood": log_likelihood}
    for name, value in unsupported.items():
        if value:
            raise ValueError(f"{name} can't be combined with workers: leave it out.")
    if store is not None:
        arguments = {**arguments, "nuts": nuts_settings.with_store(arguments, Path(store))}
    as_written = arguments["model"]
    split = split_tables(as_written)
    if not split.likelihoods:
        return None
    arguments = {**arguments, "model": split.model}
    reason = why_not_by_nutpie(split.model, arguments)
    if reason is not None:
        raise ValueError(f"workers need nutpie, but pm.sample has to sample: {reason}.")
    request = library_request(as_written, arguments, reparametrize=False, reduced=split.model)
    compiled = request and library_model(compiled_record(request))
    if not isinstance(compiled, LibraryModel):
        raise ValueError(
            f"workers need a known release of nutpie, a model that needs no code of Numba, and no settings of NUTS but {', '.join(sorted(LIBRARY_SETTINGS))}."
        )
    check_environments(client)
    names, _, of_names = compiled.model.shape_info
    shapes = dict(zip(names[: len(split.model.free_RVs)], of_names))
    with ShardedLikelihood(client, split.likelihoods, shapes, threads) as likelihood:
        logp = LogpOnCluster(compiled.model, likelihood)
        try:
            idata = sample_compiled(split.model, compiled._replace(model=logp.model), arguments)
        except BaseException:
            if logp.error is None:
                raise
            raise logp.error from None
    if logp.error is not None:
        raise with_draws(logp.error, idata)
    return idata
