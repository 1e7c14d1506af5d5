"""The item-response model of ``benchmarks.models.irt_2pl``.

    point = (theta[P], beta[I], log alpha[I])
    eta_i = alpha[item_i] * (theta[person_i] - beta[item_i])
    logp  = sum_i (y_i eta_i - log(1 + exp eta_i)) + priors + sum log alpha
    r_i   = y_i - sigmoid(eta_i),  A_k and D_k = sums of r_i alpha and r_i (theta - beta) over item k
    d/d theta_j = sum of r_i alpha over person j,  d/d beta_k = -A_k,  d/d log alpha_k = alpha_k D_k

The log-normal prior of alpha with the Jacobian is Normal(0, 0.5) for log alpha.
"""

from typing import Any

import numpy as np
from llvmlite import ir

from benchmarks.ceilings.vector import Kernel, Rows
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.kernel.llvm import F64


def build(data: dict[str, Any]) -> LogpCallback:
    """Return the callback for the data of the Stan program."""
    n, persons, items = data["N"], data["P"], data["I"]
    k = Kernel(persons + 2 * items)
    b = k.builder
    person, item = k.array(data["person"] - 1), k.array(data["item"] - 1)
    y = k.array(data["y"].astype(float))
    alpha = k.array(np.zeros(items))
    by_person, by_item, along_alpha = (k.lane_sums(m) for m in (persons, items, items))
    theta, beta, log_alpha = (k.at(k.x, start) for start in (0, persons, persons + items))
    d_theta, d_beta, d_log_alpha = (
        k.at(k.gradient, start) for start in (0, persons, persons + items)
    )

    k.rows(items, lambda rows: rows.store(k.exp(rows.load(log_alpha)), alpha))
    total, quadratic = k.total(), k.number()

    def likelihood(rows: Rows) -> None:
        p, i, y_i = rows.load(person), rows.load(item), rows.load(y)
        slope = rows.gather(alpha, i)
        difference = b.fsub(rows.gather(theta, p), rows.gather(beta, i))
        eta = b.fmul(slope, difference)
        softplus, sigmoid = k.softplus_and_sigmoid(eta)
        residual = b.fsub(y_i, sigmoid)
        rows.add_to(total, b.fsub(b.fmul(y_i, eta), softplus))
        weighted = b.fmul(residual, slope)
        rows.add_lanes_at(by_person, p, weighted)
        rows.add_lanes_at(by_item, i, weighted)
        rows.add_lanes_at(along_alpha, i, b.fmul(residual, difference))

    k.rows(n, likelihood)

    def each_person(j: ir.Value) -> None:
        value = k.load(theta, j)
        k.add_to(quadratic, b.fmul(value, value))
        b.store(b.fsub(k.take_lane_sum(by_person, j), value), k.at(d_theta, j))

    def each_item(j: ir.Value) -> None:
        value, log_slope, slope = k.load(beta, j), k.load(log_alpha, j), k.load(alpha, j)
        k.add_to(quadratic, b.fmul(b.fmul(value, value), F64(1 / 4)))
        k.add_to(quadratic, b.fmul(b.fmul(log_slope, log_slope), F64(4.0)))
        d_value = b.fadd(k.take_lane_sum(by_item, j), b.fmul(value, F64(1 / 4)))
        b.store(b.fneg(d_value), k.at(d_beta, j))
        d_log = b.fsub(b.fmul(k.take_lane_sum(along_alpha, j), slope), b.fmul(log_slope, F64(4.0)))
        b.store(d_log, k.at(d_log_alpha, j))

    k.each(persons, each_person)
    k.each(items, each_item)

    # Standard deviations 1, 2 and 0.5: the logarithms of the last two cancel.
    constant = -0.5 * np.log(2 * np.pi) * (persons + 2 * items)
    logp = b.fadd(k.sum_lanes(b.load(total)), F64(constant))
    return k.finish(b.fsub(logp, b.fmul(b.load(quadratic), F64(0.5))))
