"""A synthetic newsroom whose exact posteriors and likelihoods are known."""

from revup.world.world import World

__all__ = ["World"]
