"""Demo: the product at work, on its own embedded defaults, with nothing staged."""
