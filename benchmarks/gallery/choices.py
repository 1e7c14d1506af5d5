"""Choices and answers: discrete choice, ordered answers, item response."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery

ordered = pm.distributions.transforms.ordered


@in_gallery
def multinomial_logit(rng):
    """Train, *Discrete Choice Methods with Simulation*, ch. 3: covariates of each alternative, and of the chooser."""
    people, alternatives = 1500, 4
    cost, duration = rng.gamma(2, 1, size=(2, people, alternatives)).round(1)
    income = rng.normal(size=people).round(1)
    asc = pt.concatenate([pm.Normal("asc", shape=alternatives - 1), pt.zeros(1)])
    by_income = pt.concatenate([pm.Normal("by_income", shape=alternatives - 1), pt.zeros(1)])
    utility = asc + pm.Normal("b_cost") * cost + pm.Normal("b_time") * duration
    utility += by_income * income[:, None]
    chosen = (rng.gumbel(size=cost.shape) - 0.5 * cost - 0.3 * duration).argmax(axis=1)
    pm.Categorical("choice", logit_p=utility, observed=chosen)


@in_gallery
def mixed_logit(rng):
    """Train, ch. 6, and the PyMC notebook "Discrete choice": tastes by person, ten choices each."""
    people, tasks, alternatives = 200, 10, 3
    person = np.repeat(np.arange(people), tasks)
    X = rng.normal(size=(people * tasks, alternatives, 3)).round(1)
    taste = pm.Normal("taste", shape=3) + pm.HalfNormal("s", shape=3) * pm.Normal(
        "z", shape=(people, 3)
    )
    utility = (X * taste[person][:, None, :]).sum(axis=-1)
    chosen = (X @ np.array([1.0, -0.5, 0.2]) + rng.gumbel(size=X.shape[:2])).argmax(axis=1)
    pm.Categorical("choice", p=pm.math.softmax(utility, axis=-1), observed=chosen)


@in_gallery
def ordered_logit_group_cut_points(rng):
    """Liddell and Kruschke 2018: cut points that differ between twelve questions."""
    rows, people, items, levels = 3000, 150, 12, 5
    person, item = rng.integers(0, people, rows), rng.integers(0, items, rows)
    start = np.tile(np.linspace(-2, 2, levels - 1), (items, 1))
    cuts = pm.Normal("cuts", start, 1.0, transform=ordered, initval=start)
    ability = pm.Normal("ability", shape=people) * pm.HalfNormal("s")
    treated = rng.integers(0, 2, rows)
    eta = ability[person] + pm.Normal("effect") * treated
    y = np.digitize(rng.logistic(size=rows) + 0.5 * treated, start[0])
    pm.OrderedLogistic("answer", eta=eta, cutpoints=cuts[item], observed=y)


@in_gallery
def ordered_probit(rng):
    """Kruschke, *Doing Bayesian Data Analysis*, ch. 23: 36 films, rated with one to five stars."""
    rows, films, levels = 2000, 36, 5
    film = rng.integers(0, films, rows)
    start = np.linspace(-1.5, 1.5, levels - 1)
    cuts = pm.Normal("cuts", start, 1.0, transform=ordered, initval=start)
    eta = pm.Normal("film", 0, pm.HalfNormal("s"), shape=films)[film]
    y = np.digitize(rng.normal(size=rows), start)
    pm.OrderedProbit("stars", eta=eta, cutpoints=cuts, observed=y)


@in_gallery
def multidimensional_item_response(rng):
    """Reckase, *Multidimensional Item Response Theory*: 300 people, 40 items, three abilities."""
    people, items, dimensions = 300, 40, 3
    theta = pm.Normal("theta", shape=(people, dimensions))
    loading = pm.HalfNormal("loading", shape=(items, dimensions))
    difficulty = pm.Normal("difficulty", shape=items)
    person, item = (x.ravel() for x in np.indices((people, items)))
    answered = rng.random(person.size) < 0.9
    person, item = person[answered], item[answered]
    eta = (theta[person] * loading[item]).sum(axis=-1) - difficulty[item]
    pm.Bernoulli("right", logit_p=eta, observed=rng.integers(0, 2, person.size))


@in_gallery
def graded_response(rng):
    """Samejima 1969, as `brms` fits it: discrimination and cut points by item."""
    rows, people, items, levels = 4000, 200, 20, 4
    person, item = rng.integers(0, people, rows), rng.integers(0, items, rows)
    start = np.tile(np.linspace(-1.5, 1.5, levels - 1), (items, 1))
    cuts = pm.Normal("cuts", start, 1.0, transform=ordered, initval=start)
    slope = pm.LogNormal("slope", 0, 0.5, shape=items)
    eta = slope[item] * pm.Normal("theta", shape=people)[person]
    y = np.digitize(rng.logistic(size=rows), start[0])
    pm.OrderedLogistic("answer", eta=eta, cutpoints=cuts[item], observed=y)


@in_gallery
def bradley_terry(rng):
    """Bradley and Terry 1952, as PyMC users write it: 40 players, 3 000 games."""
    one, other = rng.integers(0, 40, size=(2, 3000))
    skill = pm.ZeroSumNormal("skill", sigma=pm.HalfNormal("s"), shape=40)
    eta = skill[one] - skill[other] + pm.Normal("home")
    pm.Bernoulli("won", logit_p=eta, observed=rng.integers(0, 2, 3000))
