"""One module per op; each defines SPEC, the facts of that op."""
