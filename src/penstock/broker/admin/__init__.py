"""System topics of administration: a row for each."""
