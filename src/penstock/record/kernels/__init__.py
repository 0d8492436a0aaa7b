"""Kernels: whole blocks in, columns out, compiled by numba. The only module that knows numba."""
