"""System topics of administration: tables that map each topic to its handler."""
