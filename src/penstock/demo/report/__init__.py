"""The report of the demo: the account with its sums, and the revenue as a picture."""
