"""Facts about graphs that several rules, or kernels, ask for; imports no rule and no kernel."""
