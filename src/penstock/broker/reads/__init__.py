"""Reading what topics hold: browsing, feeds, filters."""
