"""Triton kernels: what torch does in many passes over the device's memory, done in as few as there must be."""

from revup.ops.triton.attention import attend_fused, look_fused
from revup.ops.triton.batches import gather_fused
from revup.ops.triton.chain import draw_fused, gaussian_kl_fused, gaussian_sample_fused
from revup.ops.triton.frames import PooledPriorFused, divergences_fused, weighted_fused
from revup.ops.triton.optimiser import adam_fused
from revup.ops.triton.products import product_back_fused, product_fused
from revup.ops.triton.projection import WIDEST, losses_fused, weight_gradients_fused
from revup.ops.triton.recurrent import gru_fused
from revup.ops.triton.vocabulary import softmax_gradient_fused
from revup.ops.triton.words import dropout_fused, mean_fused, read_fused, table_gradient_fused

__all__ = [
    "WIDEST",
    "PooledPriorFused",
    "adam_fused",
    "attend_fused",
    "divergences_fused",
    "draw_fused",
    "dropout_fused",
    "gather_fused",
    "gaussian_kl_fused",
    "gaussian_sample_fused",
    "gru_fused",
    "look_fused",
    "losses_fused",
    "mean_fused",
    "product_back_fused",
    "product_fused",
    "read_fused",
    "softmax_gradient_fused",
    "table_gradient_fused",
    "weight_gradients_fused",
    "weighted_fused",
]
