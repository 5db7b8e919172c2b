"""Small made images, for tests and demonstrations."""

import numpy as np
from numpy.typing import NDArray

from sparseshot.cells import Cells
from sparseshot.datasets.synthetic.tissue import SyntheticTissue
from sparseshot.errors import InputError
from sparseshot.images import read_region


def synthetic_samples(
    count: int, size_px: int, *, mpp: float = 0.5, seed: int = 0, outlines: bool = False
) -> list[tuple[NDArray[np.uint8], Cells]]:
    """Make square images full of tissue, each from a slide of its own with its own stains, and their cells.

    Args:
        count: of images.
        size_px: side of the images.
        mpp: µm per pixel; the cells are in pixels of the image.
        seed: images of two seeds have nothing in common, so that one can train and the other test.
        outlines: with the outlines of the nuclei.

    >>> [(image.shape, len(cells) > 40) for image, cells in synthetic_samples(2, 256)]
    [((256, 256, 3), True), ((256, 256, 3), True)]
    """
    if count < 0:
        raise InputError(f"count is {count}; give how many images to make")
    samples = []
    for number in range(count):
        own_seed = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64) >> np.uint64(1)
        tissue = SyntheticTissue(
            seed=int(own_seed[0]), size_px=(size_px, size_px), mpp=mpp, tissue_fraction=1.0
        )
        samples.append((read_region(tissue, 0, 0, size_px, size_px), tissue.cells(outlines=outlines)))
    return samples
