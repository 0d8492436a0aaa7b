"""The audit's report: its fields as JSON, and an HTML page with figures made of them."""
