r"""Posteriors of :mod:`benchmarks.tables` without the plugin: all rows in ``pm.sample``, or sums that a user writes in SQL, in ``pm.sample`` and in stanli.

The sums are those of the shortest log density that the user can write. With counts :math:`n_u` of distinct rows, that of Poisson counts is

.. math::

    \sum_u n_u (y_u \eta_u - e^{\eta_u}).

With the sums of a place :math:`p` and of all rows, the sum of squares of the Gaussian model is

.. math::

    \sum_p \bigl(n_p a_p^2 - 2 a_p \textstyle\sum y + 2 a_p b^\top \sum x\bigr) + b^\top \bigl(\sum x x^\top\bigr) b - 2 b^\top \sum x y + \sum y^2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm


class ByHand(NamedTuple):
    """Sums of a model that a user writes.

    Attributes
    ----------
    query : str
        Query of the relation ``rides`` in DuckDB.
    data : callable
        Function from the columns of the answer to the data of the Stan program.
    model : callable
        Function from the same data to the PyMC model.
    program : str
        Stan program.
    """

    query: str
    data: Callable[[dict[str, np.ndarray]], dict[str, Any]]
    model: Callable[[dict[str, Any]], pm.Model]
    program: str


def _cells(answer: dict[str, np.ndarray]) -> dict[str, Any]:
    columns = {name: x.astype(np.int64) for name, x in answer.items()}
    return {"n": len(columns["zone"]), "zones": int(columns["zone"].max()) + 1, **columns}


def _counts(data: dict[str, Any]) -> pm.Model:
    with pm.Model() as model:
        mu, tau, b = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Normal("b")
        a = pm.Normal("a", mu, tau, shape=data["zones"])
        eta = a[data["zone"]] + b * data["night"]
        density = pm.logp(pm.Poisson.dist(pm.math.exp(eta)), data["tips"])
        pm.Potential("tips", data["weight"] * density)
    return model


COUNTS = """
data {
  int n; int zones;
  array[n] int zone; vector[n] night; vector[n] tips; vector[n] weight;
}
transformed data {
  array[n] int place;
  for (i in 1:n) place[i] = zone[i] + 1;
}
parameters { real mu; real<lower=0> tau; real b; vector[zones] a; }
model {
  vector[n] eta = a[place] + b * night;
  mu ~ std_normal();
  tau ~ std_normal();
  b ~ std_normal();
  a ~ normal(mu, tau);
  target += dot_product(weight, tips .* eta - exp(eta));
}
"""


def _sums(answer: dict[str, np.ndarray]) -> dict[str, Any]:
    sums = {name: x.astype(np.float64) for name, x in answer.items() if name != "place"}
    total = {name: float(x.sum()) for name, x in sums.items()}
    xx = [[total["dd"], total["dh"]], [total["dh"], total["hh"]]]
    return {
        "places": len(sums["n"]),
        "n": sums["n"],
        "y": sums["y"],
        "x": np.column_stack([sums["d"], sums["h"]]),
        "xx": np.array(xx),
        "xy": np.array([total["dy"], total["hy"]]),
        "yy": total["yy"],
    }


def _gaussian(data: dict[str, Any]) -> pm.Model:
    with pm.Model() as model:
        mu, tau, sigma = pm.Normal("mu"), pm.HalfNormal("tau"), pm.HalfNormal("sigma")
        a, b = pm.Normal("a", mu, tau, shape=data["places"]), pm.Normal("b", shape=2)
        of_places = a * (data["n"] * a - 2 * data["y"] + 2 * (data["x"] @ b))
        of_all = b @ data["xx"] @ b - 2 * (data["xy"] @ b) + data["yy"]
        squares = of_places.sum() + of_all
        pm.Potential(
            "fare", -data["n"].sum() * pm.math.log(sigma) - squares / (2 * pm.math.sqr(sigma))
        )
    return model


GAUSSIAN = """
data {
  int places;
  vector[places] n; vector[places] y; matrix[places, 2] x;
  matrix[2, 2] xx; vector[2] xy; real yy;
}
parameters { real mu; real<lower=0> tau; real<lower=0> sigma; vector[places] a; vector[2] b; }
model {
  real squares = dot_product(a, n .* a - 2 * y + 2 * (x * b)) + b' * xx * b - 2 * dot_product(xy, b) + yy;
  mu ~ std_normal();
  tau ~ std_normal();
  sigma ~ std_normal();
  b ~ std_normal();
  a ~ normal(mu, tau);
  target += -sum(n) * log(sigma) - squares / (2 * square(sigma));
}
"""

BY_HAND = {
    "counts": ByHand(
        "SELECT zone, night, tips, count(*) AS weight FROM rides GROUP BY zone, night, tips",
        _cells,
        _counts,
        COUNTS,
    ),
    "gaussian": ByHand(
        "SELECT place, count(*) AS n, sum(fare) AS y, sum(distance) AS d, sum(hours) AS h, sum(distance * distance) AS dd, sum(distance * hours) AS dh,"
        " sum(hours * hours) AS hh, sum(distance * fare) AS dy, sum(hours * fare) AS hy, sum(fare * fare) AS yy FROM rides GROUP BY place ORDER BY place",
        _sums,
        _gaussian,
        GAUSSIAN,
    ),
}
