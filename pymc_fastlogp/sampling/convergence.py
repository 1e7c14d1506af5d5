r"""Convergence checks after sampling, with the thresholds of ``pm.sample``.

``pymc.stats.run_convergence_checks`` calls ArviZ once per scalar parameter. With several hundred parameters that takes longer than
sampling, as does the import of ``arviz_stats``. Here all parameters form one array of shape ``(n_params, n_chains, n_draws)``.

Let :math:`z` be the normal scores of the ranks of all draws of a parameter. Chains are split into :math:`m` halves of :math:`n` draws. Let :math:`W` be the mean of the
variances within halves and :math:`B` the variance of their means. Then

.. math:: \hat R = \sqrt{(B/W) + (n - 1)/n},

and the larger value counts, for :math:`z` of the draws and :math:`z` of their distances from the median. The effective sample size is :math:`n m/\tau`
with :math:`\tau = -1 + 2 \sum_t \rho_t` for the autocorrelations :math:`\rho_t` of :math:`z`. The sum follows Geyer: the sums of neighbors
:math:`\rho_{2k} + \rho_{2k+1}` end before the first negative sum and are made monotone. See Vehtari et al., https://arxiv.org/abs/1903.08008.

Ranks need a sort, so ranks are computed only for the parameters with the largest split R-hat without ranks, up to ``MOST_DRAWS`` draws in total.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataTree

log = logging.getLogger("pymc.stats.convergence")

MOST_DRAWS = 500_000
LARGEST_RHAT = 1.01
# R-hat of chains in different places. nutpie adapts to the gradient at the first point: a chain that starts far out, as under wide priors, can stay there.
STUCK_RHAT = 1.1
# Effective sample size of each chain.
SMALLEST_ESS = 100
FEWEST_DRAWS = 100
# Largest share of the draws of a chain that may reach the maximum tree depth.
DEEP = 0.05


class Finding(NamedTuple):
    """Result of a convergence check.

    Attributes
    ----------
    level : int
        Level of the log line: ``logging.WARNING`` for a problem, ``logging.INFO`` for a check that is not possible.
    text : str
        One or two sentences.
    """

    level: int
    text: str

    @property
    def is_problem(self) -> bool:
        """Return whether a check failed."""
        return self.level >= logging.WARNING


def log_problems(idata: "DataTree", model: "pm.Model", *, is_reparametrized: bool) -> None:
    """Log the findings, see :func:`findings`."""
    for level, text in findings(idata, model, is_reparametrized=is_reparametrized):
        log.log(level, text)


def findings(
    idata: "DataTree", model: "pm.Model", *, is_reparametrized: bool = False
) -> Iterator[Finding]:
    """Yield signs that chains did not converge.

    Parameters
    ----------
    idata : DataTree
        Draws, with the groups ``posterior`` and ``sample_stats``.
    model : pymc.Model
        The model, whose stored free variables are checked.
    is_reparametrized : bool
        Whether the draws are from ``sample(..., reparametrize=True)``, which is suggested otherwise.
    """
    # Variables of a dataset are read faster than those of a tree.
    stats = idata["sample_stats"].dataset
    # Some step methods of PyMC have neither statistic.
    n_diverging = int(stats["diverging"].sum()) if "diverging" in stats else 0
    deep = np.empty(0, int)
    if "maxdepth_reached" in stats:
        n_deep = stats["maxdepth_reached"].sum("draw")
        deep = np.flatnonzero(n_deep > DEEP * stats.sizes["draw"])
    if n_diverging:
        were = "was 1 divergence" if n_diverging == 1 else f"were {n_diverging} divergences"
        yield _problem(f"There {were} after tuning. Increase `target_accept` or reparameterize.")
    for chain in deep:
        yield _problem(
            f"Chain {chain} reached the maximum tree depth. Increase `max_treedepth`, increase `target_accept` or reparameterize."
        )
    rhat, of_mixing = _mixing(idata, model)
    if (n_diverging or deep.size or rhat > STUCK_RHAT) and not is_reparametrized:
        yield _problem(
            "Try `reparametrize=True`, which moves in coordinates that are chosen from the data."
        )
    yield from of_mixing


def _problem(text: str) -> Finding:
    return Finding(logging.WARNING, text)


def _note(text: str) -> Finding:
    return Finding(logging.INFO, text)


def _mixing(idata: "DataTree", model: "pm.Model") -> tuple[float, list[Finding]]:
    """Return the largest R-hat, NaN if R-hat is not checked, and findings on R-hat and effective sample sizes."""
    posterior = idata["posterior"].dataset
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if n_draws < FEWEST_DRAWS:
        return np.nan, [_note("The number of samples is too small to check convergence reliably.")]
    if n_chains == 1:
        return np.nan, [_note("Only one chain was sampled, so R-hat is not checked.")]
    found = []
    if n_chains < 4:
        found.append(_note("At least 4 chains are recommended for convergence diagnostics."))
    stored = {x.name: posterior[x.name] for x in model.free_RVs if x.name in posterior}
    names, draws = _least_mixed({name: np.asarray(x) for name, x in stored.items()})
    if not names:
        return np.nan, found
    scores = _normal_scores(draws)
    distances = np.abs(draws - np.median(draws, axis=(1, 2), keepdims=True))
    # R-hat of the distances is NaN if all are equal.
    rhat = np.fmax(_rhat(scores), _rhat(_normal_scores(distances)))
    worst = int(np.argmax(rhat))
    if rhat[worst] > LARGEST_RHAT:
        found.append(
            _problem(
                f"The rhat statistic is larger than {LARGEST_RHAT} for some parameters, {rhat[worst]:.3g} for {names[worst]}."
                " This indicates problems during sampling."
            )
        )
    ess = _effective_sample_size(scores) / n_chains
    least = int(np.argmin(ess))
    if ess[least] < SMALLEST_ESS:
        found.append(
            _problem(
                f"The effective sample size per chain is smaller than {SMALLEST_ESS} for some parameters, {ess[least]:.0f} for {names[least]}."
                " A higher number is needed for reliable rhat and ess computation."
            )
        )
    return float(rhat[worst]), found


def _least_mixed(stored: dict[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Return names and halves of chains, shape ``(n_params, n_halves, n_draws)``, of parameters with the largest split R-hat.

    Constant and non-finite parameters are left out.
    """
    rows: list[tuple[float, str, np.ndarray]] = []
    for name, draws in stored.items():
        n_chains, n_draws, *shape = draws.shape
        half = n_draws // 2
        flat = draws.reshape(n_chains, n_draws, -1)
        rhat = _rhat(np.concatenate([flat[:, :half], flat[:, -half:]]).transpose(2, 0, 1))
        most = max(1, MOST_DRAWS // (n_chains * n_draws))
        mixed = np.where(np.isnan(rhat), -np.inf, rhat)
        for k in np.argsort(-mixed)[:most]:
            halves = np.concatenate([flat[:, :half, k], flat[:, -half:, k]])
            if not np.isfinite(halves).all() or np.ptp(halves) == 0:
                continue
            index = ", ".join(map(str, np.unravel_index(k, shape))) if shape else ""
            rows.append((mixed[k], f"{name}[{index}]" if index else name, halves))
    if not rows:
        return [], np.empty((0, 0, 0))
    rows.sort(key=lambda row: -row[0])
    rows = rows[: max(1, MOST_DRAWS // rows[0][2].size)]
    return [name for _, name, _ in rows], np.stack([halves for _, _, halves in rows])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    """Return normal scores of the ranks among all draws of a parameter; ties have their mean rank."""
    from scipy.special import ndtri

    flat = draws.reshape(len(draws), -1)
    n = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    is_new = np.ones(flat.shape, bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    start = np.flatnonzero(is_new)
    length = np.diff(start, append=is_new.size)
    # Mean ranks are multiples of 1/2, so few values of `ndtri` suffice for all parameters.
    rank = np.arange(2 * n - 1) / 2 + 1
    of_rank = ndtri((rank - 3 / 8) / (n + 1 / 4))
    of_ordered = np.repeat(of_rank[2 * (start % n) + length - 1], length)
    scores = np.empty(flat.shape)
    np.put_along_axis(scores, order, of_ordered.reshape(flat.shape), axis=1)
    return scores.reshape(draws.shape)


def _rhat(draws: np.ndarray) -> np.ndarray:
    """Return R-hat of each parameter, shape ``(n_params,)``; infinite if the halves are constant and differ, NaN if all are equal."""
    n = draws.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        between = draws.mean(-1).var(-1, ddof=1)
        within = draws.var(-1, ddof=1).mean(-1)
        return np.sqrt(between / within + (n - 1) / n)


def _effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """Return the effective sample size of each parameter, shape ``(n_params,)``."""
    n_chains, n = draws.shape[1:]
    means = draws.mean(-1, keepdims=True)
    length = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(draws - means, length)) ** 2
    covariance = np.fft.irfft(spectrum.mean(1), length)[:, :n] / n
    within = covariance[:, :1] * n / (n - 1)
    total = covariance[:, :1] + means[..., 0].var(-1, ddof=1)[:, None]
    rho = 1 - (within - covariance) / total
    rho[:, 0] = 1
    even, odd = rho[:, : n // 2 * 2 : 2], rho[:, 1::2]
    pairs = even + odd
    is_positive = np.logical_and.accumulate(pairs > 0, axis=1)
    is_positive[:, (n - 3) // 2 :] = False  # as in ArviZ
    end = is_positive.sum(1)
    pairs = np.minimum.accumulate(np.where(is_positive, pairs, np.inf), axis=1)
    tau = -1 + 2 * np.where(is_positive, pairs, 0).sum(1)
    last = even[np.arange(len(even)), np.minimum(end, even.shape[1] - 1)]
    tau += np.maximum(last, 0)
    size = n_chains * n
    return size / np.maximum(tau, 1 / np.log10(size))
