"""Measurements of cells: the shape of outlines, stains, neighbours."""
