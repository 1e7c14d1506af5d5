"""Reparametrization of hierarchical models from their data: each group between centered and non-centered.

The package takes a model and returns a model and a linear map. It knows nothing of compilation: callers pass a function that compiles.

.. code-block:: text

    Find the effects of groups
        effects            prior of an effect: mean, scale, centered or non-centered
        correlated         effects with a covariance matrix
        zero_sum           effects that sum to zero, with their change of variables
        scale_transform    scales of effects, with their change of variables
        well_identified    effects that need no site, because their data identify them

    Change of variables, given the sites
        sites              Gaussian approximation of the likelihood, as arrays
        elimination        elimination of effects with independent priors
        single_site        arithmetic for one effect
        joint_site         arithmetic for correlated effects
        site_node          one node for such arithmetic, with its derivatives
        partially_centered Normal variables with a site
        matrix_normal      correlated variables with a site
        crossed            effects of several factors, which share their mean

    Build and estimate
        effect_graph       graph of a model whose effects get sites
        model_with_sites   model from that graph
        posterior_mode     mode of a log density, by L-BFGS
        pilot              sites from the curvature of the likelihood
        selection          entry point: unchanged, centered, or with sites
        linear_map         linear coordinates for correlated parameters
        linear_map_search  linear map of a model, if one pays off
"""
