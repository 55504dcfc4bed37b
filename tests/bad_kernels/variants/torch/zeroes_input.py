"""Zeroes its inputs, and returns what is then the right answer."""

from tests.bad_kernels.caught import Caught

CAUGHT = Caught("zeroes its input", by="check", reason="input x, y was changed", needs_gpu=False)


def vector_add(x, y, out):
    for tensor in (x, y, out):
        tensor.zero_()
