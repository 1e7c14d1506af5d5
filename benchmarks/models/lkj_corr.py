"""A prior over correlation matrices and nothing else.

    p(R) proportional to det(R)^(eta - 1),  R = L @ L.T,  eta = 2

Source: D. Lewandowski, D. Kurowicka and H. Joe, "Generating random correlation matrices based on
vines and extended onion method", Journal of Multivariate Analysis 100 (2009).
"""

import pymc as pm


def make(n: int) -> pm.Model:
    with pm.Model() as model:
        pm.LKJCorr("L", n=n, eta=2)
    return model
