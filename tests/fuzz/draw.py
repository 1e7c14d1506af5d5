"""Priors, groups and linear predictors, drawn by one source of random numbers."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

# By support: how to make a prior by its name and its shape.
Prior = Callable[[str, tuple[int, ...]], TensorVariable]
REAL: dict[str, Prior] = {
    "Normal": lambda name, shape: pm.Normal(name, 0.3, 1.5, shape=shape),
    "StudentT": lambda name, shape: pm.StudentT(name, nu=4, mu=0, sigma=2, shape=shape),
    "Laplace": lambda name, shape: pm.Laplace(name, 0, 1, shape=shape),
    "Cauchy": lambda name, shape: pm.Cauchy(name, 0, 1, shape=shape),
    "Logistic": lambda name, shape: pm.Logistic(name, 0, 1, shape=shape),
    "Gumbel": lambda name, shape: pm.Gumbel(name, 0, 1, shape=shape),
    "SkewNormal": lambda name, shape: pm.SkewNormal(name, mu=0, sigma=1, alpha=2, shape=shape),
    "AsymmetricLaplace": lambda name, shape: pm.AsymmetricLaplace(
        name, kappa=1.5, mu=0, b=1, shape=shape
    ),
    "SkewStudentT": lambda name, shape: pm.SkewStudentT(name, a=2, b=3, mu=0, sigma=1, shape=shape),
    "ExGaussian": lambda name, shape: pm.ExGaussian(name, mu=0, sigma=1, nu=1, shape=shape),
    "Moyal": lambda name, shape: pm.Moyal(name, 0, 1, shape=shape),
    "Uniform": lambda name, shape: pm.Uniform(name, -2, 3, shape=shape),
    "Flat": lambda name, shape: pm.Flat(name, shape=shape),
    "TruncatedNormal": lambda name, shape: pm.TruncatedNormal(
        name, mu=0, sigma=1, lower=-1, upper=4, shape=shape
    ),
    "VonMises": lambda name, shape: pm.VonMises(name, 0, 2, shape=shape),
}
POSITIVE: dict[str, Prior] = {
    "HalfNormal": lambda name, shape: pm.HalfNormal(name, 1, shape=shape),
    "HalfCauchy": lambda name, shape: pm.HalfCauchy(name, 1, shape=shape),
    "HalfStudentT": lambda name, shape: pm.HalfStudentT(name, 3, 1, shape=shape),
    "Exponential": lambda name, shape: pm.Exponential(name, 1, shape=shape),
    "Gamma": lambda name, shape: pm.Gamma(name, 2, 1, shape=shape),
    "InverseGamma": lambda name, shape: pm.InverseGamma(name, 3, 2, shape=shape),
    "LogNormal": lambda name, shape: pm.LogNormal(name, 0, 1, shape=shape),
    "Weibull": lambda name, shape: pm.Weibull(name, 2, 1, shape=shape),
    "Wald": lambda name, shape: pm.Wald(name, mu=1, lam=2, shape=shape),
    "ChiSquared": lambda name, shape: pm.ChiSquared(name, 3, shape=shape),
    "Pareto": lambda name, shape: pm.Pareto(name, 3, 0.5, shape=shape),
    "Rice": lambda name, shape: pm.Rice(name, nu=1, sigma=1, shape=shape),
    "HalfFlat": lambda name, shape: pm.HalfFlat(name, shape=shape),
}
UNIT: dict[str, Prior] = {
    "Beta": lambda name, shape: pm.Beta(name, 2, 3, shape=shape),
    "Uniform": lambda name, shape: pm.Uniform(name, 0, 1, shape=shape),
    "LogitNormal": lambda name, shape: pm.LogitNormal(name, 0, 1, shape=shape),
    "Kumaraswamy": lambda name, shape: pm.Kumaraswamy(name, 2, 2, shape=shape),
    "Triangular": lambda name, shape: pm.Triangular(name, lower=0, c=0.4, upper=1, shape=shape),
}


class Draw:
    """One model while it is drawn: its random numbers, its rows, and what was chosen so far."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.n = int(self.choice([1, 2, 9, 60, 200]))
        self.chosen: list[str] = [f"{self.n} rows"]
        self.count = 0
        # Whether covariates and groups are data of the model, which can be changed after it was compiled.
        self.has_data = self.chance(0.3)

    def choice(self, options):
        return options[self.rng.integers(len(options))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, table: dict, of: str = ""):
        """Return an entry of a table, and note its name, and of what it is."""
        name = self.choice(list(table))
        self.chosen.append(of + name)
        return table[name]

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def prior(self, table: dict[str, Prior], shape: tuple[int, ...] = ()) -> TensorVariable:
        return self.pick(table)(self.name("p"), shape)

    def given(self, array: np.ndarray) -> np.ndarray | TensorVariable:
        """Return an array of rows, or the data of the model that it becomes."""
        if not self.has_data or self.chance(0.3):
            return array
        self.chosen.append("data")
        return pm.Data(self.name("d"), array)

    def column(self) -> np.ndarray:
        """Return a covariate: floats of either size, integers, booleans, few levels or as many as rows."""
        return self.pick(
            {
                "float64": self.rng.normal(size=self.n),
                "float32": self.rng.normal(size=self.n).astype("float32"),
                "levels": self.rng.integers(-1, 3, self.n).astype("float64"),
                "int8": self.rng.integers(-3, 4, self.n).astype("int8"),
                "bool": self.rng.random(self.n) < 0.4,
                "zeros": np.zeros(self.n),
                "large": 1e5 + self.rng.normal(size=self.n),
            }
        )

    def index(self) -> tuple[np.ndarray, int]:
        """Return the group of each row, and how many there are: some have no row, some are counted from the end."""
        n_groups = int(self.choice([1, 2, 5, 30]))
        seen = self.rng.choice(n_groups, size=max(1, int(n_groups * self.rng.random())))
        index = self.rng.choice(seen, size=self.n).astype(self.choice(["int64", "int32", "int8"]))
        if self.chance(0.3):
            index = np.sort(index)
        if self.chance(0.2):
            index = np.where(self.rng.random(self.n) < 0.5, index, index - n_groups)
        self.chosen.append(f"{n_groups} groups")
        return index, n_groups

    # Parts of a linear predictor, one number a row.

    def intercept(self) -> TensorVariable:
        return self.prior(REAL)

    def slope(self) -> TensorVariable:
        return self.prior(REAL) * self.given(self.column())

    def coefficients(self) -> TensorVariable:
        columns = np.column_stack([self.column() for _ in range(3)]).astype("float64")
        return pt.dot(columns, self.prior(REAL, (3,)))

    def centered(self) -> TensorVariable:
        index, n_groups = self.index()
        effect = pm.Normal(
            self.name("g"), self.prior(REAL), self.prior(POSITIVE), shape=(n_groups,)
        )
        return effect[self.given(index)]

    def noncentered(self) -> TensorVariable:
        index, n_groups = self.index()
        z = self.prior({"Normal": REAL["Normal"], "StudentT": REAL["StudentT"]}, (n_groups,))
        return (self.prior(REAL) + self.prior(POSITIVE) * z)[self.given(index)]

    def nested(self) -> TensorVariable:
        """Groups of groups, whose effects lie around those of the outer ones."""
        index, n_groups = self.index()
        outer = np.arange(n_groups) // 2
        above = pm.Normal(self.name("o"), 0, self.prior(POSITIVE), shape=(int(outer[-1]) + 1,))
        effect = pm.Normal(self.name("g"), above[outer], self.prior(POSITIVE), shape=(n_groups,))
        return effect[index]

    def zero_sum(self) -> TensorVariable:
        index, n_groups = self.index()
        return pm.ZeroSumNormal(self.name("z"), self.prior(POSITIVE), shape=(n_groups + 1,))[
            self.given(index)
        ]

    def crossed(self) -> TensorVariable:
        first, second = self.index(), self.index()
        table = self.prior(REAL, (first[1], second[1]))
        return table[self.given(first[0]), self.given(second[0])]

    def correlated(self) -> TensorVariable:
        """Effects of several columns by group, with an LKJ prior."""
        index, n_groups = self.index()
        n = int(self.choice([2, 3, 4, 5]))
        chol, _, _ = pm.LKJCholeskyCov(
            self.name("chol"), n=n, eta=2, sd_dist=pm.Exponential.dist(1.0), compute_corr=True
        )
        if self.chance(0.5):
            effects = self.prior({"Normal": REAL["Normal"]}, (n_groups, n)) @ chol.T
        else:
            effects = pm.MvNormal(self.name("mv"), mu=np.zeros(n), chol=chol, shape=(n_groups, n))
        columns = np.column_stack([np.ones(self.n), *(self.column() for _ in range(n - 1))])
        return (effects[index] * columns).sum(axis=-1)

    def smooth(self) -> TensorVariable:
        walk = self.prior(REAL, (self.n,)).cumsum()
        return walk - walk.mean() if self.chance(0.5) else walk

    def predictor(self) -> TensorVariable:
        kinds = [self.intercept, self.slope, self.coefficients, self.centered, self.noncentered]
        kinds += [self.nested, self.zero_sum, self.crossed, self.correlated, self.smooth]
        parts = self.pick_parts(kinds)
        return pt.broadcast_to(sum(part() for part in parts), (self.n,))

    def pick_parts(self, kinds: list[Callable[[], TensorVariable]]) -> list:
        parts = [self.choice(kinds) for _ in range(int(self.rng.integers(1, 4)))]
        self.chosen += [part.__name__ for part in parts]
        return parts
