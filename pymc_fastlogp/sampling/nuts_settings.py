"""Settings of NUTS: the dictionary ``nuts`` of :func:`~pymc_fastlogp.sample` and ``target_accept``, validated before the model is compiled."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pymc_fastlogp._upstream.nutpie_library import ADAPTATIONS, SETTINGS, library, refusal
from pymc_fastlogp.sampling import zarr_store

# Similarity, by difflib, above which an unknown name counts as misspelled.
CLOSE = 0.7
# Arguments of nutpie.sample that ``sample`` passes, by the argument of ``sample`` that decides.
PASSED_BY_SAMPLE = {
    "compiled_model": "model",
    "draws": "draws",
    "tune": "tune",
    "chains": "chains",
    "cores": "cores",
    "seed": "random_seed",
    "save_warmup": "discard_tuned_samples",
    "store_unconstrained": "idata_kwargs",
    "progress_bar": "progressbar",
    "progress_callback": "progressbar",
}
# Arguments of nutpie.sample that change the type of its result.
OTHER_RESULTS = ("blocking", "return_raw_trace")
# Arguments of nutpie.sample that are no settings of its library.
OF_NUTPIE = {
    *("sampler", "adaptation", "init_mean", "zarr_store"),
    *("progress_template", "progress_style", "progress_rate"),
    # Deprecated names of nutpie.
    *("low_rank_modified_mass_matrix", "transform_adapt", "use_grad_based_mass_matrix"),
}
SAMPLERS = ("nuts", "mclmc")


def by_name(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of NUTS by nutpie's names.

    Parameters
    ----------
    arguments : mapping
        Arguments of ``sample``; ``nuts`` and ``target_accept`` are used.
    """
    nuts = dict(arguments.get("nuts", {}))
    if "target_accept" in arguments:
        nuts["target_accept"] = arguments["target_accept"]
    if "max_treedepth" in nuts:
        nuts["maxdepth"] = nuts.pop("max_treedepth")
    return nuts


def with_store(arguments: Mapping[str, Any], store: Path) -> dict[str, Any]:
    """Return ``nuts`` with a new zarr store at a path.

    Raises
    ------
    FileExistsError, ImportError
        As :func:`~pymc_fastlogp.sampling.zarr_store.refuse`.
    ValueError
        If ``nuts`` has a store already.
    """
    zarr_store.refuse(store)
    nuts = arguments.get("nuts", {})
    if "zarr_store" in nuts:
        raise ValueError("store and nuts['zarr_store'] are given: leave out one of them.")
    return nuts | {"zarr_store": store}


def refuse(arguments: Mapping[str, Any]) -> None:
    """Raise an error for settings that nutpie does not accept, and for settings that ``sample`` passes to nutpie from other arguments.

    Names and values are those that nutpie's library accepts; an unknown release of nutpie is left to raise its own errors.

    Parameters
    ----------
    arguments : mapping
        Arguments of ``sample``.

    Raises
    ------
    TypeError
        If ``nuts`` is no dictionary, if nutpie has no setting of a name, or if a setting is an argument of ``sample``.
    ValueError
        If a value is not accepted.
    """
    nuts = arguments.get("nuts", {})
    if not isinstance(nuts, Mapping):
        raise TypeError(f"nuts is {nuts!r}: give a dictionary of settings.")
    for name in nuts:
        if name in PASSED_BY_SAMPLE:
            raise TypeError(
                f'nuts["{name}"] is an argument of sample: write sample({PASSED_BY_SAMPLE[name]}=...).'
            )
        if name in OTHER_RESULTS:
            raise TypeError(
                f'nuts["{name}"] changes the result: call nutpie.sample(pymc_fastlogp.compile_pymc_model(model), {name}=...).'
            )
    if "target_accept" in nuts and "target_accept" in arguments:
        raise TypeError("target_accept is given twice: leave out one of target_accept and nuts.")
    if "maxdepth" in nuts and "max_treedepth" in nuts:
        raise TypeError("max_treedepth is nutpie's maxdepth: leave out one of them.")
    _refuse_by_library(by_name(arguments))


def _refuse_by_library(settings: Mapping[str, Any]) -> None:
    """Raise an error for settings that nutpie's library refuses."""
    nutpies_library = library()
    if nutpies_library is None:
        return
    sampler, adaptation = settings.get("sampler", "nuts"), settings.get("adaptation", "diag")
    _refuse_choice("sampler", sampler, SAMPLERS)
    _refuse_choice("adaptation", adaptation, tuple(ADAPTATIONS))
    for name in settings.keys() - OF_NUTPIE:
        value = settings[name]
        error = refusal(nutpies_library, {name: value}, sampler=sampler, adaptation=adaptation)
        if isinstance(error, AttributeError):
            known = {*OF_NUTPIE, *PASSED_BY_SAMPLE, *SETTINGS, "max_treedepth"}
            meant = closest(name, known)
            hint = f': did you mean "{meant}"?' if meant else f" for the sampler {sampler}."
            raise TypeError(f'nuts has no setting "{name}"{hint}')
        if error is not None:
            raise ValueError(f'nuts["{name}"] is {value!r}: {error}.')
        if name == "target_accept" and not 0 < value < 1:
            raise ValueError(f"target_accept is {value!r}: give a probability between 0 and 1.")


def _refuse_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f'nuts["{name}"] is {value!r}: give one of {", ".join(known)}.')


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelled name most resembles, None if no name resembles it."""
    return next(iter(get_close_matches(name, sorted(known), 1, CLOSE)), None)
