"""The parametrisation that the data ask for: each group of a hierarchical model between centred and non-centred.

.. code-block:: text

    effects:        which variables are effects of groups, how they are written, their mean and scale
    correlated:     which are correlated effects, and the factor of their covariance
    sites:          what the likelihood says of effects, as a Gaussian, and the variable that remains
    normal:         a Normal variable with a place for that, and the change of variables
    matrix_normal:  the same for correlated effects
    zero_sum:       the same for effects that sum to zero, and which they are
    model:          the model with sites
    pilot:          sites from the curvature of the likelihood
"""
