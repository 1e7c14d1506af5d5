"""Rules about products, factorisations and solves of matrices."""
