"""The parametrization that the data ask for: each group of a hierarchical model between centered and non-centered.

.. code-block:: text

    effects:        which variables are effects of groups, how they are written, their mean and scale
    correlated:     which are correlated effects, and the factor of their covariance
    sites:          what the likelihood says of effects, as a Gaussian, and the variable that remains
    eliminated:     what is left of the site of effects that stand after others
    placed:         effects from what remains to be sampled
    factored:       the same for correlated effects
    nodes:          their arithmetic as one node with its derivatives
    normal:         a Normal variable with a place for sites, and the change of variables
    crossed:        the same for effects of several factors, which share their level
    matrix_normal:  the same for correlated effects
    zero_sum:       the same for effects that sum to zero, and which they are
    reasons:        why variables stay as they are, whatever their prior
    scales:         scales of effects, which may be near zero
    model:          the model with sites
    known_well:     which effects are placed well as they are written
    levels:         which effects are crossed
    mode:           the mode of a log density
    pilot:          sites from the curvature of the likelihood
    linear_map:     other coordinates for parameters that are correlated
    coordinates:    which these are in a model
"""
