"""Penstock: a message broker whose log is the data pipeline's table."""

from __future__ import annotations

__version__ = "0.1.0"
