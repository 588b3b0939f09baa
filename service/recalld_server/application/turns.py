"""Lanes, from the library."""

from recalld.lanes import LanePlace as Turn
from recalld.lanes import Lanes as Turns

__all__ = ["Turn", "Turns"]
