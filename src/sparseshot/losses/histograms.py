"""Running histograms of what a model says: on marks, and everywhere.

They are all that estimates of how much was marked, or of how much there is, need to know of the last batches.
"""

import torch
from torch import Tensor, nn

from sparseshot.losses.targets import Batch, foreground_logit


class LogitHistograms(nn.Module):
    """Histograms of the foreground logit over the last fifty batches or so, one for each class.

    A mark counts for its own class, any location for the class the model would give it. Old batches fade.
    Under ``torch.distributed`` all processes count together, so that each has the same.

    Args:
        classes: how many to tell apart; 1 counts all foreground together.
    """

    RANGE, BINS, DECAY = 12.0, 96, 0.98

    marked: Tensor
    everything: Tensor

    def __init__(self, classes: int = 1) -> None:
        super().__init__()
        self.classes = classes
        self.register_buffer("marked", torch.zeros(classes, self.BINS))
        self.register_buffer("everything", torch.zeros(classes, self.BINS))

    @torch.no_grad()
    def observe(self, batch: Batch) -> None:
        """Add a batch."""
        logit = foreground_logit(batch.logits.detach())
        bins = ((logit + self.RANGE) * (self.BINS / (2 * self.RANGE))).long().clamp_(0, self.BINS - 1)
        of_mark = of_any = bins
        if self.classes > 1:
            of_mark = bins + self.BINS * (batch.label - 1)
            of_any = bins + self.BINS * batch.logits.detach()[:, 1:].argmax(1)
        size = self.classes * self.BINS
        counts = torch.stack(
            [
                torch.bincount(of_mark[batch.label > 0], minlength=size),
                torch.bincount(of_any[batch.counted], minlength=size),
            ]
        ).to(self.marked)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts)
        for histogram, added in zip((self.marked, self.everything), counts, strict=True):
            histogram.mul_(self.DECAY).add_(added.view_as(histogram))


def above(histogram: Tensor) -> Tensor:
    """Give how many lie in each bin or a higher one.

    >>> above(torch.tensor([1.0, 2.0, 3.0]))
    tensor([6., 5., 3.])
    """
    return histogram.flip(-1).cumsum(-1).flip(-1)
