"""Triton kernels: what torch does in many passes over the device's memory, done in as few as there must be."""

from revup.models.kernels.chain import draw_fused, gaussian_sample_fused, look_fused
from revup.models.kernels.frames import PooledPriorFused, divergences_fused
from revup.models.kernels.vocabulary import softmax_gradient_fused

__all__ = [
    "PooledPriorFused",
    "divergences_fused",
    "draw_fused",
    "gaussian_sample_fused",
    "look_fused",
    "softmax_gradient_fused",
]
