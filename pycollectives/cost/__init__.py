"""What a schedule costs: steps and bytes read off it, and the alpha-beta-gamma model."""

from .model import Footprint, Machine, footprint, predict

__all__ = ["Footprint", "Machine", "footprint", "predict"]
