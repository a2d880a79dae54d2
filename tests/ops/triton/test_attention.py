"""Fused attention equals the equation: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from revup.models.layers import Attention

B, T, D = 4, 5, 6


@pytest.mark.parametrize(("slots", "places"), [(0, T), (T, T), (0, 8)])
def test_one_query(agree: Callable[..., None], slots: int, places: int) -> None:
    attention = Attention(3, D, 5, slots)
    whole = torch.randn(B, 2, places, D, requires_grad=True)  # the memory is a strided view of it
    query = torch.randn(B, 1, 3, requires_grad=True)
    mask = torch.rand(B, places) < 0.6
    mask[0] = False  # nothing to attend to
    agree(lambda: attention(query, whole[:, 1], mask)[:1], [whole, query, *attention.parameters()])


@pytest.mark.parametrize(("places", "queries", "biased"), [(5, 9, True), (3, 8, False), (8, 1, True), (9, 2, False)])
def test_many_queries(agree: Callable[..., None], places: int, queries: int, biased: bool) -> None:
    """More queries than a program takes, as many, one; more places than a program takes for their gradient."""
    attention = Attention(3, D, 5)
    memory = torch.randn(B, 2, places, D, requires_grad=True)
    query = torch.randn(queries, B, 3, requires_grad=True)
    mask = torch.rand(B, places) < 0.6
    mask[0] = False
    bias = torch.randn(queries, places, requires_grad=True) if biased else None
    inputs = [memory, query, *attention.parameters(), *([] if bias is None else [bias])]
    agree(lambda: attention(query.transpose(0, 1), memory[:, 1], mask, bias)[:1], inputs)
