"""Demo: the whole product at work with its own defaults, nothing staged, and every message accounted for.

`story` runs the steps; each step has a module. Measurements and claims are checked here and nowhere else; the product
itself uses nothing of this.
"""
