"""Core: the words every other room uses: errors, names, offsets, ids, clock, limits. No IO comes in here."""
