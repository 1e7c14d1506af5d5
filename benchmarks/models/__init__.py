"""The models of the suite, a file each.

A module has ``make(...)``, which builds the PyMC model, and, where a Stan program for the same
posterior is natural, ``STAN`` and ``stan_data(...)``, which takes the same arguments. The
parameters of a Stan program have the names, the order and the unconstrained scale of the PyMC
model, so that one flat vector is a point of both.
"""
