"""The whole job in a few minutes, from nothing: a made slide, a few marks, several losses, one page.

How it goes:

    plan        what is made, and how long is trained
    folder      where everything lies; a folder of somebody else is left alone
    stages      the slide, the losses side by side, the judgement, the page: each skips what is finished
    worker      the process of one loss: from the marks to every cell of the slide
    judging     what was found and missed, in numbers
    pictures    the slide and its cells, coloured by what became of them
    charts      F1 over the threshold, exclusion over training
    page        all of it as one HTML file
"""

from sparseshot.demo.plan import FULL, LOSSES, QUICK, DemoPlan
from sparseshot.demo.stages import Demo, Step, run_demo

__all__ = ["FULL", "LOSSES", "QUICK", "Demo", "DemoPlan", "Step", "run_demo"]
