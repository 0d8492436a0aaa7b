"""The linker: from files that import each other to one pool of descriptors, with names resolved, options interpreted
and rules checked."""
