"""Kernels: whole blocks in, columns out, compiled by numba. No other module imports numba."""
