"""The audit's report: its fields as JSON, and the HTML page with figures made of them."""
