"""Made tissue: H&E-like slides of any size in which every cell is known, made region by region from a seed.

How a region comes about, from the ground up:

    noise       numbers that belong to places
    plan        where tissue, nests, fat and vessels lie; which way fibres run
    population  the cells and the clutter of each site
    ground      the stain of tissue without objects
    objects     nuclei and what looks like them, painted on it
    light       the image that comes through
"""

from sparseshot.datasets.synthetic.pyramid import write_pyramid
from sparseshot.datasets.synthetic.samples import synthetic_samples
from sparseshot.datasets.synthetic.tissue import Mix, SyntheticTissue

__all__ = ["Mix", "SyntheticTissue", "synthetic_samples", "write_pyramid"]
