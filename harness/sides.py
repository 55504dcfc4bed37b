"""The two sides of every comparison, as rows name them and as people read them."""

NAMES = {"cuda": "CUDA", "triton": "Triton"}
SIDES = tuple(NAMES)
