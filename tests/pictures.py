"""Completeness of pictures."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def is_cut_off(figure: Figure) -> bool:
    """Return whether something other than white touches an edge of a figure, and so goes on beyond it."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    edges = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
    return any((edge != 255).any() for edge in edges)
