"""One file a framework: the only ones that import it."""
