"""A pipeline's file: parsed into values, with every problem named by its place."""
