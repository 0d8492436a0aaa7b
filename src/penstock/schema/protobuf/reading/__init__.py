"""Can a reader with one schema read what was written with another?"""
