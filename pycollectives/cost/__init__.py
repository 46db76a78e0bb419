"""What a schedule costs: steps and bytes read off it, and the alpha-beta-gamma model."""

from .description import Description, describe
from .footprint import Footprint, footprint
from .model import Machine, predict

__all__ = ["Description", "Footprint", "Machine", "describe", "footprint", "predict"]
