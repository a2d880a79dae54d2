"""A synthetic newsroom whose exact posteriors and likelihoods are known."""

from revup.world.annotators import Annotator
from revup.world.revealed import ceiling, reveal
from revup.world.world import World

__all__ = ["Annotator", "World", "ceiling", "reveal"]
