"""The shapes that preference data are published in, and their way to our rows."""

from data_tools.shapes.detect import SHAPES, Shape, ShapeOptions, convert_record, detect

__all__ = ["SHAPES", "Shape", "ShapeOptions", "convert_record", "detect"]
