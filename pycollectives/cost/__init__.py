"""What a schedule costs: steps and bytes read off it, and the alpha-beta-gamma model."""

from .description import Description, describe
from .footprint import Footprint, footprint
from .hardware import Hardware, hardware
from .model import Machine, predict, stretch

__all__ = [
    "Description",
    "Footprint",
    "Hardware",
    "Machine",
    "describe",
    "footprint",
    "hardware",
    "predict",
    "stretch",
]
