"""The Poisson model of ``benchmarks.models.poisson``.

point = (mu, log tau, a_raw[J], b)
eta_i = mu + tau * a_raw[g_i] + b * x_i
logp  = sum_i (y_i eta_i - exp(eta_i) - log y_i!) + priors + log tau
r_i   = y_i - exp(eta_i),  R_j = sum of r_i over group j
d/d mu = sum_j R_j,  d/d log tau = tau sum_j R_j a_raw_j,  d/d a_raw_j = tau R_j,  d/d b = sum_i r_i x_i
"""

from typing import Any

import numpy as np
from llvmlite import ir
from scipy.special import gammaln

from benchmarks.ceilings.vector import Kernel, Rows
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.kernel.llvm import F64

MU, LOG_TAU, A_RAW = 0, 1, 2


def build(data: dict[str, Any]) -> LogpCallback:
    """Return the callback for the data of the Stan program."""
    n, groups = data["N"], data["J"]
    k = Kernel(groups + 3)
    b = k.builder
    group, x, y = k.array(data["group"] - 1), k.array(data["x"]), k.array(data["y"].astype(float))
    residuals = k.lane_sums(groups)
    a_raw, slope_at = k.at(k.x, A_RAW), A_RAW + groups

    mu, slope, log_tau = k.load(k.x, MU), k.load(k.x, slope_at), k.load(k.x, LOG_TAU)
    tau = k.scalar_exp(log_tau)
    total, along_x = k.total(), k.total()

    def likelihood(rows: Rows) -> None:
        index, x_i, y_i = rows.load(group), rows.load(x), rows.load(y)
        eta = k.fma(k.splat(slope), x_i, k.splat(mu))
        eta = k.fma(k.splat(tau), rows.gather(a_raw, index), eta)
        rate = k.exp(eta)
        residual = b.fsub(y_i, rate)
        rows.add_to(total, b.fsub(b.fmul(y_i, eta), rate))
        rows.add_to(along_x, b.fmul(residual, x_i))
        rows.add_lanes_at(residuals, index, residual)

    k.rows(n, likelihood)

    d_mu, d_tau, squares = k.number(), k.number(), k.number()

    def by_group(j: ir.Value) -> None:
        a, r = k.load(a_raw, j), k.take_lane_sum(residuals, j)
        k.add_to(d_mu, r)
        k.add_to(d_tau, b.fmul(r, a))
        k.add_to(squares, b.fmul(a, a))
        b.store(b.fsub(b.fmul(r, tau), a), k.at(k.gradient, b.add(j, j.type(A_RAW))))

    k.each(groups, by_group)

    d_mu_prior = b.fmul(mu, F64(-1 / 4))
    d_log_tau_prior = b.fsub(F64(1.0), b.fmul(tau, tau))
    b.store(b.fadd(b.load(d_mu), d_mu_prior), k.at(k.gradient, MU))
    b.store(b.fadd(b.fmul(b.load(d_tau), tau), d_log_tau_prior), k.at(k.gradient, LOG_TAU))
    b.store(b.fsub(k.sum_lanes(b.load(along_x)), slope), k.at(k.gradient, slope_at))

    constant = -gammaln(np.asarray(data["y"]) + 1.0).sum()
    constant -= 0.5 * np.log(2 * np.pi) * (groups + 2) + np.log(2)
    constant += 0.5 * np.log(2 / np.pi)
    quadratic = b.fadd(b.fmul(tau, tau), b.load(squares))
    quadratic = b.fadd(quadratic, b.fadd(b.fmul(slope, slope), b.fmul(b.fmul(mu, mu), F64(1 / 4))))
    logp = b.fadd(k.sum_lanes(b.load(total)), b.fadd(F64(constant), log_tau))
    return k.finish(b.fsub(logp, b.fmul(quadratic, F64(0.5))))
