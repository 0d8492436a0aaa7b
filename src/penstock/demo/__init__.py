"""Demo: the whole product at work on its own embedded defaults, with nothing staged, and every message accounted for.

One module for each step of the story, and `story` tells it. What is measured or claimed is checked here and nowhere
else; nothing of this is used by the product itself.
"""
