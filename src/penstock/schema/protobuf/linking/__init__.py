"""From files that import each other to one pool of descriptors: names resolved, options understood, rules kept."""
