"""The multilevel logit of ``benchmarks.models.mrp``.

point = (intercept, male, then for each factor f: log sigma_f, z_f)
eta_i = intercept + male * sex_i + sum_f sigma_f * z_f[f_i]
logp  = sum_i (y_i eta_i - log(1 + exp eta_i)) + priors + sum_f log sigma_f
r_i   = y_i - sigmoid(eta_i),  R_fl = sum of r_i over level l of factor f
d/d intercept = sum_i r_i,  d/d male = sum_i r_i sex_i
d/d log sigma_f = sigma_f sum_l R_fl z_fl,  d/d z_fl = sigma_f R_fl
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from benchmarks.ceilings.vector import Kernel, Rows
from benchmarks.models.mrp import LEVELS
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.kernel.llvm import F64

INTERCEPT, MALE, FACTORS = 0, 1, 2


@dataclass(frozen=True)
class Factor:
    """A factor: where its parameters start, its indices, and sums of the residuals by level."""

    start: int
    levels: int
    index: ir.Value
    sigma: ir.Value
    residuals: ir.Value


def build(data: dict[str, Any]) -> LogpCallback:
    """Return the callback for the data of the Stan program."""
    k = Kernel(FACTORS + sum(levels + 1 for levels in LEVELS.values()))
    b = k.builder
    sex, y = k.array(data["sex"].astype(float)), k.array(data["y"].astype(float))
    factors = _factors(k, data)
    intercept, male = k.load(k.x, INTERCEPT), k.load(k.x, MALE)
    total, residuals, along_sex = k.total(), k.total(), k.total()

    def likelihood(rows: Rows) -> None:
        sex_i, y_i = rows.load(sex), rows.load(y)
        eta = k.fma(k.splat(male), sex_i, k.splat(intercept))
        indices = [rows.load(factor.index) for factor in factors]
        for factor, index in zip(factors, indices):
            z = rows.gather(k.at(k.x, factor.start + 1), index)
            eta = k.fma(k.splat(factor.sigma), z, eta)
        softplus, sigmoid = k.softplus_and_sigmoid(eta)
        residual = b.fsub(y_i, sigmoid)
        rows.add_to(total, b.fsub(b.fmul(y_i, eta), softplus))
        rows.add_to(residuals, residual)
        rows.add_to(along_sex, b.fmul(residual, sex_i))
        for factor, index in zip(factors, indices):
            rows.add_lanes_at(factor.residuals, index, residual)

    k.rows(data["N"], likelihood)

    # Sum of everything in the priors that depends on the point.
    prior = k.number()
    for position, likelihood_gradient, precision in (
        (INTERCEPT, residuals, 1 / 1.5**2),
        (MALE, along_sex, 1.0),
    ):
        value = k.load(k.x, position)
        pull = b.fmul(value, F64(precision))
        k.add_to(prior, b.fmul(b.fmul(value, pull), F64(-0.5)))
        gradient = b.fsub(k.sum_lanes(b.load(likelihood_gradient)), pull)
        b.store(gradient, k.at(k.gradient, position))
    for factor in factors:
        _finish_factor(k, factor, prior)

    normals = 2 + sum(LEVELS.values())
    constant = -0.5 * np.log(2 * np.pi) * normals - np.log(1.5)
    constant += 0.5 * np.log(2 / np.pi) * len(factors)
    logp = b.fadd(k.sum_lanes(b.load(total)), b.fadd(b.load(prior), F64(constant)))
    return k.finish(logp)


def _factors(k: Kernel, data: dict[str, Any]) -> list[Factor]:
    factors, start = [], FACTORS
    for name, levels in LEVELS.items():
        sigma = k.scalar_exp(k.load(k.x, start))
        index, residuals = k.array(data[name] - 1), k.lane_sums(levels)
        factors.append(Factor(start, levels, index, sigma, residuals))
        start += levels + 1
    return factors


def _finish_factor(k: Kernel, factor: Factor, prior: ir.Value) -> None:
    """Add the priors of one factor, write the gradient of its scale and its levels."""
    b, d_sigma = k.builder, k.number()
    z_start = factor.start + 1

    def by_level(level: ir.Value) -> None:
        z, r = k.load(k.at(k.x, z_start), level), k.take_lane_sum(factor.residuals, level)
        k.add_to(d_sigma, b.fmul(r, z))
        k.add_to(prior, b.fmul(b.fmul(z, z), F64(-0.5)))
        b.store(b.fsub(b.fmul(r, factor.sigma), z), k.at(k.at(k.gradient, z_start), level))

    k.each(factor.levels, by_level)
    square = b.fmul(factor.sigma, factor.sigma)
    k.add_to(prior, b.fsub(k.load(k.x, factor.start), b.fmul(square, F64(0.5))))
    gradient = b.fadd(b.fmul(b.load(d_sigma), factor.sigma), b.fsub(F64(1.0), square))
    b.store(gradient, k.at(k.gradient, factor.start))
