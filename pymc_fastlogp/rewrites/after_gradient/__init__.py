"""Rules for compiled graphs: after the gradient, or in one mode alone."""
