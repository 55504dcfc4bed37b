"""Tensors that lie awkwardly in their storage."""

from __future__ import annotations

import math

import torch

from harness.spec import random_tensor


def normal(shape: tuple[int, ...], dtype: str, device: str, seed: int = 5) -> torch.Tensor:
    return random_tensor(shape, dtype, device, seed)


def from_element(shape: tuple[int, ...], start: int, dtype: str, device: str, seed: int = 5):
    """Contiguous values that begin `start` elements into their storage."""
    flat = normal((start + math.prod(shape),), dtype, device, seed)
    return flat[start:].view(shape)


def wider(plain: torch.Tensor, margin: int) -> torch.Tensor:
    """Like `plain`, NaN, in a matrix with `margin` more columns on each side."""
    rows, cols = plain.shape
    return plain.new_full((rows, cols + 2 * margin), math.nan)[:, margin : margin + cols]


def one_in(plain: torch.Tensor) -> torch.Tensor:
    """The values of `plain`, contiguous, one element into their storage."""
    storage = plain.new_full((plain.numel() + 1,), math.nan)
    storage[1:].copy_(plain.reshape(-1))
    return storage[1:].view(plain.shape)
