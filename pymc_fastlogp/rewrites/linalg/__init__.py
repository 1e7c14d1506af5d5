"""Rules about products, factorizations and solves of matrices."""
