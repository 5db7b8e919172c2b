"""Synthetic H&E-like slides of any size in which every cell is known, generated from a seed.

The layers, from the ground up:

    noise             random numbers that belong to places
    landscape         where tissue, nests, fat and vessels lie, and the direction of fibres
    population        the cells and the debris of each site
    ground            the stain of tissue without objects
    painting          nuclei, and what looks like them, painted on the ground; the image
    synthetic_tissue  the slide
    scanned_tissue    slides of many laboratories and scanners
    pyramid_file      a slide as a file
"""

from sparseshot.datasets.synthetic.pyramid_file import write_pyramid
from sparseshot.datasets.synthetic.scanned_tissue import ScannedTissue, varied_tissue
from sparseshot.datasets.synthetic.synthetic_tissue import Mix, SyntheticTissue, synthetic_samples

__all__ = ["Mix", "ScannedTissue", "SyntheticTissue", "synthetic_samples", "varied_tissue", "write_pyramid"]
