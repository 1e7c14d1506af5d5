"""The parametrisation that the data ask for: each group of a hierarchical model between centred and non-centred.

.. code-block:: text

    effects:  which variables are effects of groups, how they are written, their mean and scale
    sites:    what the likelihood says of an effect, as a Gaussian, and the variable that remains
    normal:   a Normal variable with a place for location and precision, and the change of variables
    model:    the model with sites
    pilot:    sites from the curvature of the likelihood
"""
