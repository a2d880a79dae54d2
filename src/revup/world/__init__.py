"""A made-up newsroom whose true answers are known exactly."""

from revup.world.world import World

__all__ = ["World"]
