r"""Rows on the workers of a Dask cluster: likelihoods over tables that are evaluated where the rows are.

.. math::

    \log p(\theta \mid y) = \log p(\theta) + \sum_{s=1}^S \log p(y_s \mid \theta) + \text{const}

A *shard* is the likelihood of a partition of the rows, compiled as a model of its own. Partitions depend on the rows alone. Shards are added in a fixed order,
so a sum depends neither on the number of workers nor on the worker that evaluates a shard, if the CPUs are of one kind.

.. code-block:: text

    models.row_likelihood, tables.partitions   the model without its likelihoods, and partitions of the rows
    shards                on a worker: an actor that compiles and evaluates shards
    sharded_likelihood    on the client: actors, the sum of their shards, and their replacement
    logp                  the callback of nutpie: prior and Jacobians plus the sum
    checks                the client, and versions and CPUs of its workers
    sampling              all of it, with the sampler of nutpie
"""
