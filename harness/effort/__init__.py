"""What a kernel cost to write: sizes, control flow and hardware concepts of both sides of a pair.

Nothing here imports torch or triton, and only syntax.py needs tree-sitter and counts.py lizard:
`pip install "cuda-vs-triton[effort]"`.
"""
